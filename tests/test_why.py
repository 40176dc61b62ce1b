"""Observed jobs and their last lines, and what `why` concludes from them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from arena.status import TAKEN_AWAY, Observed, Replica, State
from arena.why import CAUSES, ON_CLUSTERS, Why, error_line, explain, first_failure, one_line, render, warnings_of

T = datetime(2025, 6, 1, 12, 0, 0, 250_000, tzinfo=UTC)
MI = 2**20


def replica(index: int = 0, code: int | None = 1, after: float = 0.0, **more: Any) -> Replica:
    more = {"role": "worker", "rank": index, "state": State.FAILED if code else State.SUCCEEDED, **more}
    return Replica(index=index, exit_code=code, ended=T + timedelta(seconds=after), **more)


def failed(*replicas: Replica, word: str = "Failed", **more: Any) -> Observed:
    return Observed(word=word, created=T, replicas=replicas, **more)


OOM: dict[str, Any] = {"memory_limit": 64 * MI, "memory_peak": 64 * MI, "oom_kills": 1, "reason": "OOMKilled"}

TRACEBACK = """\
Traceback (most recent call last):
  File "train.py", line 2, in <module>
    raise ValueError("bad sample 1234")
ValueError: bad sample 1234"""

# What torchrun 2 prints at its end, with the rank, the code and what it says to the traceback left open.
TORCHRUN = """\
W1130 17:47:58.027000 19553 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 19559 closing signal
Traceback (most recent call last):
  File "torch/distributed/launcher/api.py", line 386, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-30_17:47:58
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 19559)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 19559
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_17:47:58
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 19560)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================"""

CUDA = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB."
    " GPU 0 has a total capacity of 79.10 GiB of which 3.12 GiB is free."
)
OLD_CUDA = (
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"
    " (GPU 3; 10.76 GiB total capacity; 5.43 GiB already allocated; 1.23 GiB free; 5.50 GiB reserved)"
)
BUS = """\
ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).
RuntimeError: DataLoader worker (pid 43) is killed by signal: Bus error. It is possible that dataloader's workers are \
out of shared memory."""
LOST_PEER = "RuntimeError: [gloo/transport/tcp/pair.cc:537] Connection closed by peer [127.0.0.1]:4711"

