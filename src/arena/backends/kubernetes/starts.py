"""What has a log of its own: each start of each replica's container, numbered over restarts in place and new pods."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from arena.engines.base import Engine
from arena.engines.objects import ContainerStatus, Pod
from arena.status import Replica


class Start(Struct, frozen=True):
    """One start of one replica's container. `count` is how often the pod had restarted it before."""

    replica: str
    role: str
    index: int
    rank: int | None
    attempt: int
    pod: str
    uid: str
    container: str
    count: int

    @property
    def key(self) -> tuple[str, int]:
        """What tells it from all others."""
        return self.uid, self.count


class Seats:
    """Which replica a pod is, told once per pod: the engine knows, and it does not change."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.known: dict[str, Replica] = {}

    def starts(self, thing: Any, pods: Iterable[Pod]) -> list[Start]:
        """All starts that are known, in order per replica."""
        there = sorted(pods, key=lambda pod: (str(pod.metadata.creation_timestamp), pod.metadata.name))
        self._learn(thing, there)
        by_replica: dict[str, list[tuple[Pod, Replica]]] = defaultdict(list)
        for pod in sorted(there, key=lambda pod: pod.turn):
            if replica := self.known.get(pod.metadata.uid):
                by_replica[replica.name].append((pod, replica))
        return [start for found in by_replica.values() for start in _numbered(found, self.engine.container)]

    def _learn(self, thing: Any, pods: Sequence[Pod]) -> None:
        """The replicas of pods that are new, but for those that the engine does not take for the job's."""
        if all(pod.metadata.uid in self.known for pod in pods):
            return
        observed = self.engine.read(thing, pods)
        mine = {replica.pod: replica for replica in (*observed.earlier, *observed.replicas) if replica.pod}
        for pod in pods:
            if replica := mine.get(pod.metadata.name):
                self.known.setdefault(pod.metadata.uid, replica)


def _numbered(found: Sequence[tuple[Pod, Replica]], container: str) -> Iterator[Start]:
    before = 0
    for pod, replica in found:
        status = status_of(pod, container)
        last = _last_start(status) if status else None
        for count in range(last + 1 if last is not None else 0):
            yield Start(
                replica=replica.name,
                role=replica.role,
                index=replica.index,
                rank=replica.rank if replica.nproc == 1 else None,
                attempt=before + count + 1,
                pod=pod.metadata.name,
                uid=pod.metadata.uid,
                container=status.name if status else container,
                count=count,
            )
        before += (status.restart_count if status else 0) + 1


def _last_start(status: ContainerStatus) -> int | None:
    """The number of the last start that has happened; None before the first."""
    ends = (status.state.terminated, status.last_state.terminated)
    if status.state.running or any(end and end.has_run for end in ends):
        return status.restart_count
    return status.restart_count - 1 if status.restart_count else None


def status_of(pod: Pod, container: str) -> ContainerStatus | None:
    """The status of the container that is the replica: the one of that name, else the first."""
    found = pod.status.container_statuses
    return next((status for status in found if status.name == container), found[0] if found else None)


def has_ended(start: Start, pod: Pod) -> bool:
    """Whether this start's program has ended, as the pod says."""
    status = status_of(pod, start.container)
    if status is None:
        return pod.status.phase in ("Succeeded", "Failed")
    return status.restart_count > start.count or status.state.running is None


def is_before_last(start: Start, pod: Pod) -> bool | None:
    """Whether its log is the one before the last; None where the node keeps it no more."""
    status = status_of(pod, start.container)
    behind = status.restart_count - start.count if status else 0
    if behind > (0 if status and status.is_between_starts else 1):
        return None
    return behind == 1
