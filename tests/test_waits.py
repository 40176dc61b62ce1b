"""What keeps a cluster's job from starting, and what a cluster did to one: what was seen, and the cause of it."""

# ruff: noqa: E501  the words of clusters are long

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from arena.status import Observed, Replica, State, decide
from arena.waits import Event, Facts
from arena.why import ON_CLUSTERS, Why, explain, one_line, warnings_of

T = datetime(2025, 6, 1, 12, 0, 0, tzinfo=UTC)
NO_GPU = (
    "0/3 nodes are available: 1 node(s) had untolerated taint {team: b}, 2 Insufficient nvidia.com/gpu. no new claims to "
    "deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
)
REFUSED = (
    'Failed to pull image "reg/x:1": failed to resolve reference "reg/x:1": pulling from host reg failed with status code '
    "[manifests 1]: 401 Unauthorized"
)
QUOTA = (
    'Error creating: pods "m-0" is forbidden: exceeded quota: team, requested: requests.nvidia.com/gpu=8, '
    "used: requests.nvidia.com/gpu=12, limited: requests.nvidia.com/gpu=16"
)


def waits(reason: str = "", message: str = "", index: int = 0, **more: Any) -> Replica:
    more = {"pod": f"m-{index}", **more}
    return Replica(role="worker", index=index, rank=index, reason=reason, message=message, **more)


def warning(reason: str, message: str, name: str = "m-0", kind: str = "Pod", **more: Any) -> Event:
    return Event(kind=kind, name=name, type="Warning", reason=reason, message=message, **more)


def why(*replicas: Replica, word: str = "", name: str = "m", more: Any = None, **facts: Any) -> Why | None:
    observed = Observed(word=word, created=T, replicas=replicas, **(more or {}))
    given = Facts(**{"kind": "PyTorchJob", "operator": "training-operator", "namespace": "team-a", **facts})
    return explain(observed, decide(observed).state, name=name, facts=given)