# name: what was observed, the tail of worker-0, the cause, what the text says, what the next step says
FAILURES: dict[str, tuple[Observed, str, str | None, str, str]] = {
    "memory": (
        failed(replica(code=137, **OOM)),
        "",
        "MemoryLimit",
        r"worker-0 \(rank 0\).*memory limit of 64Mi.*peak use 64Mi.*137",
        "--memory 128Mi",
    ),
    "a child for memory": (
        failed(replica(**OOM)),
        "DataLoader worker (pid 7) is killed by signal: Killed",
        "MemoryLimit",
        r"a process of worker-0.*memory limit of 64Mi.*code 1$",
        "--memory",
    ),
    "memory without a known limit": (
        failed(replica(code=137, oom_kills=1)), "", "MemoryLimit", r"memory limit and was killed, code 137", "--memory",
    ),
    "memory of the GPU": (
        failed(replica()), CUDA, "GpuMemory", r"GPU memory.*rank 0.*20.00 GiB.*GPU 0.*3.12 GiB.*code 1", "batch",
    ),
    "memory of the GPU, PyTorch 1, the rank in the line": (
        failed(replica()), f"[rank5]: {OLD_CUDA}", "GpuMemory", r"rank 5.* 2.00 GiB .*GPU 3.*1.23 GiB", "--gpus",
    ),
    "memory of the GPU, under torchrun": (
        failed(replica()), CUDA + "\n" + TORCHRUN.format(code=1), "GpuMemory", r"20.00 GiB", "batch",
    ),
    "memory of the GPU that was coped with": (
        failed(replica()), CUDA + "\n" + TRACEBACK, "ExitCode", r"with code 1: ValueError: bad sample 1234", "logs",
    ),
    "shared memory": (
        failed(replica()), BUS, "ShmTooSmall", r"worker-0.*/dev/shm.*DataLoader.*code 1", "--share-memory",
    ),
    "segmentation fault": (
        failed(replica(code=139)), "", "Signal", r"worker-0 \(rank 0\).*11 \(SIGSEGV, segmentation fault\), code 139",
        "PYTHONFAULTHANDLER",
    ),
    "killed, and not for memory": (failed(replica(code=137)), "", "Signal", r"9 \(SIGKILL, killed\), code 137", "who"),
    "a signal of many meanings": (failed(replica(code=138)), "", "Signal", r"signal 10, code 138", "arena logs"),
    "no signal": (failed(replica(code=255)), "ssh: connect", "ExitCode", r"code 255: ssh: connect", "arena logs"),
    "a process under torchrun by a signal": (
        failed(replica()), TORCHRUN.format(code=-11), "Signal", r"rank 1 of worker-0.*torchrun.*SIGSEGV", "FAULT",
    ),
    "no such program": (
        failed(replica(code=127, reason="StartError", message="nosuchprogram: not found")),
        "",
        "MissingProgram",
        r"worker-0.*127.*nosuchprogram: not found",
        "PATH",
    ),
    "no such program in a shell": (
        failed(replica(code=127)), "sh: 1: nosuch: not found", "MissingProgram", r"nosuch: not found", "PATH",
    ),
    "no such program in bash": (
        failed(replica(code=127)), "bash: line 1: nosuch: command not found", "MissingProgram", r"nosuch: comm", "PATH",
    ),
    "127 of its own": (failed(replica(code=127)), "no luck", "ExitCode", r"code 127: no luck", "arena logs"),
    "not executable": (
        failed(replica(code=126, reason="StartError", message="data.csv: permission denied")),
        "",
        "NotExecutable",
        r"worker-0.*126.*data.csv: permission denied",
        "chmod",
    ),
    "a folder": (
        failed(replica(code=126, reason="StartError", message="src: is a folder")),
        "", "NotExecutable", r"126: src: is a folder", "a program in it",
    ),
    "too long": (
        failed(replica(code=126, reason="StartError", message="sh: argument list too long")),
        "", "NotExecutable", r"126: sh: argument list too long", "into a file",
    ),
    "not executable, in a shell": (
        failed(replica(code=126)), "sh: 1: ./x: Permission denied", "NotExecutable", r"\./x: Perm", "chmod",
    ),
    "no module": (
        failed(replica()),
        "Traceback (most recent call last):\nModuleNotFoundError: No module named 'numpy.linalg'",
        "MissingModule",
        r"worker-0.*module 'numpy.linalg' is missing for /v/bin/python, code 1",
        r"^/v/bin/python -m pip install numpy ",
    ),
    "no module to run": (
        failed(replica()), "/usr/bin/python3: No module named nosuch", "MissingModule", r"'nosuch'", "/usr/bin/python3",
    ),
    "no name in a module": (
        failed(replica()),
        "ImportError: cannot import name 'x' from 'y' (/p/y.py)",
        "MissingModule",
        r"cannot import name 'x' from 'y'.*/v/bin/python",
        "arena logs",
    ),
    "a module that was not needed": (
        failed(replica(code=3)), "ImportError: no x\n" + TRACEBACK, "ExitCode", r"bad sample", "",
    ),
    "a code": (
        failed(replica(code=3)), "rank 0 up\nbad sample 1234", "ExitCode", r"^worker-0 \(rank 0\) failed with code 3: "
        r"bad sample 1234$", "arena logs mnist --failed",
    ),
    "a code without a word": (failed(replica(code=3)), "", "ExitCode", r"failed with code 3$", "arena logs"),
    "torchrun": (
        failed(replica()), TRACEBACK + "\n" + TORCHRUN.format(code=3), "ExitCode",
        r"worker-0.*code 1: torchrun's root cause is rank 1, code 3: ValueError: bad sample 1234", "arena logs",
    ),
    "torchrun without a traceback": (
        failed(replica()), TORCHRUN.format(code=3), "ExitCode", r"root cause is rank 1, code 3$", "arena logs",
    ),
    "an own error before those of lost peers": (
        failed(replica()), TRACEBACK + "\n" + LOST_PEER, "ExitCode", r"bad sample 1234", "",
    ),
    "no rank": (failed(replica(role="ps", rank=None)), "", "ExitCode", r"^ps-0 failed with code 1", ""),
    "time limit": (
        failed(replica(code=143, ended_by_us=True), word="Deadline", message="ran longer than 2s"),
        "",
        "DeadlineExceeded",
        r"time limit: ran longer than 2s",
        "--running-timeout",
    ),
    "lost": (
        failed(replica(code=None, lost=True), word="Lost", message="the machine restarted"),
        "",
        "Lost",
        r"no exit code: the machine restarted",
        "arena rerun mnist",
    ),
    "supervisor": (
        failed(word="Failed", reason="SupervisorFailed", message="no free ports"),
        "",
        "SupervisorFailed",
        r"no free ports",
        "rerun",
    ),
    "nobody failed": (failed(reason="Evicted", message="node drained"), "", None, r"Evicted: node drained", "logs"),
}  # fmt: skip

