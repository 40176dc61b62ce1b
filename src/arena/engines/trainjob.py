"""TrainJob of Trainer v2: replicas of a runtime, which a JobSet and an Indexed Job carry out.

The runtime has the pod template; a TrainJob has its program, resources and variables, and patches for the rest under a
name that differs by version. What there is no patch for (folder, code) the program's own start does. Nor is there one
for when a replica is started again: the published runtime `torch-distributed` does it up to six times, in place, and a
job that asks for anything else brings a runtime of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Raw, field
from msgspec.structs import force_setattr, replace

from arena.engines import gang, pods, ranks
from arena.engines.base import PART_LABEL, STOPPED_ANNOTATION, Manifest, Work
from arena.engines.batchjob import USUAL_RETRIES, limits, restarts
from arena.engines.gang import Asked, Key, Said
from arena.engines.kubeflow import name_problems
from arena.engines.objects import EMPTY, Condition, Part, Pod, Resources, Template, Thing, Variable, loosely
from arena.engines.objects import Container as ContainerPart
from arena.engines.objects import PodSpec as PodPart
from arena.engines.starter import started
from arena.job import Env, is_python_file
from arena.quantity import whole_seconds
from arena.status import Observed

RUNTIME = "torch-distributed"
PUBLISHED: Manifest = {"restartPolicy": "OnFailure", "backoffLimit": USUAL_RETRIES}  # what a JobSet makes of silence
NODE = "node"  # the runtime's replicated job, and its container
STEP = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}  # marks the replicated job that runs the program
PORT = 29500  # the port that the operator writes
INDEX = "batch.kubernetes.io/job-completion-index"
REPLICATED = "jobset.sigs.k8s.io/replicatedjob-name"
ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"
WRITTEN = "PET_"  # what begins so is the operator's
PLACES = ("nodeSelector", "tolerations", "volumes", "serviceAccountName", "schedulingGates")
LATER_PLACES = ("affinity", "imagePullSecrets")  # since v2.1
CODE = "arena-code"
LETTERS = "xxxxx"  # that the Job adds to a pod's name; a JobSet asks for room for them
ENTER = 'cd "$1" && shift && exec "$@"'


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
        force_setattr(self, "template", _template(spec.trainer))


def _template(trainer: Trainer) -> Template:
    main = ContainerPart(
        name=NODE,
        image=trainer.image,
        command=trainer.command,
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
        """Names too long for their pods, and settings that a TrainJob of this version has no place for."""
        names = name_problems(work, self.kind, f"{work.name}-{NODE}-0-{_count(work) - 1}-{LETTERS}")
        return [*pods.problems(work), *names, *_place_problems(work, self.known(work))]

    def known(self, work: Work) -> frozenset[str]:
        """The fields that the served TrainJob's spec has."""
        key = f"{self.kind}.{self.group}"
        return work.served[key].properties if key in work.served else frozenset()

    def render(self, work: Work) -> Manifest:
        template = pods.template(work, started(work.roles[0]), self.container, env=_env(work))
        metadata = pods.metadata(work)
        metadata["annotations"] = {**metadata.get("annotations", {}), **gang.remembered(work.roles)}
        spec: Manifest = {
            "runtimeRef": {"kind": "TrainingRuntime", "name": work.run_id} if _own(work) else {"name": RUNTIME},
            "trainer": _trainer(work, template),
        }
        if "runtimePatches" not in self.known(work):
            spec["labels"] = template["metadata"]["labels"]
        if work.job.running_timeout:
            spec["activeDeadlineSeconds"] = whole_seconds(work.job.running_timeout)
        spec.update(_patches(template, self.known(work)))
        return {
            "apiVersion": f"{self.group}/{self.version}",
            "kind": self.kind,
            "metadata": metadata,
            "spec": spec,
        }

    def helpers(self, work: Work) -> Sequence[Manifest]:
        """The runtime, where the published one would not do; the JobSet has a service."""
        return (self._runtime(work),) if _own(work) else ()

    def _runtime(self, work: Work) -> Manifest:
        """One pod template of which only the restarts are said: everything else the TrainJob says."""
        metadata = pods.metadata(work, work.run_id)
        metadata["labels"] = {**metadata["labels"], PART_LABEL: "runtime"}
        pod = {"restartPolicy": restarts(work), "containers": [{"name": self.container}]}
        job = {**limits(work, self.container), "template": {"spec": pod}}
        nodes = {"name": NODE, "template": {"metadata": {"labels": STEP}, "spec": job}}
        return {
            "apiVersion": f"{self.group}/{self.version}",
            "kind": "TrainingRuntime",
            "metadata": metadata,
            "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": {"replicatedJobs": [nodes]}}},
        }

    def stopped(self) -> Manifest:
        return {"spec": {"suspend": True}}

    def read(self, thing: Any, pods_: Sequence[Pod]) -> Observed:
        count = thing.spec.trainer.num_nodes
        count = count if count is not None else max((index + 1 for _, index in map(_place, pods_)), default=1)
        found = gang.spots([Asked("worker", max(0, count), thing.template)], thing)
        return gang.observe(thing, _corrected(thing, _said(thing)), found, pods_, _place, self.container)


