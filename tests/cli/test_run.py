"""`arena run`: which words are whose, what starts, and how one goes away from it."""

import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Terminal

ARGV = "import os, sys; print(sys.argv, flush=True)"
WHERE = "import os, sys; print(os.getcwd(), os.path.basename(sys.executable), os.environ.get('PYTHONUNBUFFERED'))"


@pytest.mark.parametrize(
    ("words", "argv"),
    [
        (["-w", "1", "t.py", "--lr", "0.1", "-w", "3"], ["t.py", "--lr", "0.1", "-w", "3"]),
        (["--", "t.py", "--", "--name", "x"], ["t.py", "--", "--name", "x"]),
        (["t.py", "--", "a"], ["t.py", "--", "a"]),
        (["t.py", "", " ", "a b", "'", '"', "$$", "$(X)", "`id`", "*", "\\", "a\nb", "é"], None),
        (["--env", "A=b", "t.py", "--env", "C=d,e"], ["t.py", "--env", "C=d,e"]),
    ],
    ids=str,
)
def test_every_word_of_the_program_arrives(arena: Any, words: list[str], argv: list[str] | None) -> None:
    arena.file("t.py", ARGV)
    ran = arena("run", *words)
    assert (ran.exit_code, ran.stdout) == (0, f"{argv or words}\n")


def test_every_kind_of_program(arena: Any) -> None:
    arena.file("pkg/__init__.py", "")
    arena.file("pkg/mod.py", ARGV)
    arena.file("x.sh", 'echo "sh: $1"')
    arena.file("in 01 A.py", ARGV)
    arena.file("tool", "#!/bin/sh\necho tool $1").chmod(0o755)
    assert arena("run", "-m", "pkg.mod", "a").stdout == f"{[str(arena.cwd / 'pkg/mod.py'), 'a']}\n"
    assert arena("run", "x.sh", "a b").stdout == "sh: a b\n"
    assert arena("run", "./tool", "a").stdout == "tool a\n"
    assert arena("run", "in 01 A.py").stdout == "['in 01 A.py']\n"
    assert arena("run", "echo 'a b' | tr a c; echo $((1+1))").stdout == "c b\n2\n"


def test_lines_stop_at_the_first_error_and_a_line_keeps_the_shells_rules(arena: Any) -> None:
    several = arena("run", "no-such-program\necho done")
    assert (several.exit_code, "done" in several.stdout) == (127, False)
    assert arena("run", "no-such-program; echo done").exit_code == 0


def test_flags_after_the_program_give_one_line(arena: Any) -> None:
    ran = arena("run", "echo", "--workers", "2")
    assert ran.stdout == "--workers 2\n"
    assert ran.stderr.splitlines()[0] == "Note: --workers belongs to the program (it stands after echo)"


def test_it_starts_in_the_same_folder_unbuffered(arena: Any) -> None:
    arena.file("sub/t.py", WHERE)
    ran = arena("run", "t.py", cwd=arena.cwd / "sub")
    assert ran.stdout.split()[::2] == [str(arena.cwd / "sub"), "1"]
    assert arena("run", "--working-dir", "sub", "--", "pwd").stdout == f"{arena.cwd / 'sub'}\n"


def python(folder: Path, name: str = "python") -> Path:
    """A Python that says where it is instead of running anything."""
    path = folder / "bin" / name
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho {folder.name}/{name}\n")
    path.chmod(0o755)
    return path.parent


def test_the_python_of_the_active_environment_runs_it(arena: Any, tmp_path: Path) -> None:
    arena.file("t.py", "")
    path = python(tmp_path / "path", "python3")
    for folder in ("venv", "conda"):
        python(tmp_path / folder)
    venv, conda = ({name: str(tmp_path / name)} for name in ("venv", "conda"))
    both = {"VIRTUAL_ENV": venv["venv"], "CONDA_PREFIX": conda["conda"], "PATH": f"{path}:/bin"}
    assert arena("run", "t.py", env=both).stdout == "venv/python\n"
    assert arena("run", "t.py", env={**both, "VIRTUAL_ENV": ""}).stdout == "conda/python\n"
    on_path = {"PATH": str(path), "VIRTUAL_ENV": "", "CONDA_PREFIX": str(tmp_path / "gone")}
    (path / "sh").symlink_to("/bin/sh")
    ran = arena("run", "t.py", env=on_path)
    assert ran.stdout == "path/python3\n"
    assert f"python {path / 'python3'}" in ran.stderr.splitlines()[0]


