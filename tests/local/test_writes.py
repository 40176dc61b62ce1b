"""A kill at each write of the state folder, just before and just after: of submit, supervisor and keeper."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import arena
from arena import State
from backends.place import LocalPlace, sh, texts, until
from local.victims import client, folder, marked, nothing_left

SOURCE = Path(__file__).with_name("killer.c")
MOST = 40


@pytest.fixture(scope="session")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shim, compiled."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("gcc is needed for the shim that kills at a write (Debian: apt-get install gcc libc6-dev)")
    library = tmp_path_factory.mktemp("killer") / "killer.so"
    subprocess.run([gcc, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"], check=True)
    return library


class Trap:
    """The environment in which the n-th write of a word kills, and whether it did."""

    def __init__(self, place: LocalPlace, killer: Path, word: str, number: int, when: str) -> None:
        self.count = place.cwd.parent / f"count-{word.strip('/.')}-{number}-{when}"
        self.number = number
        state = place.env["ARENA_STATE_DIR"]
        self.env = {
            "LD_PRELOAD": str(killer),
            "KILL_BELOW": state,
            "KILL_WORD": word or state,
            "KILL_AT": str(number),
            "KILL_WHEN": when,
            "KILL_COUNT": str(self.count),
        }

    @property
    def sprung(self) -> bool:
        return self.count.exists() and self.count.stat().st_size >= self.number


def traps(place: LocalPlace, killer: Path, word: str) -> Iterator[Trap]:
    """One trap per write, until there are no more writes."""
    for when in ("before", "after"):
        for number in range(1, MOST):
            trap = Trap(place, killer, word, number, when)
            yield trap
            if not trap.sprung:
                assert number > 1, "nothing was ever written"
                break
        else:
            raise AssertionError(f"more than {MOST} writes")


def usable(place: LocalPlace, name: str) -> None:
    """Every command works on what the kill left, and the name can be used again."""
    client_ = place.client()
    client_.list()
    try:
        client_.get(name).delete(force=True)
    except arena.NotFoundError:
        pass
    assert name not in [job.name for job in client_.list()]
    job = client_.run(["true"], name=name)
    assert job.wait().exit_code == 0
    job.delete()
    state = Path(place.env["ARENA_STATE_DIR"])
    assert not list((state / "names").iterdir())
    assert not [path for path in (state / "new").iterdir() if not path.name.startswith(".")]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_submit(place: LocalPlace, killer: Path) -> None:
    for trap in traps(place, killer, ""):
        mark = place.cwd / "ran"
        code = "client.run(['sh', '-c', 'echo x >> ran; unset LD_PRELOAD; exit 3'], name='x').wait()"
        env = {**place.env, **trap.env}
        state = Path(place.env["ARENA_STATE_DIR"])
        submitter = client(env, place.cwd, code, stderr=subprocess.DEVNULL)
        submitter.wait(60)
        for job in place.client().list():
            seen = job.wait(60)
            assert (seen.state, seen.exit_code) == (State.FAILED, 3)
            assert len(mark.read_text().splitlines()) == 1
        usable(place, "x")
        mark.unlink(missing_ok=True)
        assert state.is_dir()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("word", ["/state.json", "/attempt-"], ids=["supervisor", "keeper"])
@pytest.mark.parametrize("code", [0, 3])
def test_supervisor_and_keeper(place: LocalPlace, killer: Path, word: str, code: int) -> None:
    for trap in traps(place, killer, word):
        mark = place.cwd / "ran"
        script = f"echo x >> ran; echo one; sleep 0.05; echo two; exit {code}"
        job = place.client(**trap.env).run(sh(script), name="x", retry=1)
        deadline = time.monotonic() + 60
        while not (seen := place.client().get("x").get()).state.final:
            assert time.monotonic() < deadline, seen
            time.sleep(0.05)
        assert (seen.state, seen.exit_code) == (State.FAILED if code else State.SUCCEEDED, code), (trap.env, seen)
        assert len(mark.read_text().splitlines()) == (2 if code else 1), trap.env
        assert seen.observed.attempt == (2 if code else 1)
        assert texts(place.client().get("x").logs()) == ["one", "two"]
        assert not marked(job)
        until(lambda job=job: nothing_left(job))  # type: ignore[misc]
        assert (folder(job) / "state.json").exists()
        usable(place, "x")
        mark.unlink()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_stop_and_delete(place: LocalPlace, killer: Path) -> None:
    """The process that stops or deletes is killed at its own writes."""
    for trap in traps(place, killer, ".json"):
        job = place.run(sh("while true; do sleep 0.05; done"), name="x")
        until(lambda job=job: job.get().state is State.RUNNING)  # type: ignore[misc]
        other = client({**place.env, **trap.env}, place.cwd, "client.get('x').delete()", stderr=subprocess.DEVNULL)
        other.wait(60)
        place.client().get("x", gone=True).delete(force=True)
        assert not marked(job)
        usable(place, "x")


def test_what_a_kill_left_half_made_is_swept(place: LocalPlace) -> None:
    state = Path(place.env["ARENA_STATE_DIR"])
    place.run(["true"]).wait()
    (state / "new" / "left-abcd").mkdir()
    os.symlink("../runs/left-abcd", state / "names" / "left")
    assert len(place.client().list()) == 1
    assert place.run(["true"], name="left").wait().exit_code == 0
    assert not (state / "new" / "left-abcd").exists()
