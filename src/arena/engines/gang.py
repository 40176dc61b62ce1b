"""The replicas of a job on a cluster: which ones its object asks for, and the pods that are (or were) theirs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from arena.engines import pods as reading
from arena.engines import results
from arena.engines.base import ROLES_ANNOTATION
from arena.engines.objects import Condition, Pod, Template, Thing
from arena.engines.starter import processes
from arena.job import Env, Role
from arena.quantity import few
from arena.status import TAKEN_AWAY, Observed, Replica, State

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOST = 10_000  # replicas that are told one by one, whatever an object says
OVER = {
    "Succeeded": State.SUCCEEDED,
    "Failed": State.CANCELLED,
    "Deadline": State.CANCELLED,
    "Stopped": State.CANCELLED,
}
QUEUE_LABELS = ("kueue.x-k8s.io/queue-name",)
QUIET = ("", "ContainerCreating", "PodInitializing", "NotSeen")

Key = tuple[str, int]  # a role in the kind's own words, and the number within it
Place = Callable[[Pod], Key | None]


class Asked(Struct, frozen=True):
    """The replicas of one role, as the object asks for them."""

    role: str
    count: int
    template: Template = Template()
    ranked: bool = True


class Spot(Struct, frozen=True, kw_only=True):
    """One replica that the object asks for."""

    role: str
    index: int
    rank: int | None
    template: Template


class Said(Struct, frozen=True, kw_only=True):
    """What whoever carries the job out says of it.

    `active` tells that there are pods, whoever may read them, `cleans` that those that still run at the end are ended.
    """

    word: str = ""
    reason: str = ""
    message: str = ""
    started: datetime | None = None
    finished: datetime | None = None
    since: datetime | None = None
    active: bool = False
    cleans: bool = False
    warnings: tuple[str, ...] = ()


def remembered(roles: Sequence[Role]) -> Env:
    """The annotation by which the replicas keep the names that the job's type gives them.

    >>> remembered([Role(name="master", count=1), Role(name="worker", count=3)])
    {'arena.kubeflow.org/roles': 'master=1,worker=3'}
    """
    return {ROLES_ANNOTATION: ",".join(f"{role.name}={role.count}" for role in roles)}


def spots(asked: Iterable[Asked], thing: Thing) -> dict[Key, Spot]:
    """Every replica the object asks for, by what its pods say: ranks in the order of the roles."""
    found: dict[Key, Spot] = {}
    rank = 0
    for role in asked:
        nproc = nproc_of(role.template)
        for index in range(min(role.count, MOST)):
            place = rank if role.ranked else None
            found[role.role, index] = Spot(role=role.role, index=index, rank=place, template=role.template)
            rank += nproc if role.ranked else 0
    return _renamed(found, thing.metadata.annotations.get(ROLES_ANNOTATION, ""))


def nproc_of(template: Template) -> int:
    """How many processes each replica of a template starts."""
    return max((processes(results.kept(one.command)) for one in template.spec.containers), default=1)


def _renamed(found: dict[Key, Spot], words: str) -> dict[Key, Spot]:
    """The replicas with the names that were remembered, where there are as many."""
    names = [*_names(words)]
    if len(names) != len(found):
        return found
    return {
        key: replace(spot, role=role, index=index)
        for (key, spot), (role, index) in zip(found.items(), names, strict=True)
    }


def _names(words: str) -> Iterator[Key]:
    for word in words.split(","):
        role, _, count = word.partition("=")
        if role and count.isdecimal():
            yield from ((role, index) for index in range(min(int(count), MOST)))


def observe(
    thing: Thing, said: Said, spots: Mapping[Key, Spot], pods: Sequence[Pod], place: Place, container: str
) -> Observed:
    """What is seen of a job: the word of its controller, and every replica in every attempt."""
    by_key = _by_key(thing, pods, place)
    kept = _kept_alive(by_key, container)
    seen = [_replicas(key, spots.get(key), by_key[key], container) for key in {**spots, **by_key}]
    missing = _missing(said.word, active=said.active and not pods)
    last = [found[-1] if found else missing(spot) for found, spot in zip(seen, spots_of(spots, by_key), strict=True)]
    earlier = [replica for found in seen for replica in found[:-1]]
    said = _ended(said, last, kept)
    word = said.word
    reason, message = _reason(said, last, earlier)
    return Observed(
        word=word,
        reason=reason,
        message=message,
        created=created(thing),
        started=_first_start(said, (*earlier, *last)),
        finished=said.finished,
        since=said.since,
        attempt=max((r.attempt for r in last), default=1),
        replicas=tuple(last),
        earlier=tuple(earlier),
        in_place=True,
        warnings=(*said.warnings, *kept.values(), *_disagreements(said, last), *_restarts(word, last, earlier)),
    )


def _first_start(said: Said, seen: Sequence[Replica]) -> datetime | None:
    """When its first program started: as its replicas show it, else its controller, where they show less than all."""
    starts = [replica.started for replica in seen if replica.started]
    first = {replica.name: replica.attempt for replica in sorted(seen, key=lambda one: -one.attempt)}
    hidden = any(attempt > 1 for attempt in first.values()) or not any(replica.pod for replica in seen)
    return min([*starts, *([said.started] if hidden and said.started else [])], default=None)


def created(thing: Thing) -> datetime:
    """When the object was made."""
    return thing.metadata.creation_timestamp or EPOCH


def spots_of(spots: Mapping[Key, Spot], by_key: Mapping[Key, Sequence[Pod]]) -> list[Spot]:
    """The replicas that are asked for and those of which there are only pods."""
    return [
        spots.get(key) or Spot(role=key[0], index=key[1], rank=None, template=Template()) for key in {**spots, **by_key}
    ]


def _kept_alive(by_key: Mapping[Key, Sequence[Pod]], container: str) -> dict[Key, str]:
    """The replicas that have ended while another container keeps the pod alive, each with a line that says so."""
    found = {}
    for key, pods in by_key.items():
        others = reading.still_running(pods[-1], container)
        if others:
            found[key] = f"{pods[-1].metadata.name} has ended; {', '.join(others)} keeps the pod alive"
    return found


def _ended(said: Said, last: Sequence[Replica], kept: Mapping[Key, str]) -> Said:
    """The controller's word, but that a job whose replicas have all ended and only sidecars run on has ended."""
    if said.word != "Running" or not kept or not all(r.ended for r in last):
        return said
    word = "Failed" if any(r.failed for r in last) else "Succeeded"
    return replace(said, word=word, finished=max(r.ended for r in last if r.ended))


