"""What jobs on a cluster are said to be: recorded objects and pods -> state, reason, code, first failure.

The objects in `engines/recorded` are real (`engines/record.py`); those below, marked as made by hand, are what no
test bed does on demand.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from msgspec import structs

from arena import status
from arena.engines import load
from arena.engines.gang import unlike_success
from arena.engines.objects import Pod
from arena.status import Observed, Replica, State
from engines.scenes import SCENES

Object = dict[str, Any]
RECORDED = Path(__file__).parent / "engines" / "recorded"


class Row(NamedTuple):
    """What is expected of a recorded scene; `replicas` are `name rank state`, `warning` a part of one."""

    state: str
    reason: str = ""
    code: int | None = None
    first: str | None = None
    replicas: str = ""
    warning: str = ""


TABLE = {
    "job-succeeds": Row("SUCCEEDED", "", 0, None, "worker-0 0 SUCCEEDED, worker-1 1 SUCCEEDED"),
    "job-one-fails": Row(
        "FAILED", "Error", 3, "worker-1", "worker-0 0 CANCELLED, worker-1 1 FAILED, worker-2 2 CANCELLED"
    ),
    "job-pytorch-fails": Row("FAILED", "Error", 3, "worker-0", "master-0 0 CANCELLED, worker-0 1 FAILED"),
    "job-keeps-failed": Row("FAILED", "Error", 3, "worker-1", "worker-0 0 SUCCEEDED, worker-1 1 FAILED"),
    "job-no-program": Row("FAILED", "StartError", 127, "worker-0", "worker-0 0 FAILED"),
    "job-not-executable": Row("FAILED", "StartError", 126, "worker-0", "worker-0 0 FAILED"),
    "job-deadline": Row("FAILED", "DeadlineExceeded", None, None, "worker-0 0 CANCELLED"),
    "job-stopped": Row("CANCELLED", "Stopped", None, None, "worker-0 0 CANCELLED, worker-1 1 CANCELLED"),
    "job-suspended": Row("SUSPENDED", "Suspended", None, None, "worker-0 0 SUSPENDED"),
    "job-unschedulable": Row("PENDING", "Unschedulable", None, None, "worker-0 0 PENDING"),
    "job-no-image": Row("PENDING", "ImagePullBackOff", None, None, "worker-0 0 PENDING"),
    "job-no-secret": Row("PENDING", "CreateContainerConfigError", None, None, "worker-0 0 PENDING"),
    "job-init-fails": Row("FAILED", "InitContainerFailed", None, None, "worker-0 0 FAILED"),
    "job-memory": Row("FAILED", "OOMKilled", 137, "worker-0", "worker-0 0 FAILED"),
    "job-memory-of-child": Row("FAILED", "OOMKilled", 1, "worker-0", "worker-0 0 FAILED"),
    "job-survives-memory-of-child": Row("SUCCEEDED", "", 0, None, "worker-0 0 SUCCEEDED"),
    "job-sidecar": Row("SUCCEEDED", "", 0, None, "worker-0 0 SUCCEEDED", "istio-proxy keeps the pod alive"),
    "job-retries": Row("FAILED", "Error", 5, "worker-0", "worker-0 0 FAILED"),
    "pytorch-succeeds": Row("SUCCEEDED", "", 0, None, "master-0 0 SUCCEEDED, worker-0 1 SUCCEEDED"),
    "pytorch-runs": Row("RUNNING", "", None, None, "master-0 0 RUNNING, worker-0 1 RUNNING, worker-1 2 RUNNING"),
    "pytorch-worker-fails": Row(
        "FAILED",
        "Error",
        3,
        "worker-0",
        "master-0 0 RUNNING, worker-0 1 FAILED, worker-1 2 RUNNING",
        "still running, though the job has ended: master-0, worker-1",
    ),
    "pytorch-plain": Row("FAILED", "Error", 3, "worker-1", "worker-0 0 RUNNING, worker-1 1 FAILED"),
    "pytorch-alone": Row("FAILED", "Error", 7, "master-0", "master-0 0 FAILED"),
    "pytorch-no-program": Row("FAILED", "StartError", 127, "master-0", "master-0 0 FAILED"),
    "pytorch-deadline": Row("FAILED", "DeadlineExceeded", None, None, "master-0 0 RUNNING, worker-0 1 CANCELLED"),
    "pytorch-stopped": Row("CANCELLED", "Stopped", None, None, "master-0 0 CANCELLED, worker-0 1 CANCELLED"),
    "pytorch-suspended": Row("SUSPENDED", "Suspended", None, None, "master-0 0 SUSPENDED, worker-0 1 SUSPENDED"),
    "pytorch-no-worker-image": Row(
        "SUCCEEDED", "", 0, None, "master-0 0 SUCCEEDED, worker-0 1 PENDING", "worker-0 never started"
    ),
    "pytorch-retries": Row("FAILED", "PyTorchJobFailed", None, None, "master-0 0 CANCELLED"),
    "pytorch-exit-code": Row("FAILED", "Error", 1, "master-0", "master-0 0 FAILED"),
    "pytorch-restarts": Row(
        "RUNNING", "", None, "worker-0", "master-0 0 RUNNING, worker-0 1 FAILED", "worker-0 was started again 2 times"
    ),
    "pytorch-upstream": Row("SUCCEEDED", "", 0, None, "master-0 0 SUCCEEDED, worker-0 1 SUCCEEDED"),
    "pytorch-upstream-unschedulable": Row(
        "PENDING", "Unschedulable", None, None, "master-0 0 PENDING, worker-0 1 PENDING"
    ),
    "tf-succeeds": Row("SUCCEEDED", "", 0, None, "ps-0 0 SUCCEEDED, worker-0 1 SUCCEEDED, worker-1 2 SUCCEEDED"),
    "tf-worker-fails": Row(
        "FAILED", "Error", 3, "worker-1", "ps-0 0 RUNNING, worker-0 1 RUNNING, worker-1 2 FAILED", "still running"
    ),
    "tf-stopped": Row("CANCELLED", "Stopped", None, None, "worker-0 0 CANCELLED, worker-1 1 CANCELLED"),
    "mpi-succeeds": Row(
        "SUCCEEDED", "", 0, None, "launcher-0 None SUCCEEDED, worker-0 None SUCCEEDED, worker-1 None SUCCEEDED"
    ),
    "mpi-fails": Row(
        "FAILED", "Error", 9, "launcher-0", "launcher-0 None FAILED, worker-0 None CANCELLED, worker-1 None CANCELLED"
    ),
    "mpi-no-program": Row("FAILED", "StartError", 127, "launcher-0", "launcher-0 None FAILED, worker-0 None CANCELLED"),
    "mpi-deadline": Row("FAILED", "DeadlineExceeded", None, None, "launcher-0 None CANCELLED, worker-0 None CANCELLED"),
    "mpi-stopped": Row(
        "CANCELLED",
        "Stopped",
        None,
        None,
        "launcher-0 None CANCELLED, worker-0 None CANCELLED, worker-1 None CANCELLED",
    ),
    "mpi-runs": Row("RUNNING", "", None, None, "launcher-0 None RUNNING, worker-0 None RUNNING, worker-1 None RUNNING"),
    "trainjob-succeeds": Row("SUCCEEDED", "", 0, None, "master-0 0 SUCCEEDED, worker-0 1 SUCCEEDED"),
    "trainjob-one-fails": Row("FAILED", "Error", 3, "worker-1", "worker-0 0 CANCELLED, worker-1 1 FAILED"),
    "trainjob-retries": Row("FAILED", "Error", 5, "worker-0", "worker-0 0 FAILED"),
    "trainjob-restarts": Row("RUNNING", "", None, "worker-1", "worker-0 0 RUNNING, worker-1 1 RUNNING"),
    "trainjob-stopped": Row("CANCELLED", "Stopped", None, None, "worker-0 0 CANCELLED, worker-1 1 CANCELLED"),
    "trainjob-deadline": Row("FAILED", "DeadlineExceeded", None, "worker-0", "worker-0 0 FAILED"),
    "trainjob-runs": Row("RUNNING", "", None, None, "worker-0 0 RUNNING, worker-1 1 RUNNING"),
    "trainjob-unschedulable": Row("PENDING", "Unschedulable", None, None, "worker-0 0 PENDING"),
}


def recorded(name: str) -> Observed:
    """What the scene's engine sees in what was recorded."""
    found = json.loads((RECORDED / f"{name}.json").read_text())
    return read(SCENES[name].engine, found["thing"], *found["pods"])