def _own(work: Work) -> bool:
    """Whether the job asks for other restarts than the published runtime makes."""
    return {"restartPolicy": restarts(work), **limits(work, NODE)} != PUBLISHED


def _place_problems(work: Work, known: frozenset[str]) -> Sequence[str]:
    job = work.job
    found = []
    if job.running_timeout and known and "activeDeadlineSeconds" not in known:
        found.append("--running-timeout: this version of TrainJob has no time limit")
    if job.ttl_after_finished:
        found.append("--ttl-after-finished: a TrainJob stays until it is deleted")
    found += [f"{what}: this version of TrainJob has no place for it" for what in _without_place(work, known)]
    if len({(role.argv, role.cpu, role.memory, role.gpus, role.image) for role in work.roles}) > 1:
        found.append("the replicas of a TrainJob are all alike; this job needs its operator")
    return found


def _without_place(work: Work, known: frozenset[str]) -> list[str]:
    """What a pod would have and a TrainJob cannot give its runtime's pods."""
    spec = pods.template(work, work.roles[0], NODE)["spec"]
    places = {*PLACES, *(() if "podSpecOverrides" in known or not known else LATER_PLACES)}
    others = [name for name in spec if name not in {*places, "containers", "initContainers", "restartPolicy"}]
    others += ["--image-pull-policy"] if work.job.image_pull_policy else []
    others += ["--rdma"] if any(role.rdma for role in work.roles) else []
    return others + [f"--sync-mode ({one['name']})" for one in spec.get("initContainers", ()) if one["name"] != CODE]


def _count(work: Work) -> int:
    return sum(role.count for role in work.roles)


def _env(work: Work) -> list[Manifest]:
    """The peers' contract but for what the operator writes itself."""
    found = ranks.told(work, f"{work.name}-{NODE}-0-0.{work.name}:{PORT}")
    return [one for one in found if not one["name"].startswith(WRITTEN)]


def _trainer(work: Work, template: Manifest) -> Manifest:
    main = template["spec"]["containers"][0]
    found: Manifest = {
        "image": main["image"],
        "command": main["command"],
        "env": main["env"],
        "numNodes": _count(work),
        "numProcPerNode": 1 if is_python_file(work.job.command) else work.job.nproc_per_node,
    }
    if "resources" in main:
        found["resourcesPerNode"] = main["resources"]
    if "workingDir" in main:
        found["command"] = ["sh", "-c", ENTER, "sh", main["workingDir"], *main["command"]]
    if "initContainers" in template["spec"]:
        found["command"] = [*_unpacking(template["spec"]), *found["command"]]
    return found


def _unpacking(spec: Manifest) -> list[str]:
    """The code is laid by the program's own start: a TrainJob cannot add init containers to its runtime."""
    code = next(one for one in spec["initContainers"] if one["name"] == CODE)
    shell, option, text, *words = code["command"]
    here = '\ncd "$OLDPWD"\nshift 3\nexec "$@"\n'
    return [shell, option, text + here, *words]


def _patches(template: Manifest, known: frozenset[str]) -> Manifest:
    """What the runtime's pods get besides: volumes, mounts, placement; and their labels, since v2.2."""
    spec = template["spec"]
    patch = {key: spec[key] for key in (*PLACES, *LATER_PLACES) if key in spec}
    init = [one for one in spec.get("initContainers", ()) if one["name"] == CODE]
    mounts = [*spec["containers"][0].get("volumeMounts", ())]
    mounts += [one for container in init for one in container["volumeMounts"] if one not in mounts]
    if mounts:
        patch["containers"] = [{"name": NODE, "volumeMounts": mounts}]
    return _in_place(patch, template["metadata"]["labels"], known)


def _in_place(patch: Manifest, labels: Env, known: frozenset[str]) -> Manifest:
    """The patch under the name, and in the shape, of the served version."""
    if "runtimePatches" in known:
        pod = {"metadata": {"labels": labels}, **({"spec": patch} if patch else {})}
        replicated = {"replicatedJobs": [{"name": NODE, "template": {"spec": {"template": pod}}}]}
        spec = {"template": {"spec": replicated}}
        return {"runtimePatches": [{"manager": "arena.kubeflow.org/arena", "trainingRuntimeSpec": spec}]}
    if not patch:
        return {}
    if "podTemplateOverrides" in known:
        return {"podTemplateOverrides": [{"targetJobs": [{"name": NODE}], "spec": patch}]}
    return {"podSpecOverrides": [{"targetJobs": [{"name": NODE}], **patch}]}


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
