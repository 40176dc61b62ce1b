"""What commands print: JSON with upstream's keys and ours beside them, plain tables, and nothing that looks secret.

Data goes to the stream it is given, as text that every stream can take. Only small modules are imported here; YAML
when it is asked for.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TextIO, TypeVar

from arena import secrets
from arena.status import Replica, Seen, State

if TYPE_CHECKING:
    from arena.backends.base import Plan
    from arena.errors import ArenaError
    from arena.job import Job
    from arena.waits import Event
    from arena.why import Why

T = TypeVar("T")

SCHEMA = 1
NONE = "N/A"
FEW = 8  # replicas of a gang that `get` shows without -o wide

# Upstream's words for our states; it has none for a job that was stopped, and scripts that wait for an end know FAILED.
STATUS = {State.QUEUED: "QUEUING", State.SUSPENDED: "PENDING", State.CANCELLED: "FAILED"}
INSTANCE = {
    State.PENDING: "Pending",
    State.QUEUED: "Pending",
    State.SUSPENDED: "Suspended",
    State.RUNNING: "Running",
    State.SUCCEEDED: "Completed",
}
NO_NODE = ("Unschedulable", "SchedulingGated", "SchedulerError")
CHIEFS = ("chief", "master", "launcher", "driver", "worker")


# --- JSON ----------------------------------------------------------------------------------------------------


def job_json(seen: Seen, detail: bool = True) -> dict[str, Any]:
    """A job for `-o json`: upstream's keys with upstream's types in upstream's order, then ours.

    Without `detail`, as in lists, each job's `replicas` are left out.
    """
    return {**_upstream(seen), **_ours(seen), **({"replicas": _replicas(seen)} if detail else {})}


def why_json(seen: Seen, why: Why | None) -> dict[str, Any]:
    """The answer of `arena why -o json`; `cause` is null while all is well."""
    mask = _mask(seen)
    return {
        "schema": SCHEMA,
        "name": seen.name,
        "runId": seen.run_id,
        "state": seen.state.value,
        "reason": seen.reason,
        "exitCode": seen.exit_code,
        "firstFailure": _first_failure(seen),
        "cause": why.cause if why else None,
        "text": mask(why.text) if why else "",
        "evidence": [mask(line) for line in why.evidence] if why else [],
        "next": mask(why.next) if why else "",
        "warnings": [mask(line) for line in seen.warnings],
    }


def why_text(seen: Seen, why: Why | None) -> str:
    """The answer of `arena why`, each line in one line and without secrets; the state while all is well."""
    from arena import showing

    return "\n".join(cell(line) for line in map(_mask(seen), showing.why_text(seen, why).splitlines()))


def event_rows(events: Sequence[Event], now: datetime) -> list[tuple[str, str, str, str]]:
    """The events of a job as rows for `get`: source, type, age, message."""
    return [
        (
            f"{one.kind.lower()}/{one.name}",
            one.type,
            short_duration((now - one.at).total_seconds()) if one.at else "",
            f"[{one.reason}] {one.message}" + (f" (x{one.count})" if one.count > 1 else ""),
        )
        for one in events
    ]


def error_json(error: ArenaError) -> dict[str, Any]:
    """What stderr's last line holds when a command with -o json fails; `code` is the error's own, never 125."""
    said = {key: secrets.mask_text(getattr(error, key)) for key in ("what", "why", "hint")}
    code = getattr(error, "job_code", None) or error.exit_code
    return {"error": {"code": code, "kind": type(error).__name__, **said}}


def warnings_json(lines: Sequence[str]) -> dict[str, Any]:
    """What stderr's last line holds when a command with -o json went half right."""
    return {"warnings": [secrets.mask_text(line) for line in lines]}


def emit(value: Any, fmt: str, stream: TextIO | None = None) -> None:
    """Write jobs as json, yaml or name (jobs or their names, one a line).

    >>> emit([{"name": "mnist"}], "name")
    mnist
    """
    out = stream or sys.stdout
    utf8 = (out.encoding or "utf-8").lower().replace("-", "") == "utf8"
    write(render(value, fmt, ascii_only=not utf8), out)