def test_variables(arena: Any) -> None:
    arena.file("a.env", "FROM_FILE=file\nBOTH=file\n")
    words = ["--env-file", "a.env", "-e", "BOTH=flag", "--env", "LIST=b,c=d", "--env", "NCCL_IB_HCA==mlx5_0:1,mlx5_1:1"]
    shown = arena("run", *words, "--env", "FROM_HERE", "--", "env", env={"FROM_HERE": "here"}).stdout
    for line in ("FROM_FILE=file", "BOTH=flag", "LIST=b,c=d", "NCCL_IB_HCA==mlx5_0:1,mlx5_1:1", "FROM_HERE=here"):
        assert line in shown.splitlines()
    missing = arena("run", "--env", "NOWHERE", "true")
    assert (missing.exit_code, "NOWHERE" in missing.stderr) == (125, True)


def test_a_run_file_under_flags(arena: Any) -> None:
    arena.file(
        "job.yaml", "type: job\nname: filed\nworkers: 2\nenv: {A: file, B: file}\ncommand: [sh, -c, 'echo $A $B']\n"
    )
    assert sorted(arena("run", "-f", "job.yaml", "--raw").stdout.splitlines()) == ["file file"] * 2
    ran = arena("run", "-f", "job.yaml", "--name", "again", "-w", "1", "--env", "B=flag")
    assert ran.stdout == "file flag\n"
    assert arena("run", "-f", "job.yaml", "--name", "third", "-w", "1", "echo", "other").stdout == "other\n"
    arena.file("bad.yaml", "type: job\nworkrs: 2\nenv: 3\n")
    bad = arena("run", "-f", "bad.yaml")
    assert bad.exit_code == 125
    assert "workrs" in bad.stderr
    assert "'workers'" in bad.stderr
    assert "env" in bad.stderr


def test_detached_and_result(arena: Any) -> None:
    assert arena("run", "-d", "--name", "a", "--", "sh", "-c", "exit 4").stdout == "a\n"
    assert arena("run", "--result", "r.json", "--name", "b", "--", "sh", "-c", "exit 4").exit_code == 4
    result = json.loads((arena.cwd / "r.json").read_text())
    assert {key: result[key] for key in ("name", "state", "exitCode", "error")} == {
        "name": "b",
        "state": "FAILED",
        "exitCode": 4,
        "error": None,
    }


def test_a_dry_run_touches_nothing_and_says_the_same_everywhere(arena: Any, tmp_path: Path) -> None:
    arena.file("t.py", "")
    words = ["run", "--dry-run", "-w", "2", "--env", "HF_TOKEN=hf_abc", "t.py", "--lr", "0.1"]
    first = arena(*words)
    assert first.exit_code == 0
    assert "hf_abc" not in first.stdout + first.stderr
    other = {
        "HOME": str(tmp_path),
        "LANG": "C",
        "COLUMNS": "40",
        "TERM": "xterm",
        "ARENA_STATE_DIR": str(tmp_path / "b"),
    }
    assert arena(*words, env=other).stdout == first.stdout
    assert arena(*words[:1], "--dry-run=client", *words[2:]).stdout == first.stdout
    assert not arena.state.exists()
    assert not (tmp_path / "b").exists()
    assert list((tmp_path / "home").iterdir()) == []
    assert os.listdir(arena.cwd) == ["t.py"]
    assert arena("run", "--dry-run=perhaps", "true").exit_code == 125


def test_help(here: Any) -> None:
    short, long = here("run", "--help").stdout, here("run", "--help-all").stdout
    assert short.count("\n  -") <= 16
    assert short.count("  arena run") == 3
    assert "--running-timeout" not in short
    assert "--running-timeout" in long
    assert "no effect on this machine" in long
    assert here("help").stdout == here("--help").stdout
    assert here("help", "run").stdout == short
    assert here("help", "nosuch").exit_code == 2


# Going away


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_detaches(arena: Any, number: int) -> None:
    run = arena.start("run", "--name", "a", "--", "sh", "-c", "echo up; sleep 60")
    assert run.stdout.readline() == "up\n"
    run.send_signal(number)
    assert run.wait(20) == 128 + number
    assert "arena logs a -f" in (said := run.stderr.read())
    assert "arena delete a" in said
    assert arena.job("a")["state"] == "RUNNING"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_with_rm_a_signal_deletes(arena: Any, number: int) -> None:
    run = arena.start("run", "--rm", "--name", "a", "--", "sh", "-c", "echo up; sleep 60")
    assert run.stdout.readline() == "up\n"
    run.send_signal(number)
    (folder,) = (arena.state / "runs").iterdir()
    arena.until((folder / "stop.json").exists)
    assert run.wait(20) == 128 + number
    assert arena("get", "a").exit_code == 3
    assert arena("history", "-o", "json").json[0]["state"] == "CANCELLED"


