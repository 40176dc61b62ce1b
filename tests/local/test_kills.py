"""One victim of `kill -9` at a time, and the worse: what lives on, what is told."""

import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import arena
from arena import State, files
from arena.backends.local import process, state
from arena.client import Handle
from backends.place import HOLD, LocalPlace, py, sh, texts, until
from local.victims import (
    client,
    count_file,
    folder,
    keepers,
    kill,
    kill_all,
    kill_supervisor,
    marked,
    nothing_left,
    supervisor,
)

COUNTING = "i=0; while [ ! -e go ]; do echo $i; i=$((i+1)); sleep 0.01; done; echo last $i"
STUBBORN = "trap '' TERM; while true; do sleep 0.05; done"


def running(job: Handle) -> Handle:
    """The job, once all its replicas have pids."""
    until(lambda: all(r.pids for r in job.get().observed.replicas))
    return job


def change_made(job: Handle, **values: Any) -> None:
    path = folder(job) / "job.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def counted(job: Handle, replica: str = "worker-0") -> None:
    """The log counts from 0 without a gap, up to the last line."""
    lines = [line for line in texts(job.logs()) if not line.startswith("[")]
    assert lines[:-1] == [str(number) for number in range(len(lines) - 1)]
    assert lines[-1] == f"last {len(lines) - 1}"


# --- one at a time -------------------------------------------------------------------------------------------


def test_the_job_does_not_notice_that_its_submitter_is_killed(place: LocalPlace) -> None:
    words = ["sh", "-c", COUNTING + "; exit 5"]
    code = f"job = client.run({words!r}, name='x'); print(job.run_id, flush=True); job.wait()"
    submitter = client(place.env, place.cwd, code, stdout=subprocess.PIPE)
    assert submitter.stdout
    submitter.stdout.readline()
    kill(submitter.pid)
    submitter.communicate()
    place.go()
    job = place.client().get("x")
    assert job.wait().exit_code == 5
    counted(job)


def test_the_job_does_not_notice_that_a_reader_is_killed(place: LocalPlace) -> None:
    job = place.run(sh(COUNTING))
    code = f"[print(line.text, flush=True) for line in client.get({job.name!r}).logs(follow=True)]"
    reader = client(place.env, place.cwd, code, stdout=subprocess.PIPE)
    assert reader.stdout
    reader.stdout.readline()
    kill(reader.pid)
    reader.communicate()
    place.go()
    assert job.wait().exit_code == 0
    counted(job)


def test_a_killed_replica_has_code_137(place: LocalPlace) -> None:
    job = running(place.run(sh(HOLD), workers=2))
    victim = next(r for r in job.get().observed.replicas if r.name == "worker-1")
    kill(*victim.pids)
    seen = job.wait()
    assert (seen.state, seen.exit_code, seen.first_failure and seen.first_failure.name) == (
        State.FAILED,
        137,
        "worker-1",
    )


def test_replicas_go_on_without_their_supervisor_and_the_next_look_starts_one(place: LocalPlace) -> None:
    job = running(place.run(sh(COUNTING + "; exit 7"), workers=2))
    kill_supervisor(job)
    pids = [pid for r in job.where.get(job.ref).observed.replicas for pid in r.pids]
    assert supervisor(folder(job))
    place.go()
    seen = job.wait()
    assert (seen.state, seen.exit_code) == (State.FAILED, 7)
    assert [pid for r in seen.observed.replicas for pid in r.pids] == pids
    for rank in (0, 1):
        lines = texts(job.logs(rank=rank))
        assert lines[:3] == ["0", "1", "2"]
        assert lines[-1] == f"last {len(lines) - 1}" or seen.observed.replicas[rank].ended_by_us


def test_no_code_and_no_line_is_lost_when_the_job_ends_without_supervisor(place: LocalPlace) -> None:
    job = running(place.run(sh(COUNTING + "; exit 9")))
    kill_supervisor(job)
    before = time.time()
    place.go()
    until((folder(job) / "attempt-1" / "worker-0.exit.json").exists)
    after = time.time()
    time.sleep(1)
    seen = job.wait()
    assert (seen.state, seen.exit_code, seen.reason) == (State.FAILED, 9, "Error")
    assert seen.observed.finished
    assert before - 0.1 < seen.observed.finished.timestamp() < after + 0.1
    counted(job)


def test_a_supervisor_killed_again_and_again_loses_nothing(place: LocalPlace) -> None:
    job = running(place.run(sh(COUNTING + "; exit 3")))
    for _ in range(5):
        kill_supervisor(job)
        job.get()
    place.go()
    assert job.wait().exit_code == 3
    counted(job)