def emit_objects(objects: Sequence[Mapping[str, Any]], fmt: str, stream: TextIO | None = None) -> None:
    """Write the objects of a dry run: one stream of YAML documents that kubectl apply takes, or a List as JSON.

    >>> emit_objects([{"kind": "Job"}], "yaml")
    kind: Job
    """
    if fmt == "name":
        emit([str(one.get("metadata", one)["name"]) for one in objects], "name", stream)
    elif fmt == "json":
        several = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        emit(objects[0] if len(objects) == 1 else several, "json", stream)
    else:
        from arena.engines.documents import dump_documents

        note = "# Applied by kubectl, these are not owned by the job: delete them with it.\n"
        write((note if len(objects) > 1 else "") + dump_documents(objects), stream)


def render(value: Any, fmt: str, *, ascii_only: bool = False) -> str:
    """The text of jobs as json (upstream's four blanks, and a newline at the end), yaml or names."""
    if fmt == "json":
        text = json.dumps(value, indent=4, ensure_ascii=ascii_only)
        return re.sub("[\ud800-\udfff]", lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"
    if fmt == "yaml":
        import yaml

        dumped: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=not ascii_only, width=1 << 20)
        return dumped
    jobs = [value] if isinstance(value, Mapping) else value
    return "".join(f"{job if isinstance(job, str) else job['name']}\n" for job in jobs)


def write(text: str, stream: TextIO | None = None) -> None:
    """Write text to a stream whatever its encoding is: what it cannot take is escaped."""
    out = stream or sys.stdout
    encoding = out.encoding or "utf-8"
    out.write(text.encode(encoding, "backslashreplace").decode(encoding))


def _upstream(seen: Seen) -> dict[str, Any]:
    first = chief(seen)
    requested, allocated = _gpus(seen)
    return {
        "uuid": seen.uid or seen.run_id,
        "name": seen.name,
        "namespace": seen.namespace,
        "duration": _seconds(seen.duration),
        "status": STATUS.get(seen.state, seen.state.value),
        "trainer": seen.trainer,
        "tensorboard": "",
        "chiefName": (first.pod or first.name) if first else "",
        "instances": [_instance(seen, replica, replica is first) for replica in seen.observed.replicas],
        "priority": _priority(seen),
        "requestGPUs": requested,
        "allocatedGPUs": allocated,
        "creationTimestamp": int(seen.observed.created.timestamp()),
        "modelName": "",
        "modelVersion": "",
        "modelSource": "",
    }


def _instance(seen: Seen, replica: Replica, chief: bool) -> dict[str, Any]:
    return {
        "ip": "",
        "status": _instance_status(replica),
        "name": replica.pod or replica.name,
        "age": _seconds(_age(seen, replica)),
        "node": _node(seen, replica),
        "nodeIP": NONE,
        "chief": chief,
        "requestGPUs": replica.gpus,
        "gpuMetrics": {},
        "creationTimestamp": int((replica.started or seen.observed.created).timestamp()),
    }


def _ours(seen: Seen) -> dict[str, Any]:
    mask = _mask(seen)
    created = utc(seen.observed.created)
    return {
        "schema": SCHEMA,
        "state": seen.state.value,
        "reason": seen.reason,
        "message": mask(seen.status.message),
        "since": utc(seen.status.since),
        "exitCode": seen.exit_code,
        "backend": seen.backend,
        "engine": seen.engine,
        "managedBy": seen.managed_by,
        "runId": seen.run_id,
        "uid": seen.uid or seen.run_id,
        "user": seen.user,
        "createdAt": created,
        "submittedAt": created,
        "startedAt": utc(seen.observed.started),
        "finishedAt": utc(seen.observed.finished),
        "gpuSeconds": round(seen.gpu_seconds, 3),
        "durationSeconds": round(max(0.0, seen.duration), 3),
        "attempt": seen.observed.attempt,
        "firstFailure": _first_failure(seen),
        "cause": seen.cause,
        "why": mask(seen.why),
        "warnings": [mask(line) for line in seen.warnings],
        "command": _command(seen),
        "labels": secrets.mask(seen.job.label) if seen.job else {},
        "host": seen.host,
        "deletedAt": utc(seen.deleted),
        "parent": seen.parent,
        "error": None,
    }


def _replicas(seen: Seen) -> list[dict[str, Any]]:
    return [_replica(replica) for replica in seen.observed.replicas]


