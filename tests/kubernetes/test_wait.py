"""`arena wait` of several jobs, and what else takes several, on a real kubelet."""

import pytest

from cluster.spaces import Space

pytestmark = [pytest.mark.kubelet, pytest.mark.timeout(180)]


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
