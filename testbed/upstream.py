"""What people have who come from Arena (Go): its program's charts, and its Python SDK."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from testbed.errors import BedError
from testbed.places import HERE, cache
from testbed.programs import module_folder

PINS = HERE / "sdk.txt"


def charts() -> Path:
    """The charts of Arena (Go), which it looks for in `~/charts`."""
    return module_folder("arena") / "charts"


def sdk_folder() -> Path:
    """Where `arenasdk` is, for a PYTHONPATH."""
    return cache() / "python" / f"arenasdk-{hashlib.sha256(PINS.read_bytes()).hexdigest()[:12]}"


def install_sdk() -> None:
    """Install `arenasdk` with the ordinary pip, into a folder of its own."""
    unfinished = sdk_folder().with_suffix(".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    words = ["install", "--quiet", "--no-deps", "--require-hashes", "--target", str(unfinished), "-r", str(PINS)]
    done = subprocess.run(
        [_python_with_pip(), "-m", "pip", "--disable-pip-version-check", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BedError("arenasdk cannot be installed", done.stderr.strip()[-500:])
    unfinished.rename(sdk_folder())


def _python_with_pip() -> str:
    """This Python, or the one that its environment was made from."""
    for python in (sys.executable, str(Path(sys.base_prefix, "bin", "python3"))):
        if subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0:
            return python
    raise BedError("pip is missing", "apt-get install python3-pip")