def _replica(replica: Replica) -> dict[str, Any]:
    return {
        "name": replica.name,
        "role": replica.role,
        "index": replica.index,
        "rank": replica.rank,
        "attempt": replica.attempt,
        "state": replica.state.value,
        "exitCode": replica.exit_code,
        "reason": replica.reason,
        "startedAt": utc(replica.started),
        "endedAt": utc(replica.ended),
        "endedByUs": replica.ended_by_us,
        "gpus": replica.gpus,
        "nproc": replica.nproc,
        "memoryLimit": replica.memory_limit,
        "memoryPeak": replica.memory_peak,
    }


def _first_failure(seen: Seen) -> dict[str, Any] | None:
    first = seen.first_failure
    if first is None:
        return None
    return {
        "replica": first.name,
        "rank": first.rank,
        "attempt": first.attempt,
        "exitCode": first.exit_code,
        "time": utc(first.ended),
    }


# --- tables --------------------------------------------------------------------------------------------------


class Column(NamedTuple, Generic[T]):
    """One column: its heading, what stands in it, whether only -o wide shows it, and whether it is a state's word."""

    title: str
    value: Callable[[T], object]
    wide: bool = False
    is_state: bool = False


def table(
    rows: Iterable[T],
    columns: Sequence[Column[T]],
    wide: bool = False,
    *,
    indent: str = "",
    rule: bool = False,
    color: bool = False,
) -> str:
    """Columns side by side with two spaces between, as wide as their characters; `rule` underlines the headings.

    >>> print(table(["mnist"], [Column("NAME", str), Column("LENGTH", len)]), end="")
    NAME   LENGTH
    mnist  5
    """
    shown = [column for column in columns if wide or not column.wide]
    lines = [[column.title for column in shown]]
    lines += [["-" * len(column.title) for column in shown]] if rule else []
    first = len(lines)
    lines += [[cell(column.value(row)) for column in shown] for row in rows]
    widths = [max(map(_width, texts)) for texts in zip(*lines, strict=True)]
    padded = [[text + " " * (size - _width(text)) for text, size in zip(line, widths, strict=True)] for line in lines]
    if color:
        _paint_states(padded[first:], [number for number, column in enumerate(shown) if column.is_state])
    return "".join(f"{indent}{'  '.join(line)}".rstrip() + "\n" for line in padded)


def list_table(seens: Iterable[Seen], wide: bool = False, *, namespaces: bool = False, color: bool = False) -> str:
    """`arena list`: upstream's columns in upstream's order, ours behind them; the heading alone for nothing."""
    first = [Column[Seen]("NAMESPACE", lambda seen: seen.namespace or NONE)] if namespaces else []
    return table(seens, [*first, *LIST], wide, color=color)


def history_table(seens: Iterable[Seen], wide: bool = False, *, color: bool = False) -> str:
    """`arena history`: newest first; runs whose end nobody saw are marked."""
    newest = sorted(seens, key=lambda seen: seen.observed.created, reverse=True)
    return table(newest, HISTORY, wide, color=color)


def get_text(
    seen: Seen,
    now: datetime,
    *,
    events: Sequence[Sequence[str]] = (),
    wide: bool = False,
    color: bool = False,
) -> str:
    """`arena get`: upstream's header, ours behind it, the replicas, and events as (source, type, age, message)."""
    parts = [_header(seen, now, color), "Instances:\n" + _instances(seen, wide, color)]
    if events:
        columns = [Column(title, _at(number)) for number, title in enumerate(("SOURCE", "TYPE", "AGE", "MESSAGE"))]
        parts.append("Events:\n" + table(events, columns, indent="  ", rule=True))
    return "\n".join(parts)


def _cause(seen: Seen) -> str:
    unseen = seen.reason in ("Lost", "EndNotSeen") or (seen.deleted is not None and not seen.state.final)
    return " ".join(part for part in (seen.cause or "", "(end not seen)" if unseen else "") if part) or "-"


LIST: tuple[Column[Seen], ...] = (
    Column("NAME", lambda seen: seen.name),
    Column("STATUS", lambda seen: seen.state.value, is_state=True),
    Column("TRAINER", lambda seen: seen.trainer.upper()),
    Column("DURATION", lambda seen: short_duration(seen.duration)),
    Column("GPU(Requested)", lambda seen: _gpus(seen)[0]),
    Column("GPU(Allocated)", lambda seen: _gpus(seen)[1] if seen.state in (State.PENDING, State.RUNNING) else NONE),
    Column("NODE", lambda seen: _node(seen, chief(seen))),
    Column("RUN", lambda seen: seen.run_id, wide=True),
    Column("REASON", lambda seen: seen.reason or "-", wide=True),
    Column("USER", lambda seen: seen.user or "-", wide=True),
    Column("CREATED", lambda seen: local_time(seen.observed.created), wide=True),
    Column("MANAGED BY", lambda seen: seen.managed_by or "-", wide=True),
)

