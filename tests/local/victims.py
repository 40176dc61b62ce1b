"""The processes behind a job, found and killed."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import psutil

from arena import files
from arena.backends.local import process
from arena.client import Handle
from backends.place import LocalPlace, until


def folder(job: Handle) -> Path:
    """The run's folder."""
    return Path(job.where.state.run(job.run_id).path)  # type: ignore[attr-defined]


def arenas(run: Path) -> list[int]:
    """Supervisor, keepers and packer of a run."""
    needle = b"\0" + os.fsencode(run) + b"\0"
    return [pid for pid in psutil.pids() if needle in command(pid) and not process.is_zombie(pid)]


def command(pid: int) -> bytes:
    """The words it was started with."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def keepers(run: Path) -> dict[str, int]:
    """The living keepers by their replica's name."""
    found = {}
    for lock in run.glob("attempt-*/*.keeper"):
        text = lock.read_text()
        if text.strip() and files.is_locked(lock):
            found[lock.stem] = int(text)
    return found


def supervisor(run: Path) -> int | None:
    """The supervisor of a run, if it lives: the one that has the run's lock open."""
    found = [pid for pid in arenas(run) if str(run / "lock") in open_files(pid)]
    return next((pid for pid in found if parent(pid) not in found), None)


def open_files(pid: int) -> set[str]:
    """What a process has open."""
    found = set()
    with contextlib.suppress(OSError):
        for file in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found.add(os.readlink(f"/proc/{pid}/fd/{file}"))
    return found


def parent(pid: int) -> int:
    """Its parent, 0 where it is gone."""
    try:
        return psutil.Process(pid).ppid()
    except psutil.Error:
        return 0


def kill(*pids: int) -> None:
    """kill -9 of them all; returns when they are gone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for pid in pids:
        until(partial(process.is_zombie, pid))


def kill_supervisor(job: Handle) -> None:
    """kill -9 of the job's supervisor, which is there or about to be."""
    pid = until(lambda: supervisor(folder(job)))
    assert pid
    kill(pid)


def kill_all(job: Handle) -> None:
    """Supervisor and keepers together, those too that are just being forked."""
    run = folder(job)
    until(lambda: supervisor(run))
    stopped: set[int] = set()
    while new := set(arenas(run)) - stopped:
        for pid in new:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        stopped |= new
    kill(*stopped)


def marked(job: Handle) -> list[int]:
    """What lives of the job's replicas."""
    return process.marked(job.run_id)


def nothing_left(job: Handle) -> bool:
    """Whether no process of the job lives, arena's own included."""
    return not marked(job) and not arenas(folder(job))


CLIENT = "import arena, sys\nclient = arena.Client(backend='local')\n"


def client(env: Mapping[str, str], cwd: Path, code: str, **popen: object) -> "subprocess.Popen[str]":
    """A process of its own with a client in it."""
    words = [sys.executable, "-c", CLIENT + code]
    return subprocess.Popen(words, env=dict(env), cwd=cwd, text=True, **popen)  # type: ignore[call-overload,no-any-return]


def count_file(place: LocalPlace, name: str) -> int:
    """How many lines a replica wrote into a file of the project."""
    path = place.cwd / name
    return len(path.read_text().splitlines()) if path.exists() else 0
