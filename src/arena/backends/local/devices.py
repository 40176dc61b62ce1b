"""Which GPUs there are, and who holds them: a lock per GPU in a folder all users of the machine share.

What is there and what runs on it is NVML's word, asked through `nvidia-smi`. ARENA_LOCAL_GPUS=4 stands in for four
GPUs where a test needs some.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from arena import files
from arena.errors import BackendError

PORTS = range(20_000, 32_000)  # below the range from which kernels give ports to outgoing connections


def gpus(stand_in: int | None = None) -> list[str]:
    """The UUIDs of this machine's GPUs, in the order CUDA counts them."""
    if stand_in is not None:
        return [f"stand-in-{number}" for number in range(stand_in)]
    return _nvidia_smi("--query-gpu=uuid")


def likely(stand_in: int | None = None) -> bool:
    """Whether this machine seems to have GPUs, without asking anybody."""
    return bool(stand_in) or os.path.exists("/dev/nvidia0") or os.path.exists("/dev/dxg")


def busy(stand_in: int | None = None) -> set[str]:
    """The GPUs on which some process computes, whoever started it."""
    return set() if stand_in is not None else set(_nvidia_smi("--query-compute-apps=gpu_uuid"))


def _nvidia_smi(question: str) -> list[str]:
    import shutil
    import subprocess

    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    words = [program, question, "--format=csv,noheader"]
    answer = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    if answer.returncode:
        raise BackendError("nvidia-smi does not answer", why=(answer.stdout + answer.stderr).strip())
    return [line.strip() for line in answer.stdout.splitlines() if line.strip()]


class Leases:
    """GPUs and ports that a job holds on this machine; freed by the kernel when its last process is gone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.held: dict[str, int] = {}

    def take_gpus(self, count: int, there: Iterable[str], taken: set[str]) -> list[str] | None:
        """`count` free GPUs, or None (and nothing held) when there are not enough."""
        mine: list[str] = []
        for uuid in there:
            if len(mine) < count and uuid not in taken and self._take(f"gpu-{uuid}"):
                mine.append(uuid)
        if len(mine) == count:
            return mine
        for uuid in mine:
            self.drop(f"gpu-{uuid}")
        return None

    def take_ports(self, count: int, host: str = "127.0.0.1") -> list[int]:
        """`count` ports nobody listens on and no other job was given."""
        import random
        import socket

        found: list[int] = []
        first = random.randrange(len(PORTS))
        for step in range(len(PORTS)):
            port = PORTS[(first + step) % len(PORTS)]
            if len(found) == count:
                return found
            with socket.socket() as door:
                door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    door.bind((host, port))
                except OSError:
                    continue
                if self._take(f"port-{port}"):
                    found.append(port)
        raise BackendError(f"this machine has no {count} free ports from {PORTS.start} to {PORTS.stop}")

    @property
    def held_gpus(self) -> bool:
        """Whether it holds any GPU."""
        return any(name.startswith("gpu-") for name in self.held)

    def drop(self, name: str) -> None:
        os.close(self.held.pop(name))

    def drop_all(self) -> None:
        for name in list(self.held):
            self.drop(name)

    def _take(self, name: str) -> bool:
        folder = shared_folder(self.folder)
        file = _open_shared(folder / name)
        if file is None:
            return False
        self.held[name] = file
        return True


def shared_folder(folder: Path) -> Path:
    """The folder of leases, sticky and open to all users of the machine."""
    try:
        folder.mkdir(parents=True)
        folder.chmod(0o1777)
    except FileExistsError:
        pass
    return folder


def _open_shared(path: Path) -> int | None:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        file = os.open(path, flags)
    except FileNotFoundError:
        file = os.open(path, flags | os.O_CREAT, 0o644)
    return files.lock_file(file)
