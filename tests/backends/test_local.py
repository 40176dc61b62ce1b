"""What only this machine's backend does: the queue, GPUs, memory, what is left of trees and of killed supervisors."""

import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

import arena
from arena import State
from arena.client import Handle
from backends.place import HOLD, LocalPlace, py, sh, texts, until
from calm import waited

pytestmark = pytest.mark.exception("the queue, the memory and the processes of one machine")

GPUS = "echo $RANK $CUDA_VISIBLE_DEVICES"


def states(*jobs: Handle) -> list[str]:
    return [job.get().state.name for job in jobs]


def waiting_at(name: str) -> list[str]:
    """A command that ends when the test makes this file."""
    return sh(f"until [ -e {name} ]; do sleep 0.02; done")


# --- the queue -----------------------------------------------------------------------------------------------


@pytest.fixture
def two(place: LocalPlace) -> arena.Client:
    """A client of a machine for two replicas."""
    return place.client(ARENA_LOCAL_MAX_REPLICAS="2")


def test_the_third_replica_waits_and_the_order_is_kept(place: LocalPlace, two: arena.Client) -> None:
    running = [two.run(waiting_at(f"go{n}"), name=f"job{n}") for n in (1, 2)]
    until(lambda: states(*running) == ["RUNNING"] * 2)
    later = []
    for n in (3, 4, 5):
        later.append(two.run(waiting_at(f"go{n}"), name=f"job{n}"))
        until(lambda: states(*later) == ["QUEUED"] * len(later))
    assert later[0].get().waits_for == tuple(job.run_id for job in running)
    assert later[2].get().waits_for == (later[1].run_id,)
    for number in (1, 2, 3):
        (place.cwd / f"go{number}").touch()
        until(lambda: states(later[number - 1]) == ["RUNNING"])  # noqa: B023
        assert states(*later[number:]) == ["QUEUED"] * (3 - number)
    for number in (4, 5):
        (place.cwd / f"go{number}").touch()
    starts = [job.wait(check=True).observed.started for job in later]
    assert all(one and other and one <= other for one, other in pairwise(starts))


def test_a_gang_larger_than_the_machine_runs_when_it_is_alone(place: LocalPlace, two: arena.Client) -> None:
    first = two.run(waiting_at("go1"))
    until(lambda: states(first) == ["RUNNING"])
    large = two.run(waiting_at("go2"), workers=5)
    until(lambda: states(large) == ["QUEUED"])
    small = two.run(["true"])
    until(lambda: states(small) == ["QUEUED"])
    (place.cwd / "go1").touch()
    until(lambda: states(large) == ["RUNNING"])
    assert states(first, small) == ["SUCCEEDED", "QUEUED"]
    (place.cwd / "go2").touch()
    assert [job.wait().state for job in (large, small)] == [State.SUCCEEDED] * 2


@pytest.mark.parametrize("end", ["stop", "delete"])
def test_a_queued_job_ends_at_once_and_those_behind_it_move(place: LocalPlace, two: arena.Client, end: str) -> None:
    first = two.run(waiting_at("go1"), workers=2)
    until(lambda: states(first) == ["RUNNING"])
    second = two.run(waiting_at("go2"), workers=2)
    until(lambda: states(second) == ["QUEUED"])
    third = two.run(["true"])
    until(lambda: third.get().waits_for == (second.run_id,))
    seen = getattr(second, end)()
    assert (seen.state, seen.observed.started, seen.exit_code) == (State.CANCELLED, None, None)
    until(lambda: third.get().waits_for == (first.run_id,))
    (place.cwd / "go1").touch()
    third.wait(check=True, timeout=50)


def test_the_queue_moves_when_those_who_ran_are_killed(place: LocalPlace, two: arena.Client) -> None:
    first = two.run(waiting_at("go"), workers=2)
    until(lambda: all(r.pids for r in first.get().observed.replicas))
    second = two.run(["true"])
    until(lambda: states(second) == ["QUEUED"])
    keepers = {psutil.Process(r.pids[0]).ppid() for r in first.get().observed.replicas}
    (supervisor,) = {psutil.Process(keeper).ppid() for keeper in keepers}
    for pid in (supervisor, *keepers):
        os.kill(pid, signal.SIGKILL)
    assert second.wait(timeout=50).state is State.SUCCEEDED
    seen = first.get()
    assert (seen.state, seen.reason, seen.exit_code) == (State.FAILED, "Lost", None)


