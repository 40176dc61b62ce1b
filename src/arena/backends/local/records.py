"""The runs of a state folder as they are now: found by name, read through the index, given a new supervisor."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import msgspec
from msgspec.structs import replace

from arena import files, jobs, quantity, secrets, status
from arena.backends.base import Ref, Warnings
from arena.backends.local import launch, layout, state
from arena.errors import (
    ArenaError,
    BackendError,
    NotFoundError,
)
from arena.job import Job
from arena.quantity import format_age
from arena.record import DamagedError, Index, Row, changed
from arena.settings import Settings
from arena.status import Replica, Seen, Status

SETTLED = 2 * 10**9  # ns; a folder that changed later than this may change again within its clock's tick
PATIENCE = 2.0  # seconds to wait for a new supervisor's first look

Rows = list[Row]


class Records:
    """The runs one user of this machine sees."""

    def __init__(self, settings: Settings, env: Mapping[str, str], folder: state.StateDir, user: str) -> None:
        self.settings = settings
        self.env = env
        self.state = folder
        self.user = user

    @functools.cached_property
    def _stays(self) -> float:
        return self.settings.seconds("history.list_days")

    def find(self, name: str, *, gone: bool = False) -> Ref:
        """The run that NAME, NAME@2, a run id or @last means."""
        name = name.rpartition("/")[2]
        if not name or not self.state.exists:
            raise not_found(name)
        holder = self.state.holder(name)
        known = self.state.run(holder) if holder else None
        run = known if known and known.path.is_dir() else self._find_recorded(name)
        if known is run and damaged(run) and not run.gone():
            return Ref(name=name, run_id=run.run_id)
        if run.facts().finished and not run.gone():
            self.leaves(self.see(run))
        marked = run.gone()
        if marked and not gone:
            raise self._gone(run, marked)
        return Ref(name=run.made().name, run_id=run.run_id)

    def _find_recorded(self, name: str) -> state.Run:
        if _plain(name) and self.state.run(name).path.is_dir():
            return self.state.run(name)
        stem, at, number = name.partition("@")
        if at and number == "last" and not stem:
            rows = [row for row in self.rows() if self._mine(row)]
            number = "1"
        else:
            rows = list(self.rows(stem))
        position = int(number) if number.isdecimal() else 0 if at else 1
        if not rows or (at and not position > 0):
            raise not_found(name)
        if position > len(rows):
            raise NotFoundError(
                f"there is no {name}", why=f"{stem!r} has {len(rows)} runs", hint=f"arena history {stem}"
            )
        return self.state.run(rows[position - 1].run_id)

    def _mine(self, row: Row) -> bool:
        return msgspec.json.decode(row.made, type=state.Made).user == self.user

    def _gone(self, run: state.Run, marked: state.Gone) -> NotFoundError:
        seen = self.see(run)
        age = format_age((files.now() - marked.at).total_seconds())
        return NotFoundError(
            f"job {seen.name!r} does not exist any more",
            why=f"deleted {age} ago, {seen.state.name}: arena history {seen.name}",
            hint=f"arena logs {seen.name} reads its record",
        )

    def rows(self, name: str = "", *, gone: bool = True, warnings: Warnings | None = None) -> Rows:
        """The index brought up to date, and what it then says; made anew where it is damaged."""
        path = self.state.path / "index.db"
        try:
            return self._indexed(path, name, gone, warnings)
        except DamagedError:
            with contextlib.suppress(OSError):
                path.unlink()
            return self._indexed(path, name, gone, warnings)

    def _indexed(self, path: Path, name: str, gone: bool, warnings: Warnings | None) -> Rows:
        found = _stat_all(self.state)
        there = set(found)
        with Index(path) as index:
            known = index.known()
            for run_id in changed(found, known):
                try:
                    index.put(self._read_row(run_id, found[run_id]))
                except ArenaError as error:
                    del found[run_id]
                    if warnings is not None and not self.state.run(run_id).left():
                        forbidden = isinstance(error.__cause__, PermissionError)
                        warnings.add(f"run {run_id} is left out: {error.what}", code=7 if forbidden else 6)
            rows = [row for row in index.rows(name, gone=gone) if row.run_id in found]
            index.forget(known.keys() - there)
        return rows

    def _read_row(self, run_id: str, when: int) -> Row:
        run = self.state.run(run_id)
        self.revive(run)
        made, facts, gone = run.made(), run.facts(), run.gone()
        return Row(
            run_id=run_id,
            changed=when if time.time_ns() - when > SETTLED else 0,
            created=made.created.timestamp(),
            name=made.name,
            final=facts.finished is not None,
            made=msgspec.json.encode(made),
            facts=msgspec.json.encode(facts),
            deleted=msgspec.json.encode(gone) if gone else b"",
        )

    def see_row(self, row: Row) -> Seen:
        made = msgspec.json.decode(row.made, type=state.Made)
        facts = msgspec.json.decode(row.facts, type=state.Facts)
        gone = msgspec.json.decode(row.deleted, type=state.Gone) if row.deleted else None
        return self._seen(self.state.run(row.run_id), made, facts, gone)

    def see(self, run: state.Run) -> Seen:
        if not run.path.is_dir():
            raise not_found(run.run_id)
        return self._seen(run, run.made(), run.facts(), run.gone())

    def _seen(self, run: state.Run, made: state.Made, facts: state.Facts, gone: state.Gone | None) -> Seen:
        job = _job_of(made)
        replicas = facts.replicas if facts.finished else tuple(_replicas_now(run, job, facts))
        observed = state.observed(made, facts, replicas)
        elsewhere = not facts.finished and made.host != state.hostname()
        return Seen(
            name=made.name,
            run_id=made.run_id,
            uid=made.run_id,
            status=_elsewhere(status.decide(observed), made, run) if elsewhere else status.decide(observed),
            observed=observed,
            trainer=made.trainer,
            job=job,
            user=made.user,
            duration=_duration(made, facts),
            cause=facts.cause,
            why=facts.why,
            warnings=facts.warnings,
            host=made.host,
            deleted=gone.at if gone else None,
            parent=made.parent,
            typed=made.typed,
            waits_for=facts.waits_for,
            cwd=made.cwd,
        )

    def revive(self, run: state.Run) -> None:
        """Start a new supervisor where the old one was killed, and wait for its first look."""
        facts = run.facts()
        if facts.finished or run.made().host != state.hostname():
            return
        if not self._start_supervisor(run):
            return
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and run.facts().supervisors == facts.supervisors:
            time.sleep(0.01)
            if not files.is_locked(run.path / "lock"):
                return
        while time.monotonic() < deadline and self._unsettled(run):
            time.sleep(0.02)

    def _start_supervisor(self, run: state.Run) -> bool:
        """Start a supervisor where there is none; what only looks and may not write leaves it."""
        try:
            lock = run.try_lock()
        except OSError:
            return False
        if lock is None:
            return False
        try:
            if not run.facts().finished:
                launch.start(run, lock, self.env)
                return True
        except (OSError, BackendError):
            pass
        finally:
            os.close(lock)
        return False

    def _unsettled(self, run: state.Run) -> bool:
        """Whether nothing of a running job lives any more, so that its end is about to be written."""
        facts = run.facts()
        if facts.finished or facts.word not in ("Running", "Restarting"):
            return False
        folder = run.attempt(facts.attempt)
        locks = list(folder.glob("*.keeper")) if folder.is_dir() else []
        return bool(locks) and not any(files.is_locked(lock) for lock in locks)

    def leaves(self, seen: Seen) -> bool:
        """Whether a job's time in the list is over; then it is taken from it."""
        expired = self._expired(seen)
        if expired:
            with contextlib.suppress(OSError):  # a folder that may only be read
                self.mark_gone(self.state.run(seen.run_id), "its time in the list is over")
        return expired

    def _expired(self, seen: Seen) -> bool:
        """Whether a finished job has been in the list for long enough."""
        if seen.deleted or not seen.state.final or not seen.observed.finished:
            return False
        own = seen.job.ttl_after_finished if seen.job else ""
        limit = quantity.parse_duration(own) if own else self._stays
        return files.now() - seen.observed.finished > timedelta(seconds=limit)

    def mark_gone(self, run: state.Run, by: str, name: str = "") -> None:
        if run.gone() is None:
            run.write("deleted.json", state.Gone(at=files.now(), by=by))
        self.state.release(name or run.made().name, run.run_id)