# name: what was observed, the state, whom it waits for, the cause, the text, the next step
OTHERS: dict[str, tuple[Observed, State, Sequence[str], str | None, str, str]] = {
    "queue": (
        Observed(word="Queued", reason="Queue", message="waits for a-1", created=T),
        State.QUEUED, ["a-1", "b-2", "c-3", "d-4"], "Queue", r"a-1, b-2, c-3 and 1 more", "arena stop a-1",
    ),
    "queue without names": (
        Observed(word="Queued", reason="Queue", message="3 before it", created=T),
        State.QUEUED, [], "Queue", r"3 before it", "arena list",
    ),
    "gpus": (
        Observed(word="Queued", reason="GPUs", message="2 of 4 GPUs are wanted", created=T),
        State.QUEUED, [], "GPUs", r"waits for GPUs: 2 of 4", "--gpus",
    ),
    "selector": (
        Observed(word="Pending", reason="Unschedulable", message="0 of 1 nodes match zone=none", created=T),
        State.PENDING, [], "Unschedulable", r"0 of 1 nodes match zone=none", "--selector",
    ),
    "stopped": (
        failed(replica(code=143, ended_by_us=True), word="Stopped", reason="Stopped", message="by alice"),
        State.CANCELLED, [], "Stopped", r"stopped by alice", "arena rerun",
    ),
    "unknown": (Observed(word="Odd", created=T), State.UNKNOWN, [], None, r"'Odd'", "arena get"),
}  # fmt: skip


@pytest.mark.parametrize("case", FAILURES)
def test_failures(case: str) -> None:
    observed, tail, cause, text, follow = FAILURES[case]
    tails = {"worker-0": tail.splitlines()}
    why = explain(observed, State.FAILED, tails, name="mnist", python="/v/bin/python")
    assert_why(why, cause, text, follow)


@pytest.mark.parametrize("case", OTHERS)
def test_others(case: str) -> None:
    observed, state, waits, cause, text, follow = OTHERS[case]
    assert_why(explain(observed, state, waits=waits), cause, text, follow)


def assert_why(why: Why | None, cause: str | None, text: str, follow: str) -> None:
    assert why is not None
    assert why.cause == cause
    assert re.search(text, why.text), why.text
    assert re.search(follow, why.next), why.next
    assert "\n" not in one_line(why)


def test_every_cause_has_a_case() -> None:
    shown = {row[2] for row in FAILURES.values()} | {row[3] for row in OTHERS.values()}
    assert shown == {*CAUSES, None} - set(ON_CLUSTERS)


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.RUNNING, State.PENDING, State.QUEUED, State.SUSPENDED])
def test_nothing_to_explain(state: State) -> None:
    assert explain(failed(replica(), word="Running"), state) is None


def wide(**more: Any) -> Observed:
    late = [replica(i, 1, after=4, **more) for i in range(64) if i != 37]
    return failed(*late[:37], replica(37, 3), *late[37:])


def test_one_of_64() -> None:
    tails = {"worker-37": ["rank 37 up", "bad sample 1234"], "worker-0": ["connection closed by peer"]}
    why = explain(wide(), State.FAILED, tails, name="wide")
    assert why is not None
    shown = render(why)
    assert re.search(r"worker-37.*rank 37.*first.*3", shown)
    assert re.search(r"63 replicas ended after it", shown)
    assert shown.splitlines()[-2:] == ["  worker-37 | bad sample 1234", "Next: arena logs wide --failed"]
    assert str(why) == shown


def test_those_we_ended_are_counted_and_are_no_cause() -> None:
    ended = failed(replica(0, 143, -1, ended_by_us=True), replica(1, 3), replica(2, 143, 1, ended_by_us=True))
    why = explain(ended, State.FAILED)
    assert why is not None
    assert re.search(r"worker-1 .*code 3; 1 replica ended after it", why.text)


@pytest.mark.parametrize(
    ("seconds", "tails", "first"),
    [
        (2, {"worker-0": [LOST_PEER], "worker-1": ["bad sample"]}, "worker-1"),
        (2, {"worker-0": ["bad sample"], "worker-1": [LOST_PEER]}, "worker-0"),
        (2, {}, "worker-0"),
        (3, {"worker-0": [LOST_PEER], "worker-1": ["bad sample"]}, "worker-0"),
    ],
)
def test_clocks_of_whole_seconds(seconds: int, tails: Mapping[str, Sequence[str]], first: str) -> None:
    at = T.replace(microsecond=0)
    both = [Replica(role="worker", index=i, rank=i, exit_code=1, ended=at + timedelta(seconds=i * seconds))
            for i in range(2)]  # fmt: skip
    found = first_failure(failed(*both), tails)
    assert found is not None
    assert found.name == first


def test_clocks_with_fractions_are_believed() -> None:
    seen = failed(replica(0, 1), replica(1, 3, after=0.1))
    found = first_failure(seen, {"worker-0": [LOST_PEER], "worker-1": ["bad sample"]})
    assert found is not None
    assert found.name == "worker-0"