def test_packing_the_code_holds_nobody_up(place: LocalPlace) -> None:
    client = place.client(ARENA_LOCAL_MAX_REPLICAS="1")
    for number in range(2000):
        (place.cwd / f"{number}.txt").write_text(str(number))
    before = waited()
    first, second = client.run(["true"]), client.run(["true"])
    ended = first.wait(check=True).observed.finished
    started = second.wait(check=True).observed.started
    assert ended
    assert started
    assert (started - ended).total_seconds() - (waited() - before) < 2


# --- where it may run ----------------------------------------------------------------------------------------


def test_a_selector_that_does_not_match_stays_pending_and_says_why(place: LocalPlace) -> None:
    job = place.run(["true"], selector={"gpu": "a100"})
    until(lambda: job.get().reason)
    seen = job.get()
    assert (seen.state, seen.reason) == (State.PENDING, "Unschedulable")
    assert "gpu=a100" in seen.status.message
    with pytest.raises(arena.NotStartedError, match="gpu=a100"):
        job.wait(start_timeout=0.1)
    assert job.delete().state is State.CANCELLED
    assert place.client().list() == []


def test_a_selector_that_matches_runs(place: LocalPlace) -> None:
    assert place.run(["true"], selector={"kubernetes.io/os": sys.platform}).wait().state is State.SUCCEEDED


# --- GPUs ----------------------------------------------------------------------------------------------------


@pytest.fixture
def four(place: LocalPlace) -> arena.Client:
    """A client of a machine with four GPUs."""
    return place.client(ARENA_LOCAL_GPUS="4", ARENA_LEASE_DIR=f"{place.cwd}-leases")


def test_without_gpus_none_is_seen(place: LocalPlace) -> None:
    job = place.run(sh('echo "${CUDA_VISIBLE_DEVICES-unset}"'))
    job.wait(check=True)
    assert texts(job.logs()) == [""]


def test_gpus_on_a_machine_without_are_refused_in_one_line(place: LocalPlace) -> None:
    client = place.client(ARENA_LOCAL_GPUS="0")
    with pytest.raises(arena.UnsupportedError) as caught:
        client.run(["true"], gpus=1)
    assert caught.value.what == "this machine has no GPU"
    assert client.list() == []


def test_more_gpus_than_there_are_are_refused(four: arena.Client) -> None:
    with pytest.raises(arena.UnsupportedError, match="5 GPUs are wanted, this machine has 4"):
        four.run(["true"], gpus=5)


def test_every_replica_sees_its_own_gpus(four: arena.Client) -> None:
    job = four.run(sh(GPUS), workers=2, gpus=2)
    job.wait(check=True)
    assert sorted(texts(job.logs())) == ["0 0,1", "1 2,3"]


def test_the_processes_of_a_replica_share_its_gpus(place: LocalPlace, four: arena.Client) -> None:
    (place.cwd / "show.py").write_text("import os; print(*map(os.environ.get, ['RANK', 'CUDA_VISIBLE_DEVICES']))")
    job = four.run("show.py", workers=2, gpus=2, nproc_per_node=2)
    job.wait(check=True)
    assert sorted(texts(job.logs())) == ["0 0,1", "1 0,1", "2 2,3", "3 2,3"]


def test_a_job_without_free_gpus_waits_until_some_are(place: LocalPlace, four: arena.Client) -> None:
    first = four.run(sh(f"{GPUS}; until [ -e go1 ]; do sleep 0.02; done"), gpus=3)
    until(lambda: texts(first.logs()) == ["0 0,1,2"])
    second = four.run(sh(f"{GPUS}; until [ -e go2 ]; do sleep 0.02; done"), gpus=1)
    until(lambda: texts(second.logs()) == ["0 3"])
    third = four.run(sh(GPUS), gpus=2)
    until(lambda: states(third) == ["QUEUED"])
    assert third.get().reason == "GPUs"
    assert states(four.run(["true"])) != ["QUEUED"]
    (place.cwd / "go1").touch()
    third.wait(check=True, timeout=50)
    assert texts(third.logs()) == ["0 0,1"]
    (place.cwd / "go2").touch()
    second.wait(check=True)


# --- memory --------------------------------------------------------------------------------------------------

EAT = "import time; x = b'x' * (200 * 2**20); time.sleep(60)"
EATEN = f"""
import sys, arena
job = arena.Client(backend="local").run([sys.executable, "-ISc", {EAT!r}], memory="100Mi", name="hungry")
job.wait(timeout=30)
"""