UNREACHED = (
    "rsync: [Receiver] failed to connect to h: Connection refused (111)\nrsync error: error in socket IO (code 10)"
)
LARGE = ("12 nvidia.com/gpu are asked for, the largest node has 8",)
CASES: list[tuple[str, Any, str | None, list[str]]] = [
    ("larger than any node", why(waits("Unschedulable", NO_GPU), too_large=LARGE),
     "NeverFits", ["12 nvidia.com/gpu", "largest node has 8", "Insufficient", "--gpus"]),
    ("the same where nodes may not be read", why(waits("Unschedulable", NO_GPU)),
     "Unschedulable", ["2 Insufficient nvidia.com/gpu", "--toleration team=b"]),
    ("a taint", why(waits("Unschedulable", "0/1 nodes are available: 1 node(s) had untolerated taint {team: b}."),
                    taints=("team=b:NoSchedule",)),
     "Unschedulable", ["taint team=b", "--toleration team=b:NoSchedule"]),
    ("several taints in new words", why(waits("Unschedulable", "0/1 nodes are available: 1 node(s) had untolerated taint(s)."),
                                        taints=("team=b:NoSchedule",)),
     "Unschedulable", ["team=b", "--toleration team=b:NoSchedule"]),
    ("labels", why(waits("Unschedulable", "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector."),
                   mismatch="0 of 3 nodes have zone=x"),
     "Unschedulable", ["0 of 3 nodes have zone=x", "--selector"]),
    ("others hold it", why(waits("Unschedulable", "0/3 nodes are available: 3 Insufficient cpu.")),
     "Unschedulable", ["3 Insufficient cpu", "wait until others end (arena list -A)", "--cpu"]),
    ("two of four placed", why(waits("", "", 0, node="n", gpus=4), waits("Unschedulable", "0/1 nodes: 1 Insufficient x", 1)),
     "Unschedulable", ["worker-1", "1 of 2 replicas have a node and hold 4 GPUs"]),
    ("a claim", why(waits("Unschedulable", '0/1 nodes are available: persistentvolumeclaim "c" not found. not found')),
     "MissingVolume", ['"c" not found', "--data"]),
    ("a secret that is mounted", why(waits("ContainerCreating"), events=(
        warning("FailedMount", 'MountVolume.SetUp failed for volume "v" : secret "s1" not found'),)),
     "MissingVolume", ['secret "s1" not found', "make the secret 's1'"]),
    ("an image of root's", why(waits("CreateContainerConfigError", "container has runAsNonRoot and image will run as root (pod: \"m\")")),
     "RunsAsRoot", ["image will run as root", "runAsUser=1000"]),
    ("a secret of a variable", why(waits("CreateContainerConfigError", 'secret "s" not found')),
     "MissingConfig", ['secret "s" not found', "make the secret 's'"]),
    ("a key of a secret", why(waits("CreateContainerConfigError", "couldn't find key k in Secret ns/s")),
     "MissingConfig", ["put the key k into Secret ns/s"]),
    ("no access to the image", why(waits("ImagePullBackOff", 'Back-off pulling image "reg/x:1"'), events=(
        warning("Failed", REFUSED),)),
     "ImagePull", ["reg/x:1", "no access", "401 Unauthorized", "--image-pull-secret"]),
    ("no such tag", why(waits("ErrImagePull", 'rpc error: code = NotFound desc = failed to pull image "reg/x:2": not found')),
     "ImagePull", ["reg/x:2", "no such image or tag"]),
    ("an image as it was asked for", why(waits("ErrImagePull", 'failed to pull image "docker.io/library/x:1": not found'),
                                         images={"m-0": "x:1"}),
     "ImagePull", ["image x:1 cannot be pulled"]),
    ("the image of an init container", why(waits("ErrImagePull", 'failed to pull image "reg/sync:1": not found'),
                                           images={"m-0": "x:1"}),
     "ImagePull", ["image reg/sync:1 cannot be pulled"]),
    ("rate limit", why(waits("ErrImagePull", 'image "x": toomanyrequests: You have reached your pull rate limit')),
     "ImagePull", ["limits how often"]),
    ("no name of an image", why(waits("InvalidImageName", 'couldn\'t parse image name "X Y": invalid reference format')),
     "ImagePull", ["no name of an image"]),
    ("the code", why(waits("InitContainerFailed", "arena-code ended with code 1: arena: the code is not what was sent: 0")),
     "InitContainer", ["the code could not be laid out", "not what was sent", "arena-code ended with code 1"]),
    ("git", why(waits("InitContainerFailed", "sync ended with code 4: fatal: no such ref\nbye")),
     "InitContainer", ["init container sync failed", "sync | fatal: no such ref"]),
    ("a source that does not answer", why(waits("InitContainerFailed", f"init-code ended with code 10: {UNREACHED}")),
     "InitContainer", ["the code could not be fetched for worker-0: rsync: [Receiver] failed", "mend", "--sync-source"]),
    ("a pod that is given up, its job is not", why(
        waits("InitContainerFailed", "init-code ended with code 1: fatal: no\nbye", lost=True, state=State.FAILED, ended=T)),
     "InitContainer", ["could not be fetched for worker-0: fatal: no", "rerun m"]),
    ("an init container of somebody's", why(waits("InitContainerFailed", "sync ended with code 4: boom")),
     "InitContainer", ["kubectl logs m-0 -c sync"]),
    ("an init container, pods gone", why(
        waits("InitContainerFailed", f"init-code ended with code 10: {UNREACHED}"), word="Failed", more={"reason": "Backoff"}),
     "InitContainer", ["the code could not be fetched"]),
    ("quota, seen late", why(waits(pod=""), events=(warning("FailedCreate", QUOTA, "m", "Job"),)),
     "Quota", ["'team'", "nvidia.com/gpu=8 asked", "16 allowed"]),
    ("pods that are refused", why(waits(pod=""), events=(
        warning("FailedCreatePod", 'Error creating: admission webhook "w" denied the request: no', "m", "PyTorchJob"),)),
     "PodsRefused", ["webhook"]),
    ("nobody has looked", why(untouched=12.0),
     "NoController", ["no controller has looked at PyTorchJob 'm' for 12 s", "training-operator", "'team-a'"]),
    ("suspended", why(word="Suspended"), "Suspended", ["resumes", "wait until it is let go on"]),
    ("an unknown cause is the newest event", why(waits("ContainerCreating"), events=(
        warning("FailedCreatePodSandBox", "older", at=T), warning("FailedCreatePodSandBox", "no CNI", at=T + timedelta(1)))),
     None, ["FailedCreatePodSandBox: no CNI"]),
    ("evicted", why(waits("Evicted", "The node was low on resource: memory.", lost=True, state=State.FAILED, node="n1",
                          ended=T), word="Failed"),
     "Evicted", ["node n1", "low on resource: memory", "--memory"]),
    ("preempted", why(waits("Preempted", "", lost=True, state=State.FAILED, ended=T), word="Failed"),
     "Preempted", ["higher priority"]),
    ("node lost", why(waits("NodeShutdown", "Pod was terminated", lost=True, state=State.FAILED, node="n1", ended=T),
                      word="Failed"),
     "NodeLost", ["n1"]),
    ("refused by its node", why(waits("OutOfcpu", "Node didn't have enough resource", lost=True, state=State.FAILED, ended=T),
                                word="Failed"),
     "NodeRefused", ["OutOfcpu"]),
    ("an init container that ended the job", why(
        waits("InitContainerFailed", "sync ended with code 4: boom", lost=True, state=State.FAILED, ended=T), word="Failed"),
     "InitContainer", ["boom"]),
    ("backoff limit, pods gone", why(word="Failed", more={"reason": "BackoffLimitExceeded", "message": "limit"}),
     "BackoffLimit", ["limit"]),
    ("its own time limit", why(word="Deadline", more={"reason": "DeadlineExceeded", "message": "was active longer"}),
     "DeadlineExceeded", ["was active longer"]),
    ("deleted", why(word="Deleted", more={"reason": "Deleted"}), "Deleted", ["deleted"]),
    ("gone", why(word="Deleted", more={"reason": "EndNotSeen", "message": "end not seen, last RUNNING 21:59"}),
     "Deleted", ["deleted, end not seen, last RUNNING 21:59"]),
]  # fmt: skip