def read(engine_name: str, thing: Object, *pods: Object) -> Observed:
    """What an engine sees in these objects, decoded as the API client does it."""
    engine = load(engine_name)
    decoded = msgspec.json.decode(json.dumps(thing), type=engine.thing)
    return engine.read(decoded, msgspec.json.decode(json.dumps(pods), type=list[Pod]))


def told(replica: Replica) -> str:
    return f"{replica.name} {replica.rank} {replica.state.name}"


@pytest.mark.parametrize("name", TABLE)
def test_a_recorded_job_is_told_as_it_is(name: str) -> None:
    seen, row = recorded(name), TABLE[name]
    decided = status.decide(seen)
    first = status.first_failure(seen)
    assert (decided.state.name, decided.reason) == (row.state, row.reason)
    assert status.exit_code(seen, decided.state) == row.code
    assert (first.name if first else None) == row.first
    assert ", ".join(map(told, seen.replicas)) == row.replicas
    assert row.warning in "\n".join(seen.warnings)
    assert bool(seen.finished) == decided.state.final
    assert all((r.ended - r.started).days < 1 for r in seen.replicas if r.started and r.ended)


def test_every_scene_has_its_row_and_its_record() -> None:
    assert set(TABLE) == set(SCENES) == {file.stem for file in RECORDED.glob("*.json")}


