"""The state of local runs: one folder of plain files each, written by rename.

<state>/version
<state>/new/ID/           being made by a submit that still lives (its lock says so)
<state>/runs/ID/          job.json    what was asked, written once
                          state.json  what the supervisor knows, and at the end all there is to know
                          stop.json   somebody wants it ended     deleted.json  it left the list
                          lock        held by the supervisor      control       a FIFO that wakes it
                          attempt-N/  ROLE-I.json (pid), ROLE-I.exit.json, ROLE-I.keeper (its lock), ROLE-I.K.log
<state>/names/NAME        a link to the run that has the name now
<state>/hosts/HOST/queue  whose turn it is on that machine
<state>/index.db, blobs   the record's; both can be made again or done without
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct, field

from arena import secrets
from arena.errors import BackendError, UnsupportedError
from arena.files import mutex, read, read_if, try_lock, write, write_text
from arena.status import Observed, Replica

VERSION = "1"
RESERVE = 32 * 1024
T = TypeVar("T")


class Made(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """`job.json`: what was asked, by whom, from where. Values of secret variables are not in it.

    `search` is where modules were looked for by whoever submitted a type that a plug-in brings.
    """

    run_id: str
    name: str
    type: str
    trainer: str
    search: tuple[str, ...] = ()
    job: dict[str, Any]
    secrets: tuple[str, ...] = ()
    typed: tuple[str, ...] = ()
    cwd: str = ""
    project: str = ""
    code: str = ""
    python: str = ""
    user: str = ""
    host: str
    boot_id: str
    created: datetime
    parent: str = ""
    environ: dict[str, str] = field(default_factory=dict)
    max_replicas: int = 16
    grace: float = 10.0
    log_limit: int = 128 * 2**20
    code_limit: int = 10 * 2**20
    gpus: int | None = None
    lease_dir: str = ""
    version: int = 1


class Facts(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """`state.json`: what the supervisor knows. `monotonic` pairs count seconds since boot."""

    word: str = ""
    reason: str = ""
    message: str = ""
    since: datetime | None = None
    started: datetime | None = None
    finished: datetime | None = None
    started_monotonic: float | None = None
    finished_monotonic: float | None = None
    attempt: int = 1
    replicas: tuple[Replica, ...] = ()
    earlier: tuple[Replica, ...] = ()
    ending: str = ""
    ports: tuple[int, ...] = ()
    waits_for: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    cause: str | None = None
    why: str = ""
    warnings: tuple[str, ...] = ()
    supervisors: int = 0


class Stop(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`stop.json`: the wish that the job ends. `word` becomes the supervisor's last word."""

    word: str = "Stopped"
    by: str = ""
    at: datetime | None = None


