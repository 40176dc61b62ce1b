"""`arena wait` of several jobs, and what else takes several, on a real kubelet."""

import json
import signal

import pytest

from cluster.spaces import Space

pytestmark = [pytest.mark.kubelet, pytest.mark.timeout(180)]
ENDLESS = "trap 'exit 0' TERM; sleep 600 & wait"


def run(space: Space, name: str, script: str, *, engine: str = "job") -> None:
    """A job of the set `a`, started."""
    words = ["--name", name, "--label", "set=a", "--", "sh", "-c", script]
    made = space.cli("-b", "kubernetes", "run", "-d", *words, env={"ARENA_ENGINES": engine})
    assert made.exit_code == 0, made.stderr


def test_jobs_of_a_label_are_taken_with_their_types(alive: Space) -> None:
    cli = alive.cli
    for engine, code in (("job", 0), ("pytorchjob", 3)):
        run(alive, "x", f"exit {code}", engine=engine)
    waited = cli("wait", "-l", "set=a", "-o", "json", "--record", "out")
    assert waited.exit_code == 3, waited.stderr
    assert sorted((one["trainer"], one["exitCode"]) for one in waited.json) == [("job", 0), ("pytorchjob", 3)]
    assert (cli.cwd / "out" / "pytorchjob" / "x" / "result.json").exists()
    assert cli("wait", "-l", "set=a", "-T", "job").exit_code == 0
    assert cli("wait", "job/x", "-l", "set=a").exit_code == 3
    assert cli("delete", "-l", "set=a", "-T", "py").exit_code == 0
    assert [one["trainer"] for one in cli("list", "-o", "json").json] == ["job"]
    assert cli("delete", "-l", "set=a").exit_code == 0
    assert cli("list", "-o", "json").json == []


def test_of_several_each_end_is_told_and_the_first_named_that_failed_gives_the_code(alive: Space) -> None:
    cli = alive.cli
    for name, script in (("good", "sleep 2"), ("bad", "exit 3"), ("long", ENDLESS), ("gone", ENDLESS)):
        run(alive, name, script)
    for name in ("long", "gone"):
        cli.running(name)
    waiting = cli.start("wait", "good", "gone", "bad", "-o", "json")
    assert waiting.stderr
    ends = iter(line for line in waiting.stderr if "FAILED" in line or "SUCCEEDED" in line or "CANCELLED" in line)
    assert {next(ends).split(":")[0], next(ends).split(":")[0]} == {"good", "bad"}
    assert cli("delete", "gone").exit_code == 0
    assert next(ends).startswith("gone: CANCELLED")
    said = waiting.communicate(timeout=60)[0]
    assert waiting.returncode == 1  # a job that was deleted has no code
    states = {one["name"]: one["state"] for one in json.loads(said)}
    assert states == {"good": "SUCCEEDED", "gone": "CANCELLED", "bad": "FAILED"}
    late = cli("wait", "long", "bad", "gone", "--timeout", "1s")
    assert (late.exit_code, "'long' is RUNNING after 1 s and goes on" in late.stderr) == (124, True)
    assert cli("wait", "good", "bad").exit_code == 3
    assert cli("wait", "good", "missing").exit_code == 125


def test_an_interrupt_leaves_the_jobs_as_they_are(alive: Space) -> None:
    cli = alive.cli
    for engine in ("job", "pytorchjob"):
        run(alive, "x", ENDLESS, engine=engine)
    waiting = cli.start("wait", "-l", "set=a")
    assert waiting.stderr
    while "RUNNING" not in waiting.stderr.readline():
        pass
    waiting.send_signal(signal.SIGINT)
    said = waiting.communicate(timeout=30)[1]
    assert waiting.returncode == 130
    words = sorted(said.splitlines()[-1].partition(" go on: ")[0].split(", "))
    assert words == ["job/x", "pytorchjob/x"]
    assert "arena delete" in said
    assert [cli("wait", word, "--timeout", "0.1s").exit_code for word in words] == [124, 124]
