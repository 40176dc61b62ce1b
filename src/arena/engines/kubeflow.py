"""What the kinds of kubeflow.org have in common: replica specs by role, a run policy, conditions, labels of pods."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar

from msgspec import Raw, field
from msgspec.structs import force_setattr, replace

from arena.engines import gang, pods
from arena.engines.base import STOPPED_ANNOTATION, Manifest, Work
from arena.engines.gang import Asked, Key, Said
from arena.engines.objects import EMPTY, Condition, Part, Pod, Template, Thing, loosely
from arena.engines.starter import started
from arena.job import Role, shorten
from arena.quantity import whole_seconds
from arena.status import Observed

USUAL_RETRIES = 6  # of a Job that says nothing
LONGEST = 63  # of a DNS label, and of a label's value

JOB_NAME = "training.kubeflow.org/job-name"
OPERATOR = "training.kubeflow.org/operator-name"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
REPLICA_INDEX = "training.kubeflow.org/replica-index"
JOB_ROLE = "training.kubeflow.org/job-role"
QUEUE_ANNOTATION = "scheduling.x-k8s.io/suspend"

DEADLINE = "DeadlineExceeded"
WORDS = ("Created", "Queued", "Running", "Restarting", "Suspended", "Succeeded", "Failed")


class RunPolicy(Part, frozen=True):
    """`spec.runPolicy`, or the same names in an old spec itself."""

    suspend: bool | None = None
    clean_pod_policy: str | None = None


class ReplicaSpec(Part, frozen=True):
    """The replicas of one role."""

    replicas: int | None = None
    restart_policy: str = ""
    template: Template = Template()


class ReplicaStatus(Part, frozen=True):
    """How many pods of one role there are."""

    active: int = 0
    succeeded: int = 0
    failed: int = 0


class JobSpec(Part, frozen=True):
    """`spec` of any of these kinds: replica specs under the kind's own name."""

    run_policy: RunPolicy = RunPolicy()
    pytorch_replica_specs: dict[str, ReplicaSpec] = field(default_factory=dict)
    tf_replica_specs: dict[str, ReplicaSpec] = field(default_factory=dict)
    mpi_replica_specs: dict[str, ReplicaSpec] = field(default_factory=dict)
    replicas: int | None = None  # workers, and their template, of the first MPIJobs
    template: Template = Template()


class JobStatus(Part, frozen=True):
    """`status` of any of these kinds."""

    conditions: list[Condition] = field(default_factory=list)
    replica_statuses: dict[str, ReplicaStatus] = field(default_factory=dict)
    start_time: datetime | None = None
    completion_time: datetime | None = None
    launcher_status: str = ""  # of the first MPIJobs, which have no conditions


class ReplicaJob(Thing, frozen=True):
    """A job of kubeflow.org; parts of the wrong type, which an old schema lets through, get their defaults."""

    raw_spec: Raw = field(default=EMPTY, name="spec")
    raw_status: Raw = field(default=EMPTY, name="status")
    spec: JobSpec = field(default=JobSpec(), name="-spec")
    status: JobStatus = field(default=JobStatus(), name="-status")

    def __post_init__(self) -> None:
        force_setattr(self, "spec", loosely(self.raw_spec, JobSpec))
        force_setattr(self, "status", loosely(self.raw_status, JobStatus))


