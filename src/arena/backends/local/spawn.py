"""A program that starts only after its process is on record.

The keeper forks first, writes the pids down and opens the gate last. Killed before it wrote, the processes behind the
gate end without having started anything; killed after, they start, and whoever takes over knows their pids. So nothing
is started twice and no code is lost, whenever the keeper dies.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from msgspec import Struct

DEFAULT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ)
NOT_FOUND, NOT_EXECUTABLE = 127, 126


class Trouble(Struct, frozen=True):
    """Why a program did not start: the code its process ended with, and a line for people."""

    code: int
    message: str


class Gate:
    """Where the processes of one replica wait; `record` is the file that lets them go when nobody opens it."""

    def __init__(self, record: Path) -> None:
        self.record = record
        self.waits, self.opens = os.pipe()
        self.troubles: list[int] = []

    def fork(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, output: int, join: Callable[[], None] | None
    ) -> int:
        """A process in a session of its own, its output on `output`, that waits for the gate. Its pid."""
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._be_program(argv, env, cwd, output, writing, join)
        os.close(writing)
        self.troubles.append(reading)
        return pid

    def open(self) -> list[Trouble | None]:
        """Let all go; for each the trouble it met, once its program has started or not."""
        os.write(self.opens, b"!" * len(self.troubles))
        os.close(self.opens)
        os.close(self.waits)
        return [_read_trouble(reading) for reading in self.troubles]

    def _be_program(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        output: int,
        trouble: int,
        join: Callable[[], None] | None,
    ) -> NoReturn:
        code, text = NOT_EXECUTABLE, ""
        try:
            _settle(output)
            os.close(self.opens)
            if not os.read(self.waits, 1) and not self.record.exists():
                os._exit(0)
            if join:
                join()
            code, text = _execute(argv, env, cwd)
        except BaseException as error:  # noqa: BLE001  (a forked process must not return into its parent's code)
            text = f"{argv[0]}: {error}"
        finally:
            os.write(trouble, f"{code} {text}".encode(errors="surrogateescape"))
            os._exit(code)


def _settle(output: int) -> None:
    """A session, standard streams and signals as a program expects them."""
    signal.set_wakeup_fd(-1)
    for number in DEFAULT:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)


def _execute(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> tuple[int, str]:
    """Become the program; returns only when that fails."""
    words, what = list(argv), cwd
    while True:
        try:
            os.chdir(cwd)
            what = argv[0]
            os.execvpe(words[0], words, env)
        except OSError as error:
            if error.errno == errno.ENOEXEC and words[0] != "sh":
                words = ["sh", *words]  # a script without its #! line, as a shell takes it
                continue
            if what == cwd:
                return NOT_FOUND, f"the folder {cwd} is gone or may not be entered: not found"
            if isinstance(error, FileNotFoundError | NotADirectoryError):
                missing = " or its interpreter" if os.path.isfile(what) else ""
                return NOT_FOUND, f"{what}{missing}: not found"
            if os.path.isdir(what):
                return NOT_EXECUTABLE, f"{what}: is a folder"
            return NOT_EXECUTABLE, f"{what}: {(error.strerror or 'cannot be started').lower()}"


def _read_trouble(reading: int) -> Trouble | None:
    with open(reading, "rb") as file:
        code, _, text = file.read().partition(b" ")
    return Trouble(int(code), text.decode(errors="surrogateescape")) if code else None
