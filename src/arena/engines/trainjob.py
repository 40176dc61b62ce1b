"""TrainJob of Trainer v2: replicas of a runtime, which a JobSet and an Indexed Job carry out.

The runtime has the pod template; what a TrainJob can say of pods itself is little, and differs by version. So a job
brings a runtime of its own, with the pods of an Indexed Job, and says which one, and how many. The operator adds what
torchrun reads. TrainJobs of others have published runtimes, and say image, command and resources themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Raw, field
from msgspec.structs import force_setattr, replace

from arena.engines import gang, pods
from arena.engines.base import PART_LABEL, STOPPED_ANNOTATION, Manifest, Work
from arena.engines.batchjob import job_spec, timed_out, unlike
from arena.engines.gang import Asked, Key, Said
from arena.engines.kubeflow import name_problems
from arena.engines.objects import EMPTY, Condition, Part, Pod, Resources, Template, Thing, Variable, loosely
from arena.engines.objects import Container as ContainerPart
from arena.engines.objects import PodSpec as PodPart
from arena.engines.starter import started
from arena.job import Role
from arena.status import Observed

NODE = "node"  # the runtime's replicated job, and its container
STEP = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}  # marks the replicated job that runs the program
INDEX = "batch.kubernetes.io/job-completion-index"
REPLICATED = "jobset.sigs.k8s.io/replicatedjob-name"
NPROC_ANNOTATION = "arena.kubeflow.org/nproc"
# Variables that the operator writes over those of the template.
WRITTEN = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
LETTERS = "xxxxx"  # that the Job adds to a pod's name; a JobSet asks for room for them


class Trainer(Part, frozen=True):
    """`spec.trainer`."""

    image: str = ""
    command: list[str] = field(default_factory=list)
    args: list[str] = field(default_factory=list)
    env: list[Variable] = field(default_factory=list)
    num_nodes: int | None = None
    resources_per_node: Resources = Resources()


class TrainSpec(Part, frozen=True):
    """`spec` of a TrainJob."""

    trainer: Trainer = Trainer()
    suspend: bool | None = None


class JobsStatus(Part, frozen=True):
    """One of the Jobs below it."""

    name: str = ""
    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    suspended: int = 0


class TrainStatus(Part, frozen=True):
    """`status` of a TrainJob."""

    conditions: list[Condition] = field(default_factory=list)
    jobs_status: list[JobsStatus] = field(default_factory=list)


class TrainJob(Thing, frozen=True):
    """A TrainJob; `template` is the part of its pods that it says itself."""

    raw_spec: Raw = field(default=EMPTY, name="spec")
    raw_status: Raw = field(default=EMPTY, name="status")
    spec: TrainSpec = field(default=TrainSpec(), name="-spec")
    status: TrainStatus = field(default=TrainStatus(), name="-status")
    template: Template = field(default=Template(), name="-template")

    def __post_init__(self) -> None:
        spec = loosely(self.raw_spec, TrainSpec)
        force_setattr(self, "spec", spec)
        force_setattr(self, "status", loosely(self.raw_status, TrainStatus))
        force_setattr(self, "template", _template(spec.trainer, self.metadata.annotations.get(NPROC_ANNOTATION, "")))


def _template(trainer: Trainer, nproc: str) -> Template:
    """What is known of the pods; of a command that only the runtime has, how many processes it starts."""
    stand_in = started(Role(argv=("python3",), nproc=int(nproc))).argv if nproc.isdecimal() else ()
    main = ContainerPart(
        name=NODE,
        image=trainer.image,
        command=trainer.command or [*stand_in],
        args=trainer.args,
        env=trainer.env,
        resources=trainer.resources_per_node,
    )
    return Template(spec=PodPart(containers=[main]))


class TrainJobEngine:
    """The engine `trainjob`."""

    name = "trainjob"
    kind = "TrainJob"
    group = "trainer.kubeflow.org"
    version = "v1alpha1"
    operator = "the Kubeflow Trainer"
    types = ("pytorch", "job")
    pod_label = "jobset.sigs.k8s.io/jobset-name"
    container = NODE
    thing = TrainJob

    def problems(self, work: Work) -> Sequence[str]:
        """Names too long for their pods, roles that differ, and what the operator does with no job or writes itself."""
        names = name_problems(work, self.kind, f"{work.name}-{NODE}-0-{_count(work) - 1}-{LETTERS}")
        return [*pods.problems(work), *names, *unlike(work, _first(work), "a TrainJob"), *_against(work)]

    def render(self, work: Work) -> Manifest:
        metadata = pods.metadata(work)
        metadata["annotations"] = {**metadata.get("annotations", {}), **_remembered(work)}
        spec = {"runtimeRef": {"kind": "TrainingRuntime", "name": work.run_id}, "trainer": _trainer(work)}
        return {
            "apiVersion": f"{self.group}/{self.version}",
            "kind": self.kind,
            "metadata": metadata,
            "spec": spec,
        }

    def helpers(self, work: Work) -> Sequence[Manifest]:
        """The runtime: one replicated job with all replicas. The JobSet brings a service for their names."""
        metadata = pods.metadata(work, work.run_id)
        metadata["labels"] = {**metadata["labels"], PART_LABEL: "runtime"}
        nodes = {"name": NODE, "template": {"metadata": {"labels": STEP}, "spec": _job(work)}}
        runtime = {
            "apiVersion": f"{self.group}/{self.version}",
            "kind": "TrainingRuntime",
            "metadata": metadata,
            "spec": {
                "mlPolicy": {"numNodes": _count(work), "torch": {}},
                "template": {"spec": {"replicatedJobs": [nodes]}},
            },
        }
        return (runtime,)

    def stopped(self) -> Manifest:
        return {"spec": {"suspend": True}}

    def read(self, thing: Any, pods_: Sequence[Pod]) -> Observed:
        count = thing.spec.trainer.num_nodes
        count = count if count is not None else max((index + 1 for _, index in map(_place, pods_)), default=1)
        found = gang.spots([Asked("worker", max(0, count), thing.template)], thing)
        said = timed_out(_corrected(thing, _said(thing)), pods_)
        return gang.observe(thing, said, found, pods_, _place, self.container)


def _against(work: Work) -> Iterator[str]:
    if work.job.ttl_after_finished:
        yield "--ttl-after-finished: a TrainJob stays until it is deleted"
    for name in WRITTEN:
        if name in work.job.env:
            yield f"--env: {name} is what the Kubeflow Trainer writes for torchrun"


def _count(work: Work) -> int:
    return sum(role.count for role in work.roles)


def _first(work: Work) -> str:
    """The name of rank 0's pod."""
    return f"{work.name}-{NODE}-0-0.{work.name}"