def test_the_first_attempt_is_the_cause_and_the_last_is_told() -> None:
    seen = failed(replica(0, 5, after=9, attempt=2), earlier=(replica(0, 3),), attempt=2)
    why = explain(seen, State.FAILED)
    assert why is not None
    assert re.search(r"worker-0 \(rank 0, attempt 1\) failed with code 3", why.text)
    assert why.evidence == ("worker-0 (rank 0, attempt 2) ended with code 5",)


def test_lost_names_who_was_lost() -> None:
    lost = [replica(i, None, lost=True) for i in range(7)]
    why = explain(failed(*lost, replica(7, 3), word="Lost"), State.FAILED)
    assert why is not None
    assert why.evidence[0] == "worker-0 (rank 0) was lost"
    assert why.evidence[-2:] == ("2 more were lost", "worker-7 (rank 7) ended with code 3")


def test_a_job_that_went_on_after_a_kill_is_warned_of() -> None:
    good = Observed(word="Succeeded", created=T, replicas=(replica(code=0, **OOM),))
    assert explain(good, State.SUCCEEDED) is None
    (warning,) = warnings_of(good)
    assert re.search(r"a process of worker-0 .*memory limit of 64Mi.*went on.*--memory 128Mi", warning)
    assert warnings_of(failed(replica(code=137, **OOM))) == []


@pytest.mark.parametrize(
    ("tail", "line"),
    [
        ([], ""),
        (["", "  "], ""),
        (["a", "b", ""], "b"),
        (["error: no such option", "usage: x"], "error: no such option"),
        (["error rate 0.5", "bad sample"], "bad sample"),
        (["KeyboardInterrupt"], "KeyboardInterrupt"),
        (["python: can't open file 'x.py': [Errno 2] No such file or directory"],
         "python: can't open file 'x.py': [Errno 2] No such file or directory"),
        ([*TRACEBACK.splitlines(), "bye"], "ValueError: bad sample 1234"),
        ([LOST_PEER], LOST_PEER),
    ],
)  # fmt: skip
def test_error_line(tail: list[str], line: str) -> None:
    assert error_line(tail) == line


def test_control_characters_of_logs_do_not_reach_the_terminal() -> None:
    tail = ["\x1b[31mbad\x1b[0m\x07", "10%\r100%", "x" * 5000]
    why = explain(failed(replica(code=3)), State.FAILED, {"worker-0": tail})
    assert why is not None
    assert why.evidence[:2] == ("worker-0 | bad\ufffd", "worker-0 | 100%")
    assert len(one_line(why)) < 1000


GONE: dict[str, Any] = {"started": T, "ended_by_us": True, "state": State.CANCELLED}
LIMIT = "Job mnist has failed because it has reached the specified backoff limit"
# what became of the replicas, the cause, what the text says, what the next step says
TAKEN: dict[str, tuple[Observed, str | None, str, str]] = {
    "nobody saw a pod": (
        failed(replica(code=None, ended_by_us=True), reason="PyTorchJobFailed", message=LIMIT),
        "BackoffLimit",
        r"backoff limit; its pods are gone, and nobody saw how they ended$",
        r"arena rerun mnist.*arena logs mnist -f",
    ),
    "pods were deleted": (
        failed(replica(code=None, pod="a", **GONE), reason="PyTorchJobFailed", message="1 replica failed."),
        None,
        r"1 replica failed; no replica was seen to fail, pods were deleted: worker-0 \(rank 0\)$",
        "arena logs mnist --all",
    ),
    "a node was drained": (
        failed(replica(code=137, node="n1", reason="EvictionByEvictionAPI", **GONE)),
        "Evicted",
        r"worker-0 \(rank 0\) was evicted from node n1 by request",
        "arena rerun mnist",
    ),
    "one of higher priority came": (
        failed(replica(code=137, reason="PreemptionByScheduler", **GONE)), "Preempted", "higher priority", "--priority",
    ),
    "a node is not there any more": (
        failed(replica(code=None, node="n1", reason="DeletionByPodGC", **GONE)), "NodeLost", "node n1", "arena rerun",
    ),
    "one failed, and the others were deleted": (
        failed(replica(0, code=3), replica(1, code=None, pod="a", reason="EvictionByEvictionAPI", **GONE)),
        "ExitCode",
        r"worker-0 \(rank 0\) failed .*code 3",
        "--failed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("reason", TAKEN_AWAY)
def test_each_word_for_a_pod_that_was_taken_away_has_a_cause(reason: str) -> None:
    found = explain(failed(replica(code=137, node="n1", reason=reason, **GONE)), State.FAILED, name="mnist")
    assert found
    assert reason in CAUSES[found.cause or ""]


@pytest.mark.parametrize("what", TAKEN)
def test_what_became_of_pods_that_did_not_fail(what: str) -> None:
    observed, cause, text, follow = TAKEN[what]
    found = explain(observed, State.FAILED, name="mnist")
    assert found
    assert found.cause == cause
    assert re.search(text, found.text)
    assert re.search(follow, found.next)
