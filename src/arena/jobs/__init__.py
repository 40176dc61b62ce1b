"""The job types, by the names people type. Each is one file, loaded when it is asked for.

A package adds its own through the entry point group `arena.jobs`:

    [project.entry-points."arena.jobs"]
    lightning = "my_package.lightning:LightningJob"
"""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING

from arena.errors import SpecError, UnsupportedError

if TYPE_CHECKING:
    from arena.job import Job

GROUP = "arena.jobs"

BUILT_IN = {
    "job": "arena.jobs.plain:PlainJob",
    "pytorch": "arena.jobs.pytorch:PyTorchJob",
    "mpi": "arena.jobs.mpi:MPIJob",
    "jax": "arena.jobs.jax:JAXJob",
    "tensorflow": "arena.jobs.tensorflow:TensorFlowJob",
}

ALIASES = {
    "plain": "job",
    "pytorchjob": "pytorch",
    "py": "pytorch",
    "mpijob": "mpi",
    "tf": "tensorflow",
    "tfjob": "tensorflow",
    "jaxjob": "jax",
}


def load(name: str) -> type[Job]:
    """The class of a job type, by its name, an old spelling, or `module:Class`.

    >>> load("tf").type_name
    'tensorflow'
    """
    name = ALIASES.get(name, name)
    place = BUILT_IN.get(name) or plugins().get(name) or _unknown(name)
    try:
        return load_class(place)
    except ImportError as error:
        raise UnsupportedError(f"the job type {name!r} cannot be loaded", why=f"{place}: {error}") from error


def load_class(place: str) -> type[Job]:
    """The class at `module:Class`; ImportError where there is none, whatever its module raised."""
    from arena.job import Job

    module, _, attribute = place.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # a plug-in may raise anything
        raise ImportError(f"{type(error).__name__}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Job)):
        raise ImportError(f"{attribute} is no class derived from arena.job.Job")
    return found


def place(kind: type[Job]) -> str:
    """`module:Class` of a job type, by which another process finds it again."""
    return f"{kind.__module__}:{kind.__qualname__}"


def plugins() -> dict[str, str]:
    """Names and places of the types that installed packages add; built-in names win."""
    from importlib.metadata import entry_points

    return {entry.name: entry.value for entry in entry_points(group=GROUP) if entry.name not in BUILT_IN}


def names() -> list[str]:
    """All type names, plug-ins included."""
    return [*BUILT_IN, *plugins()]


def usable() -> list[str]:
    """The type names whose classes can be loaded: a plug-in may be broken."""
    return [*BUILT_IN, *(name for name, place in plugins().items() if _loads(place))]


def _loads(place: str) -> bool:
    try:
        load_class(place)
    except ImportError:
        return False
    return True


def _unknown(name: str) -> str:
    known = [*names(), *ALIASES]
    near = difflib.get_close_matches(name, known, 1)
    raise SpecError(
        f"there is no job type {name!r}",
        why="known: " + ", ".join(names()),
        hint=f"did you mean {near[0]!r}?" if near else "",
    )