# --- made by hand ---------------------------------------------------------------------------------------------

MADE = "2026-01-02T03:04:05Z"
META: Object = {"name": "odd", "uid": "u1", "creationTimestamp": MADE}
LABELS = {"training.kubeflow.org/job-name": "odd", "training.kubeflow.org/operator-name": "pytorchjob-controller"}
TEMPLATE: Object = {"spec": {"containers": [{"name": "pytorch", "resources": {"limits": {"nvidia.com/gpu": 2}}}]}}
TWO: Object = {
    "pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": TEMPLATE}, "Worker": {"template": TEMPLATE}}
}


def job(*conditions: str, spec: Any = TWO, **rest: Any) -> Object:
    """A PyTorchJob with these conditions that hold."""
    there = [{"type": name, "status": "True", "reason": f"PyTorchJob{name}"} for name in conditions]
    status_ = {"status": {"conditions": there}} if there else {}
    return {"kind": "PyTorchJob", "metadata": META, "spec": spec, **status_, **rest}


def pod(role: str, index: int = 0, made: str = MADE, **status_: Any) -> Object:
    """A pod of it."""
    labels = {
        **LABELS,
        "training.kubeflow.org/replica-type": role,
        "training.kubeflow.org/replica-index": str(index),
    }
    return {
        "metadata": {"name": f"odd-{role}-{index}", "labels": labels, "creationTimestamp": made},
        "spec": TEMPLATE["spec"],
        "status": status_,
    }


def container(state: Object, **rest: Any) -> Object:
    return {"containerStatuses": [{"name": "pytorch", "state": state, **rest}]}


def ended(code: int, at: str, **rest: Any) -> Object:
    return container({"terminated": {"exitCode": code, "reason": "Error", "startedAt": MADE, "finishedAt": at, **rest}})


