"""Train and serve models without learning Kubernetes: here, or on any cluster.

    import arena

    job = arena.run("train.py", workers=2)
    for line in job.logs(follow=True):
        print(line.replica, line.text)
    job.wait(check=True)

Importing it starts nothing, prints nothing and loads little; names are loaded when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arena._version import __version__

if TYPE_CHECKING:
    from arena.backends.base import LogLine
    from arena.client import Client, Handle, delete, get, history, list, run  # noqa: A004
    from arena.errors import (
        AlreadyExistsError,
        ArenaError,
        BackendError,
        ForbiddenError,
        JobFailedError,
        NotFoundError,
        NotStartedError,
        SpecError,
        UnsupportedError,
        WaitTimeoutError,
    )
    from arena.job import Job, Role
    from arena.jobs.jax import JAXJob
    from arena.jobs.mpi import MPIJob
    from arena.jobs.plain import PlainJob
    from arena.jobs.pytorch import PyTorchJob
    from arena.jobs.tensorflow import TensorFlowJob
    from arena.status import Seen, State, Status

_PLACES = {
    "arena.backends.base": ("LogLine",),
    "arena.client": ("Client", "Handle", "delete", "get", "history", "list", "run"),
    "arena.errors": (
        "AlreadyExistsError",
        "ArenaError",
        "BackendError",
        "ForbiddenError",
        "JobFailedError",
        "NotFoundError",
        "NotStartedError",
        "SpecError",
        "UnsupportedError",
        "WaitTimeoutError",
    ),
    "arena.job": ("Job", "Role"),
    "arena.jobs.jax": ("JAXJob",),
    "arena.jobs.mpi": ("MPIJob",),
    "arena.jobs.plain": ("PlainJob",),
    "arena.jobs.pytorch": ("PyTorchJob",),
    "arena.jobs.tensorflow": ("TensorFlowJob",),
    "arena.status": ("Seen", "State", "Status"),
}
_WHERE = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [
    "AlreadyExistsError",
    "ArenaError",
    "BackendError",
    "Client",
    "ForbiddenError",
    "Handle",
    "JAXJob",
    "Job",
    "JobFailedError",
    "LogLine",
    "MPIJob",
    "NotFoundError",
    "NotStartedError",
    "PlainJob",
    "PyTorchJob",
    "Role",
    "Seen",
    "SpecError",
    "State",
    "Status",
    "TensorFlowJob",
    "UnsupportedError",
    "WaitTimeoutError",
    "__version__",
    "delete",
    "get",
    "history",
    "list",
    "run",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'arena' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:  # type: ignore[valid-type]
    return sorted({*globals(), *_WHERE})
