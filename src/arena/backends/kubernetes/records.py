"""The record of cluster jobs: one folder of plain files per run, in the state folder that local runs have too.

<state>/cluster/ID/run.json       what was asked, by whom, from where; written once
                   seen.json      how the job was when it was seen last; `final` once that was its end
                   deleted.json   since when it is gone, and who said so
                   code.json      which files its code is made of; their contents are in <state>/blobs
                   starts.json    which log is whose
                   logs/ATTEMPT/  ROLE-I.K.log, and ROLE-I.end when nothing is missing

Nothing in the cluster writes it: it knows what somebody's command has seen.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, field, structs

from arena import files, jobs, keeping, secrets, status
from arena.backends.base import Context, Plan, Ref
from arena.errors import ArenaError, NotFoundError
from arena.job import Job
from arena.settings import Settings
from arena.status import TAKEN_AWAY, Observed, Replica, Seen, State

FINAL = "final"


class Asked(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """`run.json`. Values of secret variables are not in it."""

    run_id: str
    name: str
    namespace: str = ""
    context: str = ""
    server: str = ""
    uid: str = ""
    engine: str = ""
    trainer: str = ""
    type: str = ""
    job: dict[str, Any] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    typed: tuple[str, ...] = ()
    cwd: str = ""
    code: str = ""
    user: str = ""
    mine: bool = True
    parent: str = ""
    managed_by: str = ""
    created: datetime
    patch: dict[str, Any] = field(default_factory=dict)
    sets: tuple[tuple[str, Any], ...] = ()
    version: int = 1


class Glance(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """`seen.json`: the job as it was, with what follows from it, for those who read the file."""

    at: datetime
    observed: Observed
    state: str = ""
    exit_code: int | None = None
    first_failure: str = ""
    gpu_seconds: float = 0.0
    duration: float = 0.0
    cause: str | None = None
    why: str = ""
    warnings: tuple[str, ...] = ()


class Gone(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`deleted.json`: by whom is empty where nobody saw how it went."""

    at: datetime
    by: str = ""


class Place(Struct, frozen=True):
    """Where a command looks: a cluster as a context names it, and a namespace."""

    context: str = ""
    server: str = ""
    namespace: str = ""


