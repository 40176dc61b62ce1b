"""What goes wrong on a real cluster, seen through the API as users meet it."""

import threading

import pytest
from testbed.api import ApiError, wait_for
from testbed.bed import Bed
from testbed.faults import FaultProxy
from testbed.images import BARE

from cluster.pods import TEAM, Object, container, container_state, ended, events, log, pod, pods_of, remove, template

pytestmark = [pytest.mark.kubelet, pytest.mark.timeout(240)]

GPU = "nvidia.com/gpu"
EAT_MEMORY = "kept = []\nwhile True: kept.append(bytearray(b'x') * (1 << 20))"


def test_a_pod_over_the_quota_is_refused(node: Bed, name: str) -> None:
    greedy = container("main", "true", resources={"requests": {"memory": "1Ti"}, "limits": {"memory": "1Ti"}})
    with pytest.raises(ApiError, match=r"exceeded quota: team, requested: requests\.memory=1Ti") as refused:
        node.api("alice").post(f"{TEAM}/pods", pod(name, greedy))
    assert refused.value.status == 403


def test_a_job_over_the_quota_is_taken_and_its_pods_are_not(node: Bed, name: str) -> None:
    alice = node.api("alice")
    jobs = "/apis/kubeflow.org/v1/namespaces/team-a/pytorchjobs"
    greedy = container("pytorch", "true", resources={"requests": {"memory": "1Ti"}, "limits": {"memory": "1Ti"}})
    specs = {"Master": {"replicas": 1, "template": template(greedy)}}
    metadata = {"name": name}
    alice.post(
        jobs,
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": metadata,
            "spec": {"pytorchReplicaSpecs": specs},
        },
    )
    said = wait_for("event", lambda: [e for e in events(alice, name) if "exceeded quota" in e])
    assert "requests.memory=1Ti" in said[0]
    assert pods_of(alice, name) == []
    alice.delete(f"{jobs}/{name}")


def test_a_gpu_that_no_node_has_keeps_a_pod_pending(node: Bed, name: str) -> None:
    alice = node.api("alice")
    node.api().patch("/api/v1/nodes/node/status", {"status": {"capacity": {GPU: "1"}, "allocatable": {GPU: "1"}}})
    one, two = (container("main", "sleep", "600", resources={"limits": {GPU: count}}) for count in ("1", "2"))
    alice.post(f"{TEAM}/pods", pod(name, two))
    alice.post(f"{TEAM}/pods", pod(f"{name}-fits", one))

    def unschedulable() -> str | None:
        conditions = alice.get(f"{TEAM}/pods/{name}")["status"].get("conditions", [])
        return next((c["message"] for c in conditions if c.get("reason") == "Unschedulable"), None)

    assert f"1 Insufficient {GPU}" in wait_for("refusal of the scheduler", unschedulable)
    wait_for("running pod", lambda: container_state(alice, f"{name}-fits").get("state", {}).get("running"))
    for each in (name, f"{name}-fits"):
        remove(alice, f"{TEAM}/pods/{each}")


def test_an_image_that_cannot_be_pulled(node: Bed, name: str) -> None:
    alice = node.api("alice")
    alice.post(f"{TEAM}/pods", pod(name, container("main", "true", image="localhost/not-there:1")))

    def waiting() -> str | None:
        reason = container_state(alice, name).get("state", {}).get("waiting", {}).get("reason", "")
        return reason if "Image" in reason else None

    assert wait_for("waiting container", waiting) in ("ErrImagePull", "ImagePullBackOff")
    assert any("localhost/not-there:1" in said for said in events(alice, name))
    remove(alice, f"{TEAM}/pods/{name}")


def test_a_pod_that_takes_too_much_memory_is_killed(node: Bed, name: str) -> None:
    alice = node.api("alice")
    limits = {"limits": {"memory": "64Mi"}}
    alice.post(f"{TEAM}/pods", pod(name, container("main", "python3", "-c", EAT_MEMORY, resources=limits)))
    end = ended(alice, name)
    assert (end["reason"], end["exitCode"]) == ("OOMKilled", 137)


def test_a_program_that_ends_again_and_again(node: Bed, name: str) -> None:
    alice = node.api("alice")
    alice.post(f"{TEAM}/pods", pod(name, container("main", "sh", "-c", "exit 3"), restartPolicy="Always"))

    def backing_off() -> Object | None:
        seen = container_state(alice, name)
        return seen if seen.get("state", {}).get("waiting", {}).get("reason") == "CrashLoopBackOff" else None

    seen = wait_for("crash loop", backing_off)
    assert seen["lastState"]["terminated"]["exitCode"] == 3
    assert seen["restartCount"] >= 1
    remove(alice, f"{TEAM}/pods/{name}")


def test_a_bare_image_has_a_shell_and_tar_and_nothing_else(node: Bed, name: str) -> None:
    alice = node.api("alice")
    words = "for word in sh tar ls git python3; do type $word >/dev/null 2>&1 && echo $word; done"
    alice.post(f"{TEAM}/pods", pod(name, container("main", "sh", "-c", words, image=BARE)))
    ended(alice, name)
    assert log(alice, name).split() == ["sh", "tar"]


def test_logs_and_exec_reach_into_a_pod(node: Bed, name: str) -> None:
    alice = node.api("alice")
    alice.post(f"{TEAM}/pods", pod(name, container("main", "sh", "-c", "echo here; sleep 600")))
    wait_for("log", lambda: "here" in log(alice, name))
    assert node.kubectl("exec", name, "--", "id", "-un", user="alice").strip() == "root"
    remove(alice, f"{TEAM}/pods/{name}")


def test_an_exec_goes_through_the_fault_proxy_and_can_be_cut(node: Bed, name: str) -> None:
    alice = node.api("alice")
    alice.post(f"{TEAM}/pods", pod(name, container("main", "sleep", "600")))
    wait_for("running pod", lambda: container_state(alice, name).get("state", {}).get("running"))
    with FaultProxy(node) as proxy:
        proxy.kubeconfig("alice")
        user = f"alice-proxy-{proxy.port}"
        assert node.kubectl("exec", name, "--", "echo", "here", user=user) == "here\n"
        cut = threading.Timer(1, proxy.cut_streams)
        cut.start()
        said = node.kubectl("exec", name, "--", "sh", "-c", "sleep 30; echo late", user=user, check=False)
        assert "late" not in said
    remove(alice, f"{TEAM}/pods/{name}")


def test_a_pod_serves_a_repository_over_http(node: Bed, name: str) -> None:
    alice = node.api("alice")
    serve = "git init -q --bare /srv/git/code.git && exec serve-git"
    alice.post(f"{TEAM}/pods", pod(name, container("main", "sh", "-c", serve)))
    address = wait_for("address", lambda: alice.get(f"{TEAM}/pods/{name}")["status"].get("podIP"))
    push_and_clone = f"""
        set -e
        until git ls-remote http://{address}:8080/code.git >/dev/null 2>&1; do sleep 0.2; done
        git clone -q http://{address}:8080/code.git a 2>/dev/null && cd a
        git config user.name a && git config user.email a@b
        echo hello > file && git add . && git commit -qm one && git push -q origin HEAD:main
        git clone -q --depth 1 --branch main http://{address}:8080/code.git /tmp/b && cat /tmp/b/file
    """
    alice.post(f"{TEAM}/pods", pod(f"{name}-user", container("main", "sh", "-c", push_and_clone)))
    assert ended(alice, f"{name}-user")["exitCode"] == 0, log(alice, f"{name}-user")
    assert log(alice, f"{name}-user") == "hello\n"
    remove(alice, f"{TEAM}/pods/{name}")