class ReplicaEngine:
    """The engine of a kind of kubeflow.org; each kind adds its names and roles."""

    name: ClassVar[str]
    kind: ClassVar[str]
    group: ClassVar[str] = "kubeflow.org"
    version: ClassVar[str] = "v1"
    operator: ClassVar[str] = "the training operator"
    types: ClassVar[tuple[str, ...]]
    pod_label: ClassVar[str] = JOB_NAME
    container: ClassVar[str]
    thing: ClassVar[type[Thing]] = ReplicaJob
    controllers: ClassVar[tuple[str, ...]]
    specs: ClassVar[str]  # the name under which the kind keeps its replica specs
    order: ClassVar[tuple[str, ...]]  # roles in the order of their ranks
    unranked: ClassVar[tuple[str, ...]] = ()
    forgets: ClassVar[bool] = True  # whether the operator may not look when the time is over: the kubelet does
    limited: ClassVar[bool] = False  # whether the operator starts a failed replica again where no limit stands

    def problems(self, work: Work) -> Sequence[str]:
        """Names longer than the pods and services of this kind may have."""
        longest = max((self.child(work, role) for role in self.carried(work)), key=len)
        return [*pods.problems(work), *name_problems(work, self.kind, longest)]

    def child(self, work: Work, role: Role) -> str:
        """The longest name that the operator makes for a role."""
        return f"{work.name}-{role.name}-{role.count - 1}"

    def carried(self, work: Work) -> Sequence[Role]:
        """The job's roles as this kind has them."""
        return work.roles

    def names(self, work: Work) -> Sequence[Role]:
        """The roles by the names that people see: those of the job's type."""
        return work.roles

    def render(self, work: Work) -> Manifest:
        metadata = pods.metadata(work)
        metadata["annotations"] = {**metadata.get("annotations", {}), **gang.remembered(self.names(work))}
        return {
            "apiVersion": f"{self.group}/{self.version}",
            "kind": self.kind,
            "metadata": metadata,
            "spec": {**self.policy(work), **self.own(work), self.specs: self.replica_specs(work)},
        }

    def own(self, work: Work) -> Manifest:
        """What only this kind has in its spec."""
        return {}

    def policy(self, work: Work) -> Manifest:
        """The run policy: in its place, or, as the first generation has it, in the spec itself."""
        found: Manifest = {"cleanPodPolicy": work.job.clean_task_policy or self.clean(work)}
        if work.job.running_timeout:
            found["activeDeadlineSeconds"] = whole_seconds(work.job.running_timeout)
        if work.job.ttl_after_finished:
            found["ttlSecondsAfterFinished"] = whole_seconds(work.job.ttl_after_finished)
        retries = work.job.retry or self.usual_retries(work)
        if retries or self.is_limited(work):
            found["backoffLimit"] = retries
        return {"runPolicy": found} if self.knows(work, "runPolicy") else found

    def usual_retries(self, work: Work) -> int:
        """How often replicas are started again where a policy was typed and no number: each as often as by a Job."""
        return 0 if work.job.restart_policy == "Never" else USUAL_RETRIES * self.counted(work)

    def counted(self, work: Work) -> int:
        """The replicas whose starts the operator counts together."""
        return sum(role.count for role in self.carried(work))

    def is_limited(self, work: Work) -> bool:
        """Whether `backoffLimit` is written where it is 0, too."""
        return self.limited

    def knows(self, work: Work, field: str) -> bool:
        """Whether the served kind has this field in its spec; one whose schema cannot be read has them all."""
        known = work.served[self.key].properties if self.key in work.served else ()
        return not known or field in known

    @property
    def key(self) -> str:
        """`TFJob.kubeflow.org`."""
        return f"{self.kind}.{self.group}"

    def clean(self, work: Work) -> str:
        """Which pods go at the end: those that still run, so that a gang that failed holds no GPUs; the others stay."""
        return "None" if work.keep_failed else "Running"

    def replica_specs(self, work: Work) -> Manifest:
        """The replica specs by role."""
        return {self.spelled(role): self.replica_spec(work, role) for role in self.carried(work)}

    def spelled(self, role: Role) -> str:
        """The role as the kind spells it."""
        return role.name.capitalize()

    def replica_spec(self, work: Work, role: Role) -> Manifest:
        """One role: how many, how they are started again, and their pods."""
        template = pods.template(work, started(role), self.container, env=self.env(work, role))
        template["spec"].pop("restartPolicy", None)  # the operator writes it, from the replica spec
        if self.forgets and work.job.running_timeout:
            template["spec"]["activeDeadlineSeconds"] = whole_seconds(work.job.running_timeout)
        return {"replicas": role.count, "restartPolicy": self.restarts(work, role), "template": template}

    def restarts(self, work: Work, role: Role) -> str:
        """When a replica is started again."""
        job = work.job
        return "OnFailure" if job.retry and job.restart_policy == "Never" else job.restart_policy

    def env(self, work: Work, role: Role) -> list[Manifest]:
        """What the processes of a role are told beyond what the operator writes."""
        return []

    def helpers(self, work: Work) -> Sequence[Manifest]:
        """None: the operator makes the services."""
        return ()

    def stopped(self) -> Manifest:
        return {"spec": {"runPolicy": {"suspend": True}}}

    # --- reading ---

    def read(self, thing: Any, pods_: Sequence[Pod]) -> Observed:
        found = gang.spots(self.asked(thing), thing)
        said = self.corrected(thing, self.said(thing), pods_)
        return gang.observe(thing, said, found, pods_, self.place, self.container)

    def asked(self, thing: ReplicaJob) -> list[Asked]:
        """The roles of an object, in the order of their ranks."""
        specs = {name.lower(): spec for name, spec in self.specs_of(thing).items()}
        names = [*(name for name in self.order if name in specs), *(name for name in specs if name not in self.order)]
        return [
            Asked(name, _count(specs[name].replicas), specs[name].template, name not in self.unranked) for name in names
        ]

    def specs_of(self, thing: ReplicaJob) -> dict[str, ReplicaSpec]:
        """The replica specs of an object."""
        raise NotImplementedError

    def place(self, pod: Pod) -> Key | None:
        """Which replica a pod is, by the operator's labels."""
        labels = pod.metadata.labels
        if labels.get(OPERATOR, self.controllers[0]) not in self.controllers:
            return None
        role = labels.get(REPLICA_TYPE) or labels.get(JOB_ROLE)
        index = labels.get(REPLICA_INDEX, "0")
        return (role.lower(), int(index)) if role and index.isdecimal() else None

    def said(self, thing: ReplicaJob) -> Said:
        """The operator's last word: a final one, else the newest that is known."""
        status = thing.status
        true = gang.true_conditions(status.conditions)
        known = [name for name in true if name in WORDS]
        word = next((name for name in ("Failed", "Succeeded", "Suspended") if name in true), "")
        word = word or (known or [*true] or [_first_word(status)])[-1]
        condition = true.get(word, Condition())
        over = word in ("Failed", "Succeeded")
        return Said(
            word=word,
            reason="Restarting" if word == "Restarting" else condition.reason if word == "Failed" else "",
            message=condition.message if word in ("Failed", "Restarting", "Suspended") else "",
            started=status.start_time,
            finished=(status.completion_time or condition.last_transition_time) if over else None,
            since=condition.last_transition_time,
            active=any(one.active for one in status.replica_statuses.values()),
            cleans=thing.spec.run_policy.clean_pod_policy in ("Running", "All"),
        )

    def corrected(self, thing: ReplicaJob, said: Said, pods_: Sequence[Pod]) -> Said:
        """The word with what the object itself knows better: stopped, queued, over its time, unseen."""
        stopped = thing.metadata.annotations.get(STOPPED_ANNOTATION)
        if stopped and said.word != "Succeeded":
            return replace(said, word="Stopped", reason="Stopped", message=stopped, finished=said.since)
        if said.word == "Failed" and (is_deadline(said) or any(pod.status.reason == DEADLINE for pod in pods_)):
            return replace(said, word="Deadline", reason=DEADLINE)
        if said.word == "Suspended" or (thing.spec.run_policy.suspend and not said.finished):
            return _suspended(thing, said)
        if not said.word and not thing.status.conditions:
            words = f"not yet seen by its controller ({self.operator})"
            return replace(said, reason="NotYetSeen", message=words)
        if said.word == "Restarting" and self._is_over(thing, pods_):
            line = f"{self.operator} says that it is restarting, but its code is not one that is tried again"
            return replace(said, word="Failed", reason="", warnings=(*said.warnings, line), finished=said.since)
        return said

    def _is_over(self, thing: ReplicaJob, pods_: Sequence[Pod]) -> bool:
        """Whether all pods have ended, one of them with a code for which its policy starts nothing again."""
        policies = {name.lower(): spec.restart_policy for name, spec in self.specs_of(thing).items()}
        once = [pod for pod in pods_ if (key := self.place(pod)) and policies.get(key[0]) == "ExitCode"]
        codes = [code for pod in once for code in _codes(pod, self.container)]
        return all(pod.status.phase in ("Failed", "Succeeded") for pod in pods_) and any(0 < c < 128 for c in codes)