class Record:
    """What is remembered of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def run_id(self) -> str:
        """Whose record it is."""
        return self.path.name

    @property
    def logs(self) -> Path:
        """Where the logs are."""
        return self.path / "logs"

    def asked(self) -> Asked:
        """What was asked."""
        return files.read(self.path / "run.json", Asked)

    def glance(self) -> Glance | None:
        """How the job was when it was seen last."""
        return files.read_if(self.path / "seen.json", Glance)

    def gone(self) -> Gone | None:
        """Since when it is gone."""
        return files.read_if(self.path / "deleted.json", Gone)

    @property
    def final(self) -> bool:
        """Whether its end was seen."""
        return os.path.exists(self.path / FINAL)

    def note(self, seen: Seen) -> None:
        """Remember how the job is now, where that is new; an end that was seen stays an end."""
        before = self.glance()
        if before and _signature(before.observed) == _signature(seen.observed):
            return
        if self.final and not seen.state.final:
            return
        now = glance_of(seen)
        if before and before.cause and not now.cause:
            now = structs.replace(now, cause=before.cause, why=before.why)
        files.write(self.path / "seen.json", now)
        if seen.state.final:
            files.write_text(self.path / FINAL, "")

    def explain(self, cause: str, why: str) -> None:
        """Remember why the job ended as it did."""
        if glance := self.glance():
            files.write(self.path / "seen.json", structs.replace(glance, cause=cause, why=why))

    def leave(self, by: str) -> None:
        """Remember that the job is gone."""
        if self.gone() is None:
            files.write(self.path / "deleted.json", Gone(at=files.now(), by=by))

    def seen(self) -> Seen:
        """The job as the record has it."""
        asked, glance, gone = self.asked(), self.glance(), self.gone()
        observed = glance.observed if glance else Observed(created=asked.created)
        observed = _at_the_end(observed, glance, gone)
        return Seen(
            name=asked.name,
            run_id=asked.run_id,
            uid=asked.uid,
            status=status.decide(observed),
            observed=observed,
            backend="kubernetes",
            namespace=asked.namespace,
            trainer=asked.trainer,
            engine=asked.engine,
            job=_job_of(asked),
            patch=asked.patch,
            sets=asked.sets,
            user=asked.user,
            duration=glance.duration if glance else 0.0,
            cause=glance.cause if glance else None,
            why=glance.why if glance else "",
            warnings=glance.warnings if glance else (),
            deleted=gone.at if gone else None,
            parent=asked.parent,
            typed=asked.typed,
            cwd=asked.cwd,
            managed_by=asked.managed_by,
        )

    def ref(self) -> Ref:
        """The reference of this very run."""
        asked = self.asked()
        return Ref(name=asked.name, run_id=asked.run_id, namespace=asked.namespace, kind=asked.engine, uid=asked.uid)

    def is_at(self, place: Place) -> bool:
        """Whether the run was made where this command looks."""
        asked = self.asked()
        return (asked.server, asked.namespace) == (place.server, place.namespace)

    def ended(self) -> float:
        """When it ended, or was seen last, in seconds since 1970."""
        gone, glance = self.gone(), self.glance()
        return (gone.at if gone else glance.at if glance else self.asked().created).timestamp()

    def where(self) -> str:
        """The flags that lead to the run: `--context first -n team-a`."""
        asked = self.asked()
        return f"--context {asked.context} -n {asked.namespace}" if asked.context else f"-n {asked.namespace}"


class Records:
    """The records of cluster runs in one state folder."""

    def __init__(self, settings: Settings, env: Mapping[str, str]) -> None:
        self.settings = settings
        self.state, self.notice = files.choose(settings.text("state_dir") or "", dict(env))
        if self.notice:
            files.private(self.state)
        self.path = self.state / "cluster"

    def get(self, run_id: str) -> Record | None:
        """The record of this run, if there is one."""
        if not run_id or "/" in run_id or run_id.startswith("."):
            return None
        record = Record(self.path / run_id)
        return record if (record.path / "run.json").exists() else None

    def all(self, name: str = "") -> list[Record]:
        """The records, of one name where asked, the newest first; what cannot be read is left out."""
        found = []
        for record in self._there():
            with contextlib.suppress(ArenaError):
                asked = record.asked()
                if not name or asked.name == name:
                    found.append((asked.created, record))
        return [record for _, record in sorted(found, key=lambda pair: pair[0], reverse=True)]

    def _there(self) -> Iterator[Record]:
        with contextlib.suppress(FileNotFoundError):
            yield from (Record(self.path / name) for name in os.listdir(self.path) if not name.startswith("."))

    def unfinished(self) -> frozenset[str]:
        """The runs whose end was not seen."""
        return frozenset(record.run_id for record in self._there() if not record.final)

    def open(self, asked: Asked) -> Record:
        """The record of a job, made where there is none; OSError where the folder cannot be written."""
        record = Record(self.path / asked.run_id)
        if not (record.path / "run.json").exists():
            for folder in (self.state, record.path.parent, record.path):  # parents made in passing would be open to all
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            files.write(record.path / "run.json", asked)
        return record

    def tidy(self) -> None:
        """Remove records that are too old, and logs that are too many, the oldest first; at most once an hour."""
        with contextlib.suppress(OSError, ArenaError):
            lock = keeping.due(self.path / ".kept")
            if lock is None:
                return
            try:
                self._tidy(self.settings.seconds("history.max_age"), self.settings.size("history.max_size"))
            finally:
                os.close(lock)

    def _tidy(self, max_age: float, max_size: int) -> None:
        oldest, size = files.now().timestamp() - max_age, keeping.size(self.state)
        for record in reversed(self.all()):
            if record.ended() < oldest:
                shutil.rmtree(record.path, ignore_errors=True)
            elif size > max_size and (record.final or record.gone()):
                logs = list(record.logs.glob("*/*.log"))
                size -= sum(path.stat().st_size for path in logs)
                keeping.remove_logs(logs)
        keeping.collect(self.state)

    # --- code ------------------------------------------------------------------------------------------------

    @property
    def store(self) -> Path:
        """Where the contents of recorded code are."""
        return self.state / "blobs"

    def keep_code(self, run_id: str, context: Context) -> None:
        """Record the code that a run was made with; of a rerun that of its parent."""
        from arena import code

        record = self.get(run_id)
        if record is None or not (context.again or context.code):
            return
        if context.again:
            captured = self.capture_of(context.again)[0]
        else:
            captured = code.capture(Path(context.code), self.store, self.settings.size("record.code_max"))
        files.write(record.path / "code.json", captured.to_json())

    def capture_of(self, run_id: str) -> tuple[Any, Path]:
        """The recorded code of a run of either backend, and where its contents are."""
        from arena import code

        for folder in (self.path / run_id, self.state / "runs" / run_id):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                found = code.Capture.from_json(json.loads((folder / "code.json").read_bytes()))
                if not found.stored:
                    raise NotFoundError(f"the code of run {run_id} was not kept", why=found.reason, hint="--code here")
                return found, self.store
        raise NotFoundError(f"the code of run {run_id} was not recorded", hint="--code here takes what is here now")

    def has_code(self, run_id: str) -> bool:
        """Whether the run's code was recorded."""
        return any((folder / run_id / "code.json").exists() for folder in (self.path, self.state / "runs"))


