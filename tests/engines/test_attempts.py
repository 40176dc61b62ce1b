"""Which attempt a container's end and its log belong to: a pod that a node has recorded, in each of its moments.

`pods/crash-loop.json` is real: a program that ends with code 3, after two runs, waiting for its third.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from arena.backends.kubernetes.starts import Seats, is_before_last
from arena.engines import load, pods
from arena.engines.objects import Pod
from arena.status import Observed, Replica

Object = dict[str, Any]
RECORDED = Path(__file__).parent
LABELS = {"training.kubeflow.org/job-name": "x", "training.kubeflow.org/operator-name": "pytorchjob-controller"}
MADE = "2026-12-01T00:49:00Z"


def crash_loop() -> Object:
    found: Object = json.loads((RECORDED / "pods" / "crash-loop.json").read_text())
    return found


def moment(restarts: int, state: Object, last: Object) -> Object:
    """The recorded pod in another moment of its life."""
    pod = crash_loop()
    pod["status"]["containerStatuses"][0] |= {"restartCount": restarts, "state": state, "lastState": last}
    return pod


def decoded(*found: Object) -> list[Pod]:
    return msgspec.json.decode(json.dumps(found), type=list[Pod])


def told(replicas: list[Replica]) -> list[tuple[int, str, int | None]]:
    return [(replica.attempt, replica.state.name, replica.exit_code) for replica in replicas]


def test_a_container_that_waits_after_its_second_run_has_two_attempts_behind_it_and_one_before_it() -> None:
    found = pods.replicas(decoded(crash_loop())[0], "worker", 0, 0, "main")
    assert told(found) == [(2, "FAILED", 3), (3, "PENDING", None)]
    assert (found[1].restarts, found[1].reason) == (1, "CrashLoopBackOff")


def test_an_init_container_that_waits_to_be_started_again_tells_how_it_ended() -> None:
    pod = moment(0, {"waiting": {"reason": "PodInitializing"}}, {})
    last = {"terminated": {"exitCode": 10, "reason": "Error", "message": "refused", "finishedAt": MADE}}
    init = {"name": "init-code", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": last}
    pod["status"]["initContainerStatuses"] = [init]
    [found] = pods.replicas(decoded(pod)[0], "worker", 0, 0, "main")
    assert (found.reason, found.message) == ("InitContainerFailed", "init-code ended with code 10: refused")


ENDED = {"terminated": {"exitCode": 3, "reason": "Error", "startedAt": MADE, "finishedAt": MADE}}
RUNNING = {"running": {"startedAt": MADE}}
WAITING = {"waiting": {"reason": "RunContainerError"}}
MOMENTS: dict[str, tuple[tuple[int, Object, Object], list[tuple[int, str, int | None]]]] = {
    "not begun": ((0, {"waiting": {"reason": "ContainerCreating"}}, {}), [(1, "PENDING", None)]),
    "its first run": ((0, RUNNING, {}), [(1, "RUNNING", None)]),
    "ended once": ((0, ENDED, {}), [(1, "FAILED", 3)]),
    "waits for its second run": ((0, WAITING, ENDED), [(1, "FAILED", 3), (2, "PENDING", None)]),
    "its second run": ((1, RUNNING, ENDED), [(1, "FAILED", 3), (2, "RUNNING", None)]),
    "ended twice": ((1, ENDED, ENDED), [(1, "FAILED", 3), (2, "FAILED", 3)]),
    "waits for its third run": ((1, WAITING, ENDED), [(2, "FAILED", 3), (3, "PENDING", None)]),
}


@pytest.mark.parametrize("name", MOMENTS)
def test_the_attempts_of_each_moment(name: str) -> None:
    (restarts, state, last), expected = MOMENTS[name]
    found = pods.replicas(decoded(moment(restarts, state, last))[0], "worker", 0, 0, "main")
    assert told(found) == expected
    assert found[-1].restarts == restarts
    assert [one.restarts for one in found[:-1]] == [one.attempt - 1 for one in found[:-1]]


def test_only_the_last_end_of_a_pod_can_be_that_of_its_deletion() -> None:
    pod = moment(1, ENDED, ENDED)
    pod["metadata"] |= {"deletionTimestamp": MADE, "deletionGracePeriodSeconds": 0}
    found = pods.replicas(decoded(pod)[0], "worker", 0, 0, "main")
    assert [(one.exit_code, one.ended_by_us) for one in found] == [(3, False), (3, True)]


UNSEEN = "The container could not be located when the pod was terminated"


@pytest.mark.parametrize(("message", "ran"), [(UNSEEN, []), (f"{UNSEEN}.  The container used to be Running", [1])])
def test_an_end_that_the_node_did_not_see_has_no_code(message: str, ran: list[int]) -> None:
    end = {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": message, "startedAt": None}
    pod = moment(0, {"terminated": end | {"finishedAt": None}}, {})
    [found] = pods.replicas(decoded(pod)[0], "worker", 0, 0, "main")
    assert (found.state.name, found.exit_code, found.lost, found.reason) == ("FAILED", None, True, end["reason"])
    starts = Seats(load("pytorchjob")).starts(thing(), [decoded(placed(pod, "x-worker-0", MADE))[0]])
    assert [start.attempt for start in starts] == ran
    pod["status"] |= {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory"}
    [found] = pods.replicas(decoded(pod)[0], "worker", 0, 0, "main")
    assert (found.exit_code, found.lost, found.reason) == (None, True, "Evicted")


@pytest.mark.parametrize("name", MOMENTS)
def test_a_log_belongs_to_the_attempt_that_wrote_it(name: str) -> None:
    """The node gives the log of the last run, and while another one is there that of the run before it."""
    (restarts, state, last), expected = MOMENTS[name]
    seen = observed(moment(restarts, state, last))
    pod, engine = decoded(placed(moment(restarts, state, last), "x-worker-0", MADE))[0], load("pytorchjob")
    starts = Seats(engine).starts(thing(), [pod])
    ran = [attempt for attempt, state_, _ in expected if state_ != "PENDING"]
    assert [start.attempt for start in starts] == list(range(1, max(ran, default=0) + 1))
    kept = {start.attempt: is_before_last(start, pod) for start in starts}
    assert [attempt for attempt, before in kept.items() if before is not None] == ran
    assert [attempt for attempt, before in kept.items() if before] == ran[:-1]
    assert [replica.attempt for replica in seen.earlier if replica.ended] == ran[: len(seen.earlier)]


def test_attempts_go_on_where_a_pod_took_the_place_of_one_that_waited() -> None:
    new = moment(0, RUNNING, {})
    seen = observed(crash_loop(), new)
    assert told([*seen.earlier, *seen.replicas]) == [(2, "FAILED", 3), (3, "RUNNING", None)]
    assert [start.attempt for start in Seats(load("pytorchjob")).starts(thing(), both(crash_loop(), new))] == [1, 2, 3]


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_of_two_pods_of_one_second_the_one_that_is_over_came_first(names: str) -> None:
    old = placed(moment(0, ENDED, {}), f"x-worker-0-{names[0]}", MADE)
    new = placed(moment(0, RUNNING, {}), f"x-worker-0-{names[1]}", MADE)
    old["metadata"]["deletionTimestamp"] = MADE
    seen = load("pytorchjob").read(thing(), decoded(*sorted((old, new), key=lambda pod: pod["metadata"]["name"])))
    assert told([*seen.earlier, *seen.replicas]) == [(1, "FAILED", 3), (2, "RUNNING", None)]
    starts = Seats(load("pytorchjob")).starts(thing(), decoded(new, old))
    assert [(start.attempt, start.pod[-1]) for start in starts] == [(1, names[0]), (2, names[1])]


def thing() -> Any:
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": {"spec": {"containers": []}}}}}
    meta = {"name": "x", "namespace": "team-a", "uid": "u", "creationTimestamp": MADE}
    found = {"kind": "PyTorchJob", "metadata": meta, "spec": spec, "status": {}}
    return msgspec.json.decode(json.dumps(found), type=load("pytorchjob").thing)


def placed(pod: Object, name: str, made: str) -> Object:
    """The pod as the worker of a PyTorchJob."""
    labels = {**LABELS, "training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "0"}
    return {**pod, "metadata": {"name": name, "uid": name, "labels": labels, "creationTimestamp": made}}


def both(*found: Object) -> list[Pod]:
    return decoded(
        *[placed(one, f"x-worker-0-{number}", f"2026-12-01T00:5{number}:00Z") for number, one in enumerate(found)]
    )


def observed(*found: Object) -> Observed:
    return load("pytorchjob").read(thing(), both(*found))
