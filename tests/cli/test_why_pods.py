"""`arena why` of real pods on a real kubelet: images, secrets, volumes, init containers, crashes, memory, time."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from testbed.bed import Bed

pytestmark = pytest.mark.kubelet
IMAGE = "localhost/arena-work:1"
PATIENT = "{ trap 'exit 0' TERM; sleep 60 & wait; }"  # ends at once when it is asked to
MAIN: dict[str, Any] = {"name": "c", "image": IMAGE, "command": ["true"]}


@pytest.fixture(scope="module")
def space(node: Bed) -> Iterator[str]:
    name = "why-pods"
    node.kubectl("delete", "namespace", name, "--ignore-not-found")
    node.kubectl("create", "namespace", name)
    yield name
    node.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def cluster(arena: Any, node: Bed, space: str) -> Any:
    arena.env |= {"KUBECONFIG": str(node.kubeconfig("admin")), "ARENA_IMAGE": IMAGE, "ARENA_JOB_NAMESPACE": space}
    return arena


def because(cluster: Any, name: str, cause: str) -> Any:
    """What why says once it has this cause."""

    def look() -> Any:
        found = cluster("why", name, "-o", "json").json
        return found if found["cause"] == cause else None

    return cluster.until(look, 50)


def job(name: str, policy: str = "Never", retries: int = 0, **spec: Any) -> str:
    template = {"spec": {"restartPolicy": policy, "containers": [MAIN], **spec}}
    thing = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}}
    return json.dumps({**thing, "spec": {"backoffLimit": retries, "template": template}})


SECRET = {"name": "A", "valueFrom": {"secretKeyRef": {"name": "nosec", "key": "k"}}}
INIT = {**MAIN, "name": "sync", "command": ["sh", "-c", "echo no such ref; exit 4"]}
WAITING: dict[str, Any] = {
    "ImagePull": ({"containers": [{**MAIN, "image": "localhost/nope:1"}]}, "localhost/nope:1", "--image"),
    "MissingConfig": ({"containers": [{**MAIN, "env": [SECRET]}]}, 'secret "nosec" not found', "make the secret"),
    "MissingVolume": (
        {
            "volumes": [{"name": "v", "secret": {"secretName": "nosec"}}],
            "containers": [{**MAIN, "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        },
        'secret "nosec" not found',
        "make the secret",
    ),
    "InitContainer": (
        {"initContainers": [{**INIT, "terminationMessagePolicy": "FallbackToLogsOnError"}]},
        "no such ref",
        "-c sync",
    ),
}


@pytest.mark.parametrize("cause", WAITING)
def test_what_keeps_a_pod_from_starting(cluster: Any, node: Bed, space: str, name: str, cause: str) -> None:
    spec, text, step = WAITING[cause]
    node.kubectl("-n", space, "create", "-f", "-", given=job(name, **spec))
    found = because(cluster, name, cause)
    assert text in found["text"]
    assert step in found["next"]
    assert any(text in line for line in found["evidence"])
    cluster.until(lambda: text in cluster("get", name).stdout, 50)
    cluster("delete", name)


def test_a_claim_that_nobody_checked(cluster: Any, node: Bed, space: str, name: str) -> None:
    spec: dict[str, Any] = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "nope"}}]}
    node.kubectl("-n", space, "create", "-f", "-", given=job(name, **spec))
    found = because(cluster, name, "MissingVolume")
    assert '"nope" not found' in found["text"]
    cluster("delete", name)


def test_a_crash_with_its_code_and_last_words(cluster: Any, name: str) -> None:
    line = "echo starting; echo 'ValueError: bad sample 1234' >&2; exit 3"
    result = cluster("run", "--name", name, "-w", "2", "--", "sh", "-c", f"[ $RANK = 1 ] || {PATIENT}; {line}")
    assert result.exit_code == 3, result.stderr
    assert "bad sample 1234" in result.stderr.splitlines()[-1]
    found = cluster("why", name, "-o", "json").json
    assert (found["cause"], found["exitCode"], found["firstFailure"]["replica"]) == ("ExitCode", 3, "worker-1")
    assert any("bad sample 1234" in line for line in found["evidence"])
    cluster("delete", name)


def test_out_of_memory(cluster: Any, name: str) -> None:
    result = cluster("run", "--name", name, "--memory", "64Mi", "--", "python3", "-c", "x = b'x' * 300_000_000")
    assert result.exit_code == 137, result.stderr
    found = cluster("why", name, "-o", "json").json
    assert (found["cause"], found["reason"]) == ("MemoryLimit", "OOMKilled")
    assert "64Mi" in found["text"]
    assert "--memory" in found["next"]
    cluster("delete", name)


def test_its_own_time_limit(cluster: Any, name: str) -> None:
    result = cluster("run", "--name", name, "--running-timeout", "2s", "--", "sh", "-c", PATIENT)
    assert result.exit_code == 1, result.stderr
    assert because(cluster, name, "DeadlineExceeded")["state"] == "FAILED"
    cluster("delete", name)


def test_a_crash_that_is_started_again(cluster: Any, name: str) -> None:
    spec = {"containers": [{**MAIN, "command": ["sh", "-c", "echo boom; exit 3"]}]}
    assert cluster("submit", "-f", str(cluster.file("job.json", job(name, "OnFailure", 3, **spec)))).exit_code == 0
    found = because(cluster, name, "ExitCode")
    assert "code 3" in found["text"]
    cluster("delete", name)
