"""Exit codes: the job's own from what waits, 2 to 7 from everything else."""

import signal
import subprocess
import sys
from typing import Any

import pytest


@pytest.mark.parametrize("code", [0, 1, 2, 3, 7, 124, 125, 126, 127, 255])
def test_run_passes_the_jobs_code_on(arena: Any, code: int) -> None:
    assert arena("run", "--", "sh", "-c", f"exit {code}").exit_code == code


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_signal_is_128_and_its_number(arena: Any, number: int) -> None:
    assert arena("run", f"kill -{int(number)} $$; sleep 5").exit_code == 128 + number


def test_wait_and_submit_wait_pass_it_on_too(arena: Any) -> None:
    assert arena("submit", "job", "--wait", "--name", "a", "--", "sh", "-c", "exit 5").exit_code == 5
    assert arena("wait", "a").exit_code == 5
    assert arena("logs", "a").exit_code == 0
    assert arena("logs", "-f", "a").exit_code == 0
    assert arena("logs", "a", "--exit-code").exit_code == 5
    assert arena("submit", "job", "--name", "b", "--", "sh", "-c", "exit 5").exit_code == 0


def test_no_such_program_and_one_that_may_not_be_started(arena: Any) -> None:
    missing = arena("run", "no-such-program")
    assert missing.exit_code == 127
    assert "no-such-program: not found" in missing.stderr
    arena.file("data.txt", "x")
    assert arena("run", "./data.txt").exit_code == 126


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--no-such-flag", "true"),
        ("run", "-w", "x", "true"),
        ("run", "-w", "0", "true"),
        ("run",),
        ("run", " "),
        ("wait", ""),
        ("run", "--name", "Bad_Name", "true"),
        ("run", "--timeout", "soon", "true"),
        ("run", "-b", "kubernetes", "true"),
        ("run", "-b", "moon", "true"),
        ("run", "-f", "missing.yaml"),
        ("run", "-g", "1", "true"),
        ("run", "--result", "-", "true"),
        ("run", "--result", "no/such/folder/r.json", "true"),
        ("run", "--env-file", "missing.env", "true"),
        ("run", "--rm=perhaps", "true"),
        ("run", "--data", "claim:/data", "true"),
        ("run", "--strict", "--image", "i", "true"),
        ("wait", "missing"),
        ("wait", "missing", "--timeout", "x"),
        ("wait",),
        ("-n", "x", "wait", "missing"),
        ("wait", "--no-such-flag", "x"),
        ("submit", "pytorch", "--wait", "true"),
        ("submit", "job", "--wait", "--no-such-flag"),
        ("submit", "no-such-type", "--wait", "true"),
    ],
    ids=" ".join,
)
def test_what_waits_has_125_for_its_own_failures(arena: Any, here: Any, words: tuple[str, ...]) -> None:
    result = here(*words)
    assert result.exit_code == 125
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert "Traceback" not in result.stderr
    assert not arena.state.exists()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("list", "--no-such-flag"), 2),
        (("list", "--state", "LOST"), 2),
        (("list", "-l", "team"), 2),
        (("delete", "--state", "FAILED,LOST"), 2),
        (("history", "--limit", "-1"), 2),
        (("logs", "a", "--attempt", "0"), 2),
        (("get", ""), 2),
        (("logs", "--tail", "x", "a"), 2),
        (("submit", "job"), 2),
        (("submit",), 2),
        (("submit", "no-such-type", "true"), 2),
        (("submit", "job", "--no-such-flag", "true"), 2),
        (("delete",), 2),
        (("prune",), 2),
        (("no-such-command",), 2),
        (("config", "set", "no.such", "1"), 2),
        (("schema", "no-such-type"), 2),
        (("completion", "tcsh"), 2),
        (("rerun",), 2),
        (("get", "missing"), 3),
        (("logs", "missing"), 3),
        (("why", "missing"), 3),
        (("exec", "missing", "--", "true"), 3),
        (("stop", "missing"), 3),
        (("export", "missing"), 3),
        (("rerun", "missing"), 3),
        (("delete", "missing"), 0),
        (("delete", "missing", "--must-exist"), 3),
        (("delete", "missing", "--timeout", "soon"), 2),
        (("delete", "missing", "--timeout", "1m", "--no-wait"), 2),
        (("history", "missing"), 0),
        (("list", "-b", "kubernetes"), 6),
        (("submit", "job", "-b", "local", "--gpus", "1", "true"), 5),
        (("submit", "pytorch", "train.py"), 6),
        (("submit", "tf", "train.py"), 6),
        (("--help",), 0),
        (("run", "--help"), 0),
        (("version",), 0),
        (("--version",), 0),
    ],
    ids=str,
)
def test_all_other_commands(here: Any, words: tuple[str, ...], code: int) -> None:
    result = here(*words)
    assert result.exit_code == code, result
    assert "Traceback" not in result.stderr
    if code:
        assert result.stdout == ""
    assert here(*words, env={"ARENA_COMPAT": "go"}).exit_code == bool(code)


