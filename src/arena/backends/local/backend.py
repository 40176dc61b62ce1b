"""The verbs, on this machine."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from arena import jobs, quantity, secrets, status
from arena.backends.base import Context, LogLine, LogQuery, Plan, Query, Ref, Warnings
from arena.backends.local import devices, keeping, launch, layout, process, recorded, state
from arena.backends.local.reading import read_logs
from arena.errors import (
    AlreadyExistsError,
    ArenaError,
    BackendError,
    ForbiddenError,
    NotFoundError,
    SpecError,
    UnsupportedError,
)
from arena.job import Job, check, metas, option_name, raise_all, shorten, valid_name, word_problems
from arena.record import DamagedError, Index, Row, changed
from arena.settings import Settings
from arena.status import Replica, Seen, Status

LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
WATCH = 0.03  # seconds between looks at the files of a run
SETTLED = 2 * 10**9  # ns; a folder that changed later than this may change again within its clock's tick
PATIENCE = 2.0  # seconds to wait for a new supervisor's first look
ENDING = 30.0  # seconds beyond the grace until a delete gives up


Rows = list[Row]


class LocalBackend:
    """Jobs as real processes of this machine.

    >>> import tempfile
    >>> from arena.backends.base import Query, Warnings
    >>> settings = Settings.load({"state_dir": tempfile.mkdtemp()}, {}, Path("/"))
    >>> list(LocalBackend(settings, {}).list(Query(), Warnings()))
    []
    """

    name = "local"

    def __init__(self, settings: Settings, env: Mapping[str, str]) -> None:
        self.settings = settings
        self.env = dict(env)
        explicit = settings.text("state_dir") or ""
        path, self.notice = state.choose(explicit, self.env)
        if self.notice:
            state.private(path)
            self.notice = "" if path.is_dir() else self.notice  # said when it was made
        self.state = state.StateDir(path)

    @functools.cached_property
    def _stays(self) -> float:
        return self.settings.seconds("history.list_days")

    @property
    def user(self) -> str:
        """Who asks: ARENA_USER, else the login name, else the uid."""
        return self.settings.text("user") or login_name()

    # --- submit ----------------------------------------------------------------------------------------------

    def plan(self, job: Job, context: Context) -> Plan:
        """What `submit` would do here; refuses what this machine cannot."""
        check(job)
        if not self.settings.enabled("local.enabled"):
            raise ForbiddenError(
                "jobs may not run on this machine",
                why=f"local.enabled is false: {self.settings.source('local.enabled')}",
                hint="-b kubernetes",
            )
        job = job if job.name else replace(job, name=made_up_name(job.command))
        run_id = f"{shorten(job.name, 58)}-{_letters()}"
        cwd = self._cwd(job, context, self.state.run(run_id))
        notes = tuple(_field_notes(job))
        roles = job.roles(context.python or "python")
        gpus = sum(role.count * role.gpus for role in roles)
        if gpus:
            self._check_gpus(gpus)
        elif devices.likely(self.settings.number("local.gpus")):
            notes = (*notes, "no GPU asked for: CUDA_VISIBLE_DEVICES is empty; -g 1 gives each worker one")
        context = replace(context, cwd=cwd)
        folder = self.state.run(run_id).attempt(1)
        step = {"kind": type(job).__name__, "backend": "local", "name": job.name, "workingDir": cwd}
        steps = ({**step, "replicas": list(_shown(job, run_id, roles, gpus, folder))},)
        return Plan(backend=self.name, job=job, name=job.name, run_id=run_id, context=context, notes=notes, steps=steps)

    def _cwd(self, job: Job, context: Context, run: state.Run) -> str:
        """The folder the replicas start in: where the user stands, or in the copy of the code that the run gets."""
        if context.again:
            folder = recorded.folder_again(self.state.run(context.again), run)
            return os.path.normpath(os.path.join(folder, job.working_dir))
        folder = _folder(job, context)
        if not job.snapshot:
            return folder
        if not context.code:
            raise UnsupportedError("--snapshot needs a project folder", why="a home folder or / is never copied")
        return os.path.normpath(run.path / recorded.FOLDER / os.path.relpath(folder, context.code))

    def _check_gpus(self, wanted: int) -> None:
        there = devices.gpus(self.settings.number("local.gpus"))
        if not there:
            raise UnsupportedError(
                "this machine has no GPU", why=f"{wanted} wanted", hint="run it without --gpus, or with -b kubernetes"
            )
        if wanted > len(there):
            raise UnsupportedError(
                f"{wanted} GPUs are wanted, this machine has {len(there)}", hint="ask for fewer, or -b kubernetes"
            )

    def submit(self, plan: Plan, *, replace: bool = False, force: bool = False) -> Ref:
        """Make the run and start its supervisor. Exactly one of two submits of a name wins."""
        with state.writing(self.state.path):
            self.state.ready().sweep()
            self._make_room(plan.name, replace, force)
            run, lock = self.state.begin(plan.run_id)
            try:
                self._fill(run, plan)
                self._claim(plan)
                final = run.publish(self.state.run(plan.run_id))
                launch.start(final, lock, {**self.env, **secrets.split(plan.job.env)[1]})
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
        seen = self._see(run)
        if self._leaves(seen):
            return
        if not replace:
            raise self._taken(seen)
        if not seen.state.final and not force:
            raise self._taken(seen)
        self.delete(Ref(name=name, run_id=holder), force=force)

    def _taken(self, seen: Seen) -> AlreadyExistsError:
        who = "you" if seen.user == self.user else seen.user
        age = quantity_age((state.now() - seen.observed.created).total_seconds())
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
            raise self._taken(self._see(run))
        raise AlreadyExistsError(f"job {plan.name!r} is just being submitted", hint="another --name")

    def _fill(self, run: state.Run, plan: Plan) -> None:
        reserve = run.path / "reserve"
        reserve.write_bytes(b"\0" * state.RESERVE)
        store = self.state.path / "blobs"
        if plan.context.again:
            recorded.lay_again(self.state.run(plan.context.again), run, store)
        elif plan.job.snapshot:
            recorded.freeze(Path(plan.context.code), run, store, self.settings.size("record.code_max"))
        run.write("job.json", self._made(plan))

    def _made(self, plan: Plan) -> state.Made:
        plain, secret = secrets.split(plan.job.env)
        kind = type(plan.job)
        values = msgspec.to_builtins(replace(plan.job, env=plain))
        environ = state.storable(plan.context.environ or self.env)
        return state.Made(
            run_id=plan.run_id,
            name=plan.name,
            type=jobs.place(kind),
            trainer=kind.trainer,
            job=values,
            secrets=tuple(secret),
            typed=tuple(secrets.mask_words(plan.context.typed)),
            cwd=plan.context.cwd,
            code=self._code_folder(plan),
            python=plan.context.python,
            user=self.user,
            host=state.hostname(),
            boot_id=state.boot_id(),
            created=state.now(),
            parent=plan.context.parent,
            environ={key: value for key, value in environ.items() if not key.startswith("ARENA_")},
            max_replicas=self.settings.number("local.max_replicas") or 8 * usable_cores(),
            grace=self.settings.seconds("local.grace"),
            log_limit=self.settings.size("log.max"),
            code_limit=self.settings.size("record.code_max"),
            gpus=self.settings.number("local.gpus"),
            lease_dir=self._lease_dir(),
        )

    def _code_folder(self, plan: Plan) -> str:
        copied = plan.context.again or plan.job.snapshot
        return str(self.state.run(plan.run_id).path / recorded.FOLDER) if copied else plan.context.code

    def _lease_dir(self) -> str:
        return self.settings.text("lease_dir") or str(Path(self.env.get("TMPDIR") or "/tmp") / "arena-leases")

    # --- look ------------------------------------------------------------------------------------------------

    def find(self, name: str, *, gone: bool = False) -> Ref:
        """The run that NAME, NAME@2, a run id or @last means."""
        name = name.rpartition("/")[2]
        if not self.state.exists:
            raise _not_found(name)
        holder = self.state.holder(name)
        known = self.state.run(holder) if holder else None
        run = known if known and known.path.is_dir() else self._find_recorded(name)
        if run.facts().finished and not run.gone():
            self._leaves(self._see(run))
        marked = run.gone()
        if marked and not gone:
            raise self._gone(run, marked)
        return Ref(name=run.made().name, run_id=run.run_id)

    def _find_recorded(self, name: str) -> state.Run:
        if _plain(name) and self.state.run(name).path.is_dir():
            return self.state.run(name)
        stem, at, number = name.partition("@")
        if at and number == "last" and not stem:
            rows = [row for row in self._rows() if self._mine(row)]
            number = "1"
        else:
            rows = list(self._rows(stem))
        position = int(number) if number.isdecimal() else 0 if at else 1
        if not rows or (at and not position > 0):
            raise _not_found(name)
        if position > len(rows):
            raise NotFoundError(
                f"there is no {name}", why=f"{stem!r} has {len(rows)} runs", hint=f"arena history {stem}"
            )
        return self.state.run(rows[position - 1].run_id)

    def _mine(self, row: Row) -> bool:
        return msgspec.json.decode(row.made, type=state.Made).user == self.user

    def _gone(self, run: state.Run, marked: state.Gone) -> NotFoundError:
        seen = self._see(run)
        age = quantity_age((state.now() - marked.at).total_seconds())
        return NotFoundError(
            f"job {seen.name!r} does not exist any more",
            why=f"deleted {age} ago, {seen.state.name}: arena history {seen.name}",
            hint=f"arena logs {seen.name} reads its record",
        )

    def get(self, ref: Ref) -> Seen:
        """The job as it is now; a supervisor that is missing is started."""
        run = self.state.run(ref.run_id)
        self._revive(run)
        return self._see(run)

    def list(self, query: Query, warnings: Warnings) -> Iterator[Seen]:
        """The jobs that match, newest first."""
        if not self.state.exists:
            return
        self.state.ready().sweep()
        self._keep_history()
        for row in self._rows(query.name, gone=query.gone, warnings=warnings):
            try:
                seen = self._see_row(row)
            except ArenaError as error:
                warnings.add(f"run {row.run_id} is left out: {error.what}")
                continue
            if self._leaves(seen) and not query.gone:
                continue
            if matches(seen, query):
                yield seen

    def _rows(self, name: str = "", *, gone: bool = True, warnings: Warnings | None = None) -> Rows:
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
                    if warnings is not None:
                        forbidden = isinstance(error.__cause__, PermissionError)
                        warnings.add(f"run {run_id} is left out: {error.what}", code=7 if forbidden else 6)
            rows = [row for row in index.rows(name, gone=gone) if row.run_id in found]
            index.forget(known.keys() - there)
        return rows

    def _read_row(self, run_id: str, when: int) -> Row:
        run = self.state.run(run_id)
        self._revive(run)
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

    def _see_row(self, row: Row) -> Seen:
        made = msgspec.json.decode(row.made, type=state.Made)
        facts = msgspec.json.decode(row.facts, type=state.Facts)
        gone = msgspec.json.decode(row.deleted, type=state.Gone) if row.deleted else None
        return self._seen(self.state.run(row.run_id), made, facts, gone)

    def _see(self, run: state.Run) -> Seen:
        if not run.path.is_dir():
            raise _not_found(run.run_id)
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

    def _revive(self, run: state.Run) -> None:
        """Start a new supervisor where the old one was killed, and wait for its first look."""
        facts = run.facts()
        if facts.finished or run.made().host != state.hostname():
            return
        if not self._start_supervisor(run):
            return
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and run.facts().supervisors == facts.supervisors:
            time.sleep(0.01)
            if not state.is_locked(run.path / "lock"):
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
        return bool(locks) and not any(state.is_locked(lock) for lock in locks)

    def _leaves(self, seen: Seen) -> bool:
        """Whether a job's time in the list is over; then it is taken from it."""
        expired = self._expired(seen)
        if expired:
            with contextlib.suppress(OSError):  # a folder that may only be read
                self._mark_gone(self.state.run(seen.run_id), "its time in the list is over")
        return expired

    def _expired(self, seen: Seen) -> bool:
        """Whether a finished job has been in the list for long enough."""
        if seen.deleted or not seen.state.final or not seen.observed.finished:
            return False
        own = seen.job.ttl_after_finished if seen.job else ""
        limit = quantity.parse_duration(own) if own else self._stays
        return state.now() - seen.observed.finished > timedelta(seconds=limit)

    def watch(self, ref: Ref, until: Sequence[float] = ()) -> Iterator[Seen]:
        """The job now, then again at each change and when a time of `until` is reached, until it has ended."""
        run = self.state.run(ref.run_id)
        last: object = None
        looked = 0.0
        due = sorted(until)
        while True:
            now = time.monotonic()
            if now - looked > 1.0:
                self._revive(run)
                looked = now
            stamp = _stamp(run)
            if stamp != last or (due and now >= due[0]):
                due = [when for when in due if now < when]
                last = stamp
                seen = self._see(run)
                yield seen
                if seen.state.final or seen.deleted:
                    return
            time.sleep(WATCH)

    def logs(self, ref: Ref, query: LogQuery) -> Iterator[LogLine]:
        """The lines of the replicas, in order of time where nothing is followed."""
        run = self.state.run(ref.run_id)
        return read_logs(run, query, lambda: self.get(ref))

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

            return subprocess.run(list(words), env=env, cwd=seen.cwd, check=False).returncode
        except OSError as error:
            sys.stderr.write(f"{words[0]}: {error.strerror}\n")
            return 127 if isinstance(error, FileNotFoundError) else 126

    # --- end -------------------------------------------------------------------------------------------------

    def stop(self, ref: Ref) -> Seen:
        """End the job; it stays in the list. Returns when nothing of it lives."""
        run = self.state.run(ref.run_id)
        self._revive(run)
        if run.facts().finished:
            return self._see(run)
        self._must_be_here(run)
        if run.stop() is None:
            with state.writing(run.path):
                run.write("stop.json", state.Stop(by=self.user, at=state.now()))
        deadline = time.monotonic() + run.made().grace + ENDING
        while not run.facts().finished:
            run.wake()
            time.sleep(0.01)
            self._revive(run)
            if time.monotonic() > deadline:
                raise BackendError(f"job {ref.name!r} does not end", hint=f"see {run.path / 'supervisor.log'}")
        return self._see(run)

    def delete(self, ref: Ref, *, force: bool = False) -> Seen:
        """End the job and take it from the list; its record stays."""
        run = self.state.run(ref.run_id)
        seen = self.get(ref)
        if seen.user != self.user and not seen.state.final and not force:
            raise ForbiddenError(
                f"job {seen.name!r} of {seen.user} is {seen.state.name}: only --force deletes it",
                hint=f"arena delete {seen.name} --force",
            )
        if not seen.state.final:
            seen = self.stop(ref)
        with state.writing(run.path):
            self._mark_gone(run, self.user)
        return seen

    def _mark_gone(self, run: state.Run, by: str) -> None:
        if run.gone() is None:
            run.write("deleted.json", state.Gone(at=state.now(), by=by))
        self.state.release(run.made().name, run.run_id)

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


