"""The verbs every backend has, and the values they speak in."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct, field

from arena.errors import ForbiddenError, WaitTimeoutError
from arena.job import Job
from arena.settings import Settings
from arena.status import Seen

if TYPE_CHECKING:
    from arena.waits import Facts


class Ref(Struct, frozen=True, kw_only=True):
    """One run of one job, found."""

    name: str
    run_id: str
    namespace: str = ""
    kind: str = ""
    uid: str = ""

    @classmethod
    def of(cls, seen: Seen) -> Ref:
        """The run of a job that was seen."""
        return cls(name=seen.name, run_id=seen.run_id, namespace=seen.namespace, kind=seen.engine, uid=seen.uid)


class Context(Struct, frozen=True, kw_only=True):
    """Who submits, from where, with which words: what a run remembers beside its job.

    `code` is the folder whose code is remembered; `again` the run whose recorded code is taken instead. `creates` is
    run or type, `dry` the word of a dry run: client, server or nothing. `patch` and `sets` (paths and values) change
    the rendered object; `fetch` are paths that are fetched at the end; `served` names the kinds that are served where
    nobody is asked.
    """

    typed: tuple[str, ...] = ()
    cwd: str = ""
    parent: str = ""
    code: str = ""
    again: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    python: str = ""
    rule: str = ""
    creates: str = "run"
    dry: str = ""
    patch: Mapping[str, Any] = field(default_factory=dict)
    sets: tuple[tuple[str, Any], ...] = ()
    fetch: tuple[str, ...] = ()
    served: Mapping[str, Any] = field(default_factory=dict)


class Plan(Struct, frozen=True, kw_only=True):
    """What a submit would do. `facts` say what was chosen, `notes` what has no effect, is left behind or lost.

    `job` is None for an operator's own object; `steps` is what a dry run prints, `data` the backend's own.
    """

    backend: str
    job: Job | None = None
    name: str
    run_id: str
    context: Context
    facts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    steps: tuple[Mapping[str, Any], ...] = ()
    data: Any = None

    @property
    def made_of(self) -> Job:
        """The job, where the plan was made of one."""
        assert self.job is not None
        return self.job


class Query(Struct, frozen=True, kw_only=True):
    """Which jobs: all conditions hold. `gone` adds deleted ones (the record), `everywhere` takes all namespaces."""

    name: str = ""
    states: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    gone: bool = False
    everywhere: bool = False


class LogQuery(Struct, frozen=True, kw_only=True):
    """Which lines. None means all replicas, ranks; the last attempt. `pieces` gives lines out before they end.

    `keep` has every line of every replica kept meanwhile, where a record would be without them.
    """

    follow: bool = False
    tail: int | None = None
    since: datetime | None = None
    replicas: frozenset[str] | None = None
    ranks: frozenset[int] | None = None
    attempt: int | None = None
    pieces: bool = False
    keep: bool = False


class LogLine(Struct, frozen=True):
    """One line of one replica, without its line end. `partial` is a piece whose rest is still to come."""

    time: datetime
    replica: str
    role: str
    index: int
    rank: int | None
    data: bytes
    partial: bool = False
    attempt: int = 1

    @property
    def text(self) -> str:
        """The line as text; bytes that are not UTF-8 become the replacement character."""
        return self.data.decode(errors="replace")


class Warnings:
    """What went half right while a call was answered, collected for its caller."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.code = 6
        self.failed = False

    def add(self, line: str, *, code: int = 6, failed: bool = False) -> None:
        """One more line, once; `code` is what `--strict` ends with, and every command where a part has `failed`."""
        if line not in self.lines:
            self.lines.append(line)
        self.code = code if failed or not self.failed else self.code
        self.failed = self.failed or failed


StopWord = Literal["Stopped", "Deleted"]


def unheard() -> None:
    """Nobody asked to be told."""


def check_owner(seen: Seen, user: str, verb: str, *, force: bool) -> None:
    """ForbiddenError where a job that somebody else runs would be ended without `force`."""
    if force or seen.state.final or seen.user in ("", user):
        return
    raise ForbiddenError(
        f"job {seen.name!r} of {seen.user} is {seen.state.name}: only --force {verb}s it",
        hint=f"arena {verb} {seen.name} --force",
    )


def not_gone(name: str, timeout: float, why: str = "", hint: str = "") -> WaitTimeoutError:
    """A job that is still there when the time given to its end is over."""
    return WaitTimeoutError(f"job {name!r} is not gone after {timeout:g} s; its end goes on", why=why, hint=hint)


class Backend(Protocol):
    """What a place where jobs run can do. `wait`, `prune` and `rerun` are made of these, in `Client`."""

    name: str
    notice: str
    notes: Warnings

    @property
    def user(self) -> str:
        """Who asks, as it stands in the runs."""

    def layered(self) -> Settings:
        """The settings with what only this place knows."""

    def plan(self, job: Job, context: Context) -> Plan:
        """What `submit` would do; raises for what is refused. Touches nothing."""

    def asked(self, plan: Plan) -> Plan:
        """The plan with the steps as whoever runs them would make them; nothing is made."""

    def submit(
        self, plan: Plan, *, replace: bool = False, force: bool = False, committed: Callable[[], None] = unheard
    ) -> Ref:
        """Do it: exactly one of two submits with one name wins, the other gets AlreadyExistsError.

        `committed` is called before the job is made: until then an interrupt undoes all.
        """

    def find(self, name: str, *, gone: bool = False) -> Ref:
        """The run that NAME, NAME@2, a run id or @last means; with `gone` also what only the record knows."""

    def get(self, ref: Ref) -> Seen:
        """The job as it is now."""

    def facts(self, ref: Ref) -> Facts | None:
        """What only a cluster knows of a job, for `why`: events, what no node has; None where there is no cluster."""

    def list(self, query: Query, warnings: Warnings) -> Iterator[Seen]:
        """The jobs that match, newest first; odd ones become warnings."""

    def changes(self, query: Query, warnings: Warnings) -> Iterator[builtins.list[Seen]]:
        """The jobs that match, newest first: now, and all of them again when something has changed, without end."""

    def watch(self, ref: Ref, until: Sequence[float] = ()) -> Iterator[Seen]:
        """The job now, then again at each change and when a time of `until` (monotonic) is reached, to its end."""

    def logs(self, ref: Ref, query: LogQuery) -> Iterator[LogLine]:
        """The lines, in order per replica, each exactly once."""

    def now(self) -> datetime:
        """The time by the clock that stamps the lines of logs."""

    def has_code(self, ref: Ref) -> bool:
        """Whether the run's code was recorded."""

    def exec(self, ref: Ref, replica: str, words: Sequence[str]) -> int:
        """Run a command where a replica runs, with its folder and environment; the command's exit code."""

    def copy(self, ref: Ref, replica: str, path: str, dest: str) -> Sequence[str]:
        """Copy a file or folder of a replica here; the lines of what in it was refused."""

    def fetch(self, ref: Ref, paths: Sequence[str], folder: str) -> Sequence[str]:
        """Wait for the end of the program and bring these paths into a folder; the lines of what did not come."""

    def stop(self, ref: Ref) -> Seen:
        """End the job and keep it in the list; returns when nothing of it lives."""

    def delete(self, ref: Ref, *, force: bool = False, wait: bool = True, timeout: float | None = None) -> Seen:
        """End the job and take it from the list; its record stays. Without `wait` its end is only asked for.

        WaitTimeoutError when it is not gone within `timeout` seconds.
        """
