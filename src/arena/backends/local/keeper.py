"""One replica, kept: its pipe read, its log written, its code recorded, its whole tree ended.

The supervisor forks a keeper per replica. The keeper is a child subreaper, so whatever the program starts, in sessions
of its own or not, stays below it. Killed itself, its work is taken over by the supervisor that forked it, which holds
the same pipe and inherits the processes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from arena import files
from arena.backends.local import memory, process, spawn
from arena.logfile import LogWriter
from arena.status import Replica, State

QUIET = 0.1
WATCH = 0.2
CHUNK = 256 * 1024


class Program(Struct, frozen=True):
    """One process to start."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


class Launch(Struct, frozen=True, kw_only=True):
    """One replica to start, and what its keeper must know."""

    run_id: str
    replica: Replica
    programs: tuple[Program, ...]
    folder: Path
    cwd: str
    grace: float
    log_limit: int


class Pipe(Struct):
    """The two ends of one process's output, and the name of its stream."""

    read: int
    write: int
    stream: str


def open_pipes(launch: Launch) -> list[Pipe]:
    """A pipe per process; the reading ends do not block."""
    pipes = []
    for number in range(len(launch.programs)):
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        with contextlib.suppress(OSError, AttributeError):
            fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, CHUNK)
        pipes.append(Pipe(reading, writing, "stdout" if len(launch.programs) == 1 else f"stdout.{number}"))
    return pipes


class Keeper:
    """The state machine of one replica; driven by a keeper's own loop or, after its death, by the supervisor's."""

    def __init__(self, launch: Launch, pipes: list[Pipe]) -> None:
        self.launch = launch
        self.pipes = {pipe.read: pipe for pipe in pipes}
        self.log = LogWriter(launch.folder, launch.replica.name, launch.log_limit)
        self.replica = launch.replica
        self.group: memory.Group | None = None
        self.running: set[int] = set()
        self.pids: set[int] = set()
        self.codes: list[int] = []
        self.adopted = False
        self.end_wanted = False
        self.ending = False
        self.kill_at: float | None = None
        self.over_limit = False
        self.peak = 0
        self.next_watch = 0.0

    def start(self) -> None:
        """Start the processes and write down who they are."""
        limit = self.replica.memory_limit
        self.group = memory.make(f"{self.launch.run_id}-{self.replica.name}", limit) if limit else None
        gate = spawn.Gate(self.launch.folder / f"{self.replica.name}.json")
        join = self.group.join if self.group else None
        for program, pipe in zip(self.launch.programs, self.pipes.values(), strict=True):
            self.pids.add(gate.fork(program.argv, program.env, self.launch.cwd, pipe.write, join))
            os.close(pipe.write)
        self.running = set(self.pids)
        self.replica = replace(self.replica, pids=tuple(sorted(self.pids)), started=files.now(), state=State.RUNNING)
        if not self._write("json", self.replica):
            raise OSError(f"{self.launch.folder} cannot be written")
        for trouble in filter(None, gate.open()):
            self.replica = replace(self.replica, reason="StartError", message=trouble.message)

    def adopt(self, pids: set[int], started: Replica) -> None:
        """Go on, inside the supervisor, where a keeper that was killed stopped."""
        self.adopted = True
        self.running = set(pids)
        self.replica = started
        limit = started.memory_limit
        self.group = memory.find(f"{self.launch.run_id}-{self.replica.name}") if limit else None

    def ready(self, reading: int) -> None:
        """Read what came through one pipe."""
        try:
            data = os.read(reading, CHUNK)
        except BlockingIOError:
            return
        if data:
            self.log.feed(self.pipes[reading].stream, data)
        else:
            os.close(reading)
            del self.pipes[reading]

    def ended(self, pid: int, code: int) -> None:
        """Take the end of one of this replica's own processes; `code` is negative after a signal."""
        self.running.discard(pid)
        code = 128 - code if code < 0 else code
        if not self.ending or not self.codes:
            self.codes.append(code)
        if code and self.running and not self.ending:
            self._signal(signal.SIGTERM)
            self._set_deadline()

    def want_end(self) -> None:
        """Ask for the end; it begins when the ends that came before it are known."""
        self.end_wanted = True

    def end(self) -> None:
        """Begin to end the replica: TERM to its whole tree, KILL after the grace."""
        if self.ending:
            return
        alive = bool(self.running)
        self.ending = True
        if alive and not any(self.codes):
            self.replica = replace(self.replica, ended_by_us=True)
        self._signal(signal.SIGTERM)
        self._set_deadline()

    def _set_deadline(self) -> None:
        self.kill_at = time.monotonic() + self.launch.grace

    def tick(self) -> None:
        """What is due by time: pieces of lines, the memory watch, the KILL."""
        now = time.monotonic()
        if self.log.waiting() >= QUIET:
            self.log.flush()
        if self.replica.memory_limit and self.group is None and now >= self.next_watch:
            self.next_watch = now + WATCH
            self._watch_memory()
        if self.kill_at is not None and now >= self.kill_at:
            self._signal(signal.SIGKILL)

    def timeout(self) -> float:
        """Seconds until something may be due."""
        if self.kill_at is not None:
            return 0.02
        if self.log.pending:
            return QUIET
        return WATCH if self.replica.memory_limit and self.group is None else 1.0

    def finished(self) -> bool:
        """Whether nothing of the replica lives; what its end leaves behind is ended here."""
        if self.running:
            return False
        left = self._tree()
        if left and self.kill_at is None:
            process.send(left, signal.SIGKILL)
        return not left

    def record(self) -> Replica:
        """Read the pipes to their end, write the log's end and the replica's code."""
        for reading in list(self.pipes):
            while reading in self.pipes and _has_data(reading):
                self.ready(reading)
        for reading in self.pipes:
            os.close(reading)
        self.pipes = {}
        self.log.close(self.launch.folder.parent / "reserve")
        self.replica = self._ended()
        self._write("exit.json", self.replica)
        if self.group:
            self.group.remove()
        return self.replica

    def _ended(self) -> Replica:
        code = next((code for code in self.codes if code), 0)
        kills = self.group.kills() if self.group else int(self.over_limit)
        peak = self.group.peak() if self.group else self.peak or None
        ours = self.replica.ended_by_us and not kills
        return replace(
            self.replica,
            exit_code=code,
            state=State.CANCELLED if ours else State.FAILED if code else State.SUCCEEDED,
            reason=self.replica.reason or ("Terminated" if ours else _reason(code, kills)),
            ended=files.now(),
            memory_peak=peak,
            oom_kills=kills,
            ended_by_us=ours,
        )

    def _write(self, ending: str, value: Replica) -> bool:
        """Write it down; where that cannot be, the supervisor inherits what we do not reap, and with it the code."""
        path = self.launch.folder / f"{value.name}.{ending}"
        try:
            files.write(path, value, reserve=self.launch.folder.parent / "reserve")
            return True
        except OSError as error:
            with contextlib.suppress(OSError):
                os.write(2, f"{path}: {error}\n".encode())
            return False

    def _tree(self) -> list[int]:
        if not process.LINUX:
            return process.marked(self.launch.run_id, [self.replica.name])
        name = self.replica.name if self.adopted else ""
        return [pid for pid in process.tree(os.getpid(), self.launch.run_id, name) if not process.is_zombie(pid)]

    def _signal(self, number: int) -> None:
        process.send({*self._tree(), *self.running}, number)

    def _watch_memory(self) -> None:
        tree = self._tree()
        used = process.rss(tree)
        self.peak = max(self.peak, used)
        if self.replica.memory_limit and used > self.replica.memory_limit:
            self.over_limit = True
            process.send(tree, signal.SIGKILL)


