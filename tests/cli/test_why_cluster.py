"""`arena why` on a real API server with its scheduler and controllers: one cause, and the step that helps."""

from collections.abc import Iterator
from typing import Any

import pytest
from testbed.bed import Bed

pytestmark = pytest.mark.cluster
IMAGE = "localhost/arena-work:1"


@pytest.fixture(scope="module")
def space(bed: Bed) -> Iterator[str]:
    """A namespace with a quota, and a node of 8 GPUs that takes nobody without a toleration."""
    has = {"cpu": "16", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "8"}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "why-1", "labels": {"zone": "a", "type": "kwok"}},
        "spec": {"taints": [{"key": "team", "value": "b", "effect": "NoSchedule"}]},
        "status": {"capacity": has, "allocatable": has},
    }
    bed.api().post("/api/v1/nodes", node)
    bed.wait("node", lambda: "Ready" in bed.kubectl("get", "node", "why-1"))
    bed.kubectl("create", "namespace", "why")
    yield "why"
    bed.kubectl("delete", "namespace", "why", "--wait=false")
    bed.kubectl("delete", "node", "why-1")


@pytest.fixture
def cluster(arena: Any, bed: Bed, space: str) -> Any:
    arena.env |= {"KUBECONFIG": str(bed.kubeconfig("admin")), "ARENA_IMAGE": IMAGE, "ARENA_JOB_NAMESPACE": space}
    return arena


def because(cluster: Any, name: str, cause: str) -> Any:
    """What why says once it has this cause."""

    def look() -> Any:
        found = cluster("why", name, "-o", "json").json
        return found if found["cause"] == cause else None

    return cluster.until(look, 40)


@pytest.mark.parametrize(
    ("words", "cause", "text", "step"),
    [
        (["--gpus", "12"], "NeverFits", "12 nvidia.com/gpu are asked for, the largest node has 8", "--gpus"),
        (["--gpus", "8", "--selector", "zone=a"], "Unschedulable", "team=b", "--toleration team=b:NoSchedule"),
        (["--selector", "zone=x"], "Unschedulable", "have zone=x", "--selector"),
    ],
)
def test_a_pod_that_no_node_takes(cluster: Any, name: str, words: list[str], cause: str, text: str, step: str) -> None:
    made = cluster("submit", "job", "--name", name, *words, "--", "true")
    assert made.exit_code == 0, made.stderr
    found = because(cluster, name, cause)
    assert text in found["text"]
    assert step in found["next"]
    assert found["evidence"]
    assert text in cluster("get", name).stdout
    assert "FailedScheduling" in cluster("get", name, "-e").stdout
    waited = cluster("wait", name, "--start-timeout", "1s")
    assert (waited.exit_code, text in waited.stderr) == (125, True)
    logs = cluster("logs", name, "-f", "--no-wait")
    assert (logs.exit_code, logs.stdout, "PENDING" in logs.stderr) == (0, "", True)
    cluster("delete", name)


def test_what_no_node_can_hold_is_said_at_once_and_not_refused(cluster: Any, name: str) -> None:
    made = cluster("submit", "job", "--name", name, "--gpus", "12", "--", "true")
    assert made.exit_code == 0
    assert "12 nvidia.com/gpu are asked for, the largest node has 8" in made.stderr
    cluster("delete", name)


def test_quota_that_is_seen_late(cluster: Any, bed: Bed, name: str) -> None:
    """The quota came after the job was made: only an event of the job tells."""
    made = cluster("submit", "job", "--name", name, "--set", "spec.suspend=true", "--", "true")
    assert made.exit_code == 0, made.stderr
    assert because(cluster, name, "Suspended")["state"] == "SUSPENDED"
    bed.kubectl("-n", "why", "create", "quota", name, "--hard=count/pods=0")
    bed.wait(
        "quota", lambda: "count/pods" in bed.kubectl("-n", "why", "get", "quota", name, "-o", "jsonpath={.status}")
    )
    bed.kubectl("-n", "why", "patch", "job", name, "--type=merge", "-p", '{"spec": {"suspend": false}}')
    found = because(cluster, name, "Quota")
    assert name in found["text"]
    bed.kubectl("-n", "why", "delete", "quota", name)
    cluster("delete", name)


def test_nobody_looks_at_it(cluster: Any, bed: Bed, name: str) -> None:
    bed.kubectl("-n", "why", "apply", "-f", "-", given=FOREIGN.format(name=name))
    found = because(cluster, name, "NoController")
    assert f"no controller has looked at Job '{name}'" in found["text"]
    cluster("delete", name)


FOREIGN = """
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}}}
spec:
  managedBy: example.com/nobody
  template: {{spec: {{restartPolicy: Never, containers: [{{name: c, image: i}}]}}}}
"""


def test_a_job_that_is_deleted_while_it_is_waited_for(cluster: Any, bed: Bed, name: str) -> None:
    assert cluster("submit", "job", "--name", name, "--selector", "zone=x", "--", "true").exit_code == 0
    waiting = cluster.start("wait", name, "-o", "json")
    because(cluster, name, "Unschedulable")
    bed.kubectl("-n", "why", "delete", "job", name)
    out, _ = waiting.communicate(timeout=60)
    assert waiting.returncode == 1
    assert '"state": "CANCELLED"' in out
