"""`arena wait` of several jobs."""

import signal
from typing import Any

import pytest


def submit(arena: Any, **programs: str) -> None:
    for name, program in programs.items():
        label = ["--label", f"set={name[0]}"]
        assert arena("submit", "job", "--name", name, *label, "--", "sh", "-c", program).exit_code == 0


@pytest.mark.parametrize(
    ("names", "code"),
    [("abc", 4), ("cba", 3), ("ab", 4), ("a", 0), ("ac", 3), ("aa", 0), ("dac", 1)],
)
def test_the_code_is_that_of_the_first_named_that_did_not_succeed(arena: Any, names: str, code: int) -> None:
    submit(arena, a="true", b="sleep 1; exit 4", c="exit 3", d="sleep 60")
    arena("stop", "d")
    waited = arena("wait", *names)
    assert (waited.exit_code, waited.stdout) == (code, "")
    ends = [line for line in waited.stderr.splitlines() if "SUCCEEDED" in line or "FAILED" in line or "CANCEL" in line]
    assert sorted(line[0] for line in ends) == sorted(set(names))


def test_the_time_given_is_for_all_together(arena: Any) -> None:
    submit(arena, a="exit 3", b="sleep 60", c="sleep 60")
    waited = arena("wait", "b", "a", "c", "--timeout", "1s")
    assert waited.exit_code == 124
    assert "a: FAILED (exit code 3)" in waited.stderr
    assert waited.stderr.count("after 1 s and goes on") == 2
    assert arena("wait", "a", "b", "--timeout", "0.1s").exit_code == 3
    assert [arena("get", name, "-o", "json").json["state"] for name in "bc"] == ["RUNNING", "RUNNING"]


def test_a_name_that_is_not_there_is_said_before_anything_is_waited_for(arena: Any) -> None:
    submit(arena, a="sleep 60")
    waited = arena("wait", "a", "missing")
    assert (waited.exit_code, waited.stdout) == (125, "")
    assert "job 'missing' not found" in waited.stderr


def test_one_that_does_not_start_in_time(arena: Any) -> None:
    submit(arena, a="true")
    assert arena("submit", "job", "--name", "b", "--selector", "zone=none", "true").exit_code == 0
    assert arena("wait", "b", "a", "--start-timeout", "0.1s").exit_code == 125
    assert arena("wait", "b", "a", "--start-timeout", "0.1s", env={"ARENA_COMPAT": "go"}).exit_code == 1


def test_data_and_records_of_several(arena: Any) -> None:
    submit(arena, a="sleep 1; echo 1", b="echo 2; exit 3")
    waited = arena("wait", "a", "b", "-o", "json", "--record", "out")
    assert waited.exit_code == 3
    assert [(run["name"], run["exitCode"]) for run in waited.json] == [("a", 0), ("b", 3)]
    assert (arena.cwd / "out" / "b" / "logs" / "worker-0.log").read_text() == "2\n"
    assert (arena.cwd / "out" / "a" / "run.yaml").exists()
    assert arena("wait", "a", "-o", "json").json["name"] == "a"


def test_jobs_of_a_label_or_state(arena: Any, here: Any) -> None:
    submit(arena, a1="sleep 1", a2="exit 2", b="sleep 60")
    assert arena("wait", "-l", "set=a").exit_code == 2
    waited = here("wait", "--state", "SUCCEEDED", "-o", "json")
    assert (waited.exit_code, [run["name"] for run in waited.json]) == (0, ["a1"])
    nothing = here("wait", "-l", "set=none")
    assert (nothing.exit_code, "nothing to wait for" in nothing.stderr) == (125, True)
    assert here("wait", "--state", "SLEEPING").exit_code == 125


def test_an_interrupt_leaves_them_as_they_are(arena: Any) -> None:
    submit(arena, a="true", b="sleep 60", c="sleep 60")
    waits = arena.start("wait", "a", "b", "c")
    while "a: SUCCEEDED" not in waits.stderr.readline():
        pass
    waits.send_signal(signal.SIGINT)
    said = waits.communicate(timeout=20)[1]
    assert waits.returncode == 130
    assert "b, c go on: arena wait b c, arena delete b c" in said
    assert "Traceback" not in said
