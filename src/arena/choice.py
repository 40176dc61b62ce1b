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


def backend(settings: Settings, env: Mapping[str, str], creates: Creates, *, dry: bool = False) -> tuple[str, str]:
    """The backend and the rule: as set, else a kubeconfig's current context, else this machine for `run`.

    What only prints what it would make (`dry`) needs no cluster. `creates` is run for `run` and `submit job`, type for
    Arena (Go)'s commands, name for commands on a NAME.
    """
    if chosen := settings.text("backend"):
        return chosen, settings.source("backend")
    if context := current_context(settings, env):
        return "kubernetes", f"context {context}"
    if in_pod(env):
        return "kubernetes", "this pod's own account"
    if creates == "type" and dry:
        return "kubernetes", "no kubeconfig: nothing is sent"
    if creates == "type":
        raise BackendError(
            "no cluster configured", why="no kubeconfig has a current context", hint="-b local runs it here"
        )
    return "local", "no kubeconfig"


def current_context(settings: Settings, env: Mapping[str, str]) -> str:
    """The context that `--context` names or that is current; BackendError where a kubeconfig was named and is not."""
    from arena.kube import config

    files = settings.text("kubeconfig") or ""
    found = config.find(kubeconfig=files, context=settings.text("context") or "", env=env, home=home_folder(env))
    return found.context if found else ""


def in_pod(env: Mapping[str, str]) -> bool:
    """Whether this is a pod with an account of its own."""
    if not env.get("KUBERNETES_SERVICE_HOST"):
        return False
    from arena.kube import config

    return config.in_cluster(env) is not None


def open_backend(name: str, settings: Settings, env: Mapping[str, str]) -> Backend:
    """The backend of this name."""
    if name == "local":
        try:
            import fcntl  # noqa: F401  (what locks are made of; Windows has none)

            from arena.backends.local.backend import LocalBackend
        except ImportError as error:
            raise UnsupportedError("jobs cannot run on this machine", why=str(error), hint="-b kubernetes") from error
        return LocalBackend(settings, env)
    from arena.backends.kubernetes.remembering import RememberingBackend

    return RememberingBackend(settings, env)


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


def file_words(path: Path, cwd: Path, env: Mapping[str, str]) -> list[str]:
    """The words that start a file whose name would else be a shell line, as it has blanks."""
    if path.suffix == ".py":
        return [python(env), str(path)]
    if path.suffix == ".sh":
        return ["sh", str(path)]
    return ["sh", "-c", 'exec "$0"', str(cwd / path)]


def code_folder(cwd: Path, env: Mapping[str, str]) -> Path | None:
    """The folder whose code a run remembers."""
    from arena import code

    return code.project_root(cwd, home_folder(env))
