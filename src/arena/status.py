"""What state a job is in: gathered by the backends as `Observed`, decided here and nowhere else.

`decide` does no I/O; list, get, wait, notebook and page all show what it says.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from arena.job import Job


class State(enum.Enum):
    """The eight states a user sees."""

    PENDING = "PENDING"
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    UNKNOWN = "UNKNOWN"

    @property
    def final(self) -> bool:
        """Whether nothing more will happen."""
        return self in FINAL


FINAL = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED})


class Replica(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One replica in one attempt, as it was last seen.

    `exit_code` is None while it runs and when nobody saw its end (`lost`); 128 + n after signal n.
    `ended_by_us` marks an end that arena brought about, which is never the cause of a failure. `restarts` is how often
    its pod had started it before.
    """

    role: str
    index: int
    rank: int | None = None
    attempt: int = 1
    state: State = State.PENDING
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    started: datetime | None = None
    ended: datetime | None = None
    ended_by_us: bool = False
    lost: bool = False
    pids: tuple[int, ...] = ()
    node: str = ""
    gpus: int = 0
    nproc: int = 1
    memory_limit: int | None = None
    memory_peak: int | None = None
    oom_kills: int = 0
    pod: str = ""
    restarts: int = 0

    @property
    def name(self) -> str:
        """`worker-0`."""
        return f"{self.role}-{self.index}"

    @property
    def failed(self) -> bool:
        """Whether it ended badly by itself."""
        return self.exit_code not in (None, 0) and not self.ended_by_us


AboutPeer = Callable[[Replica], bool]
TIE = timedelta(seconds=2)
PEER = r"(?i)connection closed by peer|connection reset|broken pipe|NCCL"


