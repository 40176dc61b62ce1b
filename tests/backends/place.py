"""A backend under test, and the few things only it can arrange; words and waits the tests share."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psutil

import arena
from arena.client import Handle

T = TypeVar("T")

# A replica waits here until the test lets it go on.
HOLD = "until [ -e go ]; do sleep 0.02; done"


class LocalPlace:
    """Jobs as processes of this machine, in a folder and a state of their own."""

    def __init__(self, env: Mapping[str, str], cwd: Path) -> None:
        self.env = env
        self.cwd = cwd

    def client(self, **env: str) -> arena.Client:
        """A client, with more environment."""
        return arena.Client(backend="local", env={**self.env, **env}, cwd=self.cwd)

    def run(self, words: Sequence[str] | str, **fields: Any) -> Handle:
        """A job, started."""
        return self.client().run(words, **fields)

    def go(self) -> None:
        """Let all replicas go on that wait at HOLD."""
        (self.cwd / "go").touch()

    @contextmanager
    def full(self) -> Iterator[arena.Client]:
        """A client whose next job waits until the block ends."""
        client = self.client(ARENA_LOCAL_MAX_REPLICAS="1")
        first = client.run(sh("until [ -e room ]; do sleep 0.02; done"))
        until(lambda: first.get().state is arena.State.RUNNING)
        yield client
        (self.cwd / "room").touch()

    def make_odd(self) -> str:
        """The name of a job whose object makes no sense."""
        job = self.run(["true"], name="odd")
        job.wait()
        made = Path(self.env["ARENA_STATE_DIR"]) / "runs" / job.run_id / "job.json"
        made.write_text("{ not at all")
        (made.parent / "state.json").unlink()
        return job.name

    def keeping(self, job: Handle) -> int:
        """The most memory, in bytes, that whatever takes this job's log has used."""
        (replica,) = job.get().observed.replicas
        keeper = psutil.Process(replica.pids[0]).ppid()
        (line,) = [x for x in Path(f"/proc/{keeper}/status").read_text().splitlines() if x.startswith("VmHWM")]
        return int(line.split()[1]) * 1024


def sh(script: str, *words: str) -> list[str]:
    """A command: this shell script."""
    return ["sh", "-c", script, "sh", *words]


def py(code: str, *words: str) -> list[str]:
    """A command: this Python text, started as quickly as Python can."""
    return [sys.executable, "-IS", "-c", code, *words]


def texts(lines: Iterable[arena.LogLine]) -> list[str]:
    """The texts of the lines."""
    return [line.text for line in lines]


def until(look: Callable[[], T], seconds: float = 20.0) -> T:
    """What `look` gives as soon as it is true; fails when it is not in time."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.01)
    return found


def submit_each(env: Mapping[str, str], cwd: str, names: list[str], start: Any, results: Any) -> None:
    """Submit a job of each name when all others are ready to; the outcomes go into the queue."""
    client = arena.Client(backend="local", env=env, cwd=cwd)
    outcomes = []
    for name in names:
        start.wait()
        try:
            outcomes.append(client.run(["true"], name=name).run_id)
        except arena.ArenaError as error:
            outcomes.append(type(error).__name__)
    results.put(outcomes)
