"""The days, each from its set-up to its last step. One alone: `pytest tests/journeys -k day05 -s`.

All are slow: they start real jobs, day 5 has 64 of them side by side, day 6 waits 150 s for a job that never starts,
day 12 starts kernels. On a test bed: `-k "day05 and cluster"`; a day that is not ready there is played only with
`ARENA_JOURNEYS=all`.
"""

from collections.abc import Iterator

import pytest
from testbed.bed import Bed

from journeys.left_out import Rule, choose
from journeys.notation import parse
from journeys.ready import CLUSTER, DAYS, ClusterDay, Day, read_day
from journeys.runner import Report, Runner, say_now
from journeys.stage import stage
from journeys.team import team

TABLES = list(dict.fromkeys(day.rules for day in (*DAYS, *CLUSTER) if day.rules))


@pytest.mark.slow
@pytest.mark.parametrize(
    "day", [pytest.param(day, marks=pytest.mark.timeout(day.limit)) for day in DAYS], ids=lambda day: day.name
)
def test_day(day: Day) -> None:
    with stage(day.name) as place:
        day.set_up(place)
        report = Runner(place, say_now).play(day.script())
    judge(report)


@pytest.fixture
def cluster(day: ClusterDay, request: pytest.FixtureRequest) -> Iterator[Bed]:
    """The test bed of a day: the one that all share, or one with other operators."""
    if day.operators is None:
        yield request.getfixturevalue("node")
    else:
        with Bed.start(operators=day.operators) as bed:
            yield bed


@pytest.mark.slow
@pytest.mark.kubelet
@pytest.mark.parametrize(
    "day",
    [pytest.param(day, marks=pytest.mark.timeout(day.limit)) for day in CLUSTER],
    ids=lambda day: day.name,
)
def test_day_on_a_cluster(day: ClusterDay, cluster: Bed) -> None:
    with stage(f"day{day.number:02}") as place, team(cluster, place) as people:
        day.set_up(people)
        report = Runner(place, say_now).play(day.script())
    judge(report)


def judge(report: Report) -> None:
    """A demand that does not hold fails the day."""
    if report.failures:
        pytest.fail(f"{len(report.failures)} demands do not hold\n{report}", pytrace=False)


@pytest.mark.parametrize("rules", TABLES, ids=len)
def test_each_rule_of_a_table_leaves_something_out(rules: tuple[Rule, ...]) -> None:
    days = [day for day in (*DAYS, *CLUSTER) if day.rules == rules]
    used = {note.rule for day in days for note in choose(parse(read_day(day.number)), day.rules).notes}
    assert set(rules) - used == set()


def test_each_hook_has_its_step() -> None:
    for day in DAYS:
        steps = {step.text for step in choose(parse(read_day(day.number)), day.rules).steps}
        assert day.before.keys() <= steps