class Gone(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`deleted.json`: since when the job is no longer in the list."""

    at: datetime
    by: str = ""


class Run:
    """The folder of one run: typed reading and writing of its files."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def run_id(self) -> str:
        return self.path.name

    def left(self) -> bool:
        """Whether it is known to have been taken from the list."""
        return os.path.exists(self.path / "deleted.json")  # False too where one may not look; Path.exists raises

    def made(self) -> Made:
        """What was asked; raises BackendError when the file is not readable as such."""
        return read(self.path / "job.json", Made)

    def facts(self) -> Facts:
        """What the supervisor wrote last; the beginning where it wrote nothing yet."""
        return read_if(self.path / "state.json", Facts) or Facts()

    def stop(self) -> Stop | None:
        return read_if(self.path / "stop.json", Stop)

    def gone(self) -> Gone | None:
        return read_if(self.path / "deleted.json", Gone)

    def write(self, name: str, value: object) -> None:
        write(self.path / name, value, reserve=self.path / "reserve")

    def publish(self, final: Run) -> Run:
        """Let everybody see the run, all of it at once."""
        os.rename(self.path, final.path)
        return final

    def attempt(self, number: int) -> Path:
        return self.path / f"attempt-{number}"

    def replica(self, attempt: int, name: str) -> Replica | None:
        """The replica as its keeper wrote it: its end where there is one, else its start."""
        folder = self.attempt(attempt)
        return read_if(folder / f"{name}.exit.json", Replica) or read_if(folder / f"{name}.json", Replica)

    def try_lock(self) -> int | None:
        """The lock of this run as an open file, or None while a supervisor (or submit) lives."""
        return try_lock(self.path / "lock")

    def wake(self) -> None:
        """Make the supervisor look at the folder now."""
        with contextlib.suppress(OSError):
            door = os.open(self.path / "control", os.O_WRONLY | os.O_NONBLOCK)
            try:
                os.write(door, b"!")
            finally:
                os.close(door)


class StateDir:
    """The state folder of one user; made on first use, private."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._runs = path / "runs"

    def ready(self) -> StateDir:
        """The same, existing; BackendError says why it cannot be."""
        try:
            for folder in (self.path, self.path / "new", self.path / "runs", self.path / "names"):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._check_version()
        except OSError as error:
            raise BackendError(
                f"the state folder {self.path} cannot be used: {error.strerror}",
                hint="set ARENA_STATE_DIR to a folder you may write",
            ) from error
        return self

    def _check_version(self) -> None:
        """Say which version this state has, or refuse another one's."""
        if not (self.path / "version").exists():
            write_text(self.path / "version", VERSION + "\n")
        self._refuse_other_version()

    def _refuse_other_version(self) -> None:
        try:
            found = (self.path / "version").read_text().strip()
        except FileNotFoundError:
            return
        if found != VERSION:
            raise UnsupportedError(
                f"{self.path} holds state of version {found!r}; this arena knows version {VERSION}",
                hint="use the arena that wrote it, or another ARENA_STATE_DIR",
            )

    @property
    def exists(self) -> bool:
        """Whether there is any state; UnsupportedError where it is another version's."""
        self._refuse_other_version()
        return (self.path / "runs").is_dir()

    def run(self, run_id: str) -> Run:
        return Run(self._runs / run_id)

    def runs(self) -> list[os.DirEntry[str]]:
        """All run folders there are."""
        try:
            with os.scandir(self.path / "runs") as found:
                return [entry for entry in found if not entry.name.startswith(".")]
        except FileNotFoundError:
            return []

    def queue(self) -> Path:
        return self.path / "hosts" / hostname() / "queue"

    def holder(self, name: str) -> str | None:
        """The run that has this name now."""
        try:
            return os.path.basename(os.readlink(self.path / "names" / name))
        except OSError:
            return None

    def claim(self, name: str, run_id: str) -> bool:
        """Take the name; False when it is taken. The kernel lets exactly one win."""
        try:
            os.symlink(f"../runs/{run_id}", self.path / "names" / name)
        except FileExistsError:
            return self.holder(name) == run_id
        return True

    def release(self, name: str, run_id: str) -> None:
        """Give the name back, if this run still has it."""
        with mutex(self.path / "names.lock"):
            if self.holder(name) == run_id:
                (self.path / "names" / name).unlink(missing_ok=True)

    def begin(self, run_id: str) -> tuple[Run, int]:
        """A new run's folder and its lock, held; a sweep sees both or neither."""
        run = Run(self.path / "new" / run_id)
        with mutex(self.path / "sweep.lock"):
            run.path.mkdir(mode=0o700)
            lock = run.try_lock()
        if lock is None:
            raise BackendError(f"{run.path} is locked by another process")
        return run, lock

    def sweep(self) -> None:
        """Remove what submits that died half-way left behind."""
        if not os.listdir(self.path / "new"):
            return
        with contextlib.suppress(OSError), mutex(self.path / "sweep.lock"):
            for name in os.listdir(self.path / "new"):
                with contextlib.suppress(FileNotFoundError):
                    self._sweep_one(Run(self.path / "new" / name))

    def _sweep_one(self, run: Run) -> None:
        lock = run.try_lock()
        if lock is None:
            return
        try:
            made = read_if(run.path / "job.json", Made)
            if made:
                self.release(made.name, run.run_id)
            import shutil

            shutil.rmtree(run.path, ignore_errors=True)
        finally:
            os.close(lock)


def hostname() -> str:
    """The name of this machine."""
    return os.uname().nodename or "localhost"


def boot_id() -> str:
    """What changes at each boot of this machine."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    import psutil

    return f"boot-{psutil.boot_time():.0f}"


def storable(env: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that is written down: nothing that looks secret, and only what is UTF-8."""
    return {key: value for key, value in secrets.split(env)[0].items() if _is_utf8(key + value)}


def _is_utf8(text: str) -> bool:
    return not any("\ud800" <= c <= "\udfff" for c in text)


def observed(made: Made, facts: Facts, replicas: tuple[Replica, ...]) -> Observed:
    """What `status.decide` reads, from the files of a run."""
    return Observed(
        word=facts.word,
        reason=facts.reason,
        message=facts.message,
        created=made.created,
        started=facts.started,
        finished=facts.finished,
        since=facts.since,
        attempt=facts.attempt,
        replicas=replicas,
        earlier=facts.earlier,
    )
