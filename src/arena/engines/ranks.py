"""The peers' contract where one pod template serves all ranks: what is a rank's own is read from its pod.

The controller of an Indexed Job writes each pod's index as an annotation; a variable refers to it.
"""

from __future__ import annotations

from collections.abc import Iterator

from arena.engines import pods
from arena.engines.base import Manifest, Work
from arena.job import Env, Seat

OWN = ("0", "1")  # what rank 0 and rank 1 are told under a name that means the rank


def told(work: Work, master: str) -> list[Manifest]:
    """The variables of every replica: the index of its pod, and where its peers are."""
    path = f"metadata.annotations['{pods.INDEX_ANNOTATION}']"
    index = {"name": pods.INDEX_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": path}}}
    first, second = _joined(work, master, 0), _joined(work, master, 1)
    own = {name: f"$({pods.INDEX_VARIABLE})" for name in first if (first[name], second.get(name)) == OWN}
    return [index, *({"name": name, "value": value} for name, value in {**first, **own}.items())]


def unlike(work: Work, master: str) -> Iterator[str]:
    """What a type tells its replicas that one template cannot: values of their own that are no ranks."""
    first, second = _joined(work, master, 0), _joined(work, master, 1)
    pairs = {name: (first.get(name), second.get(name)) for name in {**first, **second}}
    differ = [name for name, pair in pairs.items() if pair[0] != pair[1] and pair != OWN]
    if differ:
        yield (
            f"{', '.join(differ)}: type {work.job.type_name!r} gives each replica its own values,"
            " and here all have one template"
        )


def _joined(work: Work, master: str, rank: int) -> Env:
    """What tells the process of a rank where its peers are; the second of a single one is its first."""
    role, count = work.roles[0], sum(role.count for role in work.roles)
    rank = min(rank, count - 1)
    return work.job.join(Seat(role=role.name, index=rank, rank=rank, world=count, nproc=role.nproc, master=master)).env
