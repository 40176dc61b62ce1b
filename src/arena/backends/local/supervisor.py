"""One per job: waits its turn, starts the gang, ends it when one replica fails, starts it again, and says how it ended.

It lives as long as its job, in a session of its own, and holds the run's lock. When it is killed, its keepers go on;
whoever looks next gets the lock and starts a new one, which takes part in what still runs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import NoReturn

import msgspec
from msgspec.structs import replace

from arena import files, jobs, logfile, quantity, status, why
from arena.backends.local import admission, devices, gang, layout, process, recorded, state
from arena.backends.local.crew import Crew
from arena.backends.local.keeper import Launch, Program, drain, listen, wait_for
from arena.errors import ArenaError, BackendError
from arena.job import Ends, Job
from arena.quantity import few
from arena.status import Replica

GPU_CHECK = 0.5
ROOM = 600.0  # seconds in which a full disk may get room for the last word


class Interrupted(Exception):
    """Somebody wants the job ended."""


class Supervisor:
    """The life of one job, from where its files say it is to its end."""

    def __init__(self, run: state.Run, lock: int) -> None:
        self.run = run
        self.made = run.made()
        self.facts = run.facts()
        self.job = load_job(self.made)
        self.roles = self.job.roles(self.made.python or "python")
        self.ends: dict[str, Ends] = {role.name: role.ends for role in self.roles}
        self.control = _open_control(run.path / "control")
        self.wake = listen({})
        self.inherited = [lock, self.control, self.wake]
        self.leases = devices.Leases(Path(self.made.lease_dir))
        size = sum(role.count for role in self.roles)
        place = int(self.made.created.timestamp() * 10**6)
        self.queue = admission.Queue(_queue_folder(run), run.run_id, size, self.made.max_replicas, place)
        self.crew: Crew | None = None
        self.written = True

    def live(self) -> None:
        """Carry the job to its end."""
        if self.facts.finished:
            return
        word = self.facts.word
        self._update(supervisors=self.facts.supervisors + 1)
        try:
            self.crew = self._rejoin() if word in ("Running", "Restarting") else self._begin()
            while self.crew is not None:
                self.crew = self._attempt(self.crew)
        except Interrupted:
            self._finish("Stopped", [])
        finally:
            self.queue.leave()
            self.leases.drop_all()

    # --- before it runs --------------------------------------------------------------------------------------

    def _begin(self) -> Crew:
        self._wait_for_node()
        gpus = self._wait_for_gpus()
        self._wait_for_turn()
        self._update(gpus=tuple(gpus))
        return self._start()

    def _wait_for_node(self) -> None:
        labels = node_labels()
        missing = [f"{key}={value}" for key, value in self.job.selector.items() if labels.get(key) != value]
        if missing:
            message = f"0 of 1 nodes match {', '.join(missing)}"
            self._update(word="Pending", reason="Unschedulable", message=message, since=files.now())
        while missing:
            self._sleep(lambda: wait_for([self.control], None))

    def _wait_for_gpus(self) -> list[str]:
        wanted = sum(role.count * role.gpus for role in self.roles)
        while wanted:
            there, taken = devices.gpus(self.made.gpus), devices.busy(self.made.gpus)
            found = self.leases.take_gpus(wanted, there, taken)
            if found is not None:
                return [str(there.index(uuid)) for uuid in found]
            self._queued("GPUs", f"{wanted} of {len(there)} GPUs are wanted and not so many are free", ())
            self._sleep(lambda: wait_for([self.control], GPU_CHECK))
        return []

    def _wait_for_turn(self) -> None:
        self.queue.enter()
        while waits_for := self.queue.try_start():
            names = tuple(ticket.run_id for ticket in waits_for)
            self._queued("Queue", f"waits for {few(names)}", names)
            self._sleep(lambda tickets=waits_for: self.queue.sleep(tickets, [self.control]))  # type: ignore[misc]

    def _queued(self, reason: str, message: str, names: tuple[str, ...]) -> None:
        if (self.facts.word, self.facts.message) != ("Queued", message):
            since = self.facts.since if self.facts.word == "Queued" else files.now()
            self._update(word="Queued", reason=reason, message=message, since=since, waits_for=names)

    def _sleep(self, wait: Callable[[], object]) -> None:
        if not self.run.stop():
            wait()
            drain(self.control)
        if self.run.stop():
            raise Interrupted

    # --- while it runs ---------------------------------------------------------------------------------------

    def _start(self) -> Crew:
        """Start all replicas of an attempt: new ports, a new folder."""
        attempt = self.facts.attempt
        if missing := [name for name in self.made.secrets if name not in os.environ]:
            raise BackendError(f"the values of {', '.join(missing)} went with the supervisor that held them")
        ports = self.leases.take_ports(layout.port_count(self.job, self.roles))
        self.run.attempt(attempt).mkdir(mode=0o700, exist_ok=True)
        fresh = self.facts.started is None
        first = {"started": files.now(), "started_monotonic": time.monotonic()} if fresh else {}
        self._update(
            word="Running" if attempt == 1 else "Restarting",
            reason="",
            message="",
            waits_for=(),
            ports=tuple(ports),
            since=files.now(),
            **first,
        )
        crew = self._crew(attempt)
        crew.start()
        if fresh:
            self._pack_code()
        return crew

    def _again(self, crew: Crew) -> Crew:
        """The next attempt, with the GPUs we hold or, where only ended keepers held them, with others."""
        earlier = (*self.facts.earlier, *crew.replicas)
        self._update(attempt=self.facts.attempt + 1, earlier=earlier, ending="")
        if self.facts.gpus and not self.leases.held_gpus:
            self._update(gpus=tuple(self._wait_for_gpus()))
        return self._start()

    def _rejoin(self) -> Crew:
        self.queue.rejoin()
        crew = self._crew(self.facts.attempt)
        crew.ending = bool(self.facts.ending)
        crew.rejoin(same_boot=self.made.boot_id == state.boot_id())
        if crew.ending:
            crew.end()
        return crew

    def _crew(self, attempt: int) -> Crew:
        folder = self.run.attempt(attempt)
        folder.mkdir(mode=0o700, exist_ok=True)
        base = self._base_env()
        placed = layout.place(self.job, self.run.run_id, self.roles, self.facts.ports, self.facts.gpus, folder, attempt)
        launches = []
        for one in placed:
            for name, text in one.files.items():
                files.write_text(folder / name, text)
            programs = tuple(Program(argv, {**base, **env}) for argv, env in one.programs)
            launches.append(
                Launch(
                    run_id=self.run.run_id,
                    replica=one.replica,
                    programs=programs,
                    folder=folder,
                    cwd=self.made.cwd,
                    grace=self.made.grace,
                    log_limit=self.made.log_limit,
                )
            )
        return Crew(launches, self.inherited)

    def _base_env(self) -> dict[str, str]:
        """The submitter's environment; what was not written down is only in ours, which was his for the first of us."""
        ours = dict(os.environ)
        stored = state.storable(ours)
        return {**self.made.environ, **{key: value for key, value in ours.items() if key not in stored}}

    def _attempt(self, crew: Crew) -> Crew | None:
        """Watch one attempt to its end; the next one, or None when the job is over."""
        while not crew.gone:
            word = self._ending(crew)
            if word and not crew.ending:
                crew.end()
            crew.step(self.wake, [self.control], self._time_left() if not word else None)
        word = self._ending(crew) or "Failed"
        retries = gang.again(
            self.job.restart_policy, self.job.retry, self.facts.attempt, word, self._code(crew.replicas)
        )
        if retries and not self.run.stop():
            return self._again(crew)
        self._finish(word, crew.replicas)
        return None

    def _ending(self, crew: Crew) -> str:
        """How the attempt ends, once that is decided: written down, so that a later supervisor does not judge anew."""
        if not self.facts.ending and (word := self._verdict(crew.replicas)):
            self.facts = replace(self.facts, ending=word)
            if not crew.gone:
                self._update()
        return self.facts.ending

    def _verdict(self, replicas: list[Replica]) -> str | None:
        word = gang.over(replicas, self.ends)
        if self.run.stop() and word != "Lost":  # what is lost was so before anybody could end it
            return "Stopped"
        if word:
            return word
        left = self._time_left()
        return "Deadline" if left is not None and left <= 0 else None

    def _time_left(self) -> float | None:
        if not self.job.running_timeout or self.facts.started_monotonic is None:
            return None
        limit = quantity.parse_duration(self.job.running_timeout)
        return max(0.0, self.facts.started_monotonic + limit - time.monotonic())

    def _code(self, replicas: list[Replica]) -> int | None:
        seen = state.observed(self.made, self.facts, tuple(replicas))
        failure = status.last_failure(seen)
        return failure.exit_code if failure else None

    # --- its end ---------------------------------------------------------------------------------------------

    def _finish(self, word: str, replicas: list[Replica], message: str = "", reason: str = "") -> None:
        finished, monotonic = self._when(word, replicas)
        self.queue.leave()
        self.leases.drop_all()
        recorded.settle(self.run)
        last = replace(
            self.facts,
            word=word,
            reason=reason or ENDS.get(word, ""),
            message=message or self._last_words(word),
            waits_for=(),
            since=finished,
            finished=finished,
            finished_monotonic=monotonic,
            replicas=tuple(replicas),
        )
        self._save(explained(self.run, self.made, last))
        deadline = time.monotonic() + ROOM
        while not self.written and time.monotonic() < deadline:
            time.sleep(0.5)
            self._update()
        with contextlib.suppress(OSError):
            (self.run.path / "reserve").unlink()

    def _when(self, word: str, replicas: list[Replica]) -> tuple[datetime, float | None]:
        """When the job ended: now, or when its last replica did while nobody supervised. Of the lost, how long they ran
        is known by their last sign of life."""
        now, monotonic = files.now(), time.monotonic()
        if word == "Lost" and self.facts.started and self.facts.started_monotonic is not None:
            sign = _last_sign(self.run.attempt(self.facts.attempt))
            return now, self.facts.started_monotonic + max(0.0, sign - self.facts.started.timestamp())
        ended = [replica.ended for replica in replicas if replica.ended]
        late = (now - max(ended)).total_seconds() if ended else 0.0
        if word in ("Succeeded", "Failed") and late > 1.0:
            return max(ended), monotonic - late
        return now, monotonic

    def _last_words(self, word: str) -> str:
        if word == "Deadline":
            return f"ran longer than {self.job.running_timeout}"
        if word == "Lost":
            return "its processes ended unseen: their supervisor and keepers were killed, or the machine restarted"
        stop = self.run.stop() if word == "Stopped" else None
        return f"by {stop.by}" if stop else ""

    def _pack_code(self) -> None:
        """Pack the code beside the job, in a process of its own."""
        if not self.made.code or (self.run.path / "code.json").exists():
            return
        lock = files.take_lock(self.run.path / recorded.PACKING)
        if lock is None:
            return
        if os.fork() == 0:
            _be_packer(self.run, self.made, lock)
        os.close(lock)

    def _update(self, **changes: object) -> None:
        """Know more, and write it down."""
        self._save(replace(self.facts, **changes))

    def _save(self, facts: state.Facts) -> None:
        """Write down what is known; on a full disk the next change, or the end, writes it."""
        self.facts = facts
        try:
            self.run.write("state.json", self.facts)
            self.written = True
        except OSError as error:
            self.written = False
            with contextlib.suppress(OSError):
                os.write(2, f"state.json: {error}\n".encode())

    def fail(self, error: BaseException) -> None:
        """The last resort: the job is FAILED because its supervisor cannot go on."""
        process.end_marked(self.run.run_id, (), self.made.grace)
        self._finish("Failed", [], _told(error), GAVE_UP)