def _reason(code: int, kills: int) -> str:
    if kills and code:
        return "OOMKilled"
    return "Error" if code else "Completed"


def _has_data(reading: int) -> bool:
    return bool(select.select([reading], [], [], 0)[0])


def keep(launch: Launch, pipes: list[Pipe], lock: int) -> None:
    """The life of a keeper process, forked by the supervisor with SIGTERM blocked and the keeper's lock held."""
    os.setsid()
    process.become_subreaper()
    with contextlib.suppress(OSError):
        os.write(lock, f"{os.getpid()}\n".encode())
    keeper = Keeper(launch, pipes)
    wake = listen({signal.SIGTERM: keeper.want_end})
    keeper.start()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    _loop(keeper, wake)
    keeper.record()


def listen(handlers: Mapping[signal.Signals, Callable[[], None]]) -> int:
    """A file that can be read when a signal came. SIGINT and SIGHUP do nothing, as do those of no handler.

    Handlers, not SIG_IGN: a program started later must find every signal at its default.
    """
    wake, ring = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(ring, False)
    signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGHUP, *handlers):
        action = handlers.get(number)
        signal.signal(number, (lambda *_, act=action: act()) if action else (lambda *_: None))
    return wake


def _loop(keeper: Keeper, wake: int) -> None:
    while True:
        _take_ends(keeper)
        if keeper.end_wanted:
            keeper.end()
        if keeper.finished():
            return
        for reading in wait_for([wake, *keeper.pipes], keeper.timeout()):
            if reading == wake:
                drain(wake)
            else:
                keeper.ready(reading)
        keeper.tick()


def wait_for(files: list[int], seconds: float | None) -> list[int]:
    """Those of the files that can be read, when one can or the time is over."""
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    return [file for file, _ in poll.poll(None if seconds is None else seconds * 1000)]


def drain(file: int) -> None:
    """Read away what woke us."""
    with contextlib.suppress(BlockingIOError):
        os.read(file, 4096)


def _take_ends(keeper: Keeper) -> None:
    """Learn the ends of the replica's own processes without reaping them, and reap the others.

    Until the code is written down the process stays a zombie: if we are killed first, the supervisor inherits it.
    """
    for pid in list(keeper.running):
        if (code := _peek(pid)) is not None:
            keeper.ended(pid, code)
    own = set(keeper.pids)
    for pid in process.children(os.getpid()):
        if pid not in own and process.is_zombie(pid):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _peek(pid: int) -> int | None:
    if not hasattr(os, "waitid"):
        done, status = os.waitpid(pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if done else None
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