def test_with_rm_the_job_is_gone_at_the_end(arena: Any) -> None:
    assert arena("run", "--rm", "--name", "a", "--", "sh", "-c", "exit 3").exit_code == 3
    assert arena("run", "--rm", "--name", "b", "--timeout", "0.3s", "--", "sleep", "60").exit_code == 124
    assert arena("list", "-o", "name").stdout == ""
    assert [job["exitCode"] for job in arena("history", "a", "-o", "json").json] == [3]


def test_a_short_flag_takes_its_value_after_an_equals_sign(arena: Any) -> None:
    script = "echo $A$B $1; sleep 0.2"
    arena("run", "-w=2", "-e=A=1", "-e=B==x", "--name", "a", "--", "sh", "-c", script, "sh", "-o=json")
    assert sorted(arena("logs", "a").stdout.splitlines()) == ["worker-0 | 1=x -o=json", "worker-1 | 1=x -o=json"]
    assert arena("config", "show", "-o=json").json["backend"]
    assert arena("get", "-o=name", "a").stdout == arena("-b=local", "get", "a", "-o=name").stdout == "a\n"
    assert arena("logs", "a", "-i=worker-1", "-t=1").stdout == "1=x -o=json\n"
    assert arena("logs", "a", "--grep", "-o=j", "--raw").stdout.count("-o=json") == 2
    assert arena("exec", "a", "-i=worker-9", "--", "true").stderr.startswith("Error: job 'a' has no replica 'worker-9'")


def test_a_namespace_means_nothing_here_and_that_is_said(arena: Any) -> None:
    run = arena("run", "-n", "team-a", "true")
    assert (run.exit_code, "Note: --namespace has no effect on this machine\n" in run.stderr) == (0, True)
    assert arena("-n", "team-a", "run", "--strict", "true").exit_code == 125
    assert "Note" not in arena("run", "true", env={"ARENA_JOB_NAMESPACE": "team-a"}).stderr


def test_a_timeout_of_nothing_is_over_at_once(arena: Any) -> None:
    run = arena("run", "--name", "a", "--timeout", "0", "sleep", "60")
    assert run.exit_code == arena("wait", "a", "--timeout", "0").exit_code == 124
    assert not arena.job("a")["finishedAt"]


def test_wait_and_logs_are_left_and_the_job_goes_on(arena: Any) -> None:
    arena("run", "-d", "--name", "a", "--", "sh", "-c", "echo up; sleep 60")
    arena.running("a")
    for words in (("wait", "a"), ("logs", "-f", "a")):
        command = arena.start(*words)
        arena.until(lambda command=command: "RUNNING" in command.stderr.readline())
        command.send_signal(signal.SIGINT)
        assert command.wait(20) == 130
        assert "a goes on" in command.stderr.read()
    assert arena.job("a")["state"] == "RUNNING"


def test_the_first_ctrl_c_detaches_and_a_second_deletes(arena: Any) -> None:
    script = "from arena.cli import run; run.AGAIN = 30; from arena.cli.main import main; main()"
    words = [sys.executable, "-c", script, "run", "--name", "a", "--", "sh", "-c", "echo up; sleep 60"]
    terminal = Terminal(words, arena.env, arena.cwd)  # no hurry: a busy machine may press the key late
    terminal.until("up")
    terminal.key("\x03")
    terminal.until("to end it")
    terminal.key("\x03")
    assert terminal.wait() == 130
    assert "job a was deleted" in terminal.text
    assert "Traceback" not in terminal.text
    assert arena("get", "a").exit_code == 3


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_ctrl_c_at_any_moment(arena: Any, part: int) -> None:
    """Either there is nothing, or a job and a word on how to go on."""
    draw = random.Random(part)
    for number in range(10):
        name = f"j{number}"
        terminal = arena.terminal("run", "--name", name, "--", "sleep", "60")
        terminal.read(draw.uniform(0, 0.6))
        while terminal.read(0.001):
            pass
        terminal.key("\x03")
        terminal.wait()
        exists = arena("get", name).exit_code == 0
        assert exists == (f"arena logs {name} -f" in terminal.text), terminal.text
        if exists:
            arena("delete", name)
    assert not (arena.state / "new").exists() or os.listdir(arena.state / "new") == []
