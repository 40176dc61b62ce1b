"""The images, made on this machine and taken from no registry: pause, bare, work, and one per operator.

An image is a docker-archive: a tar with one layer (a tar again), its configuration and a manifest.
"""

import hashlib
import io
import json
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

from testbed.errors import BedError
from testbed.places import HERE, cache
from testbed.programs import PROGRAMS, program

OPERATORS = ("training-operator", "mpi-operator", "jobset", "trainer")
WORK_PACKAGES = (
    "ca-certificates",
    "git",
    "netbase",
    "openmpi-bin",
    "openssh-client",
    "openssh-server",
    "procps",
    "python3",
    "python3-mpi4py",
    "rsync",
    "tar",
)
WORK_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
    "OMPI_MCA_btl_tcp_if_include": "eth0",
    "OMPI_MCA_oob_tcp_if_include": "eth0",
}


class Image(NamedTuple):
    """The name pods use, and the archive's file; the file's name changes with what is in it."""

    name: str
    path: Path


PAUSE = "localhost/arena-pause:1"
BARE = "localhost/arena-bare:1"
WORK = "localhost/arena-work:1"
DELIVERY = "localhost/kubectl-delivery:1"


def operator_image(operator: str) -> str:
    """The name of an operator's image.

    >>> operator_image("jobset")
    'localhost/jobset:1'
    """
    return f"localhost/{operator}:1"


def images() -> list[Image]:
    """All images, built or not."""
    versions = {operator: PROGRAMS[operator].version for operator in OPERATORS}
    return [
        Image(PAUSE, _path("pause", (HERE / "go/pause/main.go").read_text())),
        Image(BARE, _path("bare", "2")),
        Image(WORK, _path("work", _work_recipe())),
        Image(DELIVERY, _path("kubectl-delivery", PROGRAMS["kubectl"].version)),
        *(Image(operator_image(name), _path(name, version)) for name, version in versions.items()),
    ]


def build_image(image: Image) -> None:
    """Make one image, unless it is there."""
    if image.path.exists():
        return
    image.path.parent.mkdir(parents=True, exist_ok=True)
    short = image.name.removeprefix("localhost/").removesuffix(":1")
    makers = {"arena-pause": _pause, "arena-bare": _bare, "arena-work": _work, "kubectl-delivery": _delivery}
    layer, config = makers[short]() if short in makers else _operator(short)
    unfinished = image.path.with_suffix(".part")
    write_archive(unfinished, image.name, layer, config)
    unfinished.rename(image.path)


def write_archive(path: Path, name: str, layer: bytes, config: dict[str, Any]) -> None:
    """Write a docker-archive with one layer."""
    digest = hashlib.sha256(layer).hexdigest()
    described = {
        "architecture": "amd64",
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as archive:
        _add(archive, "config.json", json.dumps(described).encode())
        _add(archive, "layer.tar", layer)
        _add(archive, "manifest.json", json.dumps(manifest).encode())


def layer_of(files: dict[str, bytes]) -> bytes:
    """A layer with these executable files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        for name, content in files.items():
            _add(layer, name, content, mode=0o755)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), mode
    archive.addfile(member, io.BytesIO(content))


def _path(name: str, recipe: str) -> Path:
    return cache() / "images" / f"{name}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}.tar"


def _pause() -> tuple[bytes, dict[str, Any]]:
    return layer_of({"pause": program("pause").read_bytes()}), {"Entrypoint": ["/pause"], "User": "65535"}


def _operator(name: str) -> tuple[bytes, dict[str, Any]]:
    # Their pods demand runAsNonRoot, which needs a number.
    return layer_of({"manager": program(name).read_bytes()}), {"Entrypoint": ["/manager"], "User": "65532"}


def _bare() -> tuple[bytes, dict[str, Any]]:
    return layer_of(_shell_and_tar()), {"Cmd": ["/bin/sh"], "Env": ["PATH=/bin"]}


def _delivery() -> tuple[bytes, dict[str, Any]]:
    """Hands a kubectl to the launcher of an MPIJob v1, which reaches its workers by `kubectl exec`."""
    hand_over = "tar -C /bin -cf - kubectl | tar -C /opt/kube -xf -"
    files = {**_shell_and_tar(), "bin/kubectl": program("kubectl").read_bytes()}
    return layer_of(files), {"Entrypoint": ["/bin/sh", "-c"], "Cmd": [hand_over], "Env": ["PATH=/bin"]}


def _shell_and_tar() -> dict[str, bytes]:
    """The own shell and tar of this machine, with their libraries (the shell of busybox knows all its programs)."""
    programs = {"bin/sh": "/bin/dash", "bin/tar": "/bin/tar"}
    said = subprocess.run(["ldd", *programs.values()], capture_output=True, text=True, check=True).stdout
    libraries = {found.lstrip("/"): found for found in re.findall(r"(/\S+) \(0x", said)}
    return {name: Path(path).read_bytes() for name, path in (programs | libraries).items()}


def _work() -> tuple[bytes, dict[str, Any]]:
    env = [f"{name}={value}" for name, value in WORK_ENVIRONMENT.items()]
    return _debian_root(), {"Cmd": ["/bin/bash"], "Env": env, "WorkingDir": "/root"}


def _work_recipe() -> str:
    files = sorted((HERE / "image").iterdir())
    return "\n".join([*WORK_PACKAGES, *(file.read_text() for file in files)])


def _debian_root() -> bytes:
    """A Debian as small as it gets with the packages, from the sources that this machine's apt uses."""
    made = cache() / "images" / "root.part"
    made.unlink(missing_ok=True)
    words = [
        "mmdebstrap",
        "--mode=root",
        "--variant=minbase",
        f"--include={','.join(WORK_PACKAGES)}",
        "--dpkgopt=path-exclude=/usr/share/doc/*",
        "--dpkgopt=path-exclude=/usr/share/man/*",
        "--dpkgopt=path-exclude=/usr/share/locale/*",
        f"--customize-hook=copy-in {HERE}/image/serve-git {HERE}/image/nslookup /usr/local/bin",
        f'--customize-hook=sh {HERE}/image/setup "$1"',
        "--format=tar",
        _codename(),
        str(made),
    ]
    done = subprocess.run(["nice", "-n", "10", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BedError("the work image cannot be made", done.stderr.strip()[-1500:])
    with tarfile.open(made, "a") as root:
        root.addfile(_ssh_folder())
    content = made.read_bytes()
    made.unlink()
    return content


def _ssh_folder() -> tarfile.TarInfo:
    """The folder that sshd insists on; mmdebstrap leaves /run empty."""
    folder = tarfile.TarInfo("./run/sshd")
    folder.type, folder.mode = tarfile.DIRTYPE, 0o755
    return folder


def _codename() -> str:
    for line in Path("/etc/os-release").read_text().splitlines():
        if line.startswith("VERSION_CODENAME="):
            return line.partition("=")[2].strip('"')
    return "bookworm"