@pytest.mark.parametrize(("found", "cause", "words"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_one_cause(found: Why | None, cause: str | None, words: list[str]) -> None:
    assert found is not None
    assert found.cause == cause
    text = f"{found}"
    assert [word for word in words if word not in text] == [], text
    assert "\n" not in one_line(found)


def test_every_cause_has_a_case() -> None:
    assert {cause for _, _, cause, _ in CASES} >= set(ON_CLUSTERS)


def test_a_young_job_has_no_cause() -> None:
    assert why(waits("ContainerCreating")) is None
    assert why(untouched=3.0) is None
    assert why(waits(state=State.RUNNING, started=T), word="Running") is None


def test_what_failed_before_the_eviction_is_the_cause() -> None:
    crashed = waits(index=1, state=State.FAILED, exit_code=3, ended=T, message="boom")
    evicted = waits("Evicted", "low", lost=True, state=State.FAILED, ended=T + timedelta(seconds=5))
    found = why(evicted, crashed, word="Failed")
    assert found is not None
    assert (found.cause, "boom" in found.text) == ("ExitCode", True)
    found = why(evicted, waits(index=1, state=State.FAILED, exit_code=3, ended=T + timedelta(seconds=9)), word="Failed")
    assert found is not None
    assert found.cause == "Evicted"


def test_a_replica_that_crashes_again_and_again() -> None:
    now = waits("CrashLoopBackOff", "back-off 10s", attempt=3, restarts=2)
    before = waits(attempt=2, state=State.FAILED, exit_code=3, ended=T, message="ValueError: boom")
    found = why(now, word="Running", more={"earlier": (before,)})
    assert found is not None
    assert found.cause == "ExitCode"
    assert "ValueError: boom" in found.text
    assert "started 3 times" in found.text


def test_the_last_words_of_a_pod_whose_log_is_gone() -> None:
    found = why(waits(state=State.FAILED, exit_code=1, ended=T, message="Traceback\nKeyError: 'x'"), word="Failed")
    assert found is not None
    assert "KeyError: 'x'" in found.text


def test_operator_and_pods_that_disagree_are_a_warning() -> None:
    long_ago = waits(state=State.SUCCEEDED, exit_code=0, ended=T)
    assert "operator still says Running" in warnings_of(Observed(word="Running", created=T, replicas=(long_ago,)))[0]
    just_now = waits(state=State.SUCCEEDED, exit_code=0, ended=datetime.now(UTC))
    assert warnings_of(Observed(word="Running", created=T, replicas=(just_now,))) == []


def test_a_pending_job_s_reason_is_its_replicas() -> None:
    status = decide(Observed(created=T, replicas=(waits("ContainerCreating"), waits("ErrImagePull", "no", 1))))
    assert (status.state, status.reason, status.message) == (State.PENDING, "ErrImagePull", "no")
