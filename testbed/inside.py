"""The first process of a test bed's namespaces: it sets up their network, starts the programs and collects the dead.

Run by the guard as `python -m testbed.inside FOLDER NUMBER [--no-kubelet]`, with a network, a mount table and process
numbers of its own. When it ends the kernel ends everything else in there, mounts included.
"""

import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from testbed.configuration import CONTAINERD_SOCKET, LOCAL_SERVER, commands
from testbed.layout import BRIDGE, TOKEN_PORT, Layout
from testbed.places import HERE
from testbed.programs import program

PATIENCE = 60.0  # seconds for one program to answer
RESTARTS = 3
# There is memory enough, and two cores are few: collect garbage less often.
ENVIRONMENT = {**os.environ, "GOGC": "400"}


def main(words: list[str]) -> NoReturn:
    """Start everything, then wait until the first program is given up."""
    bed = Layout(int(words[1]), Path(words[0]))
    _private_mounts()
    _network(bed)
    programs = Programs(bed)
    _control_plane(bed, programs)
    if "--no-kubelet" not in words:
        _node(bed, programs)
    programs.watch()


class Programs:
    """The programs that run; each is started again a few times, then the whole test bed ends."""

    def __init__(self, bed: Layout) -> None:
        self.bed = bed
        self.words: dict[str, list[str]] = {}
        self.pids: dict[int, str] = {}
        self.deaths: dict[str, int] = {}

    def start(self, name: str, *words: str) -> None:
        """Start one program; its log stands under its name."""
        self.words[name] = list(words)
        with (self.bed.logs / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=ENVIRONMENT)
        self.pids[process.pid] = name
        process.returncode = 0  # the dead are collected below, by os.wait

    def watch(self) -> NoReturn:
        """Collect the dead, ours and those that lost their parents."""
        while True:
            pid, _ = os.wait()
            if name := self.pids.pop(pid, ""):
                self._again(name)

    def _again(self, name: str) -> None:
        self.deaths[name] = self.deaths.get(name, 0) + 1
        if self.deaths[name] > RESTARTS:
            sys.exit(f"{name} ended {self.deaths[name]} times; its log: {self.bed.logs / name}.log")
        time.sleep(0.5)
        self.start(name, *self.words[name])


def _private_mounts() -> None:
    _run("mount", "--make-rprivate", "/")
    _run("mount", "-t", "tmpfs", "tmpfs", "/run")
    # The kubelet hands mounts on to its pods.
    _run("mount", "--make-rshared", "/")


def _network(bed: Layout) -> None:
    _until("link to the host", lambda: Path("/sys/class/net/eth0").exists() or _link_is_there())
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "address", "add", f"{bed.address}/30", "dev", "eth0")
    _run("ip", "link", "set", "eth0", "up")
    _run("ip", "link", "add", "bridge0", "type", "bridge")
    _run("ip", "address", "add", f"{BRIDGE}/24", "dev", "bridge0")
    _run("ip", "link", "set", "bridge0", "up")
    for setting in ("ipv4/ip_forward", "bridge/bridge-nf-call-iptables"):
        path = Path("/proc/sys/net", setting)
        if path.exists():
            path.write_text("1")


def _link_is_there() -> bool:
    return any(name == "eth0" for _, name in socket.if_nameindex())


def _control_plane(bed: Layout, programs: Programs) -> None:
    options = commands(bed)
    key = str(bed.folder / "token.key")
    programs.start("token-webhook", sys.executable, str(HERE / "tokens.py"), "serve", key, str(TOKEN_PORT))
    programs.start("etcd", str(program("etcd")), *options["etcd"])
    _until("etcd", lambda: _listens(2379))
    programs.start("kube-apiserver", str(program("kube-apiserver")), *options["kube-apiserver"])
    _until("API server", lambda: _ready(bed))
    for name in ("kube-controller-manager", "kube-scheduler", "kwok"):
        programs.start(name, str(program(name)), *options[name])


def _node(bed: Layout, programs: Programs) -> None:
    options = commands(bed)
    (bed.folder / "kubelet").mkdir(exist_ok=True)
    containerd = shutil.which("containerd") or "containerd"
    programs.start("registry", sys.executable, "-m", "testbed.registry")
    programs.start("containerd", containerd, "--config", f"{bed.folder}/containerd.toml")
    _until("containerd", Path(CONTAINERD_SOCKET).exists)
    for name in ("kubelet", "coredns", "kube-proxy"):
        programs.start(name, str(program(name)), *options[name])


def _ready(bed: Layout) -> bool:
    trusted = ssl.create_default_context(cafile=str(bed.certificates / "ca.crt"))
    with urllib.request.urlopen(f"{LOCAL_SERVER}/readyz", context=trusted, timeout=5) as answer:
        return bool(answer.status == 200)


def _listens(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=1):
        return True


def _until(what: str, probe: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            if probe():
                return
        except OSError:
            pass
        time.sleep(0.05)
    sys.exit(f"{what} did not answer within {PATIENCE:.0f} s")


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: {done.stderr.strip()}")


if __name__ == "__main__":
    main(sys.argv[1:])