GAVE_UP = "SupervisorFailed"
ENDS = {"Stopped": "Stopped", "Deadline": "DeadlineExceeded", "Lost": "Lost", "Succeeded": "Completed"}


def load_job(made: state.Made) -> Job:
    """The job of a run, with the secret values that this process's environment holds."""
    sys.path += [folder for folder in made.search if folder not in sys.path]
    kind = jobs.load_class(made.type)
    job: Job = msgspec.convert(made.job, kind, strict=False)
    held = {name: os.environ[name] for name in made.secrets if name in os.environ}
    return replace(job, env={**job.env, **held})


def explained(run: state.Run, made: state.Made, facts: state.Facts) -> state.Facts:
    """The last facts of a run with the cause of its end, found in what was observed and in the last lines."""
    observed = state.observed(made, facts, facts.replicas)
    failure = status.first_failure(observed)
    tails = {failure.name: logfile.tail(run.attempt(failure.attempt), failure.name, 50)} if failure else {}
    found = why.explain(observed, status.decide(observed).state, tails, name=made.name, python=made.python)
    warnings = tuple(why.warnings_of(observed))
    if found is None:
        return replace(facts, warnings=warnings)
    return replace(facts, warnings=warnings, cause=found.cause, why=why.one_line(found))


def node_labels() -> dict[str, str]:
    """This machine as a node: the labels a selector may ask for."""
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    return {
        "kubernetes.io/hostname": state.hostname(),
        "kubernetes.io/os": os.uname().sysname.lower(),
        "kubernetes.io/arch": arch,
    }


