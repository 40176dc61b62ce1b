"""`arena cp` and `run --fetch` where jobs run on this machine."""

import os
import subprocess
import sys
from pathlib import Path


def command(env: dict[str, str], cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    words = (sys.executable, "-m", "arena", "-b", "local", *words)
    return subprocess.run(words, env=env, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


def test_files_lie_where_the_job_ran_and_cp_finds_them_from_anywhere(job_env: dict[str, str], tmp_path: Path) -> None:
    project = tmp_path / "p"
    project.mkdir()
    done = command(job_env, project, "run", "--name", "here", "--fetch", "out", "mkdir out; echo hi > out/x")
    assert done.returncode == 0
    assert "--fetch has no effect" in done.stderr
    copied = command(job_env, tmp_path, "cp", "here:out", "got")
    assert copied.returncode == 0, copied.stderr
    assert (tmp_path / "got" / "x").read_text() == "hi\n"
    assert command(job_env, tmp_path, "cp", "here/worker-0:out/x", "x").returncode == 0
    assert (tmp_path / "x").read_text() == "hi\n"
    for words in (("here:nowhere", "."), ("here/worker-9:out", "."), ("nobody:x", ".")):
        assert command(job_env, tmp_path, "cp", *words).returncode == 3
    for words in (("here", "."), ("x", "here:x"), (":x", "."), ("a/b/c/d:x", ".")):
        assert command(job_env, tmp_path, "cp", *words).returncode == 2
    assert sorted(os.listdir(tmp_path / "p")) == ["out"]
