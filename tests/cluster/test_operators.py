"""Jobs that really train together: their processes meet by name, add up their ranks, and the operators see the end."""

import json
from typing import Any

import pytest
from testbed.bed import Bed

from cluster.pods import condition, container, log, pods_of, template

# The first test waits for the test bed too.
pytestmark = [pytest.mark.kubelet, pytest.mark.timeout(240)]

# Rank 0 listens, everyone else connects; the sum of all ranks goes back to all.
ALL_REDUCE = """
import socket, struct, time

def all_reduce(rank, world, host, port):
    if rank == 0:
        server = socket.create_server(("", port))
        peers = [server.accept()[0] for _ in range(world - 1)]
        total = sum(struct.unpack("!i", peer.recv(4, socket.MSG_WAITALL))[0] for peer in peers)
        for peer in peers:
            peer.sendall(struct.pack("!i", total))
        return total
    for _ in range(300):
        try:
            peer = socket.create_connection((host, port), timeout=60)
            break
        except OSError:
            time.sleep(0.2)
    peer.sendall(struct.pack("!i", rank))
    return struct.unpack("!i", peer.recv(4, socket.MSG_WAITALL))[0]
"""

PYTORCH = """
import os
env = os.environ
rank, world = int(env["RANK"]), int(env["WORLD_SIZE"])
print("rank", rank, "of", world, "sum", all_reduce(rank, world, env["MASTER_ADDR"], int(env["MASTER_PORT"])))
"""

TENSORFLOW = """
import json, os
config = json.loads(os.environ["TF_CONFIG"])
host, _, port = config["cluster"]["ps"][0].partition(":")
task = config["task"]
rank = 0 if task["type"] == "ps" else task["index"] + 1
total = all_reduce(rank, 1 + len(config["cluster"]["worker"]), host, int(port))
print(task["type"], task["index"], "sum", total)
if task["type"] == "ps":
    time.sleep(600)  # a parameter server waits to be ended
"""

TRAINJOB = """
import os
env = os.environ
rank, world = int(env["PET_NODE_RANK"]), int(env["PET_NNODES"])
print("node", rank, "of", world, "sum", all_reduce(rank, world, env["PET_MASTER_ADDR"], int(env["PET_MASTER_PORT"])))
"""

MPI = """
from mpi4py import MPI
import socket, sys
world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
# One write: mpirun mixes what its processes say at the same time.
sys.stdout.write(f"rank {world.rank} of {world.size} on {socket.gethostname()} sum {total}\\n")
"""


def replicas(count: int, name: str, *command: str) -> dict[str, Any]:
    return {"replicas": count, "restartPolicy": "Never", "template": template(container(name, *command))}


def job(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def test_the_processes_of_a_pytorchjob_meet(node: Bed, name: str) -> None:
    alice = node.api("alice")
    jobs = "/apis/kubeflow.org/v1/namespaces/team-a/pytorchjobs"
    program = ("python3", "-uc", ALL_REDUCE + PYTORCH)
    specs = {"Master": replicas(1, "pytorch", *program), "Worker": replicas(2, "pytorch", *program)}
    alice.post(jobs, job("PyTorchJob", name, pytorchReplicaSpecs=specs))

    assert condition(alice, f"{jobs}/{name}", "Succeeded", "Failed") == "Succeeded"
    assert log(alice, f"{name}-master-0") == "rank 0 of 3 sum 3\n"
    assert log(alice, f"{name}-worker-1") == "rank 2 of 3 sum 3\n"


def test_a_tfjob_reaches_its_parameter_server(node: Bed, name: str) -> None:
    alice = node.api("alice")
    jobs = "/apis/kubeflow.org/v1/namespaces/team-a/tfjobs"
    program = ("python3", "-uc", ALL_REDUCE + TENSORFLOW)
    specs = {"PS": replicas(1, "tensorflow", *program), "Worker": replicas(2, "tensorflow", *program)}
    alice.post(jobs, job("TFJob", name, tfReplicaSpecs=specs, runPolicy={"cleanPodPolicy": "None"}))

    assert condition(alice, f"{jobs}/{name}", "Succeeded", "Failed") == "Succeeded"
    assert log(alice, f"{name}-worker-0") == "worker 0 sum 3\n"
    assert log(alice, f"{name}-worker-1") == "worker 1 sum 3\n"
    assert log(alice, f"{name}-ps-0") == "ps 0 sum 3\n"
    alice.delete(f"{jobs}/{name}")


def test_the_launcher_of_an_mpijob_reaches_its_workers_by_ssh(node: Bed, name: str) -> None:
    alice = node.api("alice")
    jobs = "/apis/kubeflow.org/v2beta1/namespaces/team-a/mpijobs"
    launcher = container("launcher", "mpirun", "-n", "2", "python3", "-uc", MPI)
    worker = container(
        "worker", "/usr/sbin/sshd", "-De", readinessProbe={"tcpSocket": {"port": 22}, "periodSeconds": 1}
    )
    mpijob = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {
            "slotsPerWorker": 1,
            "launcherCreationPolicy": "WaitForWorkersReady",
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": template(launcher)},
                "Worker": {"replicas": 2, "template": template(worker)},
            },
        },
    }
    alice.post(jobs, mpijob)

    assert condition(alice, f"{jobs}/{name}", "Succeeded", "Failed") == "Succeeded"
    launched = pods_of(alice, f"{name}-launcher")[-1]["metadata"]["name"]
    lines = sorted(log(alice, launched).splitlines())
    assert lines == [f"rank {rank} of 2 on {name}-worker-{rank} sum 3" for rank in (0, 1)]


def test_an_mpijob_of_the_first_version_reaches_its_workers_by_exec(name: str) -> None:
    """A test bed of its own: two operators claim the kind, and the other tests ask for the second."""
    jobs = "/apis/kubeflow.org/v1/namespaces/team-a/mpijobs"
    specs = {"Launcher": replicas(1, "mpi", "mpirun", "-n", "2", "python3", "-uc", MPI), "Worker": replicas(2, "mpi")}
    with Bed.start(operators=("training",)) as bed:
        alice = bed.api("alice")
        alice.post(jobs, job("MPIJob", name, slotsPerWorker=1, mpiReplicaSpecs=specs))
        assert condition(alice, f"{jobs}/{name}", "Succeeded", "Failed") == "Succeeded"
        lines = log(alice, f"{name}-launcher").splitlines()
    assert {f"rank {rank} of 2 on {name}-worker-{rank} sum 3" for rank in (0, 1)} <= set(lines)


def test_a_trainjob_runs_by_the_published_torch_runtime(node: Bed, name: str) -> None:
    alice = node.api("alice")
    jobs = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team-a/trainjobs"
    trainer = {"image": "localhost/arena-work:1", "numNodes": 2, "command": ["python3", "-uc", ALL_REDUCE + TRAINJOB]}
    trainjob = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer},
    }
    alice.post(jobs, trainjob)

    assert condition(alice, f"{jobs}/{name}", "Complete", "Failed") == "Complete"
    logs = sorted(log(alice, one["metadata"]["name"]) for one in pods_of(alice, f"{name}-node-0"))
    assert logs == ["node 0 of 2 sum 1\n", "node 1 of 2 sum 1\n"]


def test_a_job_that_the_webhook_refuses_is_refused_in_words(node: Bed, name: str) -> None:
    specs = {"Master": replicas(1, "main", "true")}
    said = node.kubectl(
        "create",
        "-f",
        "-",
        user="alice",
        given=json.dumps(job("PyTorchJob", name, pytorchReplicaSpecs=specs)),
        check=False,
    )
    assert "must have at least one container with name pytorch" in said