def test_a_taken_name(arena: Any) -> None:
    assert arena("run", "--name", "a", "true").exit_code == 0
    again = arena("run", "--name", "a", "true")
    assert (again.exit_code, again.stdout) == (125, "")
    assert "already exists" in again.stderr
    assert arena("submit", "job", "--name", "a", "true").exit_code == 4
    assert arena("run", "--name", "a", "--replace", "true").exit_code == 0
    assert [run["name"] for run in arena("history", "-o", "json").json] == ["a", "a"]


def test_the_time_given_is_over_and_the_job_goes_on(arena: Any) -> None:
    ran = arena("run", "--name", "a", "--timeout", "0.3s", "sleep", "60")
    assert ran.exit_code == 124
    assert "goes on" in ran.stderr
    assert arena("wait", "a", "--timeout", "0.1s").exit_code == 124
    assert arena.job("a")["state"] == "RUNNING"
    assert arena("submit", "job", "--wait", "--timeout", "0.1s", "--", "sleep", "60").exit_code == 124
    assert arena("run", "-d", "--name", "b", "--", "sh", "-c", "trap '' TERM; touch b; sleep 60").exit_code == 0
    arena.until((arena.cwd / "b").exists)
    deleted = arena("delete", "b", "--timeout", "0.1s")
    assert (deleted.exit_code, "goes on" in deleted.stderr) == (124, True)
    assert arena("delete", "b", "--timeout", "1m").exit_code == 0


def test_a_job_that_does_not_start_in_time(arena: Any) -> None:
    few = {"ARENA_LOCAL_MAX_REPLICAS": "1"}
    assert arena("run", "-d", "--name", "a", "--", "sleep", "60").exit_code == 0
    late = arena("run", "--name", "b", "--start-timeout", "0.3s", "true", env=few)
    assert (late.exit_code, "did not start" in late.stderr) == (125, True)
    assert arena("wait", "b", "--start-timeout", "0.1s").exit_code == 125
    assert arena.job("b")["state"] == "QUEUED"


def test_a_job_without_a_code_of_its_own_is_1(arena: Any) -> None:
    assert arena("run", "--name", "late", "--running-timeout", "0.2s", "sleep", "60").exit_code == 1
    assert arena.job("late")["reason"] == "DeadlineExceeded"
    arena("run", "-d", "--name", "stopped", "sleep", "60")
    waits = arena.start("wait", "stopped")
    arena("stop", "stopped")
    assert waits.wait(20) == 1
    arena("run", "-d", "--name", "gone", "sleep", "60")
    waits = arena.start("wait", "gone")
    arena.running("gone")
    arena("delete", "gone")
    assert waits.wait(20) == 1


def test_exec_passes_the_remote_code(arena: Any) -> None:
    arena("run", "-d", "--name", "a", "sleep", "60")
    arena.running("a")
    assert arena("exec", "a", "--", "sh", "-c", "exit 9").exit_code == 9
    assert arena("attach", "a", "--", "no-such-program").exit_code == 127
    assert arena("exec", "a", "--replica", "worker-7", "--", "true").exit_code == 3
    assert arena("exec", "-i", "worker-0", "a", "--", "sh", "-c", "exit 125").exit_code == 125


WRITING = """
import sys, threading
from arena.__main__ import main

def write():
    while True:
        sys.stderr.write("x" * 100 + chr(10))

for _ in range(4):
    threading.Thread(target=write, daemon=True).start()
sys.argv = ["arena", "get", "nobody"]
main()
"""


def test_a_thread_that_still_writes_does_not_change_the_code(arena: Any) -> None:
    """An interpreter that shuts down while a thread holds stderr aborts, every second time."""
    for _ in range(8):
        command = subprocess.Popen([sys.executable, "-P", "-c", WRITING], env=arena.env, stderr=subprocess.PIPE)
        command.communicate(timeout=60)
        assert command.returncode == 3
