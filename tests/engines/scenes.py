"""What happens to jobs on a real cluster: each scene is a job and the moment at which it is worth a look."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec.structs import replace

from arena.engines import load
from arena.engines.base import Work
from arena.job import Job, Role
from arena.jobs.mpi import MPIJob
from arena.jobs.plain import PlainJob
from arena.jobs.pytorch import PyTorchJob
from arena.jobs.tensorflow import TensorFlowJob
from engines.works import work

Object = dict[str, Any]
Pods = list[Object]

NEVER = 600  # seconds: longer than any scene
RANK_1_FAILS = f"[ $RANK = 1 ] && sleep 2 && exit 3; sleep {NEVER}"
EAT = "b = bytearray(300 << 20)"
CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', '{EAT}']); sys.exit(CODE)"
MEMORY = "64Mi"


class Scene(NamedTuple):
    """A job for an engine, when to look, what to do before, and what is changed in the rendered object."""

    engine: str
    job: Job
    when: Callable[[Object, Pods], bool]
    patch: Object | None = None
    started: Callable[[Object, Pods], bool] = lambda thing, pods: True
    edit: Callable[[Object], None] = lambda thing: None
    more: Mapping[str, Any] = MappingProxyType({})
    settle: float = 2.0

    def manifest(self, name: str) -> Object:
        """The object, as the engine renders it."""
        thing = load(self.engine).render(self.planned(name))
        self.edit(thing)
        return thing

    def helpers(self, name: str) -> Sequence[Object]:
        """What the object cannot be made without."""
        return [one for one in load(self.engine).helpers(self.planned(name)) if one["kind"] == "TrainingRuntime"]

    def planned(self, name: str) -> Work:
        return work(replace(self.job, name=name), **self.more)


def said(*types: str) -> Callable[[Object, Pods], bool]:
    """Once one of these conditions holds."""

    def look(thing: Object, pods: Pods) -> bool:
        there = thing.get("status", {}).get("conditions") or []
        return any(one["type"] in types and one["status"] == "True" for one in there)

    return look


def running(count: int = 1) -> Callable[[Object, Pods], bool]:
    """Once so many pods run."""
    return lambda thing, pods: sum(pod["status"].get("phase") == "Running" for pod in pods) >= count


def waiting(*reasons: str) -> Callable[[Object, Pods], bool]:
    """Once a container, or the scheduler, waits with one of these reasons."""
    return lambda thing, pods: any(reason in reasons for pod in pods for reason in _waits(pod["status"]))


def restarted(count: int) -> Callable[[Object, Pods], bool]:
    """Once a container was started again so often."""
    return lambda thing, pods: any(
        one.get("restartCount", 0) >= count for pod in pods for one in pod["status"].get("containerStatuses", [])
    )


def no_pods(thing: Object, pods: Pods) -> bool:
    """Once they are gone."""
    return not pods


def _waits(status: Object) -> list[str]:
    found = [one.get("reason", "") for one in status.get("conditions", []) if one["status"] == "False"]
    for one in [*status.get("containerStatuses", []), *status.get("initContainerStatuses", [])]:
        found.append(one.get("state", {}).get("waiting", {}).get("reason", ""))
    return found


def sh(text: str) -> tuple[str, ...]:
    return ("sh", "-c", text)


def python(text: str) -> tuple[str, ...]:
    return ("python3", "-c", text)


def _worker_image(thing: Object) -> None:
    worker = thing["spec"]["pytorchReplicaSpecs"]["Worker"]
    worker["template"]["spec"]["containers"][0]["image"] = "localhost/not-there:1"


def _policy(role: str, policy: str) -> Callable[[Object], None]:
    def edit(thing: Object) -> None:
        thing["spec"]["pytorchReplicaSpecs"][role]["restartPolicy"] = policy

    return edit


def _no_config(thing: Object) -> None:
    template = thing["spec"]["template"]
    template["spec"]["containers"][0]["envFrom"] = [{"secretRef": {"name": "not-there"}}]


def _sidecar(thing: Object) -> None:
    containers = thing["spec"]["template"]["spec"]["containers"]
    image = containers[0]["image"]
    containers.append({"name": "istio-proxy", "image": image, "command": ["sleep", str(NEVER)]})


def _init_fails(thing: Object) -> None:
    spec = thing["spec"]["template"]["spec"]
    image = spec["containers"][0]["image"]
    spec["initContainers"] = [{"name": "arena-code", "image": image, "command": ["sh", "-c", "echo no code; exit 4"]}]


DONE = said("Succeeded", "Complete", "Failed")
STOP_RUN = {"spec": {"runPolicy": {"suspend": True}}}
STOP = {"spec": {"suspend": True}}
MARK = {"metadata": {"annotations": {"arena.kubeflow.org/stopped": "2026-01-02T03:04:05+00:00 by alice"}}}
UPSTREAM = {"upstream": True}
NOWHERE: Object = {"selector": {"pool": "not-there"}}
THERE: Object = {"image_pull_policy": "IfNotPresent"}  # Arena (Go) always pulls, and nobody serves the image

SCENES = {
    "job-succeeds": Scene("job", PlainJob(command=sh("sleep 1"), workers=2), DONE),
    "job-one-fails": Scene("job", PlainJob(command=sh(RANK_1_FAILS), workers=3), DONE, settle=35),
    "job-pytorch-fails": Scene("job", PyTorchJob(command=sh(RANK_1_FAILS), workers=2), DONE, settle=35),
    "job-keeps-failed": Scene(
        "job", PlainJob(command=sh("[ $RANK = 1 ] && exit 3; sleep 3"), workers=2, keep_failed=True), DONE
    ),
    "job-no-program": Scene("job", PlainJob(command=("/not/there",)), DONE),
    "job-not-executable": Scene("job", PlainJob(command=("/etc/passwd",)), DONE),
    "job-deadline": Scene("job", PlainJob(command=sh("sleep 600"), running_timeout="3s"), DONE),
    "job-stopped": Scene("job", PlainJob(command=sh("sleep 600"), workers=2), no_pods, {**STOP, **MARK}, running(2)),
    "job-suspended": Scene("job", PlainJob(command=sh("sleep 600")), no_pods, STOP, running()),
    "job-unschedulable": Scene("job", PlainJob(command=sh("true"), **NOWHERE), waiting("Unschedulable")),
    "job-no-image": Scene(
        "job", PlainJob(command=sh("true"), image="localhost/not-there:1"), waiting("ImagePullBackOff")
    ),
    "job-no-secret": Scene("job", PlainJob(command=sh("true")), waiting("CreateContainerConfigError"), edit=_no_config),
    "job-init-fails": Scene("job", PlainJob(command=sh("true")), DONE, edit=_init_fails),
    "job-memory": Scene("job", PlainJob(command=python(EAT), memory=MEMORY), DONE),
    "job-memory-of-child": Scene("job", PlainJob(command=python(CHILD.replace("CODE", "1")), memory=MEMORY), DONE),
    "job-survives-memory-of-child": Scene(
        "job", PlainJob(command=python(CHILD.replace("CODE", "0")), memory=MEMORY), DONE
    ),
    "job-sidecar": Scene("job", PlainJob(command=sh("exit 0")), running(), edit=_sidecar, settle=5),
    "job-retries": Scene("job", PlainJob(command=sh("sleep 1; exit 5"), retry=1), DONE),
    "pytorch-succeeds": Scene("pytorchjob", PyTorchJob(command=sh("sleep 4"), workers=2, gpus=0), DONE),
    "pytorch-runs": Scene("pytorchjob", PyTorchJob(command=sh("sleep 600"), workers=3), running(3)),
    "pytorch-worker-fails": Scene("pytorchjob", PyTorchJob(command=sh(RANK_1_FAILS), workers=3), DONE, settle=4),
    "pytorch-plain": Scene("pytorchjob", PlainJob(command=sh(RANK_1_FAILS), workers=2), DONE),
    "pytorch-alone": Scene("pytorchjob", PyTorchJob(command=sh("exit 7")), DONE),
    "pytorch-no-program": Scene("pytorchjob", PyTorchJob(command=("/not/there",)), DONE),
    "pytorch-deadline": Scene(
        "pytorchjob", PyTorchJob(command=sh("sleep 600"), workers=2, running_timeout="5s"), DONE, settle=4
    ),
    "pytorch-stopped": Scene(
        "pytorchjob", PyTorchJob(command=sh("sleep 600"), workers=2), no_pods, {**STOP_RUN, **MARK}, running(2)
    ),
    "pytorch-suspended": Scene(
        "pytorchjob", PyTorchJob(command=sh("sleep 600"), workers=2), no_pods, STOP_RUN, running(2)
    ),
    "pytorch-no-worker-image": Scene(
        "pytorchjob", PyTorchJob(command=sh("sleep 12"), workers=2), DONE, edit=_worker_image
    ),
    "pytorch-exit-code": Scene(
        "pytorchjob", PyTorchJob(command=sh("exit 1")), said("Restarting", "Failed"), edit=_policy("Master", "ExitCode")
    ),
    "pytorch-restarts": Scene(
        "pytorchjob",
        PyTorchJob(command=sh(RANK_1_FAILS), workers=2, **THERE),
        restarted(2),
        more=UPSTREAM,
    ),
    "pytorch-retries": Scene(
        "pytorchjob", PyTorchJob(command=sh("sleep 1; exit 5"), workers=1, retry=2), DONE, settle=4
    ),
    "pytorch-upstream": Scene("pytorchjob", PyTorchJob(command=sh("sleep 4"), workers=2, **THERE), DONE, more=UPSTREAM),
    "pytorch-upstream-unschedulable": Scene(
        "pytorchjob",
        PyTorchJob(command=sh("true"), workers=2, **NOWHERE),
        waiting("Unschedulable"),
        more=UPSTREAM,
    ),
    "tf-succeeds": Scene("tfjob", TensorFlowJob(command=sh("sleep 2"), workers=2, ps=Role(count=1)), DONE),
    "tf-worker-fails": Scene(
        "tfjob",
        TensorFlowJob(
            command=sh('case "$TF_CONFIG" in *\'"type":"worker","index":1\'*) exit 3;; esac; sleep 600'),
            workers=2,
            ps=Role(count=1),
        ),
        DONE,
        settle=4,
    ),
    "tf-stopped": Scene(
        "tfjob", TensorFlowJob(command=sh("sleep 600"), workers=2), no_pods, {**STOP_RUN, **MARK}, running(2)
    ),
    "mpi-succeeds": Scene("mpijob", MPIJob(command=sh("mpirun -n 2 hostname"), workers=2), DONE),
    "mpi-fails": Scene("mpijob", MPIJob(command=sh("mpirun -n 2 sh -c 'exit 9'"), workers=2), DONE),
    "mpi-no-program": Scene("mpijob", MPIJob(command=("/not/there",), workers=1), DONE),
    "mpi-deadline": Scene("mpijob", MPIJob(command=sh("sleep 600"), workers=1, running_timeout="12s"), DONE, settle=35),
    "mpi-stopped": Scene(
        "mpijob", MPIJob(command=sh("sleep 600"), workers=2), no_pods, {**STOP_RUN, **MARK}, running(3)
    ),
    "mpi-runs": Scene("mpijob", MPIJob(command=sh("sleep 600"), workers=2, gpus=0), running(3)),
    "trainjob-succeeds": Scene("trainjob", PyTorchJob(command=sh("sleep 1"), workers=2), DONE),
    "trainjob-one-fails": Scene("trainjob", PlainJob(command=sh(RANK_1_FAILS), workers=2), DONE, settle=35),
    "trainjob-retries": Scene("trainjob", PlainJob(command=sh("sleep 1; exit 5"), retry=1), DONE),
    "trainjob-restarts": Scene(
        "trainjob",
        PlainJob(command=sh(RANK_1_FAILS), workers=2, restart_policy="OnFailure"),
        restarted(1),
        settle=1,
    ),
    "trainjob-stopped": Scene(
        "trainjob", PlainJob(command=sh("sleep 600"), workers=2), no_pods, {**STOP, **MARK}, running(2)
    ),
    "trainjob-deadline": Scene("trainjob", PlainJob(command=sh("exec sleep 600"), running_timeout="5s"), DONE),
    "trainjob-runs": Scene("trainjob", PlainJob(command=sh("sleep 600"), workers=2), running(2)),
    "trainjob-unschedulable": Scene("trainjob", PlainJob(command=sh("true"), **NOWHERE), waiting("Unschedulable")),
}