def _by_key(thing: Thing, pods: Iterable[Pod], place: Place) -> dict[Key, list[Pod]]:
    """The pods of this very object, by replica, oldest first."""
    found: dict[Key, list[Pod]] = defaultdict(list)
    for pod in sorted(pods, key=lambda pod: (pod.metadata.creation_timestamp or EPOCH, pod.metadata.name)):
        key = place(pod) if _is_of(pod, thing) else None
        if key is not None:
            found[key].append(pod)
    for mine in found.values():
        mine.sort(key=lambda pod: pod.turn)
    return found


def _is_of(pod: Pod, thing: Thing) -> bool:
    """Whether a pod is this object's: not of an earlier one of its name, nor of another kind."""
    made = pod.metadata.creation_timestamp
    if made and made < created(thing):
        return False
    kinds = [owner for owner in pod.metadata.owner_references if owner.kind == thing.kind and owner.name]
    return all(owner.uid == thing.metadata.uid for owner in kinds if thing.metadata.uid)


def _replicas(key: Key, spot: Spot | None, pods: Sequence[Pod], container: str) -> list[Replica]:
    """All attempts of one replica, the last one as it is now; attempts go on counting when a pod is replaced."""
    role, index = (spot.role, spot.index) if spot else key
    found: list[Replica] = []
    before = 0
    for pod in pods:
        found = [one for one in found if one.attempt <= before]  # not the start that an older pod still waited for
        for replica in reading.replicas(pod, role, index, spot.rank if spot else None, container):
            found.append(replace(replica, attempt=replica.attempt + before))
        before += found[-1].restarts + 1
    return found