def made_up_name(command: tuple[str, ...]) -> str:
    """`<script>-<4 letters>`."""
    words = [word for word in command if word not in ("-m", "--")]
    stem = valid_name(Path(words[0].split()[0]).stem if words and words[0].split() else "job")
    return f"{shorten(stem, 40)}-{_letters()}"


def _letters() -> str:
    """Four letters by chance; 31 of them, so that a byte's remainder is nearly fair."""
    return "".join(LETTERS[byte % len(LETTERS)] for byte in os.urandom(4))


def login_name() -> str:
    """The login name, or `uid-1000` where there is no passwd entry."""
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        return f"uid-{os.getuid()}"


def usable_cores() -> int:
    """How many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def quantity_age(seconds: float) -> str:
    """`12 s`, `5 min`, `3 h`, `2 d`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"


def _plain(name: str) -> bool:
    return bool(name) and "/" not in name and not name.startswith(".")


def _not_found(name: str) -> NotFoundError:
    return NotFoundError(f"job {name!r} not found", hint="arena list shows what there is, arena history what there was")


def _folder(job: Job, context: Context) -> str:
    folder = Path(context.cwd or os.getcwd()) / job.working_dir
    if not folder.is_dir():
        raise SpecError(f"--working-dir: {folder} is no folder")
    raise_all(list(word_problems("--working-dir", str(folder))))
    return str(folder)


