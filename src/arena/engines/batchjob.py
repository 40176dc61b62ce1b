"""Indexed Job with a headless Service: every cluster has it, so a plain run needs no operator.

Completion index i is rank i. With `backoffLimit: 0` one failed index ends the job, and the controller deletes the
other pods; `--keep-failed` gives each index a limit of its own instead, so that all pods stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec import field

from arena.engines import pods
from arena.engines.base import NAME_LABEL, STOPPED_ANNOTATION, Manifest, Work
from arena.engines.objects import Condition, Part, Pod, Template, Thing
from arena.job import Role, Seat
from arena.quantity import parse_duration
from arena.status import Observed, Replica

LONGEST = 63  # of a pod's host name `NAME-INDEX`, which is also a DNS label
PORT = 29500


class JobSpec(Part, frozen=True):
    """`spec` of a Job."""

    completions: int | None = None
    parallelism: int | None = None
    suspend: bool = False
    completion_mode: str = ""
    template: Template = Template()


class JobStatus(Part, frozen=True):
    """`status` of a Job."""

    active: int = 0
    ready: int = 0
    failed: int = 0
    succeeded: int = 0
    conditions: list[Condition] = field(default_factory=list)
    start_time: datetime | None = None
    completion_time: datetime | None = None


class BatchJob(Thing, frozen=True):
    """A Job."""

    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class IndexedJob:
    """The engine `job`."""

    name = "job"
    kind = "Job"
    group = "batch"
    version = "v1"
    operator = "Kubernetes"
    types = ("job", "pytorch", "jax")
    pod_label = "batch.kubernetes.io/job-name"
    container = "main"
    thing = BatchJob

    def problems(self, work: Work) -> Sequence[str]:
        """Names longer than their children may be, and roles that differ."""
        found = []
        longest = f"{work.name}-{_count(work.roles) - 1}"
        if len(longest) > LONGEST:
            found.append(
                f"--name: {work.name!r} is too long for this job: its pod's host name {longest!r}"
                f" may have {LONGEST} characters"
            )
        if len({(role.argv, role.cpu, role.memory, role.gpus, role.image) for role in work.roles}) > 1:
            found.append("the replicas of an Indexed Job are all alike; this job needs its operator")
        return found

    def render(self, work: Work) -> Manifest:
        count = _count(work.roles)
        role = work.roles[0]
        template = pods.template(work, role, self.container, env=_env(work, role, count))
        template["spec"]["subdomain"] = work.name
        limit = {"backoffLimitPerIndex": 0} if work.keep_failed else {"backoffLimit": work.job.retry}
        spec: Manifest = {
            "completions": count,
            "parallelism": count,
            "completionMode": "Indexed",
            **limit,
            "template": template,
        }
        if work.job.running_timeout:
            spec["activeDeadlineSeconds"] = int(parse_duration(work.job.running_timeout))
        if work.job.ttl_after_finished:
            spec["ttlSecondsAfterFinished"] = int(parse_duration(work.job.ttl_after_finished))
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": pods.metadata(work), "spec": spec}

    def helpers(self, work: Work) -> Sequence[Manifest]:
        """The headless Service by which ranks find each other; a single replica needs none."""
        if _count(work.roles) == 1:
            return ()
        spec = {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {self.pod_label: work.name, NAME_LABEL: work.name},
        }
        metadata = pods.metadata(work)
        metadata.pop("annotations", None)
        return ({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec},)

    def read(self, thing: BatchJob, pods_: Sequence[Pod]) -> Observed:
        found = list(_replicas(pods_, self.container))
        word, condition = _word(thing)
        return Observed(
            word=word,
            reason=condition.reason if condition and word in ("Failed", "Deadline") else "",
            message=condition.message if condition else "",
            created=_created(thing),
            started=min((r.started for r in found if r.started), default=None),
            finished=condition.last_transition_time if condition else None,
            attempt=max((r.attempt for r in found), default=1),
            replicas=tuple(_last(found)),
            earlier=tuple(_earlier(found)),
        )

    def stopped(self) -> Manifest:
        return {"spec": {"suspend": True}}


def _count(roles: Sequence[Role]) -> int:
    return sum(role.count for role in roles)


def _env(work: Work, role: Role, count: int) -> list[Manifest]:
    """The peers' contract, each rank from the annotation that the controller writes on its pod."""
    path = f"metadata.annotations['{pods.INDEX_ANNOTATION}']"
    index = {"name": pods.INDEX_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": path}}}
    master = f"{work.name}-0.{work.name}:{PORT}" if count > 1 else f"127.0.0.1:{PORT}"
    rank = f"$({pods.INDEX_VARIABLE})"
    seat = Seat(role=role.name, index=0, rank=rank, world=count, nproc=role.nproc, master=master)
    return [index, *({"name": name, "value": value} for name, value in work.job.join(seat).env.items())]


def _created(thing: Thing) -> datetime:
    assert thing.metadata.creation_timestamp
    return thing.metadata.creation_timestamp


def _word(thing: BatchJob) -> tuple[str, Condition | None]:
    """The controller's last word, with the condition that says it."""
    if thing.metadata.annotations.get(STOPPED_ANNOTATION):
        return "Stopped", None
    for condition in thing.status.conditions:
        if condition.status != "True":
            continue
        if condition.type == "Complete":
            return "Succeeded", condition
        if condition.type == "Failed":
            return ("Deadline" if condition.reason == "DeadlineExceeded" else "Failed"), condition
    if thing.spec.suspend:
        return "Suspended", None
    return ("Running" if thing.status.active else ""), None


def _replicas(pods_: Sequence[Pod], container: str) -> Iterator[Replica]:
    newest: dict[int, Pod] = {}
    for pod in sorted(pods_, key=lambda pod: str(pod.metadata.creation_timestamp)):
        newest[int(pod.metadata.annotations.get(pods.INDEX_ANNOTATION, 0))] = pod
    for index, pod in sorted(newest.items()):
        yield from pods.replicas(pod, "worker", index, index, container)


def _last(found: Sequence[Replica]) -> Iterator[Replica]:
    yield from {r.name: r for r in found}.values()


def _earlier(found: Sequence[Replica]) -> Iterator[Replica]:
    last = {id(r) for r in _last(found)}
    yield from (r for r in found if id(r) not in last)
