"""The verbs, on this machine."""

from __future__ import annotations

import builtins
import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from arena import files, secrets
from arena.backends.base import Context, LogLine, LogQuery, Plan, Query, Ref, Warnings, check_owner, not_gone, unheard
from arena.backends.local import keeping, launch, process, state
from arena.backends.local.making import Maker
from arena.backends.local.reading import read_logs
from arena.backends.local.records import Records, damaged
from arena.errors import (
    AlreadyExistsError,
    ArenaError,
    BackendError,
    NotFoundError,
    UnsupportedError,
)
from arena.job import Job
from arena.quantity import format_age
from arena.settings import Settings, login_name
from arena.status import Observed, Seen, State, Status

WATCH = 0.03  # seconds between looks at the files of a run
AGAIN = 0.5  # and of all runs
PATIENCE = 2.0  # seconds for a supervisor that is just going
ENDING = 30.0  # seconds beyond the grace until a delete gives up


class LocalBackend:
    """Jobs as real processes of this machine.

    >>> import pathlib, tempfile
    >>> from arena.backends.base import Query, Warnings
    >>> settings = Settings.load({"state_dir": tempfile.mkdtemp()}, {}, pathlib.Path("/"))
    >>> list(LocalBackend(settings, {}).list(Query(), Warnings()))
    []
    """

    name = "local"

    def __init__(self, settings: Settings, env: Mapping[str, str]) -> None:
        self.settings = settings
        self.env = dict(env)
        self.notes = Warnings()
        explicit = settings.text("state_dir") or ""
        path, self.notice = files.choose(explicit, self.env)
        if self.notice:
            files.private(path)
            self.notice = "" if path.is_dir() else self.notice  # said when it was made
        self.state = state.StateDir(path)
        self.maker = Maker(settings, self.env, self.state, self.user)
        self.records = Records(settings, self.env, self.state, self.user)

    @property
    def user(self) -> str:
        """Who asks: ARENA_USER, else the login name, else the uid."""
        return self.settings.text("user") or login_name()

    def layered(self) -> Settings:
        """The settings: this machine adds none."""
        return self.settings

    def plan(self, job: Job, context: Context) -> Plan:
        """What `submit` would do here; refuses what this machine cannot."""
        return self.maker.plan(job, context)

    def asked(self, plan: Plan) -> Plan:
        """The plan itself: there is nobody else to ask."""
        return plan

    def find(self, name: str, *, gone: bool = False) -> Ref:
        """The run that NAME, NAME@2, a run id or @last means."""
        return self.records.find(name, gone=gone)

    def submit(
        self, plan: Plan, *, replace: bool = False, force: bool = False, committed: Callable[[], None] = unheard
    ) -> Ref:
        """Make the run and start its supervisor. Exactly one of two submits of a name wins."""
        committed()
        with files.writing(self.state.path):
            self.state.ready().sweep()
            self._make_room(plan.name, replace, force)
            run, lock = self.state.begin(plan.run_id)
            try:
                self.maker.fill(run, plan)
                self._claim(plan)
                final = run.publish(self.state.run(plan.run_id))
                launch.start(final, lock, {**self.env, **secrets.split(plan.made_of.env)[1]})
            except BaseException as error:
                if isinstance(error, Exception) or run.path.is_dir():
                    self._undo(plan)
                raise
            finally:
                os.close(lock)
        self._keep_history()
        return Ref(name=plan.name, run_id=plan.run_id)

    def _keep_history(self) -> None:
        keeping.keep(self.state, self.settings.seconds("history.max_age"), self.settings.size("history.max_size"))

    def _undo(self, plan: Plan) -> None:
        """Leave nothing of a submit that failed before its job was there."""
        with contextlib.suppress(OSError):
            self.state.release(plan.name, plan.run_id)
        for folder in (self.state.path / "new" / plan.run_id, self.state.run(plan.run_id).path):
            shutil.rmtree(folder, ignore_errors=True)

    def _make_room(self, name: str, replace: bool, force: bool) -> None:
        holder = self.state.holder(name)
        if holder is None:
            return
        if (self.state.path / "new" / holder).is_dir():
            return  # being submitted
        run = self.state.run(holder)
        if not run.path.is_dir():
            self.state.release(name, holder)
            return
        seen = self.records.see(run)
        if self.records.leaves(seen):
            return
        if not replace:
            raise self._taken(seen)
        if not seen.state.final and not force:
            raise self._taken(seen)
        self.delete(Ref(name=name, run_id=holder), force=force)

    def _taken(self, seen: Seen) -> AlreadyExistsError:
        who = "you" if seen.user == self.user else seen.user
        age = format_age((files.now() - seen.observed.created).total_seconds())
        how = "--replace --force" if not seen.state.final else "--replace"
        return AlreadyExistsError(
            f"job {seen.name!r} already exists",
            why=f"run {seen.run_id} was submitted {age} ago by {who} and is {seen.state.name}",
            hint=f"arena delete {seen.name}, {how}, or another --name",
        )

    def _claim(self, plan: Plan) -> None:
        if self.state.claim(plan.name, plan.run_id):
            return
        holder = self.state.holder(plan.name)
        run = self.state.run(holder) if holder else None
        if run is not None and run.path.is_dir():
            raise self._taken(self.records.see(run))
        raise AlreadyExistsError(f"job {plan.name!r} is just being submitted", hint="another --name")

    def get(self, ref: Ref) -> Seen:
        """The job as it is now; a supervisor that is missing is started."""
        run = self.state.run(ref.run_id)
        self.records.revive(run)
        return self.records.see(run)

    def facts(self, ref: Ref) -> None:
        """Nothing: there is no cluster."""

    def list(self, query: Query, warnings: Warnings) -> Iterator[Seen]:
        """The jobs that match, newest first."""
        if not self.state.exists:
            return
        self.state.ready().sweep()
        self._keep_history()
        for row in self.records.rows(query.name, gone=query.gone, warnings=warnings):
            try:
                seen = self.records.see_row(row)
            except ArenaError as error:
                warnings.add(f"run {row.run_id} is left out: {error.what}")
                continue
            if self.records.leaves(seen) and not query.gone:
                continue
            if matches(seen, query):
                yield seen

    def changes(self, query: Query, warnings: Warnings) -> Iterator[builtins.list[Seen]]:
        """The jobs that match, looked at twice a second."""
        while True:
            yield [*self.list(query, warnings)]
            time.sleep(AGAIN)

    def watch(self, ref: Ref, until: Sequence[float] = ()) -> Iterator[Seen]:
        """The job now, then again at each change and when a time of `until` is reached, until it has ended."""
        run = self.state.run(ref.run_id)
        last: object = None
        looked = 0.0
        due = sorted(until)
        while True:
            now = time.monotonic()
            if now - looked > 1.0:
                self.records.revive(run)
                looked = now
            stamp = _stamp(run)
            if stamp != last or (due and now >= due[0]):
                due = [when for when in due if now < when]
                last = stamp
                seen = self.records.see(run)
                yield seen
                if seen.state.final or seen.deleted:
                    return
            time.sleep(WATCH)

    def logs(self, ref: Ref, query: LogQuery) -> Iterator[LogLine]:
        """The lines of the replicas, in order of time where nothing is followed."""
        run = self.state.run(ref.run_id)
        return read_logs(run, query, lambda: self.get(ref))

    def now(self) -> datetime:
        """The time by this machine's clock."""
        return datetime.now(UTC)

    def has_code(self, ref: Ref) -> bool:
        """Whether the run had a project folder whose code was recorded."""
        return bool(self.state.run(ref.run_id).made().code)

    def exec(self, ref: Ref, replica: str, words: Sequence[str]) -> int:
        """Run a command with a replica's folder and environment, on this terminal; its exit code."""
        seen = self.get(ref)
        found = next((r for r in seen.observed.replicas if r.name == replica), None)
        pid = next(iter(found.pids), None) if found and not found.ended else None
        env = process.environ(pid) if pid else {}
        if not env:
            raise BackendError(f"job {seen.name!r} is {seen.state.name}", why=f"{replica or 'no replica'} does not run")
        try:
            import subprocess

            code = subprocess.run(list(words), env=env, cwd=seen.cwd, check=False).returncode
            return 128 - code if code < 0 else code
        except OSError as error:
            sys.stderr.write(f"{words[0]}: {error.strerror}\n")
            return 127 if isinstance(error, FileNotFoundError) else 126

    def copy(self, ref: Ref, replica: str, path: str, dest: str) -> Sequence[str]:
        """Copy a file or folder of a replica: relative paths are those of the folder the job runs in."""
        from arena import receiving

        seen = self.get(ref)
        if replica and replica not in {one.name for one in seen.observed.replicas}:
            raise NotFoundError(f"job {seen.name!r} has no replica {replica!r}", hint=f"arena get {seen.name}")
        return receiving.copy_here(os.path.join(seen.cwd, path), dest)

    def fetch(self, ref: Ref, paths: Sequence[str], folder: str) -> Sequence[str]:
        """Nothing: results lie where the program wrote them."""
        return ()

    def stop(self, ref: Ref) -> Seen:
        """End the job; it stays in the list. Returns when nothing of it lives."""
        return self._end(ref)

    def _end(self, ref: Ref, timeout: float | None = None) -> Seen:
        run = self.state.run(ref.run_id)
        self.records.revive(run)
        if run.facts().finished:
            return self.records.see(run)
        self._must_be_here(run)
        if run.stop() is None:
            with files.writing(run.path):
                run.write("stop.json", state.Stop(by=self.user, at=files.now()))
        begun, longest = time.monotonic(), run.made().grace + ENDING
        while not run.facts().finished:
            run.wake()
            time.sleep(0.01)
            self.records.revive(run)
            waited = time.monotonic() - begun
            if timeout is not None and waited >= timeout:
                raise not_gone(ref.name, timeout, hint=f"arena delete {ref.name}, once it has ended")
            if waited > longest:
                raise BackendError(f"job {ref.name!r} does not end", hint=f"see {run.path / 'supervisor.log'}")
        return self.records.see(run)

    def delete(self, ref: Ref, *, force: bool = False, wait: bool = True, timeout: float | None = None) -> Seen:
        """End the job and take it from the list; its record stays. Here its end takes seconds, and is waited for."""
        run = self.state.run(ref.run_id)
        if damaged(run) and (lock := files.take_lock(run.path / "lock", PATIENCE)) is not None:
            os.close(lock)
            return self._forget(ref, run)
        seen = self.get(ref)
        check_owner(seen, self.user, "delete", force=force)
        if not seen.state.final:
            seen = self._end(ref, timeout)
        with files.writing(run.path):
            self.records.mark_gone(run, self.user)
        return seen

    def _forget(self, ref: Ref, run: state.Run) -> Seen:
        """Take a run that cannot be read any more from the list, so that its name is free."""
        with files.writing(run.path):
            self.records.mark_gone(run, self.user, ref.name)
        gone = run.gone()
        status = Status(state=State.UNKNOWN, reason="Damaged", message="its files could not be read")
        observed = Observed(word="Damaged", created=gone.at if gone else files.now())
        return Seen(
            name=ref.name, run_id=ref.run_id, status=status, observed=observed, deleted=gone.at if gone else None
        )

    def _must_be_here(self, run: state.Run) -> None:
        made = run.made()
        if made.host != state.hostname():
            raise UnsupportedError(
                f"job {made.name!r} runs on {made.host}", why=f"this is {state.hostname()}", hint=f"ssh {made.host}"
            )


def matches(seen: Seen, query: Query) -> bool:
    """Whether a job is one of those asked for."""
    labels = seen.job.label if seen.job else {}
    return (
        (not query.states or seen.state.name in query.states)
        and (not query.user or seen.user == query.user)
        and all(labels.get(key) == value for key, value in query.labels.items())
    )


def _stamp(run: state.Run) -> tuple[int, ...]:
    """What changes when a run changes."""
    found = []
    for path in (run.path, run.path / "state.json", *sorted(run.path.glob("attempt-*"))):
        with contextlib.suppress(OSError):
            status_ = path.stat()
            found += [status_.st_mtime_ns, status_.st_ino, status_.st_size]
    return tuple(found)