ODD: dict[str, tuple[Object, State, str]] = {
    "no status": (job(), State.PENDING, "NotYetSeen"),
    "a condition that nobody knows": (job("Hibernating"), State.UNKNOWN, "Hibernating"),
    "a condition that nobody knows beside one that is known": (job("PodsReady", "Running"), State.PENDING, ""),
    "no spec": ({"kind": "PyTorchJob", "metadata": META}, State.PENDING, "NotYetSeen"),
    "null everywhere": (job(spec=None, status=None), State.PENDING, "NotYetSeen"),
    "no replica specs": (job("Failed", spec={"pytorchReplicaSpecs": None}), State.FAILED, "PyTorchJobFailed"),
    "words where numbers should be": (
        job("Failed", spec={"pytorchReplicaSpecs": {"Master": {"replicas": "one", "template": 7}, "Worker": []}}),
        State.FAILED,
        "PyTorchJobFailed",
    ),
    "conditions that are none": (job(status={"conditions": "Running"}), State.PENDING, "NotYetSeen"),
    "queued by Kueue": (
        job("Suspended") | {"metadata": {**META, "labels": {"kueue.x-k8s.io/queue-name": "q"}}},
        State.QUEUED,
        "Queue",
    ),
    "ended by a time limit, in the operator's words": (
        job(
            status={
                "conditions": [
                    {
                        "type": "Failed",
                        "status": "True",
                        "message": "Job odd has failed because it was active longer than specified deadline",
                    }
                ]
            }
        ),
        State.FAILED,
        "DeadlineExceeded",
    ),
    "no labels, no metadata": ({}, State.PENDING, "NotYetSeen"),
}


@pytest.mark.parametrize("what", ODD)
def test_an_odd_object_is_told_not_raised(what: str) -> None:
    thing, state, reason = ODD[what]
    decided = status.decide(read("pytorchjob", thing))
    assert (decided.state, decided.reason) == (state, reason)


@pytest.mark.parametrize("engine_name", ["job", "pytorchjob", "tfjob", "mpijob", "trainjob"])
def test_an_empty_object_is_read_by_every_engine(engine_name: str) -> None:
    assert status.decide(read(engine_name, {})).state is State.PENDING


def test_replicas_without_pods_are_those_of_the_spec_with_their_gpus() -> None:
    seen = read("pytorchjob", job("Created"))
    assert [(r.name, r.rank, r.gpus, r.state) for r in seen.replicas] == [
        ("master-0", 0, 2, State.PENDING),
        ("worker-0", 1, 2, State.PENDING),
    ]


def test_a_running_job_whose_pods_nobody_may_read_runs() -> None:
    active = {"conditions": [{"type": "Running", "status": "True"}], "replicaStatuses": {"Master": {"active": 1}}}
    seen = read("pytorchjob", job(status=active))
    assert status.decide(seen).state is State.RUNNING
    assert {replica.reason for replica in seen.replicas} == {"NotSeen"}


def test_an_evicted_pod_is_the_reason_and_has_no_code() -> None:
    evicted = pod("worker", phase="Failed", reason="Evicted", message="The node was low on resource: memory.")
    seen = read("pytorchjob", job("Failed"), pod("master", **container({"running": {"startedAt": MADE}})), evicted)
    decided = status.decide(seen)
    assert (decided.state, decided.reason, status.exit_code(seen, decided.state)) == (State.FAILED, "Evicted", None)
    assert seen.replicas[1].lost


def test_of_two_pods_of_one_replica_the_newer_is_it_and_the_older_an_earlier_attempt() -> None:
    old = pod("worker", **ended(3, "2026-01-02T03:05:00Z"))
    new = pod("worker", made="2026-01-02T03:06:00Z", **container({"running": {"startedAt": "2026-01-02T03:06:01Z"}}))
    seen = read("pytorchjob", job("Running"), new, old)
    assert [(r.attempt, r.state) for r in (*seen.earlier, seen.replicas[1])] == [(1, State.FAILED), (2, State.RUNNING)]


def test_a_pod_without_an_index_is_a_replica_of_its_own_or_the_next_attempt_of_one_that_failed() -> None:
    def own(name: str, made: str, status_: Object) -> Object:
        return {"metadata": {"name": name, "creationTimestamp": f"2026-01-02T03:{made}Z"}, "status": status_}

    up = container({"running": {"startedAt": MADE}})
    pods = [
        own("odd-a", "05:00", up),
        own("odd-b", "05:00", ended(3, "2026-01-02T03:05:10Z")),
        own("odd-c", "05:05", ended(0, "2026-01-02T03:05:08Z")),
        own("odd-d", "05:20", up),
    ]
    thing = {"kind": "Job", "metadata": META, "spec": {"completions": 4, "parallelism": 3}, "status": {"active": 2}}
    seen = read("job", thing, *reversed(pods))
    assert [(r.name, r.rank, r.pod, r.attempt, r.state) for r in (*seen.earlier, *seen.replicas)] == [
        ("worker-1", None, "odd-b", 1, State.FAILED),
        ("worker-0", None, "odd-a", 1, State.RUNNING),
        ("worker-1", None, "odd-d", 2, State.RUNNING),
        ("worker-2", None, "odd-c", 1, State.SUCCEEDED),
        ("worker-3", None, "", 1, State.PENDING),
    ]


