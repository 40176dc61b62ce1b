"""Keeps watch over one test bed and removes it to the last trace: two processes, so that neither can be lost alone.

The keeper starts the test bed's first process (see `inside`) and waits for it to end, for its owner to be gone (a pipe
closes when the owner ends, however it ends) or for SIGTERM. Its twin waits for the keeper, and cleans up if the keeper
was killed; the keeper does if the twin was. Both hold the lock that says "this test bed lives".

Run by `up` as `python -m testbed.guard FOLDER NUMBER LOCK OWNER [--no-kubelet]`; LOCK and OWNER are file descriptors.
"""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

from testbed.layout import Layout
from testbed.places import REPOSITORY

CGROUPS = Path("/sys/fs/cgroup")
PATIENCE = 20.0  # seconds for the kernel to let go of what was killed


def main(words: list[str]) -> NoReturn:
    """Split in two and watch."""
    bed = Layout(int(words[1]), Path(words[0]))
    lock, owner = int(words[2]), int(words[3])
    signal.signal(signal.SIGTERM, _end)
    twin_alive, twin_end = os.pipe()
    keeper = os.fork()
    if keeper == 0:
        os.close(twin_end)
        _keep(bed, [twin_alive, *([owner] if owner >= 0 else [])], words[4:])
    if owner >= 0:
        os.close(owner)
    (bed.folder / "guard.pid").write_text(f"{keeper} {os.getpid()}")
    with contextlib.suppress(SystemExit):
        os.waitpid(keeper, 0)
    _kill(keeper)
    if is_ours(bed, lock):
        remove(bed)
    sys.exit(0)


def _keep(bed: Layout, alive: list[int], options: list[str]) -> NoReturn:
    inside: subprocess.Popen[bytes] | None = None
    try:
        make_cgroups(bed)
        inside = _start_inside(bed, options)
        _join(bed, inside.pid)
        while inside.poll() is None and not select.select(alive, [], [], 0.2)[0]:
            pass
    finally:
        if inside:
            inside.kill()
            inside.wait()
        remove(bed)
        os._exit(0)


def is_ours(bed: Layout, lock: int) -> bool:
    """Whether the folder is still this test bed's: its number may be another's by now."""
    try:
        return os.path.samestat(os.fstat(lock), bed.lock.stat())
    except FileNotFoundError:
        return False


def _end(*_: object) -> NoReturn:
    sys.exit(0)


def _start_inside(bed: Layout, options: list[str]) -> subprocess.Popen[bytes]:
    apart = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    words = [sys.executable, "-m", "testbed.inside", str(bed.folder), str(bed.number), *options]
    return subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *apart, *words],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        start_new_session=True,
    )


def _join(bed: Layout, pid: int) -> None:
    """Lay the link between the host and the new network; the link goes when the network goes."""
    own = os.readlink("/proc/self/ns/net")
    while os.readlink(f"/proc/{pid}/ns/net") == own:
        time.sleep(0.01)
    peer = ["type", "veth", "peer", "name", "eth0", "netns", str(pid)]
    _ip("link", "add", bed.link, *peer)
    _ip("address", "add", f"{bed.host_address}/30", "dev", bed.link)
    _ip("link", "set", bed.link, "up")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def make_cgroups(bed: Layout) -> None:
    """A cgroup of the test bed's own in every hierarchy; the kubelet puts its pods below."""
    for hierarchy in _hierarchies():
        folder = hierarchy / bed.cgroup
        folder.mkdir(exist_ok=True)
        for name in ("cpuset.cpus", "cpuset.mems"):  # empty in a new cgroup v1, and nothing may run then
            if (hierarchy / name).exists() and (folder / name).exists():
                (folder / name).write_text((hierarchy / name).read_text())


def remove(bed: Layout) -> None:
    """Remove what outlives the processes: the link, the cgroups, the folder."""
    subprocess.run(["ip", "link", "delete", bed.link], capture_output=True, check=False)
    deadline = time.monotonic() + PATIENCE
    while (left := _cgroups(bed)) and time.monotonic() < deadline:
        for folder in left:
            with contextlib.suppress(OSError):
                folder.rmdir()
        time.sleep(0.05)
    hidden = bed.folder.with_name(f".{bed.number}-{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        bed.folder.rename(hidden)  # in one step: whoever looks sees all of it or nothing
    shutil.rmtree(hidden, ignore_errors=True)


def _hierarchies() -> list[Path]:
    """Each controller's own (version 1, hybrid), or the only one (version 2)."""
    if (CGROUPS / "cgroup.procs").exists():
        return [CGROUPS]
    return [folder for folder in CGROUPS.iterdir() if (folder / "cgroup.procs").exists() and not folder.is_symlink()]


def _cgroups(bed: Layout) -> list[Path]:
    """The cgroups of a test bed, deepest first."""
    tops = [hierarchy / bed.cgroup for hierarchy in _hierarchies()]
    return [Path(folder) for top in tops for folder, _, _ in os.walk(top, topdown=False)]


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