def _last_sign(folder: Path) -> float:
    """When something was last written there, in seconds."""
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        return max((e.stat().st_mtime for e in found if not e.name.endswith(".exit.json")), default=0.0)
    return 0.0


def _queue_folder(run: state.Run) -> Path:
    return state.StateDir(run.path.parent.parent).queue()


def _open_control(path: Path) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def _be_packer(run: state.Run, made: state.Made, lock: int) -> NoReturn:
    """Pack and exit. Of the supervisor nothing but the packer's own lock stays open here: leases and places in the
    queue end with their job."""
    signal.set_wakeup_fd(-1)
    os.closerange(3, lock)
    os.closerange(lock + 1, os.sysconf("SC_OPEN_MAX"))
    try:
        from arena import code

        os.nice(5)
        store = run.path.parent.parent / "blobs"
        files.write(run.path / "code.json", code.capture(Path(made.code), store, made.code_limit).to_json())
    except BaseException:  # noqa: BLE001  (a forked process must not return into its parent's code)
        process.print_trace()
    finally:
        os._exit(0)


def main(path: str, lock: int) -> None:
    """The life of a supervisor process; `lock` is the open file that holds the run's lock."""
    os.set_inheritable(lock, False)
    process.become_subreaper()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    run = state.Run(Path(path))
    try:
        supervisor = Supervisor(run, lock)
    except Exception as error:
        process.print_trace()
        give_up(run, error)
        raise SystemExit(1) from error
    try:
        supervisor.live()
    except Exception as error:
        process.print_trace()
        supervisor.fail(error)
        raise SystemExit(1) from error


def give_up(run: state.Run, error: Exception) -> None:
    """A job whose supervisor cannot even begin, as its type cannot be loaded, is FAILED."""
    end = {"since": files.now(), "finished": files.now(), "finished_monotonic": time.monotonic()}
    process.end_marked(run.run_id, (), 0.0)
    run.write("state.json", replace(run.facts(), word="Failed", reason=GAVE_UP, message=_told(error), **end))


def _told(error: BaseException) -> str:
    return error.what if isinstance(error, ArenaError) else f"{type(error).__name__}: {error}"