def _remembered(work: Work) -> Manifest:
    """What only the runtime says and a list of jobs shows."""
    nproc = work.roles[0].nproc
    return {**gang.remembered(work.roles), **({NPROC_ANNOTATION: str(nproc)} if nproc > 1 else {})}


def _trainer(work: Work) -> Manifest:
    """How many replicas there are, how many processes torchrun starts in each, and what each asks for.

    The last is the template's, said once more for those who read TrainJobs. Trainer 2.0 starts one process only where
    there are limits and no requests.
    """
    nproc = 1 if work.roles[0].nproc > 1 else work.job.nproc_per_node
    found: Manifest = {"numNodes": _count(work), "numProcPerNode": nproc}
    main = _job(work)["template"]["spec"]["containers"][0]
    if limits := main.get("resources", {}).get("limits"):
        found["resourcesPerNode"] = {"requests": {**limits, **main["resources"].get("requests", {})}, "limits": limits}
    return found


def _job(work: Work) -> Manifest:
    """The Job of an Indexed Job's replicas, where each variable stands once: the operator takes no doubles."""
    spec = job_spec(work, NODE, _first(work))
    main = spec["template"]["spec"]["containers"][0]
    main["env"] = list({one["name"]: one for one in main["env"]}.values())
    return spec


# --- reading -------------------------------------------------------------------------------------------------


def _place(pod: Pod) -> Key:
    """Which replica a pod is: the runtime's nodes are workers, its other jobs keep their names."""
    labels = pod.metadata.labels
    index = labels.get(INDEX) or pod.metadata.annotations.get(INDEX, "0")
    role = labels.get(REPLICATED, NODE)
    return ("worker" if role == NODE else role), int(index) if index.isdecimal() else 0


def _said(thing: TrainJob) -> Said:
    """The controller's word; a TrainJob has none for running, its Jobs tell."""
    true = gang.true_conditions(thing.status.conditions)
    active = any(one.active for one in thing.status.jobs_status)
    for name, word in (("Failed", "Failed"), ("Complete", "Succeeded"), ("Suspended", "Suspended")):
        if condition := true.get(name):
            over = word != "Suspended"
            at = condition.last_transition_time
            reason = condition.reason if word == "Failed" else ""
            return Said(word=word, reason=reason, message=condition.message, finished=at if over else None, since=at)
    unknown = next((name for name in true if name not in ("Created", "Suspended")), "")
    return Said(word="Running" if active else "" if "Created" in true else unknown, active=active)


def _corrected(thing: TrainJob, said: Said) -> Said:
    stopped = thing.metadata.annotations.get(STOPPED_ANNOTATION)
    if stopped and said.word != "Succeeded":
        return replace(said, word="Stopped", reason="Stopped", message=stopped, finished=said.since)
    if said.word == "Failed" and said.reason == "DeadlineExceeded":
        return replace(said, word="Deadline")
    if said.word == "Suspended" or (thing.spec.suspend and not said.finished):
        queued = any(label in thing.metadata.labels for label in gang.QUEUE_LABELS)
        word, reason = ("Queued", "Queue") if queued else ("Suspended", "Suspended")
        return replace(said, word=word, reason=reason, active=False)
    if not said.word and not thing.status.conditions and not thing.status.jobs_status:
        return replace(said, reason="NotYetSeen", message="not yet seen by its controller (the Kubeflow Trainer)")
    return said