def test_a_pod_does_not_follow_one_that_failed_in_the_second_in_which_both_were_made() -> None:
    states = (ended(3, MADE), container({"running": {"startedAt": MADE}}))
    pods = [
        {"metadata": {"name": name, "creationTimestamp": MADE}, "status": state}
        for name, state in zip("ab", states, strict=True)
    ]
    seen = read("job", {"kind": "Job", "metadata": META, "spec": {"completions": 2}, "status": {"active": 1}}, *pods)
    assert [(r.name, r.pod, r.attempt) for r in seen.replicas] == [("worker-0", "a", 1), ("worker-1", "b", 1)]


def test_a_pod_of_an_earlier_job_of_that_name_is_not_its() -> None:
    stale = pod("worker", made="2026-01-02T03:00:00Z", **ended(3, "2026-01-02T03:01:00Z"))
    assert status.first_failure(read("pytorchjob", job("Running"), stale)) is None


def test_a_pod_of_another_kind_of_that_name_is_not_its() -> None:
    other = pod("worker", **ended(3, "2026-01-02T03:05:00Z"))
    other["metadata"]["labels"]["training.kubeflow.org/operator-name"] = "tfjob-controller"
    assert status.first_failure(read("pytorchjob", job("Running"), other)) is None


def test_an_end_that_a_deletion_brought_about_is_no_failure() -> None:
    victim = pod("worker", **ended(143, "2026-01-02T03:05:02Z"))
    victim["metadata"] |= {"deletionTimestamp": "2026-01-02T03:05:31Z", "deletionGracePeriodSeconds": 30}
    cause = pod("master", **ended(3, "2026-01-02T03:05:01Z"))
    seen = read("pytorchjob", job("Failed"), victim, cause)
    assert seen.replicas[1].ended_by_us
    assert not seen.replicas[0].ended_by_us


def test_among_ends_of_nearly_one_time_the_one_about_a_lost_peer_is_not_the_first() -> None:
    lost = pod("master", **ended(1, "2026-01-02T03:05:01Z", message="RuntimeError: Connection closed by peer"))
    cause = pod("worker", **ended(3, "2026-01-02T03:05:02Z", message="ValueError: bad batch"))
    first = status.first_failure(read("pytorchjob", job("Failed"), lost, cause))
    assert first is not None
    assert first.name == "worker-0"


def test_a_launcher_is_told_although_it_runs_while_its_workers_are_killed_for_memory() -> None:
    labels = {"training.kubeflow.org/job-name": "odd", "training.kubeflow.org/operator-name": "mpi-operator"}
    killed = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": MADE}}
    running = {"running": {"startedAt": MADE}}
    launcher = pod("launcher", **container(running))
    worker = pod("worker", **container(running, lastState=killed, restartCount=4))
    for one, role in ((launcher, "launcher"), (worker, "worker")):
        one["metadata"]["labels"] = {**labels, "training.kubeflow.org/job-role": role}
    specs = {"Launcher": {"replicas": 1}, "Worker": {"replicas": 1}}
    seen = read("mpijob", job("Running", spec={"mpiReplicaSpecs": specs}), launcher, worker)
    assert "worker-0 was started again 4 times: OOMKilled" in seen.warnings[0]


def test_of_many_that_are_started_again_one_line_tells() -> None:
    last = {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": MADE}}
    waits = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container=x pod=y"}}
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 64, "template": TEMPLATE}}}
    pods = [pod("worker", n, **container(waits, lastState=last, restartCount=2 + n % 3)) for n in range(64)]
    seen = read("pytorchjob", job("Running", spec=spec), *pods)
    assert seen.warnings == (
        "worker-0, worker-1, worker-2 and 61 more were started again up to 4 times: Error, code 1",
    )
    assert (seen.reason, seen.message) == ("CrashLoopBackOff", "back-off 40s before it is started again")