HISTORY: tuple[Column[Seen], ...] = (
    Column("RUN", lambda seen: seen.run_id),
    Column("NAME", lambda seen: seen.name),
    Column("STATE", lambda seen: seen.state.value, is_state=True),
    Column("CODE", lambda seen: "-" if seen.exit_code is None else seen.exit_code),
    Column("DURATION", lambda seen: short_duration(seen.duration)),
    Column("SUBMITTED", lambda seen: local_time(seen.observed.created)),
    Column("CAUSE", _cause),
    Column("WHERE", lambda seen: f"{seen.backend}/{seen.namespace or seen.host}".rstrip("/")),
    Column("USER", lambda seen: seen.user or "-", wide=True),
    Column("COMMAND", lambda seen: shlex.join(_command(seen)), wide=True),
)


def _header(seen: Seen, now: datetime, color: bool) -> str:
    mask = _mask(seen)
    lines = [*_header_of_upstream(seen), *((label, text) for label, text in _header_of_ours(seen, now) if text)]
    size = max(len(label) for label, _ in lines) + 3
    shown = [(label, cell(mask(text))) for label, text in lines]
    if color:
        shown = [(label, paint(text) if label == "Status" else text) for label, text in shown]
    return "".join(f"{f'{label}:':<{size}}{text}".rstrip() + "\n" for label, text in shown)


def _header_of_upstream(seen: Seen) -> Iterable[tuple[str, str]]:
    yield "Name", seen.name
    yield "Status", seen.state.value
    yield "Namespace", seen.namespace or NONE
    yield "Priority", _priority(seen)
    yield "Trainer", seen.trainer.upper()
    yield "Duration", short_duration(seen.duration)
    yield "CreateTime", local_time(seen.observed.created)
    yield "EndTime", local_time(seen.observed.finished)


def _header_of_ours(seen: Seen, now: datetime) -> Iterable[tuple[str, str]]:
    yield "Reason", ": ".join(part for part in (seen.reason, seen.status.message) if part)
    yield "Why", seen.why
    yield from (("Warning", line) for line in seen.warnings)
    yield "Since", _with_age(seen.status.since, now)
    yield "Deleted", _with_age(seen.deleted, now)
    yield "Run", f"{seen.run_id} ({seen.backend}{f' on {seen.host}' if seen.host else ''})"
    yield "Command", shlex.join(_command(seen))
    yield "Results", seen.cwd if seen.backend == "local" else _kept(seen)


def _kept(seen: Seen) -> str:
    """Where a cluster's job keeps its results."""
    return f"{seen.job.output} (claim:/folder)" if seen.job and seen.job.output else ""


def _instances(seen: Seen, wide: bool, color: bool) -> str:
    replicas = seen.observed.replicas
    shown = replicas if wide else _few(seen)
    left = len(replicas) - len(shown)
    first = chief(seen)
    columns: list[Column[Replica]] = [
        Column("NAME", lambda replica: replica.name),
        Column("STATUS", _instance_status),
        Column("AGE", lambda replica: short_duration(_age(seen, replica))),
        Column("IS_CHIEF", lambda replica: str(replica is first).lower()),
        Column("GPU(Requested)", lambda replica: replica.gpus),
        Column("NODE", lambda replica: _node(seen, replica)),
        Column("RANK", _ranks),
        Column("CODE", lambda replica: "-" if replica.exit_code is None else replica.exit_code),
    ]
    more = f"  {left} more: -o wide\n" if left else ""
    return table(shown, columns, indent="  ", rule=True, color=color) + more


def _few(seen: Seen) -> list[Replica]:
    """The first replicas of a gang, and those that failed: the first one by name, and as many again."""
    replicas = seen.observed.replicas
    first = seen.first_failure
    failing = [replica for replica in replicas if replica.failed or replica.lost]
    names = {replica.name for replica in (*replicas[:FEW], *failing[:FEW])} | ({first.name} if first else set())
    return [replica for replica in replicas if replica.name in names]