def _field_notes(job: Job) -> Iterator[str]:
    """A line for each field that means nothing here; SpecError for one that cannot be left out."""
    kind = type(job)
    defaults = dict(zip(kind.__struct_fields__, _defaults(kind), strict=True))
    for name, meta in metas(kind).items():
        local = (meta.extra or {}).get("local")
        if local == "used" or getattr(job, name) == defaults[name]:
            continue
        if local == "refused":
            raise UnsupportedError(
                f"{option_name(name)} cannot be honoured on this machine", hint="leave it out, or -b kubernetes"
            )
        yield f"{option_name(name)} has no effect on this machine"


def _defaults(kind: type[Job]) -> list[Any]:
    empty = kind()
    return [getattr(empty, name) for name in kind.__struct_fields__]


def _shown(job: Job, run_id: str, roles: list[Any], gpus: int, folder: Path) -> Iterator[dict[str, Any]]:
    """The replicas of a dry run: names and words, and the environment they find their peers by."""
    ports = range(40_000, 40_000 + layout.port_count(job, roles))
    devices_ = [str(number) for number in range(gpus)]
    for placed in layout.place(job, run_id, roles, ports, devices_, folder, 1):
        argv, env = placed.programs[0]
        yield {
            "name": placed.replica.name,
            "rank": placed.replica.rank,
            "processes": placed.replica.nproc,
            "command": list(argv),
            "env": {k: v for k, v in secrets.split(env)[0].items() if not k.startswith("ARENA_R")},
            "secrets": sorted(secrets.split(env)[1]),
        }


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
    except (ImportError, AttributeError, msgspec.ValidationError):
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
    return max(0.0, ((facts.finished or state.now()) - facts.started).total_seconds())


def _stamp(run: state.Run) -> tuple[int, ...]:
    """What changes when a run changes."""
    found = []
    for path in (run.path, run.path / "state.json", *sorted(run.path.glob("attempt-*"))):
        with contextlib.suppress(OSError):
            status_ = path.stat()
            found += [status_.st_mtime_ns, status_.st_ino, status_.st_size]
    return tuple(found)
