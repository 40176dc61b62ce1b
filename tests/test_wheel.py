"""The wheel as people get it: built, installed into an environment of its own, and tried."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of what is here, built from a copy so that nothing is written into the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "src", folder / "p" / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "p")
    build = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", build, str(folder)], cwd=folder / "p", capture_output=True, text=True, check=True
    )
    return folder / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def place(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel in it, as a script and a package; what it depends on is lent from this one."""
    place = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(place, symlinks=True)
    (site,) = place.glob("lib/python*/site-packages")
    pip = [sys.executable, "-m", "pip"] if has_pip(sys.executable) else [base_python(), "-m", "pip"]
    words = ["--python", str(place / "bin" / "python"), "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([*pip, *words], check=True, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    (site / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place


def has_pip(python: str) -> bool:
    return subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode == 0


def base_python() -> str:
    """The Python this environment was made of; the Makefile uses its pip too."""
    return str(Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}")


def test_it_holds_the_package_and_its_types(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert wheel.name.startswith("kubeflow_arena-")
    assert {"arena/py.typed", "arena/cli/main.py", "arena/backends/local/supervisor.py"} <= set(names)
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"arena", "kubeflow_arena"}


def test_the_program_and_the_module(place: Path, job_env: dict[str, str], tmp_path: Path) -> None:
    def call(*words: str) -> str:
        return subprocess.run(
            words, env=job_env, cwd=tmp_path, check=True, stdout=subprocess.PIPE, text=True, timeout=100
        ).stdout

    python, arena = str(place / "bin" / "python"), str(place / "bin" / "arena")
    where = call(python, "-c", "import arena; print(arena.__file__)")
    assert Path(where.strip()).is_relative_to(place)
    assert call(arena, "version").startswith("arena: v")
    assert call(python, "-m", "arena", "version").splitlines()[0] == call(arena, "version", "--short").strip()
    assert call(arena, "run", "--", "echo", "hi") == "hi\n"
    assert call(arena, "run", "-w", "2", "--raw", "--", "sh", "-c", "echo $WORLD_SIZE") == "2\n2\n"
    assert len(call(arena, "list", "-o", "name").split()) == 2
