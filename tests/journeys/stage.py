"""Where a day plays: a fresh folder with homes, a git repository, and nothing left of it afterwards."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import psutil

from journeys.people import Person, environment, other_user

HERE = Path(__file__).parent
BOB, CI = 21002, 21006  # uids without a passwd entry
TIME = re.compile(r'"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?Z"')
INDEX = ("*.db*", "*.sqlite*")


class StageError(RuntimeError):
    """The set-up of a day did not work: the day itself has not begun."""


@dataclass
class Stage:
    """The people of a day and the folder `p` it works in."""

    root: Path
    me: Person
    project: Path
    others: dict[str, Person] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def person(self, name: str) -> Person:
        """Who types a step."""
        return self.others[name] if name else self.me

    def must(self, command: str, limit: float = 120, who: str = "") -> str:
        """Stdout of a command of the set-up, which has to end with 0."""
        seen = self.person(who).run(command, limit)
        if seen.code != 0:
            raise StageError(f"set-up: {command}\n  exit {seen.code}\n{seen.out[-2000:]}{seen.err[-2000:]}")
        return seen.out

    def give(self, path: Path) -> None:
        """Make a file of the set-up the person's own."""
        if os.geteuid() == 0:
            for each in (path, *path.rglob("*")):
                os.chown(each, self.me.uid, self.me.uid, follow_symlinks=False)


@contextmanager
def stage(name: str) -> Iterator[Stage]:
    """A stage for the machine's own user and bob; `JOURNEY_KEEP=1` keeps its folder."""
    root = Path(tempfile.mkdtemp(prefix=f"{name}-")).resolve()
    root.chmod(0o755)
    try:
        yield build(root)
    finally:
        clear(root)


def build(root: Path) -> Stage:
    """Homes, people and the repository below a folder."""
    home = folder(root / "alice")
    project = repository(home / "p")
    me = Person("alice", os.getuid(), project, folder(root / "scratch"), environment("alice", home))
    return Stage(root, me, project, others={"bob": other(root, "bob", BOB)})


def other(root: Path, name: str, uid: int) -> Person:
    """Another user of this machine with a home of his own."""
    wrap, reason = other_user(uid, root)
    home = folder(root / name)
    if wrap:
        os.chown(home, uid, uid)
    return Person(name, uid, home, home, environment(name, home), wrap, reason)


def folder(path: Path) -> Path:
    """A new private folder."""
    path.mkdir(mode=0o700)
    return path


def repository(path: Path) -> Path:
    """The project: one commit with the days' files, and ignored data."""
    shutil.copytree(HERE / "files", path)
    path.joinpath("data").mkdir()
    path.joinpath("data", "x.csv").write_text("x\n1\n")
    path.joinpath(".gitignore").write_text("data/\n")
    who = ("-c", "user.name=alice", "-c", "user.email=alice@example.com")
    for words in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "--message", "One")):
        subprocess.run(["git", *who, *words], cwd=path, check=True, stdin=subprocess.DEVNULL)
    return path


def bare_container(place: Stage) -> None:
    """Turn the day's person into a uid without passwd entry and home, whose root is read-only but for TMPDIR."""
    tmp = folder(place.root / "tmp")
    place.project = place.project.rename(tmp / "p")
    wrap, reason = other_user(CI, place.root, writable=tmp)
    if reason:
        place.notes.append(f"no uid without passwd entry, no read-only root: {reason}")
    env = {name: value for name, value in environment("ci", tmp).items() if name not in ("HOME", "USER", "LOGNAME")}
    uid = CI if wrap else os.getuid()
    place.me = Person("ci", uid, place.project, tmp, {**env, "TMPDIR": str(tmp)}, wrap)
    place.give(tmp)


def age(state: Path, name: str, seconds: float) -> None:
    """Make a finished run older: every time in its files moves back, the index is made anew from them."""
    [run] = [each for each in state.glob(f"runs/{name}-*") if re.fullmatch(rf"{name}-[^-]+", each.name)]
    for path in (run / "state.json", run / "job.json"):
        text = shift_times(path.read_text(), -seconds)
        beside = path.with_suffix(".aged")
        beside.write_text(text)
        beside.chmod(path.stat().st_mode)
        beside.rename(path)
    for index in [path for pattern in INDEX for path in state.glob(pattern)]:
        index.unlink()


def shift_times(text: str, seconds: float) -> str:
    """A text whose JSON strings of UTC times are moved.

    >>> shift_times('{"at": "2026-01-01T00:00:10.250Z"}', -10)
    '{"at": "2026-01-01T00:00:00.250Z"}'
    """

    def moved(found: re.Match[str]) -> str:
        at = datetime.fromisoformat(found[1]) + timedelta(seconds=seconds)
        return f'"{at.isoformat()}{found[2] or ""}Z"'

    return TIME.sub(moved, text)


def processes(root: Path, uid: int | None = None) -> Iterator[psutil.Process]:
    """What still runs of a day: its folder stands in the process's working folder or environment."""
    for process in psutil.process_iter():
        try:
            if uid in (None, process.uids().real) and belongs(process, str(root)):
                yield process
        except psutil.Error:
            continue


def belongs(process: psutil.Process, root: str) -> bool:
    """Whether a process was started in the day whose folder this is."""
    return process.cwd().startswith(root) or any(root in value for value in process.environ().values())


def clear(root: Path) -> None:
    """End what a day left, and remove its folder."""
    each_process(root, psutil.Process.kill)
    if not os.environ.get("JOURNEY_KEEP"):
        shutil.rmtree(root, ignore_errors=True)


def each_process(root: Path, do: Callable[[psutil.Process], None]) -> None:
    """Do something to what a day left, again until nothing new appears."""
    for _ in range(5):
        left = list(processes(root))
        for process in left:
            try:
                do(process)
            except psutil.NoSuchProcess:
                continue
        if not psutil.wait_procs(left, timeout=2)[0]:
            return