def _ranks(replica: Replica) -> str:
    if replica.rank is None:
        return "-"
    last = replica.rank + replica.nproc - 1
    return str(replica.rank) if last == replica.rank else f"{replica.rank}-{last}"


def _at(number: int) -> Callable[[Sequence[str]], str]:
    return lambda row: secrets.mask_text(row[number])


# --- lines ---------------------------------------------------------------------------------------------------


def plan_line(plan: Plan) -> str:
    """What was chosen and by which rule, in one line for stderr.

    `local (no kubeconfig): 2 workers, python /v/bin/python, in ~/p`
    """
    from arena.job import is_python_file

    context = plan.context
    gang = [_gang(plan.job, plan.backend)] if plan.job else []
    parts = [*plan.facts[:1], *gang, *plan.facts[1:]]
    if plan.backend == "local":
        parts += [f"python {context.python or 'python'}"] if is_python_file(plan.made_of.command) else []
        parts += [f"in {_below_home(context.cwd, context.environ.get('HOME', ''))}"] if context.cwd else []
    rule = f" ({context.rule})" if context.rule else ""
    return cell(f"{plan.backend}{rule}: {', '.join(parts)}")


def log_prefix(names: Sequence[str], *, color: bool = False) -> dict[str, str]:
    """`worker-0 | ` for each name, all of one width.

    >>> log_prefix(["ps-0", "worker-10"])
    {'ps-0': 'ps-0      | ', 'worker-10': 'worker-10 | '}
    """
    size = max(map(len, names), default=0)
    plain = {name: f"{name:<{size}} | " for name in names}
    if not color:
        return plain
    return {name: f"\x1b[{31 + number % 6}m{text}\x1b[0m" for number, (name, text) in enumerate(plain.items())}


def use_color(stream: TextIO, environ: Mapping[str, str] | None = None) -> bool:
    """Whether the stream is a terminal whose owner did not ask for none (NO_COLOR, TERM=dumb)."""
    env = os.environ if environ is None else environ
    return stream.isatty() and not env.get("NO_COLOR") and env.get("TERM") != "dumb"


def paint(word: str) -> str:
    """A state's word in its colour, padding left as it is."""
    code = COLORS.get(word.strip())
    return f"\x1b[{code}m{word}\x1b[0m" if code else word


COLORS = {"RUNNING": 36, "SUCCEEDED": 32, "FAILED": 31, "CANCELLED": 35, "PENDING": 33, "QUEUED": 33, "SUSPENDED": 33}