def planned(place: Place, plan: Plan, ref: Ref, user: str) -> Asked:
    """What is written down of a job that was submitted just now."""
    context = plan.context
    return Asked(
        **_of_job(plan.job),
        run_id=ref.run_id,
        name=ref.name,
        namespace=ref.namespace,
        context=place.context,
        server=place.server,
        uid=ref.uid,
        engine=ref.kind,
        trainer=ref.kind,
        typed=tuple(secrets.mask_words(context.typed)),
        cwd=context.cwd,
        code=context.code,
        user=user,
        parent=context.parent,
        managed_by="arena" if plan.job else "",
        created=files.now(),
        patch=secrets.mask_object(context.patch),
        sets=secrets.mask_sets(context.sets),
    )


def found(place: Place, seen: Seen, *, mine: bool) -> Asked:
    """What is written down of a job that others made, or another machine."""
    return Asked(
        **_of_job(seen.job),
        run_id=seen.run_id,
        name=seen.name,
        namespace=seen.namespace or place.namespace,
        context=place.context,
        server=place.server,
        uid=seen.uid,
        engine=seen.engine,
        trainer=seen.trainer,
        typed=seen.typed,
        user=seen.user,
        mine=mine,
        parent=seen.parent,
        managed_by=seen.managed_by,
        created=seen.observed.created,
        patch=dict(seen.patch),
        sets=seen.sets,
    )


def _of_job(job: Job | None) -> dict[str, Any]:
    """A job as a record has it: without the values that look secret."""
    if job is None:
        return {}
    plain, secret = secrets.split(job.env)
    values = msgspec.to_builtins(structs.replace(job, env=plain))
    return {"type": jobs.place(type(job)), "job": values, "secrets": tuple(secret)}


def glance_of(seen: Seen) -> Glance:
    """What is written down of a job as it was seen."""
    failure = seen.first_failure
    return Glance(
        at=files.now(),
        observed=seen.observed,
        state=seen.state.value,
        exit_code=seen.exit_code,
        first_failure=failure.name if failure else "",
        gpu_seconds=seen.gpu_seconds,
        duration=seen.duration,
        cause=seen.cause,
        why=seen.why,
        warnings=seen.warnings,
    )


def _job_of(asked: Asked) -> Job | None:
    """The job of a run; None where its type is not installed here, or nobody knew it."""
    if not asked.type:
        return None
    try:
        found: Job = msgspec.convert(asked.job, jobs.load_class(asked.type), strict=False)
    except (ImportError, AttributeError, msgspec.ValidationError):
        return None
    masked = dict.fromkeys(asked.secrets, secrets.MASK)
    return structs.replace(found, env={**found.env, **masked}) if masked else found


def _signature(observed: Observed) -> object:
    """What changes when a job changes."""
    starts = (*observed.earlier, *observed.replicas)
    return (
        (observed.word, observed.reason, observed.message, observed.attempt, observed.finished),
        [(r.name, r.attempt, r.state, r.exit_code, r.reason, r.started, r.ended, r.node) for r in starts],
    )