def _ended_for_memory(job: Handle) -> None:
    seen = job.wait(timeout=50)
    (replica,) = seen.observed.replicas
    assert (seen.state, seen.exit_code, seen.reason) == (State.FAILED, 137, "OOMKilled")
    assert (replica.oom_kills, replica.memory_limit) == (1, 100 * 2**20)
    assert replica.memory_peak
    assert replica.memory_peak >= 99 * 2**20


@pytest.mark.root
@pytest.mark.skipif(sys.platform != "linux", reason="other system: has no cgroups")
def test_a_cgroup_ends_what_takes_more_memory_than_it_may(place: LocalPlace) -> None:
    folder = Path("/sys/fs/cgroup/memory/arena")
    job = place.run(py(EAT), memory="100Mi")
    _ended_for_memory(job)
    assert not [path for path in folder.glob("*") if job.run_id in path.name]


def test_without_cgroups_a_tree_is_watched(place: LocalPlace) -> None:
    hide = 'mount -t tmpfs none /sys/fs/cgroup && exec "$@"'
    wrap = ["unshare", "--mount", "sh", "-c", hide, "sh"] if os.geteuid() == 0 and sys.platform == "linux" else []
    words = [*wrap, sys.executable, "-c", EATEN]
    ran = subprocess.run(words, env=place.env, cwd=place.cwd, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    _ended_for_memory(place.client().get("hungry"))


def test_enough_memory_is_enough(place: LocalPlace) -> None:
    (replica,) = place.run(["true"], memory="64Mi").wait(check=True).observed.replicas
    assert (replica.oom_kills, replica.reason) == (0, "Completed")


# --- whole trees ---------------------------------------------------------------------------------------------

STUBBORN = """
import os, signal, sys, time
for number in range(2):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            print(os.getpid(), flush=True)
            open(f"there{number}", "w").close()
            time.sleep(100)
        os._exit(0)
while not (os.path.exists("there0") and os.path.exists("there1")):
    time.sleep(0.01)
"""


@pytest.mark.parametrize("parent", ["lives", "ended"])
def test_what_a_job_left_running_is_gone_with_it(place: LocalPlace, parent: str) -> None:
    job = place.run(py(STUBBORN + ("time.sleep(100)" if parent == "lives" else "")))
    until(lambda: len(list(job.logs())) == 2)
    pids = [int(text) for text in texts(job.logs())]
    if parent == "lives":
        assert all(psutil.pid_exists(pid) for pid in pids)
        job.delete()
    else:
        assert job.wait(timeout=50).state is State.SUCCEEDED
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


def test_stop_gives_a_program_its_time_to_end(place: LocalPlace) -> None:
    script = f"exec 2>/dev/null; trap 'sleep 0.3; echo saved; exit 0' TERM; echo ready; {HOLD}"
    job = place.client(ARENA_LOCAL_GRACE="30s").run(sh(script))
    until(lambda: texts(job.logs()) == ["ready"])
    seen = job.stop()
    assert texts(job.logs()) == ["ready", "saved"]
    assert [r.exit_code for r in seen.observed.replicas] == [0]


def test_a_job_submitted_from_inside_a_job_outlives_it(place: LocalPlace) -> None:
    inner = f"import arena; arena.Client(backend='local').run(['sh', '-c', {HOLD!r}], name='inner')"
    env = {"ARENA_STATE_DIR": place.env["ARENA_STATE_DIR"]}
    outer = place.run([sys.executable, "-c", inner], env=env)
    outer.wait(check=True)
    job = place.client().get("inner")
    until(lambda: states(job) == ["RUNNING"])
    place.go()
    assert job.wait(timeout=50).state is State.SUCCEEDED


# --- what is kept --------------------------------------------------------------------------------------------


def test_state_is_private_and_holds_no_secret(place: LocalPlace) -> None:
    client = place.client(WANDB_API_KEY="from-the-shell-1234")
    job = client.run(sh("echo $HF_TOKEN $WANDB_API_KEY"), env={"HF_TOKEN": "hf_of_the_job_1234"})
    job.wait(check=True)
    assert texts(job.logs()) == ["hf_of_the_job_1234 from-the-shell-1234"]
    state = Path(place.env["ARENA_STATE_DIR"])
    for path in (state, *state.rglob("*")):
        assert path.is_symlink() or not path.lstat().st_mode & 0o077, path
        if path.is_file() and not path.name.endswith(".log"):
            text = path.read_bytes()
            assert b"hf_of_the_job" not in text, path
            assert b"from-the-shell" not in text, path
    assert "hf_of" not in repr(job.get())


def test_a_job_of_another_host_is_shown_but_never_judged(place: LocalPlace) -> None:
    job = place.run(sh(HOLD), name="far")
    until(lambda: states(job) == ["RUNNING"])
    made = Path(place.env["ARENA_STATE_DIR"]) / "runs" / job.run_id / "job.json"
    text = made.read_text()
    made.write_text(text.replace(f'"host": "{os.uname().nodename}"', '"host": "elsewhere"'))
    seen = job.get()
    assert (seen.state, seen.host) == (State.RUNNING, "elsewhere")
    assert "on elsewhere" in seen.status.message
    with pytest.raises(arena.UnsupportedError, match="runs on elsewhere"):
        job.stop()
    made.write_text(text)
    job.delete()


# --- endless logs --------------------------------------------------------------------------------------------

ENDLESS = "awk 'BEGIN { for (n = %d; n <= %d; n++) printf \"%%07d %%092d\\n\", n, 0 }'"


def test_of_an_endless_log_head_and_tail_are_kept(place: LocalPlace) -> None:
    """A few seconds: 60 MB are written, of which 16 MB are kept; who reads too slowly is told what he missed."""
    script = f"{ENDLESS % (1, 80_000)}; {HOLD}; {ENDLESS % (80_001, 600_000)}"
    job = place.client(ARENA_LOG_MAX="16M").run(sh(script))
    slow = job.logs(follow=True)
    read = [next(slow) for _ in range(65_000)]  # into the second segment
    place.go()
    job.wait(check=True)
    for lines in (list(job.logs()), [*read, *slow]):
        numbers = [int(line.text.split()[0]) for line in lines if not line.text.startswith("[arena")]
        assert numbers == sorted(set(numbers))
        assert (numbers[0], numbers[-1]) == (1, 600_000)
        notes = [line.text for line in lines if line.text.startswith("[arena")]
        assert notes == ["[arena: the middle of this log was not kept]"]
    kept = Path(place.env["ARENA_STATE_DIR"]).rglob("*.log")
    assert sum(path.stat().st_size for path in kept) < 30 * 2**20
    assert texts(job.logs(tail=1))[0].startswith("0600000 ")


def test_little_is_kept_where_that_is_said(place: LocalPlace) -> None:
    job = place.client(ARENA_LOG_MAX="1M").run(sh(ENDLESS % (1, 60_000)))
    job.wait(check=True)
    kept = Path(place.env["ARENA_STATE_DIR"]).rglob("*.log")
    assert sum(path.stat().st_size for path in kept) < 3 * 2**20
    lines = texts(job.logs())
    assert lines[0].startswith("0000001 ")
    assert lines[-1].startswith("0060000 ")
    assert "[arena: the middle of this log was not kept]" in lines


def test_a_damaged_run_can_be_deleted_and_its_name_used_again(place: LocalPlace) -> None:
    name = place.make_odd()
    client = place.client()
    client.get(name).delete()
    assert client.list() == []
    assert client.warnings.lines == []
    assert client.run(["true"], name=name).wait().state is State.SUCCEEDED


@pytest.mark.parametrize("name", ["my train.py", "my train.sh", "my program"])
def test_a_path_with_blanks_is_a_file(place: LocalPlace, name: str) -> None:
    path = place.cwd / name
    path.write_text("#!/bin/sh\necho 1\n" if path.suffix != ".py" else "print(1)\n")
    path.chmod(0o755)
    for target in (path, Path(name), f"./{name}", str(path)):
        job = place.run(target)  # type: ignore[arg-type]
        job.wait(check=True)
        assert [line.text for line in job.logs()] == ["1"]


@pytest.mark.parametrize("target", [None, 5, b"true", {"a": "b"}])
def test_what_cannot_be_run_is_refused(place: LocalPlace, target: Any) -> None:
    with pytest.raises(arena.SpecError, match="what should run"):
        place.run(target)


def test_values_of_a_wrong_type_are_not_shown_where_one_may_be_secret(place: LocalPlace) -> None:
    with pytest.raises(arena.SpecError) as caught:
        place.run("true", env={"API_TOKEN": "hunter2", "N": 1})
    assert str(caught.value) == "--env N: expected str, got int"


def test_a_key_that_is_no_text_is_refused(place: LocalPlace) -> None:
    with pytest.raises(arena.SpecError) as caught:
        place.run("true", env={1: "a"})
    assert str(caught.value) == "--env: expected str, got int (got 1)"
