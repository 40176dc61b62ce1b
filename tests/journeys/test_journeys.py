"""The days, each from its set-up to its last step. One alone: `pytest tests/journeys -k day05 -s`.

All are slow: they start real jobs, day 5 has 64 of them side by side, day 6 waits 150 s for a job that never starts,
day 12 starts kernels.
"""

import pytest

from journeys.left_out import choose
from journeys.notation import parse
from journeys.ready import DAYS, Day, read_day
from journeys.runner import Runner, say_now
from journeys.stage import stage


@pytest.mark.slow
@pytest.mark.parametrize(
    "day", [pytest.param(day, marks=pytest.mark.timeout(day.limit)) for day in DAYS], ids=lambda day: day.name
)
def test_day(day: Day) -> None:
    with stage(day.name) as place:
        day.set_up(place)
        report = Runner(place, say_now).play(day.script())
    if report.failures:
        pytest.fail(f"{len(report.failures)} demands do not hold\n{report}", pytrace=False)


@pytest.mark.parametrize("rules", {day.rules for day in DAYS if day.rules}, ids=len)
def test_each_rule_of_a_table_leaves_something_out(rules: tuple[object, ...]) -> None:
    used = {
        note.rule for day in DAYS if day.rules == rules for note in choose(parse(read_day(day.number)), day.rules).notes
    }
    assert set(rules) - used == set()


def test_each_hook_has_its_step() -> None:
    for day in DAYS:
        steps = {step.text for step in choose(parse(read_day(day.number)), day.rules).steps}
        assert day.before.keys() <= steps