def short_duration(seconds: float) -> str:
    """One unit, rounded down, as upstream: `12s`, `5m`, `3h`, `2d`, `1y`.

    >>> short_duration(119), short_duration(-5)
    ('1m', '0s')
    """
    for size, unit in ((365 * 86400, "y"), (86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"


def local_time(moment: datetime | None) -> str:
    """A time for people: this machine's zone, and its name; nothing for None."""
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S %Z}".rstrip() if moment else ""


def utc(moment: datetime | None) -> str | None:
    """A time for programs: UTC to the millisecond, so that times compare as text."""
    if moment is None:
        return None
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def cell(value: object) -> str:
    """A value in one line that does nothing to a terminal: control characters and lone surrogates are escaped.

    >>> cell("a\\nb")
    'a\\\\nb'
    """
    text = str(value)
    return text if text.isprintable() else _UNSAFE.sub(lambda match: ascii(match[0])[1:-1], text)


_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def _with_age(moment: datetime | None, now: datetime) -> str:
    return f"{local_time(moment)} ({short_duration((now - moment).total_seconds())} ago)" if moment else ""


def _gang(job: Job, backend: str) -> str:
    """`2 workers`, `1 master, 3 workers, 1 GPU each`; on a cluster with the hosts of the ranks."""
    from msgspec.structs import replace

    roles = [role for role in job.roles() if role.count]
    if backend == "kubernetes" and (hosts := job.hosts()):
        roles = [*(replace(role, gpus=0) for role in roles), hosts]
    parts = [f"{role.count} {role.name}{'s' * (role.count > 1 and role.name != 'ps')}" for role in roles]
    processes = max((role.nproc for role in roles), default=1)
    parts += [f"{processes} processes each"] if processes > 1 else []
    gpus = max((role.gpus for role in roles), default=0)
    parts += [f"{gpus} GPU{'s' * (gpus > 1)} each"] if gpus else []
    return ", ".join(parts)


def _below_home(folder: str, home: str) -> str:
    home = home.rstrip("/")
    if home and (folder == home or folder.startswith(f"{home}/")):
        return f"~{folder[len(home) :]}"
    return folder


def _paint_states(lines: list[list[str]], columns: list[int]) -> None:
    for line in lines:
        for number in columns:
            line[number] = paint(line[number])


def _width(text: str) -> int:
    """Columns of a terminal: wide characters count twice, those that join the one before not at all."""
    if text.isascii():
        return len(text)
    import unicodedata

    joined = sum(unicodedata.combining(char) != 0 or unicodedata.category(char) == "Cf" for char in text)
    return len(text) + sum(unicodedata.east_asian_width(char) in "WF" for char in text) - joined


# --- what stands in them -------------------------------------------------------------------------------------


def _mask(seen: Seen) -> Callable[[str], str]:
    """Text of this job without its secret values."""
    hidden = list(secrets.split(seen.job.env)[1].values()) if seen.job else []
    return lambda text: secrets.mask_text(text, hidden)


def _command(seen: Seen) -> list[str]:
    """The words of the program, shell lines included, without what looks secret."""
    mask, words = _mask(seen), list(seen.job.command) if seen.job else []
    shown = zip(["", *words], words, secrets.mask_words(words), strict=False)
    return [mask(_shell_line(word if _is_line(before, words) else masked)) for before, word, masked in shown]


def _is_line(before: str, words: list[str]) -> bool:
    """Whether a word is a shell line: the only one, or what `sh -c` takes."""
    return len(words) == 1 or re.fullmatch(r"-\w*c", before) is not None


def _shell_line(line: str) -> str:
    """A shell line without the values of `TOKEN=…` and `--password …`."""
    named = re.sub(r"""(?<![\w.-])([\w.-]+)=("[^"]*"|'[^']*'|[^\s;&|]+)""", _assignment, line)
    words, blanks = re.split(r"\s+", named), [*re.findall(r"\s+", named), ""]
    return "".join(map("".join, zip(secrets.mask_words(words), blanks, strict=True)))


def _assignment(match: re.Match[str]) -> str:
    hidden = secrets.looks_secret(match[1], match[2].strip("\"'"))
    return f"{match[1]}={secrets.MASK}" if hidden else match[0]


def chief(seen: Seen) -> Replica | None:
    """The replica that upstream calls chief: the first one of the leading role."""
    first = {replica.role: replica for replica in reversed(seen.observed.replicas)}
    return next((first[role] for role in CHIEFS if role in first), next(iter(seen.observed.replicas), None))


def _gpus(seen: Seen) -> tuple[int, int]:
    """How many are asked for, and held now."""
    replicas = seen.observed.replicas
    held = [] if seen.state.final else [replica for replica in replicas if replica.started and not replica.ended]
    asked = sum(replica.gpus for replica in replicas)
    if not replicas and seen.job:
        asked = sum(role.count * role.gpus for role in seen.job.roles())
    return asked, sum(replica.gpus for replica in held)


def _priority(seen: Seen) -> str:
    return (seen.job.priority if seen.job else "") or NONE


def _instance_status(replica: Replica) -> str:
    """As kubectl has it: what the container of a pod waits for, that it leaves, how it ended."""
    said = replica.reason if replica.pod and replica.reason not in NO_NODE else ""
    waits = said if replica.state is State.PENDING else "Terminating" if said and replica.state is State.RUNNING else ""
    return waits or INSTANCE.get(replica.state) or replica.reason or "Error"


def _node(seen: Seen, replica: Replica | None) -> str:
    """Where it runs; a replica that was not started is nowhere, but on one machine there is only one place."""
    return (replica.node if replica else "") or seen.host or NONE


def _age(seen: Seen, replica: Replica) -> float:
    """How long a replica has run: by its own times, and while it runs by the job's clock."""
    if replica.started is None:
        return 0.0
    if replica.ended:
        return (replica.ended - replica.started).total_seconds()
    return seen.duration - (replica.started - (seen.observed.started or replica.started)).total_seconds()


def _seconds(seconds: float) -> str:
    return f"{max(0, int(seconds))}s"
