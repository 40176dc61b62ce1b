"""Indexed Job with a headless Service: every cluster has it, so a plain run needs no operator.

Completion index i is rank i. With `backoffLimit: 0` one failed index ends the job, and the controller deletes the
other pods; `--keep-failed` gives each index a limit of its own instead, so that all pods stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec import field
from msgspec.structs import replace

from arena.engines import gang, pods, ranks
from arena.engines.base import NAME_LABEL, STOPPED_ANNOTATION, Manifest, Work
from arena.engines.gang import Asked, Key, Said
from arena.engines.kubeflow import USUAL_RETRIES, name_problems
from arena.engines.objects import Condition, Part, Pod, Template, Thing
from arena.engines.starter import started
from arena.job import Role
from arena.quantity import whole_seconds
from arena.status import Observed, State

PORT = 29500
IN_PLACE = ("OnFailure", "Always")  # policies by which the kubelet starts a container again


# Waits until rank 0, $1, is found by its name, which comes a moment after its pod: at most a minute, and not at all
# where no program of the image can look.
FIND = r"""has() { command -v "$1" >/dev/null 2>&1; }
if has getent; then look() { getent hosts "$1"; }
elif has python3; then look() { python3 -c 'import socket,sys;socket.gethostbyname(sys.argv[1])' "$1"; }
elif has nslookup; then look() { nslookup "$1"; }
else exit 0; fi
n=0; until look "$1" >/dev/null 2>&1 || [ $n -ge 200 ]; do n=$((n+1)); sleep 0.3; done
"""


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
        longest = f"{work.name}-{_count(work.roles) - 1}"
        found = [*pods.problems(work), *name_problems(work, self.kind, longest)]
        return [*found, *unlike(work, _first(work), "an Indexed Job")]

    def render(self, work: Work) -> Manifest:
        spec = job_spec(work, self.container, _first(work))
        if work.job.ttl_after_finished:
            spec["ttlSecondsAfterFinished"] = whole_seconds(work.job.ttl_after_finished)
        metadata = pods.metadata(work)
        metadata["annotations"] = {**metadata.get("annotations", {}), **gang.remembered(work.roles)}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}

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
        spec = thing.spec
        wanted = spec.completions if spec.completions is not None else spec.parallelism
        count = 1 if wanted is None else wanted
        ranked = spec.completion_mode == "Indexed" or count == 1
        found = gang.spots([Asked("worker", count, spec.template, ranked)], thing)
        return gang.observe(thing, timed_out(_said(thing), pods_), found, pods_, _Places(), self.container)

    def stopped(self) -> Manifest:
        return {"spec": {"suspend": True}}


def unlike(work: Work, first: str, kind: str) -> Iterator[str]:
    """What one template cannot be: replicas that differ."""
    yield from ranks.unlike(work, _master(work, first))
    if len({(role.argv, role.cpu, role.memory, role.gpus, role.image) for role in work.roles}) > 1:
        yield f"the replicas of {kind} are all alike; this job needs its operator"


def timed_out(said: Said, pods_: Sequence[Pod]) -> Said:
    """The word of a job that failed because the time of a pod was over."""
    late = next((pod.status for pod in pods_ if pod.status.reason == "DeadlineExceeded"), None)
    if said.word != "Failed" or late is None:
        return said
    return replace(said, word="Deadline", reason=late.reason, message=late.message)


def job_spec(work: Work, container: str, first: str) -> Manifest:
    """What a Job says of a gang of which one template serves all ranks; rank 0 is found by the name `first`."""
    count = _count(work.roles)
    env = ranks.told(work, _master(work, first))
    template = pods.template(work, started(work.roles[0]), container, env=env)
    template["spec"]["subdomain"] = work.name
    if count > 1:
        peers = pods.own_init("arena-peers", template["spec"]["containers"][0], FIND, first)
        template["spec"].setdefault("initContainers", []).append(peers)
    template["spec"]["restartPolicy"] = restarts(work)
    if work.job.running_timeout:  # of the pod: a job's own would count while it waits for a node
        template["spec"]["activeDeadlineSeconds"] = whole_seconds(work.job.running_timeout)
    return {
        "completions": count,
        "parallelism": count,
        "completionMode": "Indexed",
        **limits(work, container),
        "template": template,
    }


def restarts(work: Work) -> str:
    """Whether the kubelet starts a container of a Job again, or the Job replaces its pod."""
    return "OnFailure" if work.job.restart_policy in IN_PLACE else "Never"


def limits(work: Work, container: str) -> Manifest:
    """How often failed pods of a Job come again: not at all, as often as `retry` says, or as a Job does by itself."""
    job = work.job
    if work.keep_failed:
        return {"backoffLimitPerIndex": 0}
    found: Manifest = {"backoffLimit": job.retry or (0 if job.restart_policy == "Never" else USUAL_RETRIES)}
    if job.restart_policy == "ExitCode":
        own = {"containerName": container, "operator": "In", "values": [*range(1, 128)]}
        found["podFailurePolicy"] = {"rules": [{"action": "FailJob", "onExitCodes": own}]}
    return found


def _first(work: Work) -> str:
    """The name of rank 0's pod."""
    return f"{work.name}-0.{work.name}"