def test_retries_go_on_under_the_next_supervisor(place: LocalPlace) -> None:
    script = "echo $ARENA_ATTEMPT >> attempts; until [ -e go$ARENA_ATTEMPT ]; do sleep 0.02; done; exit $ARENA_ATTEMPT"
    job = running(place.run(sh(script), retry=2))
    for attempt in (1, 2):
        until(lambda attempt=attempt: count_file(place, "attempts") == attempt)  # type: ignore[misc]
        kill_supervisor(job)
        (place.cwd / f"go{attempt}").touch()
        job.get()
    (place.cwd / "go3").touch()
    seen = job.wait()
    assert (seen.state, seen.exit_code, seen.observed.attempt) == (State.FAILED, 3, 3)
    assert [r.exit_code for r in (*seen.observed.earlier, *seen.observed.replicas)] == [1, 2, 3]
    assert count_file(place, "attempts") == 3


def test_the_time_limit_counts_on_under_the_next_supervisor(place: LocalPlace) -> None:
    job = running(place.run(sh(HOLD), running_timeout="2s"))
    kill_supervisor(job)
    seen = job.wait(40)
    assert (seen.state, seen.reason, seen.exit_code) == (State.FAILED, "DeadlineExceeded", None)
    assert seen.duration > 1.9


def test_a_decided_end_stays_decided_when_the_supervisor_is_killed_while_it_ends_the_gang(place: LocalPlace) -> None:
    slow = "trap 'sleep 3; exit 0' TERM; while true; do sleep 0.02; done"
    job = place.client(ARENA_LOCAL_GRACE="20s").run(sh(slow), running_timeout="1s")
    until(lambda: state.Run(folder(job)).facts().ending == "Deadline")
    kill_supervisor(job)  # who has decided may not have told anybody yet: whoever looks next goes on
    until(lambda: job.get() and (folder(job) / "attempt-1" / "worker-0.exit.json").exists())
    assert job.wait().reason == "DeadlineExceeded"


def test_the_supervisor_that_started_it_inherits_the_replica_of_a_killed_keeper(place: LocalPlace) -> None:
    job = running(place.run(sh(COUNTING + "; [ $RANK = 1 ] || exit 11"), workers=2))
    kill(keepers(folder(job))["worker-0"])
    time.sleep(0.1)
    place.go()
    seen = job.wait()
    first = seen.observed.replicas[0]
    assert (seen.state, first.exit_code, first.lost) == (State.FAILED, 11, False)
    lines = texts(job.logs(rank=0))
    assert lines[-1].startswith("last ")
    assert not [line for line in lines if line != lines[-1] and not line.isdecimal()]


def test_a_replica_that_ended_with_its_keeper_has_its_code(place: LocalPlace) -> None:
    """The keeper is stopped while the program ends, and then killed: nobody has read the code yet."""
    job = running(place.run(sh(HOLD + "; echo end; exit 12")))
    keeper = keepers(folder(job))["worker-0"]
    (pid,) = job.get().observed.replicas[0].pids
    os.kill(keeper, signal.SIGSTOP)
    place.go()
    until(lambda: process.is_zombie(pid))
    kill(keeper)
    seen = job.wait()
    assert (seen.state, seen.exit_code) == (State.FAILED, 12)
    assert texts(job.logs()) == ["end"]


def test_a_keeper_killed_after_the_supervisor_was_replaced_loses_its_replica(place: LocalPlace) -> None:
    job = running(place.run(sh(HOLD), workers=2))
    kill_supervisor(job)
    job.get()
    kill(keepers(folder(job))["worker-1"])
    seen = job.wait()
    assert (seen.state, seen.reason, seen.exit_code) == (State.FAILED, "Lost", None)
    assert [r.lost for r in seen.observed.replicas] == [False, True]
    assert seen.observed.replicas[1].reason == "Lost"
    until(lambda: nothing_left(job))


# --- the worse -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", [HOLD, STUBBORN], ids=["willing", "stubborn"])
def test_supervisor_and_keepers_together(place: LocalPlace, script: str) -> None:
    job = running(place.run(sh(f"({script}) & {script}"), workers=2))
    kill_all(job)
    assert marked(job)
    place.client().list()
    seen = job.wait(40)
    assert (seen.state, seen.reason, seen.exit_code) == (State.FAILED, "Lost", None)
    until(lambda: nothing_left(job))


