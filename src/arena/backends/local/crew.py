"""The replicas of one attempt as their supervisor sees them: forked, watched, taken over, ended."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from msgspec.structs import replace

from arena import files
from arena.backends.local import process
from arena.backends.local.keeper import Keeper, Launch, Pipe, drain, keep, open_pipes, wait_for
from arena.errors import BackendError
from arena.status import Replica, State

CHECK = 0.1  # seconds between looks at keepers that another supervisor started


class Member:
    """One replica and who keeps it: a keeper we forked, one that another supervisor forked, or we ourselves."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.pid: int | None = None
        self.pipes: list[Pipe] = []
        self.adopted: Keeper | None = None
        self.end: Replica | None = None

    @property
    def name(self) -> str:
        return self.launch.replica.name

    @property
    def lock(self) -> Path:
        return self.launch.folder / f"{self.name}.keeper"

    def started(self) -> Replica | None:
        return files.read_if(self.launch.folder / f"{self.name}.json", Replica)

    def recorded(self) -> Replica | None:
        return files.read_if(self.launch.folder / f"{self.name}.exit.json", Replica)

    def keeper_pid(self) -> int | None:
        """The keeper process, while it lives."""
        if self.pid is not None or not files.is_locked(self.lock):
            return self.pid
        with contextlib.suppress(OSError, ValueError):
            return int(self.lock.read_text())
        return None


class Crew:
    """All replicas of one attempt."""

    def __init__(self, launches: list[Launch], inherited: list[int]) -> None:
        self.members = [Member(launch) for launch in launches]
        self.inherited = inherited
        self.unkept: list[Member] = []
        self.strays: dict[int, int] = {}
        self.ending = False

    @property
    def replicas(self) -> list[Replica]:
        """Each replica as far as it is known: its end, or what its keeper was asked to start."""
        return [member.end or member.launch.replica for member in self.members]

    @property
    def gone(self) -> bool:
        """Whether nothing of the crew lives."""
        return all(member.end for member in self.members)

    def start(self) -> None:
        for member in self.members:
            self._fork(member)

    def rejoin(self, *, same_boot: bool) -> None:
        """Take part in what another supervisor started: wait for living keepers, give up what nobody kept."""
        for member in self.members:
            self._look(member)
        self._settle_unkept(may_start=same_boot)

    def end(self) -> None:
        """Ask all that lives to end."""
        self.ending = True
        for member in self.members:
            self._end(member)

    def step(self, wake: int, others: list[int], seconds: float | None) -> None:
        """Wait until something happens or the time is over, and take note of it."""
        pipes = {reading: m.adopted for m in self.members if m.adopted and not m.end for reading in m.adopted.pipes}
        for file in wait_for([wake, *others, *pipes], self._timeout(seconds)):
            if file in pipes:
                pipes[file].ready(file)
            else:
                drain(file)
        self._reap()
        for member in self.members:
            if member.end is None:
                self._advance(member)
        self._settle_unkept(may_start=not self.ending)

    def _timeout(self, seconds: float | None) -> float | None:
        times = [seconds] if seconds is not None else []
        times += [member.adopted.timeout() for member in self.members if member.adopted and not member.end]
        foreign = any(m.pid is None and m.adopted is None and m.end is None for m in self.members)
        times += [CHECK] if foreign else []
        return min(times, default=None)

    def _fork(self, member: Member) -> None:
        lock = files.take_lock(member.lock)
        if lock is None:
            return  # kept already
        os.ftruncate(lock, 0)
        member.pipes = open_pipes(member.launch)
        pid = os.fork()
        if pid == 0:
            self._be_keeper(member, lock)
        os.close(lock)
        member.pid = pid
        for pipe in member.pipes:
            os.close(pipe.write)

    def _be_keeper(self, member: Member, lock: int) -> None:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            others = [pipe.read for m in self.members if m is not member for pipe in m.pipes]
            for file in (*self.inherited, *others):
                with contextlib.suppress(OSError):
                    os.close(file)
            keep(member.launch, member.pipes, lock)
            code = 0
        except BaseException:  # noqa: BLE001  (a forked process must not return into its parent's code)
            process.print_trace()
        finally:
            os._exit(code)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                self.strays[pid] = os.waitstatus_to_exitcode(status)

    def _advance(self, member: Member) -> None:
        if member.adopted:
            self._drive(member, member.adopted)
        elif member.pid is not None:
            code = self.strays.pop(member.pid, None)
            if code is not None:
                member.pid = None
                self._keeper_ended(member, code)
        else:
            self._look(member)

    def _keeper_ended(self, member: Member, code: int) -> None:
        """Our own keeper is gone: it wrote the end, or it was killed and we inherit what it kept."""
        if code > 0:
            raise BackendError(f"the keeper of {member.name} failed", hint="see supervisor.log in the run's folder")
        member.end = member.recorded()
        if member.end:
            _close(member.pipes)
            return
        started = member.started()
        ours = set(process.children(os.getpid())) | self.strays.keys()
        pids = set(started.pids) & ours if started else set()
        if started is None or not pids:
            _close(member.pipes)
            self.unkept.append(member)
            return
        member.adopted = Keeper(member.launch, member.pipes)
        member.adopted.adopt(pids, started)
        if self.ending:
            member.adopted.end()
        self._drive(member, member.adopted)

    def _drive(self, member: Member, keeper: Keeper) -> None:
        for pid in list(keeper.running):
            if pid in self.strays:
                keeper.ended(pid, self.strays.pop(pid))
        keeper.tick()
        if keeper.finished():
            member.end = keeper.record()

    def _look(self, member: Member) -> None:
        """A replica that another supervisor started."""
        member.end = member.recorded()
        if member.end is None and not files.is_locked(member.lock):
            member.end = member.recorded()
            if member.end is None:
                self.unkept.append(member)
        if member.end is None and self.ending:
            self._end(member)  # again, as its keeper may not have been there to hear

    def _settle_unkept(self, *, may_start: bool) -> None:
        """What nobody keeps: what was never started is started now, all else is ended and has lost its code."""
        unkept, self.unkept = self.unkept, []
        lost = []
        for member in unkept:
            if may_start and not member.started() and not process.marked(member.launch.run_id, [member.name]):
                self._fork(member)
            else:
                lost.append(member)
        if lost:
            process.end_marked(lost[0].launch.run_id, [member.name for member in lost], lost[0].launch.grace)
        for member in lost:
            self._record_lost(member)

    def _record_lost(self, member: Member) -> None:
        known = member.started() or member.launch.replica
        member.end = replace(known, lost=True, state=State.FAILED, reason="Lost", ended=files.now())
        with contextlib.suppress(OSError):
            files.write(member.launch.folder / f"{member.name}.exit.json", member.end)

    def _end(self, member: Member) -> None:
        if member.end is not None:
            return
        if member.adopted:
            member.adopted.end()
        elif (pid := member.keeper_pid()) is not None:
            process.send([pid], signal.SIGTERM)


def _close(pipes: list[Pipe]) -> None:
    for pipe in pipes:
        with contextlib.suppress(OSError):
            os.close(pipe.read)
    pipes.clear()
