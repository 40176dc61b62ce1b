"""The command line as a person types it: `r = arena("run", "-w", "2", …)`, with a home and a state per test."""

import fcntl
import json
import os
import select
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ARENA = [sys.executable, "-P", "-m", "arena"]
PATIENCE = 30.0
HANGS = 170.0  # seconds: tests have shorter limits of their own where they wait for no pods


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


class Terminal:
    """A process on a terminal of its own: what it wrote so far, and keys for it."""

    def __init__(self, words: list[str], env: Mapping[str, str], cwd: Path) -> None:
        self.master, slave = os.openpty()
        self.text = ""
        self.process = subprocess.Popen(
            words,
            env=env,
            cwd=cwd,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        )
        os.close(slave)

    def key(self, key: str) -> None:
        """Press keys; "\x03" is Ctrl-C."""
        os.write(self.master, key.encode())

    def read(self, seconds: float) -> bool:
        """Take what comes within so many seconds; whether anything came."""
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            self.text += os.read(self.master, 65536).decode(errors="replace")
        except OSError:  # nobody holds the other end
            return False
        return True

    def until(self, text: str) -> None:
        """Wait until a text stands on the screen."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.text:
            assert time.monotonic() < deadline, self.text
            self.read(0.1)

    def wait(self) -> int:
        """Its exit code, after all it wrote."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.text
            self.read(0.05)
        while self.read(0.05):
            pass
        os.close(self.master)
        return self.process.returncode


class Arena:
    """The program `arena`, started in one folder with one environment."""

    words = ARENA

    def __init__(self, env: dict[str, str], cwd: Path) -> None:
        self.env = env
        self.cwd = cwd
        self.state = Path(env["ARENA_STATE_DIR"])

    def __call__(self, *words: str, env: Mapping[str, str] = {}, cwd: Path | None = None, **more: Any) -> Result:
        """Run it to its end. A variable that is empty in `env` is not there at all."""
        given = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
        done = subprocess.run([*self.words, *words], env=self.environ(env), cwd=cwd or self.cwd, timeout=HANGS, **given)
        return Result(done.returncode, (done.stdout or b"").decode(), (done.stderr or b"").decode())

    def start(self, *words: str, env: Mapping[str, str] = {}, **more: Any) -> "subprocess.Popen[str]":
        """Start it only; its output is read by whoever asks."""
        given = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
        return subprocess.Popen([*self.words, *words], env=self.environ(env), cwd=self.cwd, encoding="utf-8", **given)

    def shell(self, line: str) -> Result:
        """A line of bash in which `arena` is a command."""
        words = " ".join(f"'{word}'" for word in self.words)
        done = subprocess.run(
            ["bash", "-c", f"arena() {{ {words} \"$@\"; }}; {line}"],
            env=self.env, cwd=self.cwd, timeout=HANGS, capture_output=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    def terminal(self, *words: str, env: Mapping[str, str] = {}) -> "Terminal":
        """Start it on a terminal of its own."""
        return Terminal([*self.words, *words], self.environ(env), self.cwd)

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

    def until(self, look: Callable[[], Any], seconds: float = 50.0) -> Any:
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
        with monkeypatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
            code = main.run(list(words))
        sys.stdout.flush()
        return Result(code, *capfd.readouterr())

    return call


@pytest.fixture
def arena(job_env: dict[str, str], tmp_path: Path) -> Arena:
    """The command, for a user with nothing: no kubeconfig, no active environment, an empty folder."""
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    for name in ("KUBECONFIG", "VIRTUAL_ENV", "CONDA_PREFIX", "XDG_CONFIG_HOME", "NO_COLOR", "SHELL"):
        job_env.pop(name, None)
    return Arena(job_env, tmp_path / "work")
