"""Which backend, which Python, which folder: the choices made when nobody said, each with the rule that made it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from arena.errors import BackendError, UnsupportedError
from arena.settings import Settings, home_folder

if TYPE_CHECKING:
    from arena.backends.base import Backend

Creates = Literal["run", "type", "name"]


def backend(settings: Settings, env: Mapping[str, str], creates: Creates) -> tuple[str, str]:
    """The backend and the rule: as set, else a kubeconfig's current context, else this machine for `run`.

    `creates` is run for `run` and `submit job`, type for Arena (Go)'s commands, name for commands on a NAME.
    """
    if chosen := settings.text("backend"):
        return chosen, settings.source("backend")
    if creates == "name":
        return "local", "the only backend of this version"
    if context := current_context(env, home_folder(env)):
        return "kubernetes", f"context {context}"
    if creates == "type":
        raise BackendError(
            "no cluster configured", why="no kubeconfig has a current context", hint="-b local runs it here"
        )
    return "local", "no kubeconfig"


def current_context(env: Mapping[str, str], home: Path | None) -> str:
    """The current context of the kubeconfig; BackendError where one was named and is not there."""
    named = [Path(word) for word in env.get("KUBECONFIG", "").split(os.pathsep) if word]
    if named and not any(path.exists() for path in named):
        raise BackendError(f"KUBECONFIG names {named[0]}, which does not exist", hint="-b local runs it here")
    files = named or ([home / ".kube" / "config"] if home else [])
    return next((found for path in files if (found := _context_of(path))), "")


def _context_of(path: Path) -> str:
    if not path.is_file():
        return ""
    import yaml

    try:
        loaded = yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except (OSError, yaml.YAMLError) as error:
        raise BackendError(f"{path} cannot be read as a kubeconfig", why=str(error)) from error
    return str(loaded.get("current-context") or "") if isinstance(loaded, dict) else ""


def open_backend(name: str, settings: Settings, env: Mapping[str, str]) -> Backend:
    """The backend of this name."""
    if name == "local":
        try:
            import fcntl  # noqa: F401  (what locks are made of; Windows has none)

            from arena.backends.local.backend import LocalBackend
        except ImportError as error:
            raise UnsupportedError("jobs cannot run on this machine", why=str(error), hint="-b kubernetes") from error
        return LocalBackend(settings, env)
    raise UnsupportedError(
        f"the backend {name!r} is not in this version yet", hint="-b local runs jobs on this machine"
    )


def python(env: Mapping[str, str]) -> str:
    """The Python that runs `x.py`: of a notebook's kernel, of the active environment, else the first on the PATH."""
    if "ipykernel" in sys.modules:
        return sys.executable
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        candidate = Path(env.get(variable) or "/nonexistent") / "bin" / "python"
        if candidate.exists():
            return str(candidate)
    path = env.get("PATH", os.defpath)
    return shutil.which("python", path=path) or shutil.which("python3", path=path) or "python3"


def code_folder(cwd: Path, env: Mapping[str, str]) -> Path | None:
    """The folder whose code a run remembers."""
    from arena import code

    return code.project_root(cwd, home_folder(env))