def _at_the_end(observed: Observed, glance: Glance | None, gone: Gone | None) -> Observed:
    """A job that is gone and whose end nobody saw: cancelled where somebody deleted it, else marked."""
    if gone is None:
        return observed
    if status.decide(observed).state.final:
        replicas = tuple(_left(one, observed.finished or gone.at) for one in observed.replicas)
        return structs.replace(observed, replicas=replicas)
    if gone.by:
        return structs.replace(observed, word="Deleted", reason="Deleted", finished=gone.at)
    word = status.decide(observed).state.name
    last = f", last {word} {glance.at.astimezone():%H:%M}" if glance else ""
    return structs.replace(
        observed, word="Deleted", reason="EndNotSeen", message=f"end not seen{last}", finished=gone.at
    )


# --- over all that was seen --------------------------------------------------------------------------------------


def joined(before: Observed, now: Observed) -> Observed:
    """A job as it is, with what earlier looks saw of replicas whose pods are gone or were replaced meanwhile."""
    known, final = _starts(before), status.decide(now).state.final
    last = {one.name: _left(one, now.finished) if final else one for one in before.replicas}
    replicas = [_numbered(_last_known(one, last.get(one.name, one), final), known) for one in now.replicas]
    there = {replica.name for replica in replicas}
    left = [one for name, one in last.items() if name not in there]
    replicas = sorted([*replicas, *left], key=_seat) if left else replicas
    current = {_key(one) for one in replicas}
    earlier = {_key(one): one for one in (*before.earlier, *before.replicas) if one.ended}
    earlier |= {_key(one): one for one in [_numbered(one, known) for one in now.earlier]}
    return structs.replace(
        now,
        replicas=tuple(replicas),
        earlier=tuple(one for key, one in earlier.items() if key not in current),
        attempt=max([now.attempt, *(one.attempt for one in replicas)]),
        started=before.started or now.started,
    )


def _last_known(now: Replica, before: Replica, final: bool) -> Replica:
    """A replica that never started as it was seen last: at the end, and while no pod follows one that could not start.

    Operators delete pods whose init container failed at once, some before they say that the job has. What the node has
    lost of a pod that is there is known from before: when it started.
    """
    if now.lost and now.pod:
        return structs.replace(now, started=before.started) if before.pod == now.pod and not now.started else now
    gone = not now.pod and before.reason == "InitContainerFailed"
    return before if not now.started and (final or gone) else now


class _Start(NamedTuple):
    """What tells a replica's starts apart: stamps are whole seconds, and a pod can start it twice in one."""

    replica: str
    at: datetime
    pod: str
    restarts: int


def _starts(observed: Observed) -> dict[_Start, int]:
    """The attempts that are known, by start."""
    seen = (*observed.earlier, *observed.replicas)
    return {start: one.attempt for one in seen if (start := _start(one))}


def _start(one: Replica) -> _Start | None:
    return _Start(one.name, one.started, one.pod, one.restarts) if one.started else None


def _numbered(replica: Replica, known: Mapping[_Start, int]) -> Replica:
    """The replica with an attempt that no earlier start of it has."""
    start = _start(replica)
    if start is None:
        return replica
    before = [attempt for one, attempt in known.items() if _is_before(one, start)]
    attempt = known.get(start) or max(replica.attempt, max(before, default=0) + 1)
    return replica if attempt == replica.attempt else structs.replace(replica, attempt=attempt)


def _is_before(one: _Start, other: _Start) -> bool:
    """Whether a start came before another of its replica."""
    if one.replica != other.replica or one.at > other.at:
        return False
    return one.at < other.at or one.pod != other.pod or one.restarts < other.restarts


def _left(replica: Replica, finished: datetime | None) -> Replica:
    """A replica whose pod went with the end of its job: that ended it."""
    if replica.ended or not replica.started:
        return replica
    ended, reason = finished or files.now(), replica.reason if replica.reason in TAKEN_AWAY else "Deleted"
    return structs.replace(replica, state=State.CANCELLED, reason=reason, ended=ended, ended_by_us=True)


def _key(replica: Replica) -> tuple[str, int]:
    return replica.name, replica.attempt


def _seat(replica: Replica) -> tuple[bool, int, str, int]:
    return replica.rank is None, replica.rank or 0, replica.role, replica.index


def unwritable(error: OSError | ArenaError, state: Path) -> str:
    """What is said, once, where no record can be kept."""
    words = error.strerror if isinstance(error, OSError) else error.what
    return f"no record is kept in {state}: {words}"