class Observed(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What was seen of a job, before anything is concluded: the word of whoever runs it, and its replicas.

    `word` is the operator's or supervisor's condition: "" (just created), Pending, Queued, Running, Restarting,
    Suspended, Succeeded, Failed, Stopped, Deleted, Deadline, Lost, Ended. `earlier` holds the replicas of earlier
    attempts, `in_place` tells that each replica is started again alone and not the gang, `warnings` what was seen and
    that word leaves out.
    """

    word: str = ""
    reason: str = ""
    message: str = ""
    created: datetime
    started: datetime | None = None
    finished: datetime | None = None
    since: datetime | None = None
    attempt: int = 1
    replicas: tuple[Replica, ...] = ()
    earlier: tuple[Replica, ...] = ()
    in_place: bool = False
    warnings: tuple[str, ...] = ()


class Status(Struct, frozen=True, kw_only=True, gc=False):
    """The state a user sees, its reason in the words of whoever runs the job, and since when."""

    state: State
    reason: str = ""
    message: str = ""
    since: datetime | None = None


class Seen(Struct, frozen=True, kw_only=True, gc=False):
    """A job as it is now (or was, when it is gone): what `get` and `list` show and `wait` returns.

    `job` is None for jobs that others made; `patch` and `sets` changed its object. `duration` is in seconds. `cause` is
    arena's own word for the failure. `recorded` says why it is told from the record, where it is; `leaving` what
    keeps a job that was deleted.
    """

    name: str
    run_id: str
    status: Status
    observed: Observed
    backend: str = "local"
    namespace: str = ""
    trainer: str = "job"
    job: Job | None = None
    patch: Mapping[str, Any] = {}
    sets: tuple[tuple[str, Any], ...] = ()
    user: str = ""
    uid: str = ""
    duration: float = 0.0
    cause: str | None = None
    why: str = ""
    warnings: tuple[str, ...] = ()
    host: str = ""
    deleted: datetime | None = None
    parent: str = ""
    typed: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    cwd: str = ""
    engine: str = ""
    managed_by: str = ""
    recorded: str = ""
    leaving: str = ""

    @property
    def state(self) -> State:
        """Short for `status.state`."""
        return self.status.state

    @property
    def reason(self) -> str:
        """Short for `status.reason`."""
        return self.status.reason

    @property
    def first_failure(self) -> Replica | None:
        """The replica that failed first, over all attempts; None where none failed by itself."""
        return first_failure(self.observed)

    @property
    def begun(self) -> bool:
        """Whether one of its processes has started, now or in an earlier attempt."""
        known = (*self.observed.earlier, *self.observed.replicas)
        return self.state.final or self.state is State.RUNNING or any(replica.started for replica in known)

    @property
    def gpu_seconds(self) -> float:
        """How long GPUs were held: each replica's times the time it ran, over all attempts that have ended."""
        seen = (*self.observed.earlier, *self.observed.replicas)
        return sum(r.gpus * (r.ended - r.started).total_seconds() for r in seen if r.started and r.ended)

    @property
    def exit_code(self) -> int | None:
        """0, the code of the replica that failed first, or None where the job has none."""
        return exit_code(self.observed, self.status.state)


# With which a cluster takes a pod away: the scheduler for a higher priority, a drain, a node that is gone, a clean-up.
TAKEN_AWAY = ("PreemptionByScheduler", "EvictionByEvictionAPI", "DeletionByTaintManager", "DeletionByPodGC")
YOUNG = ("ContainerCreating", "PodInitializing")  # what every replica waits for, for a moment

WORDS = {
    "": State.PENDING,
    "Created": State.PENDING,
    "Pending": State.PENDING,
    "Queued": State.QUEUED,
    "Running": State.RUNNING,
    "Restarting": State.RUNNING,
    "Suspended": State.SUSPENDED,
    "Succeeded": State.SUCCEEDED,
    "Failed": State.FAILED,
    "Stopped": State.CANCELLED,
    "Deleted": State.CANCELLED,
    "Deadline": State.FAILED,
    "Lost": State.FAILED,
}


def decide(seen: Observed) -> Status:
    """The state a user sees, with its reason: the operator's word, corrected by what the replicas show.

    Words nobody knows become UNKNOWN with the word as reason.
    """
    state = WORDS.get(seen.word, State.UNKNOWN)
    if state is State.UNKNOWN:
        return Status(state=state, reason=seen.word, message=seen.message, since=seen.since)
    if state is State.PENDING and any(r.started for r in seen.replicas):
        state = State.RUNNING
    if state is State.RUNNING and seen.replicas and not any(map(_begun, (*seen.replicas, *seen.earlier))):
        state = State.PENDING  # an operator's word for pods that are made, not for processes that run
    reason, message = _reason(seen, state)
    return Status(state=state, reason=reason, message=message, since=seen.since or seen.finished or seen.created)


def _begun(replica: Replica) -> bool:
    return replica.started is not None or not (replica.state is State.PENDING or replica.lost)


def first_failure(seen: Observed, about_peer: AboutPeer | None = None) -> Replica | None:
    """The replica that failed first, over all attempts.

    Clusters stamp whole seconds and their clocks differ: among ends within two seconds of each other the one that is
    not about a lost peer comes first. `about_peer` tells by the logs; without it the last words of each replica do.
    """
    return _first((*seen.earlier, *seen.replicas), about_peer)


def last_failure(seen: Observed, about_peer: AboutPeer | None = None) -> Replica | None:
    """The replica that failed first in the last attempt: the one whose code is the job's."""
    return _first(seen.replicas, about_peer)


def _first(replicas: Iterable[Replica], about_peer: AboutPeer | None) -> Replica | None:
    failed = [replica for replica in replicas if replica.failed and replica.ended]
    failed.sort(key=lambda r: (r.ended, r.rank if r.rank is not None else r.index))
    return min(_ties(failed), key=about_peer or _says_peer, default=None)


def _ties(failed: list[Replica]) -> list[Replica]:
    """Those that may have failed first: one, where the clocks have fractions."""
    limit = failed[0].ended + TIE if failed and failed[0].ended else None
    near = [r for r in failed if limit and r.ended and r.ended <= limit]
    whole = all(r.ended and not r.ended.microsecond for r in near)
    return near if whole else failed[:1]


def _says_peer(replica: Replica) -> bool:
    """Whether the last words of a replica are about a peer that it lost."""
    lines = replica.message.strip().splitlines()
    return not replica.oom_kills and bool(lines) and re.search(PEER, lines[-1]) is not None


def telling_failure(seen: Observed) -> Replica | None:
    """The failure whose code is the job's: the first of the last attempt.

    Where each replica starts again alone, the first of those that never got well.
    """
    if not seen.in_place:
        return last_failure(seen) or first_failure(seen)
    ill = {replica.name for replica in seen.replicas if replica.failed}
    return _first([r for r in (*seen.earlier, *seen.replicas) if r.name in ill], None) or first_failure(seen)


def exit_code(seen: Observed, state: State) -> int | None:
    """The job's own code: 0, or that of the replica that failed first; None where there is none."""
    if state is State.SUCCEEDED:
        return 0
    if state is not State.FAILED or seen.word in ("Lost", "Deadline"):
        return None
    failure = telling_failure(seen)
    return failure.exit_code if failure else None


def _reason(seen: Observed, state: State) -> tuple[str, str]:
    if state is State.PENDING and not seen.reason:
        waiting = (r for r in seen.replicas if r.reason and r.reason not in YOUNG and not r.started)
        return next(((r.reason, r.message) for r in waiting), ("", seen.message))
    if state is not State.FAILED or seen.reason:
        return seen.reason, seen.message
    failure = telling_failure(seen)
    if failure is None:
        return seen.word, seen.message
    return failure.reason or "Error", seen.message or f"{failure.name} ended with code {failure.exit_code}"