def test_a_job_that_is_lost_is_not_retried(place: LocalPlace) -> None:
    job = running(place.run(sh(HOLD), retry=3, restart_policy="Always"))
    kill_all(job)
    seen = job.wait(40)
    assert (seen.reason, seen.observed.attempt) == ("Lost", 1)


def test_a_lost_job_can_be_deleted_and_its_name_used_again(place: LocalPlace) -> None:
    job = running(place.run(sh(STUBBORN), name="x"))
    kill_all(job)
    assert job.delete().reason == "Lost"
    assert not marked(job)
    assert place.run(["true"], name="x").wait().exit_code == 0


def test_who_is_told_to_stop_what_was_lost_before_says_so(place: LocalPlace) -> None:
    job = running(place.run(sh(HOLD)))
    kill_all(job)
    state.Run(folder(job)).write("stop.json", state.Stop(by="somebody", at=files.now()))
    assert job.wait(40).reason == "Lost"


def test_a_restart_of_the_machine(place: LocalPlace) -> None:
    job = running(place.run(sh(HOLD), workers=2))
    kill_all(job)
    kill(*marked(job))
    change_made(job, bootId="another")
    seen = job.wait(40)
    assert (seen.state, seen.reason, seen.exit_code) == (State.FAILED, "Lost", None)


def test_after_a_restart_nothing_is_started_that_had_not_been(place: LocalPlace) -> None:
    job = running(place.run(sh("echo x >> starts; " + HOLD)))
    until(lambda: count_file(place, "starts") == 1)
    kill_all(job)
    kill(*marked(job))
    for path in (folder(job) / "attempt-1").iterdir():
        path.unlink()
    change_made(job, bootId="another")
    assert job.wait(40).reason == "Lost"
    assert count_file(place, "starts") == 1


def test_a_job_of_another_host_is_shown_and_never_judged(place: LocalPlace) -> None:
    job = running(place.run(sh(HOLD)))
    until(lambda: marked(job))
    change_made(job, host="elsewhere")
    kill_all(job)
    seen = job.get()
    assert (seen.state, seen.host) == (State.RUNNING, "elsewhere")
    assert "elsewhere" in seen.status.message
    assert [one.run_id for one in place.client().list()] == [job.run_id]
    assert supervisor(folder(job)) is None
    assert marked(job)
    with pytest.raises(arena.UnsupportedError, match="elsewhere"):
        job.stop()
    kill(*marked(job))
    assert job.get().state is State.RUNNING
    change_made(job, host=socket.gethostname())


def test_a_waiting_job_goes_on_when_its_supervisor_was_killed(place: LocalPlace) -> None:
    with place.full() as full:
        job = full.run(sh("exit 4"))
        until(lambda: job.get().state is State.QUEUED)
        kill_supervisor(job)
        assert job.get().state is State.QUEUED
    assert job.wait().exit_code == 4


def test_the_queue_moves_when_a_running_job_is_killed_whole(place: LocalPlace) -> None:
    client_ = place.client(ARENA_LOCAL_MAX_REPLICAS="1")
    first = running(client_.run(sh(HOLD)))
    second = client_.run(["true"])
    until(lambda: second.get().state is State.QUEUED)
    kill_all(first)
    until(lambda: state.Run(folder(second)).facts().finished)
    assert second.wait().exit_code == 0


def test_a_gpu_is_free_again_when_its_job_is_killed_whole(place: LocalPlace, tmp_path: Path) -> None:
    client_ = place.client(ARENA_LOCAL_GPUS="1", ARENA_LEASE_DIR=str(tmp_path / "leases"))
    first = running(client_.run(sh(HOLD), gpus=1))
    kill_supervisor(first)
    second = client_.run(["true"], gpus=1)
    until(lambda: second.get().state is State.QUEUED)
    kill(*keepers(folder(first)).values())
    assert second.wait(40).exit_code == 0
    assert first.wait().reason == "Lost"


def test_a_program_that_never_ended_leaves_no_process(place: LocalPlace) -> None:
    """Sessions of their own, double forks: all below the replica ends with it."""
    nest = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork(): os._exit(0)\n"
        "    time.sleep(1000)\n"
        "time.sleep(1000)\n"
    )
    job = running(place.run(py(nest)))
    until(lambda: len(marked(job)) == 2)
    kill(keepers(folder(job))["worker-0"])
    time.sleep(0.2)
    job.stop()
    assert not marked(job)
    until(lambda: nothing_left(job))