def _missing(word: str, *, active: bool) -> Callable[[Spot], Replica]:
    """What is known of a replica without a pod: it will come, or it is gone and nobody saw how it ended."""
    state = OVER.get(word, State.SUSPENDED if word == "Suspended" else State.PENDING)
    unseen = word in OVER

    def make(spot: Spot) -> Replica:
        base = reading.planned(spot.template, spot.role, spot.index, spot.rank)
        if active and not unseen:
            return replace(base, state=State.RUNNING, reason="NotSeen")
        if not unseen:
            return replace(base, state=state)
        return replace(base, state=state, reason="NotSeen", ended_by_us=word != "Succeeded")

    return make


def _reason(said: Said, last: Sequence[Replica], earlier: Sequence[Replica]) -> tuple[str, str]:
    """The reason people see: why replicas wait, what failed without a code, else the controller's word."""
    if said.word == "Failed":
        if any(replica.failed for replica in (*earlier, *last)):
            return "", ""  # the failed replica says more
        lost = next((r for r in last if (r.lost or r.reason in TAKEN_AWAY) and r.reason not in QUIET), None)
        return (lost.reason, lost.message or said.message) if lost else (said.reason, said.message)
    if said.word in ("", "Created", "Pending", "Queued", "Running", "Restarting"):
        waits = next((r for r in last if r.state is State.PENDING and r.reason not in QUIET), None)
        if waits:
            return waits.reason, waits.message
    if said.reason == "NotYetSeen" and any(r.pod for r in last):
        return "", ""
    leaving = next((r for r in last if r.state is State.RUNNING and r.reason not in QUIET), None)
    if said.word == "Running" and leaving:
        return leaving.reason, leaving.message or said.message
    return said.reason, said.message


def _disagreements(said: Said, last: Sequence[Replica]) -> Iterator[str]:
    """What the pods show and a final word leaves out."""
    on = [r.name for r in last if r.state is State.RUNNING]
    if said.word in ("Succeeded", "Failed") and not said.cleans and on:
        yield f"still running, though the job has ended: {few(on)}; deleting the job ends them"
    yield from unlike_success(said.word, last)


def unlike_success(word: str, last: Sequence[Replica]) -> Iterator[str]:
    """What replicas of a job that is said to have succeeded show else."""
    for what, names in alike((r, _unlike_success(r)) for r in last if word == "Succeeded"):
        yield f"{few(names)} {what}"


def _unlike_success(replica: Replica) -> str:
    though = "though the job is said to have succeeded"
    if replica.failed:
        return f"ended with code {replica.exit_code}, {though}"
    if replica.state is not State.PENDING:
        return ""
    return ": ".join(part for part in (f"never started, {though}", replica.reason, replica.message) if part)


def _restarts(word: str, last: Sequence[Replica], earlier: Sequence[Replica]) -> Iterator[str]:
    """Replicas that fail and are started again while the job is said to run."""
    if word not in ("Running", "Restarting"):
        return
    ends = {replica.name: replica for replica in earlier if replica.failed}
    often = {r.name: r.restarts for r in last}
    for what, names in alike((r, _end(ends[r.name])) for r in last if r.restarts and r.name in ends):
        most = max(often[name] for name in names)
        verb = "was started again" if len(names) == 1 else "were started again up to"
        yield f"{few(names)} {verb} {most} times: {what}"


def _end(replica: Replica) -> str:
    at = f" at its memory limit of {replica.memory_limit} bytes" if replica.oom_kills and replica.memory_limit else ""
    return f"{replica.reason or 'Error'}{at}, code {replica.exit_code}"


def alike(said: Iterable[tuple[Replica, str]]) -> Iterator[tuple[str, list[str]]]:
    """What is said of replicas, and the names of those of which it is; nothing of those of which nothing is."""
    found: dict[str, list[str]] = defaultdict(list)
    for replica, what in said:
        found[what].append(replica.name)
    return ((what, names) for what, names in found.items() if what)


# --- words of conditions --------------------------------------------------------------------------------------


def true_conditions(conditions: Iterable[Condition]) -> dict[str, Condition]:
    """The conditions that hold, by type, the newest last."""
    return {one.type: one for one in conditions if one.status == "True"}
