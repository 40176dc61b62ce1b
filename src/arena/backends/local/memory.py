"""Memory limits of replicas: a cgroup where one may be made (v1 as root, v2 by delegation), else watched by the keeper.

Never RLIMIT_AS: frameworks map far more than they use.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

V1 = Path("/sys/fs/cgroup/memory")
V2 = Path("/sys/fs/cgroup")


class Group:
    """A cgroup with a memory limit; processes join it before they start their program."""

    def __init__(self, path: Path, peak: str, events: str) -> None:
        self.path = path
        self.peak_file = peak
        self.events_file = events

    def join(self) -> None:
        """Put the calling process in."""
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def peak(self) -> int | None:
        """The most memory that was used, in bytes."""
        with contextlib.suppress(OSError, ValueError):
            return int((self.path / self.peak_file).read_text())
        return None

    def kills(self) -> int:
        """How many processes the kernel killed for memory."""
        with contextlib.suppress(OSError, ValueError):
            for line in (self.path / self.events_file).read_text().splitlines():
                key, _, count = line.partition(" ")
                if key == "oom_kill":
                    return int(count)
        return 0

    def remove(self) -> None:
        """Remove the cgroup; it must be empty."""
        with contextlib.suppress(OSError):
            self.path.rmdir()


def make(name: str, limit: int) -> Group | None:
    """A cgroup of this name with the limit in bytes, or None where none may be made."""
    return _make_v1(name, limit) or _make_v2(name, limit)


def find(name: str) -> Group | None:
    """The cgroup of this name, if there is one."""
    own = _own_v2()
    if (V1 / "arena" / name).is_dir():
        return _v1(V1 / "arena" / name)
    if own and (own / f"arena-{name}").is_dir():
        return _v2(own / f"arena-{name}")
    return None


def _v1(path: Path) -> Group:
    return Group(path, "memory.max_usage_in_bytes", "memory.oom_control")


def _v2(path: Path) -> Group:
    return Group(path, "memory.peak", "memory.events")


def _make_v1(name: str, limit: int) -> Group | None:
    if not (V1 / "memory.limit_in_bytes").exists():
        return None
    path = V1 / "arena" / name
    try:
        path.mkdir(parents=True, exist_ok=True)
        (path / "memory.limit_in_bytes").write_text(str(limit))
    except OSError:
        return None
    with contextlib.suppress(OSError):
        (path / "memory.memsw.limit_in_bytes").write_text(str(limit))
    return _v1(path)


def _make_v2(name: str, limit: int) -> Group | None:
    own = _own_v2()
    if own is None:
        return None
    path = own / f"arena-{name}"
    try:
        path.mkdir(exist_ok=True)
        (path / "memory.max").write_text(str(limit))
    except OSError:
        with contextlib.suppress(OSError):
            path.rmdir()
        return None
    with contextlib.suppress(OSError):
        (path / "memory.swap.max").write_text("0")
    return _v2(path)


def _own_v2() -> Path | None:
    """The delegated cgroup beside this process, where the memory controller is on."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::/"):
                folder = (V2 / line[4:]).parent
                if "memory" in (folder / "cgroup.subtree_control").read_text().split():
                    return folder
    return None
