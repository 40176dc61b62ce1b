"""The verbs on a cluster, with a memory: what commands saw of a job is in its record, and answers when it is gone.

A record never stands in the way: a folder that cannot be written is said once, and the command goes on.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import json
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from arena import files, status
from arena.backends.base import Context, LogLine, LogQuery, Plan, Query, Ref, Warnings, unheard
from arena.backends.kubernetes import reading, records, travel
from arena.backends.kubernetes.backend import KubernetesBackend, matches
from arena.backends.kubernetes.reading import Found
from arena.backends.kubernetes.records import Glance, Place, Record, Records, joined, unwritable
from arena.engines import trainer
from arena.engines.gang import unlike_success
from arena.errors import ArenaError, BackendError, ForbiddenError, NotFoundError, WaitTimeoutError
from arena.job import run_letters
from arena.kube.errors import RefusedError
from arena.quantity import format_age
from arena.settings import Settings
from arena.status import Observed, Seen

if TYPE_CHECKING:
    from arena.backends.kubernetes.sending import Objects

ABSENT = (NotFoundError, BackendError, ForbiddenError)
ENDING = 5.0  # seconds for the last lines of a job that was ended


class RememberingBackend(KubernetesBackend):
    """Jobs of one namespace of one cluster, and the records of all that this user had to do with."""

    def __init__(self, settings: Settings, env: Mapping[str, str]) -> None:
        super().__init__(settings, env)
        self.records = Records(settings, env)
        self._said: set[str] = set()
        self._answers = True
        self.notice = "" if self.records.state.is_dir() else self.records.notice

    @functools.cached_property
    def place(self) -> Place | None:
        """Where this command looks; None where no cluster is configured."""
        try:
            return Place(self.access.context, self.access.server, self.namespace)
        except ArenaError:
            return None

    def _is_here(self, record: Record) -> bool:
        return self.place is not None and record.is_at(self.place)

    # --- make ------------------------------------------------------------------------------------------------

    def recorded(self, context: Context) -> travel.Recorded | None:
        """The code of an earlier run, where a rerun takes it."""
        if not context.again:
            return None
        captured, store = self.records.capture_of(context.again)
        return travel.Recorded(captured, store, _base(self.records, context.again))

    def plan_object(self, objects: Objects, context: Context) -> Plan:
        """The submit of an object; one that was exported, or printed and sent before, is another run now."""
        from arena.backends.kubernetes.sending import renamed

        plan = super().plan_object(objects, context)
        if not plan.run_id or self.records.get(plan.run_id) is None:
            return plan
        new = f"{plan.run_id.rpartition('-')[0]}-{run_letters(os.urandom(4))}"
        return super().plan_object(renamed(objects, new, plan.run_id), context)

    def submit(
        self, plan: Plan, *, replace: bool = False, force: bool = False, committed: Callable[[], None] = unheard
    ) -> Ref:
        """Make the job, then its record; its code is packed beside it."""
        ref = super().submit(plan, replace=replace, force=force, committed=committed)
        with self._writing():
            if self.records.get(ref.run_id) is None:
                self.records.open(records.planned(self._place_of(ref), plan, ref, self.user))
                if plan.context.again or _brings_code(plan):
                    threading.Thread(target=self._keep_code, args=(ref.run_id, plan.context), name="arena-code").start()
            self.records.tidy()
        return ref

    def _place_of(self, ref: Ref) -> Place:
        return Place(self.access.context, self.access.server, ref.namespace)

    def _keep_code(self, run_id: str, context: Context) -> None:
        with self._writing():
            self.records.keep_code(run_id, context)

    def _holder(self, plan: Plan) -> Seen | None:
        seen = super()._holder(plan)
        return self._remember(seen) if seen else None

    # --- look ------------------------------------------------------------------------------------------------

    def find(self, name: str, *, gone: bool = False) -> Ref:
        """The job of this name or run id; with `gone` also a run that only the record knows."""
        try:
            return super().find(name)
        except ABSENT as error:
            record = self._recorded(name)
            if record is None or not (gone or isinstance(error, NotFoundError)):
                raise
            if gone or self._lives(record):
                return record.ref()
            raise self._gone(record) from error

    def _recorded(self, name: str) -> Record | None:
        """The run of this id, else the newest of this name: here, or anywhere; of the kind that stands before it."""
        kind, _, name = name.rpartition("/")
        own = self.records.get(name)
        runs = [record for record in ([own] if own else self.records.all(name)) if _is_of(record, kind)]
        return next((record for record in runs if self._is_here(record)), runs[0] if runs else None)

    def _lives(self, record: Record) -> bool:
        """Whether the job of a record is there: one that is not is marked."""
        if not self._is_here(record) or record.gone():
            return False
        try:
            self.whole(record.ref())
        except NotFoundError:
            with self._writing():
                record.leave("")
            return False
        return True

    def _gone(self, record: Record) -> NotFoundError:
        seen = record.seen()
        if not self._is_here(record):
            return NotFoundError(
                f"job {seen.name!r} not found in namespace {self.namespace!r}",
                hint=f"{seen.name} was submitted elsewhere: {record.where()}",
            )
        return NotFoundError(
            f"job {seen.name!r} does not exist any more",
            why=f"{_since(seen)}, {seen.state.name}: arena history {seen.name}",
            hint=f"arena logs {seen.name} reads its record",
        )

    def get(self, ref: Ref) -> Seen:
        """The job as it is now, with what was seen of it before; from the record where it is gone."""
        record = self.records.get(ref.run_id)
        try:
            return self._remember(reading.seen(self._found(ref, record)))
        except ABSENT as error:
            if record is None:
                raise
            return self._from_record(record, error)

    def _found(self, ref: Ref, record: Record | None) -> Found:
        """The object and pods; never those of another place."""
        if record is not None and not self._is_here(record):
            raise NotFoundError(f"job {ref.name!r} is not here", hint=record.where())
        return self.whole(ref)

    def _from_record(self, record: Record, error: ArenaError) -> Seen:
        """The job as the record has it, and why it is asked."""
        here = self._is_here(record)
        if here and isinstance(error, NotFoundError):
            with self._writing():
                record.leave("")
        seen = record.seen()
        if seen.deleted:
            said = _since(seen)
        elif self.place is not None and not here:
            said = f"{seen.name} was submitted elsewhere: {record.where()}"
        else:
            said = error.what
        return structs.replace(seen, recorded=f"from the record: {said}")

    def _remember(self, seen: Seen, *, begin: bool = False) -> Seen:
        """The job with what earlier looks saw; where it has a record (or one is begun) this look is noted."""
        try:
            record = self.records.get(seen.run_id)
            if record is None and begin:
                place = self._place_of(Ref.of(seen))
                record = self.records.open(records.found(place, seen, mine=seen.user == self.user))
            if record is None:
                return seen
            if glance := record.glance():
                seen = _with(seen, glance)
            if seen.job is None or not seen.user:  # too long for the object, or an object that others rendered
                past = record.seen()
                seen = structs.replace(
                    seen,
                    job=seen.job or past.job,
                    user=seen.user or past.user,
                    patch=seen.patch or past.patch,
                    sets=seen.sets or past.sets,
                )
            record.note(seen)
        except (OSError, BackendError) as error:
            self._warn(unwritable(error, self.records.state))
        return seen

    def list(self, query: Query, warnings: Warnings) -> Iterator[Seen]:
        """The jobs that match, newest first; with `gone` the runs that are remembered."""
        if query.gone:
            yield from self._history(query)
            return
        mine = self.records.unfinished()
        for seen in super().list(query, warnings):
            yield self._remember(seen) if seen.run_id in mine else seen

    def changes(self, query: Query, warnings: Warnings) -> Iterator[builtins.list[Seen]]:
        """The jobs that match, now and at each change; how they are is noted in their records."""
        for seens in super().changes(query, warnings):
            mine = self.records.unfinished()
            yield [self._remember(seen) if seen.run_id in mine else seen for seen in seens]

    def _history(self, query: Query) -> Iterator[Seen]:
        for record in self.records.all(query.name):
            with contextlib.suppress(ArenaError):
                seen = self._as_remembered(record)
                if matches(seen, seen.job.label if seen.job else {}, query):
                    yield seen

    def _as_remembered(self, record: Record) -> Seen:
        """A run of the history: looked at once more where its end was not seen and the cluster answers."""
        if not record.final and record.gone() is None and self._answers and self._is_here(record):
            try:
                return self.get(record.ref())
            except ArenaError:
                self._answers = False
        return record.seen()

    def watch(self, ref: Ref, until: Sequence[float] = ()) -> Iterator[Seen]:
        """The job now and at each change; its logs are kept before its end is told."""
        record = self.records.get(ref.run_id)
        try:
            self._found(ref, record)
        except ABSENT as error:
            seen = self._from_record(record, error) if record else None
            if seen is None or not (seen.state.final or seen.deleted):
                raise
            yield seen
            return
        for now in super().watch(ref, until):
            seen = self._remember(now, begin=True)
            if seen.state.final and not seen.deleted:
                self.save(ref)
                seen = self._remember(seen)
            yield seen

    # --- logs ------------------------------------------------------------------------------------------------

    def logs(self, ref: Ref, query: LogQuery) -> Iterator[LogLine]:
        """The lines of the replicas, from the cluster while the job runs, then from the record."""
        record = self.records.get(ref.run_id)
        try:
            found = self._found(ref, record)
        except ABSENT:
            if record is None:
                raise
            return self._lines_of(record, record.seen().observed, query)
        seen = self._remember(reading.seen(found), begin=True)
        record = self.records.get(ref.run_id)
        if record and seen.state.final and self._keep(record, found):
            return self._lines_of(record, seen.observed, query)
        return self._live(ref, query, record)

    def _lines_of(self, record: Record, observed: Observed, query: LogQuery) -> Iterator[LogLine]:
        """The lines of the record; of whom there are none is told."""
        from arena.backends.kubernetes.tapes import read_kept, unkept

        for name in unkept(record, observed, query):
            self.notes.add(f"{name}: its log was not seen: the pod was deleted")
        return read_kept(record, observed, query)

    def _live(self, ref: Ref, query: LogQuery, record: Record | None) -> Iterator[LogLine]:
        """The lines from the cluster, kept on their way where all of them come."""
        from arena.backends.kubernetes.logs import read_logs
        from arena.backends.kubernetes.tapes import Tapes

        everything = (query.keep or query.replicas is None) and query.tail is None and query.since is None
        tapes = None
        if record and query.follow and everything and query.attempt is None:
            with self._writing():
                tapes = Tapes.take(record, self.settings.size("log.max"))
        try:
            yield from read_logs(self, ref, query, record, tapes)
        finally:
            if tapes:
                tapes.close()

    def save(self, ref: Ref) -> None:
        """Bring the record of a job up to date, its logs too; a job that is not there is left."""
        with contextlib.suppress(*ABSENT):
            found = self.whole(ref)
            self._remember(reading.seen(found), begin=True)
            if record := self.records.get(ref.run_id):
                self._keep(record, found)
                with self._writing():
                    _explain(record)

    def _keep(self, record: Record, found: Found) -> bool:
        """Whether the logs there are could all be kept."""
        try:
            return self._kept(record, found)
        except RefusedError as error:
            self._warn(f"{found.thing.metadata.name}: its logs are not kept: {error.what}")
        except (OSError, BackendError) as error:
            self._warn(unwritable(error, self.records.state))
        return False

    def _kept(self, record: Record, found: Found) -> bool:
        from arena.backends.kubernetes.logs import keep_all
        from arena.backends.kubernetes.tapes import Tapes

        tapes = Tapes.take(record, self.settings.size("log.max"))
        if tapes is None:
            return False
        try:
            keep_all(self, record, tapes, found)
        finally:
            tapes.close()
        return tapes.whole

    def has_code(self, ref: Ref) -> bool:
        """Whether the run's code was recorded."""
        return self.records.has_code(ref.run_id)

    # --- end -------------------------------------------------------------------------------------------------

    def stop(self, ref: Ref) -> Seen:
        """End the job and keep its object; its logs go with its pods, so they are kept before."""
        with self._last_words(ref):
            return super().stop(ref)

    def delete(self, ref: Ref, *, force: bool = False, wait: bool = True, timeout: float | None = None) -> Seen:
        """End the job and take it from the list; its record is brought up to date before, and stays."""
        try:
            with self._last_words(ref) if wait else contextlib.nullcontext():
                seen = super().delete(ref, force=force, wait=wait, timeout=timeout)
        except WaitTimeoutError:
            self._leaves(ref)
            raise
        self._leaves(ref, seen)
        return seen

    def _leaves(self, ref: Ref, seen: Seen | None = None) -> None:
        """Note that a job was deleted, as it was then, or as its record has it."""
        if record := self.records.get(ref.run_id):
            with self._writing():
                record.note(seen or reading.left(record.seen(), files.now()))
                record.leave(self.user)

    @contextlib.contextmanager
    def _last_words(self, ref: Ref) -> Iterator[None]:
        """What the job still writes is kept while it is ended."""
        self.save(ref)
        listener = threading.Thread(target=self._listen, args=(ref,), name="arena-last-words", daemon=True)
        listener.start()
        yield
        listener.join(ENDING)

    def _listen(self, ref: Ref) -> None:
        try:
            deque(self.logs(ref, LogQuery(follow=True, keep=True, replicas=frozenset())), maxlen=0)
        except ArenaError:  # whoever ends the job gets it too
            return
        except OSError as error:
            self._warn(unwritable(error, self.records.state))

    # --- what goes wrong -------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """What cannot be written is said once, and stops nothing."""
        try:
            yield
        except (OSError, BackendError, NotFoundError) as error:
            self._warn(unwritable(error, self.records.state))

    def _warn(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self.notes.add(line)


def _is_of(record: Record, kind: str) -> bool:
    """Whether the job of a record is of the kind that a word names; of any without a word."""
    return not kind or record.asked().engine == trainer(kind)


def _with(seen: Seen, before: Glance) -> Seen:
    """A job with what was seen of it before."""
    observed = joined(before.observed, seen.observed)
    state = status.decide(observed)
    known = {"cause": before.cause, "why": before.why} if before.cause and state.state.final and not seen.cause else {}
    lasted = reading.duration(observed)
    gone = (line for line in unlike_success(observed.word, observed.replicas) if line not in seen.warnings)
    warnings = (*seen.warnings, *gone)
    return structs.replace(seen, observed=observed, status=state, duration=lasted, warnings=warnings, **known)


def _explain(record: Record) -> None:
    """Find the cause of a job's end in what was seen and in the last lines that were kept, once."""
    from arena import why
    from arena.backends.kubernetes.tapes import read_kept

    seen = record.seen()
    if seen.cause or not seen.state.final:
        return
    tails, failure = {}, seen.first_failure
    if failure:
        query = LogQuery(tail=why.TAIL, replicas=frozenset({failure.name}), attempt=failure.attempt)
        tails = {failure.name: [line.text for line in read_kept(record, seen.observed, query)]}
    if found := why.explain(seen.observed, seen.state, tails, name=seen.name):
        record.explain(found.cause or "", why.one_line(found))


def _brings_code(plan: Plan) -> bool:
    job = plan.job
    return bool(job and travel.brings_code(job, plan.context) and not job.sync_mode)


def _since(seen: Seen) -> str:
    """`deleted 2 h ago`; or since when it is known to be gone."""
    assert seen.deleted
    age = format_age((files.now() - seen.deleted).total_seconds())
    return f"gone, {seen.status.message}" if seen.reason == "EndNotSeen" else f"deleted {age} ago"


def _base(records: Records, run_id: str) -> str:
    """The folder of a run's project that its submit stood in, relative to it."""
    asked = _plain(records.path / run_id / "run.json") or _plain(records.state / "runs" / run_id / "job.json")
    base = _plain(records.state / "runs" / run_id / "base.json")
    folder, project = str(base.get("folder") or asked.get("cwd") or ""), str(asked.get("code") or "")
    if not folder or not project:
        return ""
    relative = os.path.relpath(folder, project)
    return "" if relative.split(os.sep)[0] in (os.pardir, os.curdir) else relative


def _plain(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
