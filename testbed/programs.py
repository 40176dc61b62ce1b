"""The programs that are built from Go modules: which, in which version, and where the result is.

Each folder under `testbed/go` is a small module of its own whose go.mod names one upstream module (the version stands
there and nowhere else) and whose go.sum holds the checksums of everything it is built from.
"""

import json
import re
import subprocess
import zlib
from pathlib import Path
from typing import NamedTuple

from testbed.errors import BedError
from testbed.places import HERE, cache

GO_NEEDED = (1, 26)
KUBERNETES = "k8s.io/kubernetes"


class Program(NamedTuple):
    """One program: its name, the folder under `testbed/go`, the upstream module, the package in it."""

    name: str
    folder: str
    module: str
    package: str = ""

    @property
    def source(self) -> Path:
        return HERE / "go" / self.folder

    @property
    def version(self) -> str:
        """The version that go.mod asks for; that of our own program changes with its source.

        >>> PROGRAMS["etcd"].version
        'v3.6.16'
        """
        found = re.search(rf"^(?:require )?\s*{re.escape(self.module)} (v\S+)", self._go_mod(), re.MULTILINE)
        return found[1] if found else f"{zlib.crc32((self.source / 'main.go').read_bytes()):08x}"

    @property
    def path(self) -> Path:
        return cache() / "programs" / f"{self.name}-{self.version}"

    @property
    def link_flags(self) -> str:
        """Kubernetes learns its version from the linker; without it the server calls itself v0.0.0."""
        if self.module != KUBERNETES:
            return "-s -w"
        major, minor = self.version.removeprefix("v").split(".")[:2]
        values = {"gitVersion": self.version, "gitMajor": major, "gitMinor": minor}
        return " ".join(["-s -w", *(f"-X k8s.io/component-base/version.{k}={v}" for k, v in values.items())])

    def _go_mod(self) -> str:
        return (self.source / "go.mod").read_text()


def _kubernetes(name: str) -> Program:
    return Program(name, "kubernetes", KUBERNETES, f"/cmd/{name}")


KUBERNETES_PROGRAMS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    "kubelet",
    "kube-proxy",
)
PROGRAMS = {
    program.name: program
    for program in (
        Program("pause", "pause", "testbed/pause"),
        Program("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
        *map(_kubernetes, KUBERNETES_PROGRAMS),
        Program("kwok", "kwok", "sigs.k8s.io/kwok", "/cmd/kwok"),
        Program("coredns", "coredns", "github.com/coredns/coredns"),
        Program(
            "training-operator",
            "training-operator",
            "github.com/kubeflow/training-operator",
            "/cmd/training-operator.v1",
        ),
        Program("mpi-operator", "mpi-operator", "github.com/kubeflow/mpi-operator", "/cmd/mpi-operator"),
        Program("jobset", "jobset", "sigs.k8s.io/jobset"),
        Program("trainer", "trainer", "github.com/kubeflow/trainer/v2", "/cmd/trainer-controller-manager"),
        Program("arena", "arena", "github.com/kubeflow/arena", "/cmd/arena"),
    )
}


def program(name: str) -> Path:
    """The path of a program that is built."""
    path = PROGRAMS[name].path
    if not path.exists():
        raise BedError(f"{path.name} is not built", "python -m testbed build")
    return path


def build(name: str) -> None:
    """Build one program with the ordinary `go` client; what was compiled before is taken from its cache."""
    wanted = PROGRAMS[name]
    wanted.path.parent.mkdir(parents=True, exist_ok=True)
    flags = ("-mod=readonly", "-buildvcs=false", "-ldflags", wanted.link_flags)
    unfinished = wanted.path.with_name(f"{wanted.path.name}.part")
    unfinished.unlink(missing_ok=True)
    go(wanted.source, "build", *flags, "-o", str(unfinished), wanted.module + wanted.package)
    unfinished.rename(wanted.path)


def module_folder(name: str) -> Path:
    """The folder of the program's module in Go's cache: its published manifests are read from there."""
    wanted = PROGRAMS[name]
    go(wanted.source, "mod", "download", wanted.module)
    return Path(json.loads(go(wanted.source, "list", "-m", "-json", wanted.module))["Dir"])


def go(folder: Path, *words: str) -> str:
    """What one `go` command says; static programs, the same on every machine."""
    done = subprocess.run(
        ["nice", "-n", "10", "env", "CGO_ENABLED=0", "GOTOOLCHAIN=local", "go", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BedError(f"go {words[0]} in {folder} failed", done.stderr.strip()[-2000:])
    return done.stdout


def check_go() -> None:
    """Go is there and new enough."""
    how = f"install Go {'.'.join(map(str, GO_NEEDED))} or newer (https://go.dev/dl) and put it on the PATH"
    try:
        said = go(HERE, "env", "GOVERSION").strip()
    except BedError as error:
        raise BedError("Go is missing", how) from error
    found = re.match(r"go(\d+)\.(\d+)", said)
    if not found or tuple(map(int, found.groups())) < GO_NEEDED:
        raise BedError(f"this Go is too old ({said})", how)
