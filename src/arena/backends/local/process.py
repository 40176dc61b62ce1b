"""Trees of processes: who descends from whom, and how a whole tree is ended.

Every process a replica starts carries ARENA_RUN_ID and ARENA_REPLICA in the environment it was started with; what
nobody keeps any more is found by them. A process that belongs to another run (a job submitted from inside a job) is
left alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Collection, Iterable

MARK = "ARENA_RUN_ID"
REPLICA = "ARENA_REPLICA"
PR_SET_CHILD_SUBREAPER = 36
LINUX = sys.platform == "linux"


def print_trace() -> None:
    """The exception at hand, for supervisor.log."""
    import traceback

    with contextlib.suppress(OSError):
        traceback.print_exc(file=sys.stderr)
        sys.stderr.flush()


def become_subreaper() -> bool:
    """From now on orphans below this process become its children. Linux only."""
    if not LINUX:
        return False
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def children(pid: int) -> list[int]:
    """The children of a process; of one that is gone, none."""
    if not LINUX:
        return _children_psutil(pid)
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found += [int(word) for word in file.read().split()]
    return found


def _children_psutil(pid: int) -> list[int]:
    import psutil

    try:
        return [child.pid for child in psutil.Process(pid).children()]
    except psutil.Error:
        return []


def environ(pid: int) -> dict[str, str]:
    """The environment a process was started with; empty where it may not be read."""
    if not LINUX:
        return _environ_psutil(pid)
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            pairs = file.read().split(b"\0")
    except OSError:
        return {}
    return {os.fsdecode(k): os.fsdecode(v) for k, eq, v in (pair.partition(b"=") for pair in pairs) if eq}


def _environ_psutil(pid: int) -> dict[str, str]:
    import psutil

    try:
        return psutil.Process(pid).environ()
    except (psutil.Error, OSError):
        return {}


def tree(pid: int, run_id: str, replica: str = "") -> list[int]:
    """The processes below `pid` that belong to this run (to this replica): without those of other runs."""
    found = []
    for child in children(pid):
        marks = environ(child)
        if marks.get(MARK, run_id) == run_id and (not replica or marks.get(REPLICA) == replica):
            found.append(child)
            found += tree(child, run_id)
    return found


def marked(run_id: str, replicas: Collection[str] = ()) -> list[int]:
    """All living processes that were started by a replica of this run (by one of these, where they are named)."""
    run = f"{MARK}={run_id}\0".encode()
    names = [f"{REPLICA}={name}\0".encode() for name in replicas] or [f"{REPLICA}=".encode()]
    found = [(pid, b"\0" + _raw_environ(pid)) for pid in _pids()]
    return [
        pid
        for pid, text in found
        if b"\0" + run in text and any(b"\0" + name in text for name in names) and not is_zombie(pid)
    ]


def _pids() -> list[int]:
    if LINUX:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    import psutil

    return list(psutil.pids())


def _raw_environ(pid: int) -> bytes:
    if not LINUX:
        return "".join(f"{k}={v}\0" for k, v in _environ_psutil(pid).items()).encode()
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read() + b"\0"
    except OSError:
        return b""


def is_zombie(pid: int) -> bool:
    """Whether the process has ended and only waits to be reaped; True where it is gone."""
    if not LINUX:
        return False
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    except OSError:
        return True


def rss(pids: Iterable[int]) -> int:
    """Bytes of memory these processes hold together."""
    if LINUX:
        return sum(_rss_proc(pid) for pid in pids)
    import psutil

    total = 0
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            total += psutil.Process(pid).memory_info().rss
    return total


def _rss_proc(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def send(pids: Iterable[int], number: int) -> None:
    """Signal processes that may be gone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def end_marked(run_id: str, replicas: Collection[str], grace: float) -> bool:
    """End everything of these replicas that nobody keeps any more: TERM, grace, KILL. Whether all is gone."""
    send(marked(run_id, replicas), signal.SIGTERM)
    deadline = time.monotonic() + grace
    while marked(run_id, replicas) and time.monotonic() < deadline:
        time.sleep(0.05)
    deadline = time.monotonic() + 5
    while (left := marked(run_id, replicas)) and time.monotonic() < deadline:
        send(left, signal.SIGKILL)
        time.sleep(0.02)
    return not marked(run_id, replicas)
