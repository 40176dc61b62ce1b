"""One started command: its output as it comes, its end, keys and signals to it."""

import fcntl
import os
import signal
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from subprocess import DEVNULL, PIPE

import psutil

from calm import calm
from journeys.observed import Observed

SHELLS = ("bash", "sh", "dash")
KEYS = {"^C": b"\x03", "^D": b"\x04", "^Z": b"\x1a"}
TERMINAL_SIZE = b"\x32\x00\xa0\x00\x00\x00\x00\x00"  # 50 lines of 160


class Child:
    """A process in a session of its own, on pipes or on a pseudo-terminal."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path, *, terminal: bool = False) -> None:
        self.clock, self.changed = calm(), time.monotonic()
        self.ended: float | None = None
        self.out, self.err = bytearray(), bytearray()
        self.pty: int | None = None
        start = self._on_terminal if terminal else self._on_pipes
        self.process = start(argv, env, cwd)

    def _on_pipes(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            argv, env=env, cwd=cwd, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
        assert process.stdout
        assert process.stderr
        self.readers = [
            self._reader(process.stdout.fileno(), self.out),
            self._reader(process.stderr.fileno(), self.err),
        ]
        return process

    def _on_terminal(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> "subprocess.Popen[bytes]":
        self.pty, inner = os.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, TERMINAL_SIZE)
        # Between fork and exec only system calls are made, so the reader threads do no harm.
        process = subprocess.Popen(argv, env=env, cwd=cwd, preexec_fn=lambda: os.login_tty(inner))  # noqa: PLW1509
        os.close(inner)
        self.err = self.out  # a terminal shows both as one text
        self.readers = [self._reader(self.pty, self.out)]
        return process

    def _reader(self, descriptor: int, into: bytearray) -> threading.Thread:
        thread = threading.Thread(target=self._read, args=(descriptor, into), daemon=True)
        thread.start()
        return thread

    def _read(self, descriptor: int, into: bytearray) -> None:
        try:
            while block := os.read(descriptor, 65536):
                into.extend(block)
                self.changed = time.monotonic()
        except OSError:  # a terminal whose last process is gone
            return

    def key(self, text: str) -> None:
        """Press a key; words are followed by Enter."""
        assert self.pty is not None, "a key needs a tty$ step"
        self.clock = calm()
        os.write(self.pty, KEYS.get(text) or text.encode() + b"\r")

    def signal(self, name: str) -> None:
        """Send a signal to the program itself, not to the shell that waits for it; what has ended stays as it is."""
        self.clock = calm()
        if self.process.poll() is None:
            innermost(self.process.pid).send_signal(getattr(signal, f"SIG{name}"))

    def wait(self, limit: float) -> bool:
        """Whether it ended in time, all its output read."""
        try:
            self.process.wait(limit)
        except subprocess.TimeoutExpired:
            return False
        self.ended = calm()
        until(0.2 if self.pty is not None else 2, lambda: not any(reader.is_alive() for reader in self.readers))
        return True

    def finish(self, limit: float) -> Observed:
        """What it has shown at its end, or when it was waited for in vain."""
        unended = not self.wait(limit)
        return replace(self.seen(), unended=unended)

    def first_line(self, limit: float = 10) -> None:
        """Wait for the first line on stdout, its end, or the limit."""
        until(limit, lambda: b"\n" in self.out or self.process.poll() is not None)

    def quiet(self, seconds: float = 1, limit: float = 10) -> None:
        """Wait until it has said something and then nothing for a while, its end, or the limit."""
        until(
            limit, lambda: (self.out and time.monotonic() - self.changed > seconds) or self.process.poll() is not None
        )

    def seen(self) -> Observed:
        """What it has shown so far."""
        code = self.process.poll()
        return Observed(
            out=self._text(self.out),
            err=self._text(self.err),
            code=code if code is None or code >= 0 else 128 - code,
            seconds=(self.ended or calm()) - self.clock,
            held_open=self.pty is None and self.ended is not None and any(reader.is_alive() for reader in self.readers),
        )

    def _text(self, data: bytearray) -> str:
        text = bytes(data).decode(errors="replace")
        return text if self.pty is None else text.replace("\r\n", "\n")

    def end(self) -> None:
        """Kill what is left of its process group."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(5)


def innermost(pid: int) -> psutil.Process:
    """The program that a shell waits for, or the process itself when the shell became it."""
    process = psutil.Process(pid)
    while process.name() in SHELLS and (children := process.children()):
        process = children[0]
    return process


def until(limit: float, holds: Callable[[], object], pause: float = 0.02) -> bool:
    """Whether something came to hold in time."""
    end = time.monotonic() + limit
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
    return True
