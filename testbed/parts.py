"""What a test bed is made of, beside programs: Debian packages, images, manifests; and whether all of it is there."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from testbed.configuration import CNI_PLUGINS
from testbed.errors import BedError
from testbed.images import build_image, images
from testbed.operators import OPERATORS, manifest_path, render_manifests
from testbed.places import cache
from testbed.programs import PROGRAMS, build, check_go
from testbed.upstream import install_sdk, sdk_folder

# What a program is called, and the Debian package it comes in.
DEBIAN = {
    "conntrack": "conntrack",
    "containerd": "containerd",
    "ctr": "containerd",
    "dash": "dash",
    "ethtool": "ethtool",
    "ip": "iproute2",
    "iptables": "iptables",
    "mmdebstrap": "mmdebstrap",
    "mount": "mount",
    "openssl": "openssl",
    "runc": "runc",
    "setpriv": "util-linux",
    "socat": "socat",
    "unshare": "util-linux",
    f"{CNI_PLUGINS}/bridge": "containernetworking-plugins",
    f"{CNI_PLUGINS}/host-local": "containernetworking-plugins",
    f"{CNI_PLUGINS}/loopback": "containernetworking-plugins",
}
ROOM_TO_BUILD = 1 << 30  # bytes for each program; most of it is in Go's own caches
ROOM_TO_RUN = 1 << 30

Step = tuple[str, Callable[[], None]]


def steps() -> Iterator[Step]:
    """What is still to be done, in order; empty when everything is built."""
    if missing := missing_packages():
        yield f"Debian packages: {' '.join(missing)}", lambda: _apt_install(missing)
    for name, program in PROGRAMS.items():
        if not program.path.exists():
            yield f"{name} {program.version}", lambda name=name: build(name)  # type: ignore[misc]
    for image in images():
        if not image.path.exists():
            yield f"image {image.name}", lambda image=image: build_image(image)  # type: ignore[misc]
    if not _image_store().exists():
        yield "images for containerd", _fill_image_store
    for operator in OPERATORS.values():
        if not manifest_path(operator).exists():
            yield f"manifests of {operator.name}", lambda operator=operator: render_manifests(operator)  # type: ignore[misc]
    if not sdk_folder().exists():
        yield "arenasdk", install_sdk


def build_all() -> None:
    """Build what is missing, step by step, with times."""
    check_root()
    check_room(ROOM_TO_RUN + ROOM_TO_BUILD * sum(not program.path.exists() for program in PROGRAMS.values()))
    check_go()
    began = time.monotonic()
    with (cache() / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second build waits, and then finds everything done
        for title, do in steps():
            sys.stderr.write(f"{title} ...")
            sys.stderr.flush()
            start = time.monotonic()
            do()
            sys.stderr.write(f" {time.monotonic() - start:.0f} s\n")
    sys.stderr.write(f"the test bed is built ({time.monotonic() - began:.0f} s)\n")


def check_machine() -> None:
    """This machine can run a test bed now."""
    check_root()
    if missing := missing_packages():
        raise BedError(f"these Debian packages are missing: {' '.join(missing)}", "python -m testbed build")
    check_room(ROOM_TO_RUN)


def check_root() -> None:
    """Namespaces, links and cgroups need root on Linux."""
    if not sys.platform.startswith("linux"):
        raise BedError("a test bed needs Linux", "run it in a virtual machine")
    if os.geteuid() != 0:
        raise BedError("a test bed needs root", "sudo python -m testbed ...")


def check_room(wanted: int) -> None:
    """The disk of the cache has room."""
    folder = cache()
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < wanted:
        how = "make room, or set XDG_CACHE_HOME to another disk"
        raise BedError(f"{folder} has {free >> 20} MB free, {wanted >> 20} MB are needed", how)


def check_built() -> None:
    """Everything is built, else the first thing that is not."""
    for title, _ in steps():
        raise BedError(f"the test bed is not built ({title})", "python -m testbed build")


def missing_packages() -> list[str]:
    """The Debian packages whose programs are not there."""
    return sorted({package for name, package in DEBIAN.items() if not shutil.which(name, path=_path())})


def snapshotter() -> str:
    """How containerd lays layers upon each other: overlayfs where the kernel has it."""
    return "overlayfs" if "\toverlay\n" in Path("/proc/filesystems").read_text() else "native"


def copy_images(target: Path) -> None:
    """containerd's folder with every image in it. Layers are never written to: the copies are hard links."""
    subprocess.run(["cp", "--archive", "--link", str(_image_store()), str(target)], check=True)
    for database in target.rglob("*.db"):
        database.write_bytes(_replace(database))


def _replace(database: Path) -> bytes:
    content = database.read_bytes()
    database.unlink()
    return content


def _path() -> str:
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def _apt_install(packages: list[str]) -> None:
    if not shutil.which("apt-get"):
        raise BedError(f"these Debian packages are missing: {' '.join(packages)}", "install them as this system does")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "-qq", "update"], env=env, capture_output=True, check=False)
    words = ["apt-get", "-qq", "install", "--yes", "--no-install-recommends", *packages]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BedError(f"apt-get install {' '.join(packages)} failed", done.stderr.strip()[-500:])


def _image_store() -> Path:
    recipe = "\n".join(image.path.name for image in images())
    return cache() / "containerd" / f"{snapshotter()}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"


# containerd with a mount table, a network and process numbers of its own; everything ends with the shell.
_IMPORT = """
set -e
mount -t tmpfs tmpfs /run
containerd --config "$1" >"$2" 2>&1 &
server=$!
for _ in $(seq 300); do ctr version >/dev/null 2>&1 && break; sleep 0.1; done
shift 2
for image; do ctr --namespace k8s.io images import --snapshotter "$SNAPSHOTTER" "$image" >/dev/null; done
kill $server; wait $server || true
"""


def _fill_image_store() -> None:
    """Import the images once; each test bed begins with a copy of the result."""
    store = _image_store()
    unfinished = store.with_suffix(".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    config = unfinished.with_suffix(".toml")
    config.write_text(f'version = 2\nroot = "{unfinished}"\nstate = "/run/containerd"\n')
    apart = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    paths = [str(image.path) for image in images()]
    done = subprocess.run(
        [*apart, "sh", "-c", _IMPORT, "import", str(config), str(config.with_suffix(".log")), *paths],
        env={**os.environ, "SNAPSHOTTER": snapshotter()},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BedError("the images cannot be imported", done.stderr.strip()[-500:])
    for older in store.parent.glob(f"{snapshotter()}-*"):
        if older != unfinished and older.is_dir():
            shutil.rmtree(older)  # test beds that run have links of their own
    unfinished.rename(store)
