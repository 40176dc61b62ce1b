"""The command line as a person types it: `r = arena("run", "-w", "2", …)`, each test with a home and a state of its own."""

import json
import os

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ARENA = [sys.executable, "-P", "-m", "arena"]
PATIENCE = 30.0


class Result(NamedTuple):
    """How one command ended and what it said."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """stdout as JSON."""
        return json.loads(self.stdout)

    @property
    def last(self) -> Any:
        """The last line of stderr as JSON."""
        return json.loads(self.stderr.splitlines()[-1])


class Arena:
    """The program `arena`, started in one folder with one environment."""

    def __init__(self, env: dict[str, str], cwd: Path) -> None:
        self.env = env
        self.cwd = cwd
        self.state = Path(env["ARENA_STATE_DIR"])

    def __call__(self, *words: str, env: Mapping[str, str] = {}, cwd: Path | None = None, **more: Any) -> Result:
        """Run it to its end. A variable that is empty in `env` is not there at all."""
        given = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
        done = subprocess.run(
            [*ARENA, *words], env=self.environ(env), cwd=cwd or self.cwd, timeout=PATIENCE, encoding="utf-8", **given
        )
        return Result(done.returncode, done.stdout or "", done.stderr or "")

    def start(self, *words: str, env: Mapping[str, str] = {}, **more: Any) -> "subprocess.Popen[str]":
        """Start it only; its output is read by whoever asks."""
        given = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
        return subprocess.Popen([*ARENA, *words], env=self.environ(env), cwd=self.cwd, encoding="utf-8", **given)

    def shell(self, line: str) -> Result:
        """A line of bash in which `arena` is a command."""
        words = " ".join(f"'{word}'" for word in ARENA)
        done = subprocess.run(
            ["bash", "-c", f"arena() {{ {words} \"$@\"; }}; {line}"],
            env=self.env, cwd=self.cwd, timeout=PATIENCE, encoding="utf-8", capture_output=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return Result(done.returncode, done.stdout, done.stderr)

    def environ(self, env: Mapping[str, str]) -> dict[str, str]:
        return {key: value for key, value in {**self.env, **env}.items() if value}

    def job(self, name: str) -> Any:
        """What `get` says of a job."""
        return self("get", name, "-o", "json").json

    def file(self, name: str, text: str) -> Path:
        """A file in the folder."""
        path = self.cwd / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def until(self, look: Callable[[], Any], seconds: float = 20.0) -> Any:
        """What `look` gives as soon as it is true."""
        deadline = time.monotonic() + seconds
        while not (found := look()):
            assert time.monotonic() < deadline, f"not within {seconds} s"
            time.sleep(0.02)
        return found

    def running(self, name: str) -> None:
        """Wait until a job is RUNNING."""
        self.until(lambda: (r := self("get", name, "-o", "json")).exit_code == 0 and r.json["state"] == "RUNNING")


@pytest.fixture
def here(arena: Arena, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """The same within this process, for words that are refused before anything starts: much quicker."""
    from arena.cli import main

    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name, value in arena.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(arena.cwd)

    def call(*words: str, env: Mapping[str, str] = {}) -> Result:
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        code = main.run(list(words))
        sys.stdout.flush()
        return Result(code, *capfd.readouterr())

    return call


@pytest.fixture
def arena(job_env: dict[str, str], tmp_path: Path) -> Iterator[Arena]:
    """The command, for a user with nothing: no kubeconfig, no active environment, an empty folder."""
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    for name in ("KUBECONFIG", "VIRTUAL_ENV", "CONDA_PREFIX", "XDG_CONFIG_HOME", "NO_COLOR", "SHELL"):
        job_env.pop(name, None)
    yield Arena(job_env, tmp_path / "work")
