"""What a cluster's commands cost, beside kubectl on the same server: 2,000 jobs and 4,000 pods, simulated by kwok.

Then what a submit takes in the library, how soon `wait` hears of an end, and how many specs a process renders.

    python -m benchmarks.cluster
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from testbed.api import Api, wait_for
from testbed.bed import Bed
from testbed.programs import program

from arena import Client, declared
from arena.backends.base import Context
from arena.backends.kubernetes import planning
from arena.engines.served import TODAY
from arena.settings import Settings

JOBS, NODES, ROUNDS, SPECS = 2_000, 100, 7, 600
LABEL = "training.kubeflow.org"


class Cost(NamedTuple):
    """What a command took: milliseconds of CPU and of wall, megabytes at its most."""

    cpu: float
    wall: float
    megabytes: float


def main() -> int:
    with Bed.start(kubelet=False, operators=("training",)) as bed, tempfile.TemporaryDirectory() as folder:
        fill(bed.api())
        env = {key: value for key, value in os.environ.items() if not key.startswith(("ARENA_", "PYTHON"))}
        env |= {"HOME": folder, "KUBECONFIG": str(bed.kubeconfig("admin")), "ARENA_JOB_NAMESPACE": "load"}
        arena = str(Path(sys.executable).with_name("arena"))
        kubectl = [str(program("kubectl")), "-n", "load", "get"]
        commands = {
            "arena list": [arena, "list"],
            "arena list -o json": [arena, "list", "-o", "json"],
            "arena get": [arena, "get", "job-7"],
            "arena submit --dry-run": [arena, "submit", "pytorch", "--name", "x", "--image", "i", "--dry-run", "true"],
            "kubectl get jobs": [*kubectl, "pytorchjobs"],
            "kubectl get jobs, pods": [*kubectl, "pytorchjobs,pods"],
        }
        for name, cost in in_turns(commands, env).items():
            print(f"{name:28} {cost.cpu:8.0f} ms CPU {cost.wall:8.0f} ms {cost.megabytes:6.0f} MB")
        client = Client(backend="kubernetes", env={**env, "ARENA_IMAGE": "none"}, cwd=folder)
        print(f"{'submit':28} {submitting(client):8.0f} ms, all of it, the server's time too")
        print(f"{'end to wait':28} {hearing(client, bed.api()):8.0f} ms")
        print(f"{'specs rendered and checked':28} {rendering():8.0f} a second")
    return 0


def submitting(client: Client) -> float:
    """Milliseconds that a submit takes once discovery and defaults are remembered."""
    took = []
    for number in range(ROUNDS + 1):
        began = time.monotonic()
        client.run(["true"], name=f"submit-{number}", workers=2)
        took.append((time.monotonic() - began) * 1000)
    return statistics.median(took[1:])


def hearing(client: Client, api: Api) -> float:
    """Milliseconds from the deletion of a job by somebody else until `wait` returns."""
    took = []
    for number in range(ROUNDS):
        job = client.run(["true"], name=f"wait-{number}")
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(lambda handle: (handle.wait(), time.monotonic())[1], job)
            time.sleep(1)
            api.delete(f"/apis/batch/v1/namespaces/load/jobs/{job.name}")
            written = time.monotonic()
            took.append((waiting.result() - written) * 1000)
    return statistics.median(took)


def rendering() -> float:
    """How many specs a second one process makes objects of."""
    settings = Settings.load({}, {"HOME": "/nonexistent"}, Path("/"))
    context = Context(creates="type", dry="client", cwd="/")
    began = time.process_time()
    for number in range(SPECS):
        values = {"name": f"a{number}", "workers": 8, "gpus": 1, "image": "i:1", "command": ["python", "train.py"]}
        job = declared.build("pytorch", {**values, "env": {"A": "b"}})
        planning.make_plan(job, context, settings, TODAY, "team-a", "me")
    return SPECS / (time.process_time() - began)


def fill(api: Api) -> None:
    """The jobs and pods, as an operator and a node would have left them."""
    began = time.monotonic()
    api.post("/api/v1/namespaces", {"metadata": {"name": "load"}})
    wait_for("account", lambda: api.get("/api/v1/namespaces/load/serviceaccounts/default"))
    api.post_all("/api/v1/nodes", [node(number) for number in range(NODES)])
    api.post_all("/apis/kubeflow.org/v1/namespaces/load/pytorchjobs", [job(number) for number in range(JOBS)])
    pods = [pod(number, role) for number in range(JOBS) for role in ("master", "worker")]
    api.post_all("/api/v1/namespaces/load/pods", pods)
    wait_for("running pods", lambda: running(api) == len(pods), 240, every=3)
    print(f"{JOBS} jobs and {len(pods)} pods in {time.monotonic() - began:.0f} s")


def running(api: Api) -> int:
    return len(api.get("/api/v1/namespaces/load/pods?fieldSelector=status.phase%3DRunning")["items"])


def node(number: int) -> dict[str, Any]:
    name = f"kwok-{number}"
    room = {"cpu": "256", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "64"}
    return {
        "metadata": {"name": name, "labels": {"type": "kwok", "kubernetes.io/hostname": name}},
        "status": {"capacity": room, "allocatable": room},
    }


def template() -> dict[str, Any]:
    env = [{"name": f"VARIABLE_{number}", "value": "x" * 20} for number in range(18)]
    container = {
        "name": "pytorch",
        "image": "none",
        "env": env,
        "command": ["python", "train.py", "--epochs", "3"],
        "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "2", "memory": "4Gi"}},
    }
    return {"containers": [container], "nodeSelector": {"type": "kwok"}}


def job(number: int) -> dict[str, Any]:
    role = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": template()}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": f"job-{number}", "labels": {"app": "pytorchjob", "release": f"job-{number}"}},
        "spec": {"pytorchReplicaSpecs": {"Master": role, "Worker": role}},
    }


def pod(number: int, role: str) -> dict[str, Any]:
    labels = {f"{LABEL}/job-name": f"job-{number}", f"{LABEL}/replica-type": role, f"{LABEL}/replica-index": "0"}
    labels |= {f"{LABEL}/operator-name": "pytorchjob-controller"}
    return {"metadata": {"name": f"job-{number}-{role}-0", "labels": labels}, "spec": template()}


def in_turns(commands: Mapping[str, Sequence[str]], env: Mapping[str, str]) -> dict[str, Cost]:
    """The median cost of each, one round after the other; the first round warms the caches and is left out."""
    found: dict[str, list[Cost]] = {name: [] for name in commands}
    for number in range(ROUNDS + 1):
        for name, words in commands.items():
            cost = run(words, env)
            if number:
                found[name].append(cost)
    return {name: Cost(*map(statistics.median, zip(*costs, strict=True))) for name, costs in found.items()}


def run(words: Sequence[str], env: Mapping[str, str]) -> Cost:
    began = time.monotonic()
    process = subprocess.Popen(words, env=dict(env), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} ended with code {process.returncode}")
    return Cost((usage.ru_utime + usage.ru_stime) * 1000, wall * 1000, usage.ru_maxrss / 1024)


if __name__ == "__main__":
    sys.exit(main())