def _master(work: Work, first: str) -> str:
    """Where rank 0 is found; a single replica finds itself."""
    return f"{first}:{PORT}" if _count(work.roles) > 1 else f"127.0.0.1:{PORT}"


def _count(roles: Sequence[Role]) -> int:
    return sum(role.count for role in roles)


class _Places:
    """The place of each pod, asked oldest first: its index, else that of one that failed before, else a new one."""

    def __init__(self) -> None:
        self.last: list[Pod] = []

    def __call__(self, pod: Pod) -> Key:
        index = pod.metadata.annotations.get(pods.INDEX_ANNOTATION, "")
        if index.isdecimal():
            return "worker", int(index)
        place = next((number for number, last in enumerate(self.last) if _replaces(pod, last)), len(self.last))
        self.last[place : place + 1] = [pod]
        return "worker", place


def _replaces(pod: Pod, last: Pod) -> bool:
    """Whether a pod was made after another had failed: seconds later, so what has one stamp stands side by side."""
    made, end = pod.metadata.creation_timestamp, pods.replicas(last, "worker", 0, None, IndexedJob.container)[-1]
    return end.state is State.FAILED and made is not None and (end.ended is None or end.ended < made)


def _said(thing: BatchJob) -> Said:
    """The controller's last word."""
    status = thing.status
    true = gang.true_conditions(status.conditions)
    stopped = thing.metadata.annotations.get(STOPPED_ANNOTATION)
    begun = Said(started=status.start_time, active=bool(status.active))
    if ended := true.get("Complete"):
        return replace(begun, word="Succeeded", finished=status.completion_time or ended.last_transition_time)
    if stopped:
        at = true["Suspended"].last_transition_time if "Suspended" in true else None
        return replace(begun, word="Stopped", reason="Stopped", message=stopped, finished=at)
    if ended := true.get("Failed"):
        word = "Deadline" if ended.reason == "DeadlineExceeded" else "Failed"
        at = ended.last_transition_time
        return replace(begun, word=word, reason=ended.reason, message=ended.message, finished=at)
    if thing.spec.suspend:
        queued = any(label in thing.metadata.labels for label in gang.QUEUE_LABELS)
        word, reason = ("Queued", "Queue") if queued else ("Suspended", "Suspended")
        return replace(begun, word=word, reason=reason, active=False)
    if ending := true.get("FailureTarget"):  # it ends when the last of its pods is gone
        return replace(begun, word="Running", reason="Failing", message=ending.message)
    if status.start_time is None:
        return replace(begun, reason="NotYetSeen", message="not yet seen by its controller (Kubernetes)")
    return replace(begun, word="Running" if status.active else "")