def _codes(pod: Pod, container: str) -> list[int]:
    """The code of the container, where it has ended."""
    ends = [one.state.terminated for one in pod.status.container_statuses if one.name == container]
    return [end.exit_code for end in ends if end]


def name_problems(work: Work, kind: str, longest: str) -> Sequence[str]:
    """The name's length, against that of its longest child."""
    if len(longest) <= LONGEST:
        return ()
    room = LONGEST - (len(longest) - len(work.name))
    what = f"--name: {work.name!r} has {len(work.name)} characters, a {kind} of this size has room for {room}"
    return (f"{what}: its pod's name {longest!r} may have {LONGEST}; {shorten(work.name, room)!r} fits",)


def _count(replicas: int | None) -> int:
    return 1 if replicas is None else max(0, replicas)


def _first_word(status: JobStatus) -> str:
    """The word of an object that has no conditions."""
    return {"Active": "Running", "Succeeded": "Succeeded", "Failed": "Failed"}.get(status.launcher_status, "")


def is_deadline(said: Said) -> bool:
    """Whether the job failed by its time limit."""
    return said.reason == DEADLINE or "longer than specified deadline" in said.message


def _suspended(thing: ReplicaJob, said: Said) -> Said:
    """Suspended, or waiting in a queue that lets it start."""
    labels, annotations = thing.metadata.labels, thing.metadata.annotations
    if any(label in labels for label in gang.QUEUE_LABELS) or annotations.get(QUEUE_ANNOTATION) == "true":
        return replace(said, word="Queued", reason="Queue", active=False)
    return replace(said, word="Suspended", reason="Suspended", active=False)