def test_of_many_that_never_started_one_line_tells() -> None:
    waits = container({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}})
    seen = read("pytorchjob", job("Succeeded"), pod("master", **ended(0, MADE)), pod("worker", **waits))
    assert seen.warnings == (
        "worker-0 never started, though the job is said to have succeeded: ImagePullBackOff: no such image",
    )


def test_what_never_started_is_told_when_its_pod_is_gone() -> None:
    never = Replica(role="worker", index=3, reason="PodInitializing")
    done = Replica(role="master", index=0, state=State.SUCCEEDED, exit_code=0)
    [line] = unlike_success("Succeeded", (done, never))
    assert line == "worker-3 never started, though the job is said to have succeeded: PodInitializing"
    assert [*unlike_success("Failed", (done, never))] == []


@pytest.mark.parametrize("reason", status.TAKEN_AWAY)
def test_a_pod_that_the_cluster_takes_away_says_why(reason: str) -> None:
    taken: Object = {
        "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "for another"}]
    }
    leaving = {"deletionTimestamp": "2026-01-02T03:05:31Z", "deletionGracePeriodSeconds": 30}
    runs = pod("master", **container({"running": {"startedAt": MADE}}), **taken)
    over = pod("worker", **ended(143, "2026-01-02T03:05:02Z"), **taken)
    for one in (runs, over):
        one["metadata"] |= leaving
    seen = read("pytorchjob", job("Failed"), runs, over)
    assert [(r.reason, r.message) for r in seen.replicas] == [(reason, "for another")] * 2
    assert (seen.reason, status.decide(seen).state) == (reason, State.FAILED)
    assert status.first_failure(seen) is None


STARTED = {"startTime": "2026-01-02T03:04:06Z", "conditions": [{"type": "Running", "status": "True"}]}
RUNS: Object = {"running": {"startedAt": "2026-01-02T09:00:00Z"}}
# who there is, and which second the job is said to have started in
BEGINNINGS: dict[str, tuple[list[Object], str | None]] = {
    "nobody may be seen": ([], "03:04:06"),
    "nobody has started": ([pod("master"), pod("worker")], None),
    "one has started": ([pod("master", **container(RUNS)), pod("worker")], "09:00:00"),
    "one was started before, and nobody knows when": ([pod("master", **container(RUNS, restartCount=3))], "03:04:06"),
}


@pytest.mark.parametrize("what", BEGINNINGS)
def test_a_job_has_run_since_its_first_start(what: str) -> None:
    pods, at = BEGINNINGS[what]
    started = read("pytorchjob", job(status=STARTED), *pods).started
    assert (f"{started:%H:%M:%S}" if started else None) == at


def test_the_first_mpijobs_are_read_too() -> None:
    first = {"kind": "MPIJob", "metadata": META, "spec": {"replicas": 2}, "status": {"launcherStatus": "Succeeded"}}
    seen = read("mpijob", first)
    assert status.decide(seen).state is State.SUCCEEDED
    assert [replica.name for replica in seen.replicas] == ["launcher-0", "worker-0", "worker-1"]


def test_the_code_is_of_the_first_that_never_got_well() -> None:
    def end(name: str, second: int, code: int, attempt: int) -> Replica:
        at = datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)
        state = State.FAILED if code else State.SUCCEEDED
        return Replica(role=name, index=0, attempt=attempt, state=state, exit_code=code, started=at, ended=at)

    earlier = (end("well", 1, 9, 1), end("ill", 10, 3, 1))
    last = (end("well", 50, 0, 2), end("other", 30, 1, 1), end("ill", 40, 1, 2))
    seen = Observed(word="Failed", created=datetime(2026, 1, 1, tzinfo=UTC), replicas=last, earlier=earlier)
    assert status.exit_code(structs.replace(seen, in_place=True), State.FAILED) == 3
    assert status.exit_code(seen, State.FAILED) == 1