def damaged(run: state.Run) -> bool:
    """Whether what was asked cannot be read any more."""
    try:
        run.made()
    except BackendError:
        return True
    return False


def _plain(name: str) -> bool:
    return bool(name) and "/" not in name and not name.startswith(".")


def not_found(name: str) -> NotFoundError:
    """What is raised for a job that is not there."""
    return NotFoundError(f"job {name!r} not found", hint="arena list shows what there is, arena history what there was")


def _stat_all(folder: state.StateDir) -> dict[str, int]:
    found = {}
    for entry in folder.runs():
        with contextlib.suppress(OSError):
            found[entry.name] = entry.stat().st_mtime_ns
    return found


def _job_of(made: state.Made) -> Job | None:
    """The job of a run; None where its type is not installed here."""
    try:
        kind = jobs.load_class(made.type)
        job = msgspec.convert(made.job, kind, strict=False)
    except (ImportError, msgspec.ValidationError):
        return None
    return replace(job, env={**job.env, **dict.fromkeys(made.secrets, secrets.MASK)}) if made.secrets else job


def _replicas_now(run: state.Run, job: Job | None, facts: state.Facts) -> Iterator[Replica]:
    if job is None:
        return
    started = facts.word in ("Running", "Restarting")
    for replica in layout.replicas(job.roles(), facts.attempt):
        yield (run.replica(facts.attempt, replica.name) if started else None) or replica


def _elsewhere(found: Status, made: state.Made, run: state.Run) -> Status:
    seen = time.strftime("%H:%M", time.localtime(run.path.stat().st_mtime))
    return replace(found, message=f"on {made.host}, seen {seen}")


def _duration(made: state.Made, facts: state.Facts) -> float:
    """Running time in seconds: by the clock that nobody sets, while the machine has not restarted."""
    if facts.started is None or facts.started_monotonic is None:
        return 0.0
    if facts.finished_monotonic is not None and facts.finished_monotonic >= facts.started_monotonic:
        return facts.finished_monotonic - facts.started_monotonic
    if facts.finished is None and made.boot_id == state.boot_id():
        return time.monotonic() - facts.started_monotonic
    return max(0.0, ((facts.finished or files.now()) - facts.started).total_seconds())
