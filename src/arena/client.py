"""The library: submit jobs, look at them, wait for them, end them, remember them.

A `Client` fixes its settings when it is made; nothing is kept at module level. Command line, notebook and page call it.
"""

from __future__ import annotations

import builtins
import contextlib
import difflib
import heapq
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import structs

from arena import choice, engines, jobs, showing
from arena.backends.base import Backend, Context, LogLine, LogQuery, Plan, Query, Ref, Warnings, check_owner, unheard
from arena.errors import (
    BackendError,
    ForbiddenError,
    JobFailedError,
    NotFoundError,
    NotStartedError,
    SpecError,
    UnsupportedError,
    WaitTimeoutError,
)
from arena.job import Job, check
from arena.secrets import MASK, masked_in
from arena.settings import Settings
from arena.status import Seen, State

if TYPE_CHECKING:
    from arena.backends.kubernetes.sending import Objects

Target = str | os.PathLike[str] | Sequence[str] | Job | Callable[..., object]


class Client:
    """What one user sees from one place: jobs of one backend and namespace.

    >>> import tempfile
    >>> client = Client(backend="local", env={"ARENA_STATE_DIR": tempfile.mkdtemp()})
    >>> client.list()
    []
    """

    def __init__(
        self,
        *,
        backend: str | None = None,
        namespace: str | None = None,
        context: str | None = None,
        settings: Settings | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
    ) -> None:
        self.env = dict(os.environ if env is None else env)
        self.cwd = Path(cwd or os.getcwd())
        flags = {"backend": backend, "namespace": namespace, "context": context}
        self.settings = settings or Settings.load({k: v for k, v in flags.items() if v is not None}, self.env, self.cwd)
        self.warnings = Warnings()
        self._backends: dict[str, Backend] = {}

    # --- make ------------------------------------------------------------------------------------------------

    def run(
        self,
        target: Target,
        *,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
        replace: bool = False,
        fetch: Sequence[str] = (),
        **fields: Any,
    ) -> Handle:
        """Start a script, command or job and return its handle as soon as it is accepted.

        `target` is a script (`"train.py"`), the words of a command (`["sh", "-c", "…"]`), one string with blanks (a
        shell line) or a Job; `args` follow it. `fields` are those of the job: workers, gpus, env, name …. Paths in
        `fetch` are kept after the end, until `Handle.fetch` has brought them.

        >>> import tempfile
        >>> client = Client(backend="local", env={**os.environ, "ARENA_STATE_DIR": tempfile.mkdtemp()})
        >>> client.run(["true"], name="first").wait().state.name
        'SUCCEEDED'
        """
        job = as_job(target if args else self._started(target), args, kwargs or {}, fields)
        return self.submit(self.plan(job, creates="run", fetch=tuple(fetch)), replace=replace)

    def _started(self, target: Target) -> Target:
        """A path with blanks as the words that start it, as it would else be a shell line; all else as it is."""
        if not isinstance(target, str | os.PathLike):
            return target
        path = Path(os.fspath(target))
        named = " " in str(path) and (not isinstance(target, str) or (self.cwd / path).is_file())
        return choice.file_words(path, self.cwd, self.env) if named else target

    def plan(self, job: Job, *, creates: choice.Creates = "type", **context: Any) -> Plan:
        """What a submit would do; nothing is touched."""
        creates_by = creates if type(job).type_name != "job" else "run"
        name, where = self._place(creates_by, creates, context)
        return self.backend(name).plan(check(job), where)

    def plan_object(self, objects: Objects, **context: Any) -> Plan:
        """What submitting an operator's own object would do; UnsupportedError where it would go to this machine."""
        from arena.backends.kubernetes.backend import KubernetesBackend

        name, where = self._place("type", "type", context)
        backend = self.backend(name)
        if not isinstance(backend, KubernetesBackend):
            raise UnsupportedError(f"the object in {objects.file} needs a cluster", hint="-b kubernetes")
        return backend.plan_object(objects, where)

    def _place(
        self, chosen_as: choice.Creates, creates: choice.Creates, context: Mapping[str, Any]
    ) -> tuple[str, Context]:
        """The backend of a submit, and where it is typed; `context` says more about that."""
        name, rule = choice.backend(self.settings, self.env, chosen_as, dry=context.get("dry") == "client")
        where = Context(
            cwd=str(self.cwd),
            environ=self.env,
            python=choice.python(self.env),
            rule=rule,
            creates=creates,
            code=str(choice.code_folder(self.cwd, self.env) or ""),
        )
        return name, replace_context(where, {key: value for key, value in context.items() if value})

    def submit(
        self,
        job: Job | Plan,
        *,
        replace: bool = False,
        force: bool = False,
        creates: choice.Creates = "type",
        committed: Callable[[], None] = unheard,
    ) -> Handle:
        """Submit a job (or a plan made of it): create-only, exactly one of two with one name wins.

        `replace` takes the place of my own finished job of that name, with `force` of a running one. `committed` is
        called before the job is made: until then an interrupt undoes all.
        """
        plan = job if isinstance(job, Plan) else self.plan(job, creates=creates)
        ref = self.backend(plan.backend).submit(plan, replace=replace, force=force, committed=committed)
        return Handle(self, ref, plan.backend)

    def export(self, name: str) -> str:
        """The run file of a job (or of a run that only the record knows): what `load` and `run -f` read.

        Secret values are `***` in it.
        """
        from arena import runfile

        return runfile.dump(self.get(name, gone=True).job(), masked=True)

    def rerun(
        self, run: str, /, *, code: Literal["recorded", "here"] = "recorded", replace: bool = False, **fields: Any
    ) -> Handle:
        """Run a job again, with its recorded code and the fields given here changed.

        Values that were masked come from the client's environment; SpecError names those that are missing.
        """  # fmt: skip
        parent = self.get(run, gone=True)
        job = self.changed(parent.job(), fields)
        return self.submit(self.plan(job, **self.parentage(parent.get(), code)), replace=replace)

    def changed(self, job: Job, fields: Mapping[str, object]) -> Job:
        """A recorded job under new values, its masked variables taken from the environment."""
        from arena import declared

        below = self.unmasked(declared.to_plain(job), fields)
        return declared.build(type(job), declared.merged(type(job), below, fields))

    def parentage(self, parent: Seen, code: str) -> dict[str, Any]:
        """What the context of a rerun takes from its parent: its id, its code if it is recorded, and its changes."""
        changes = [parent.patch, *({path.rpartition(".")[2]: value} for path, value in parent.sets)]
        if masked := masked_in(changes):
            raise SpecError(
                f"the values of {', '.join(masked)} in --set or --patch are not stored",
                why="they look secret",
                hint="submit it again with its flags; --env keeps a value that looks secret in a Secret",
            )
        again = parent.run_id if code == "recorded" and self.has_code(parent.run_id) else ""
        return {"parent": parent.run_id, "again": again, "patch": parent.patch, "sets": parent.sets}

    def unmasked(self, values: Mapping[str, object], given: Mapping[str, object]) -> dict[str, object]:
        """Recorded values, masked variables taken from the environment; SpecError names those that are missing."""
        env, new = values.get("env"), given.get("env")
        if not isinstance(env, Mapping):
            return dict(values)
        taken = new if isinstance(new, Mapping) else {}
        masked = [name for name, value in env.items() if value == MASK and name not in taken]
        if missing := [name for name in masked if name not in self.env]:
            raise SpecError(
                f"the values of {', '.join(missing)} are not stored",
                why="they look secret",
                hint=f"{missing[0]}=… arena rerun …, or --env {missing[0]}=…",
            )
        return {**values, "env": {**env, **{name: self.env[name] for name in masked}}}

    # --- look ------------------------------------------------------------------------------------------------

    def notices(self, backend: str) -> builtins.list[str]:
        """What a backend says once about where it keeps things."""
        notice = self.backend(backend).notice
        return [notice] if notice else []

    def layered(self) -> Settings:
        """The settings with what only the place where jobs run knows: the defaults of a namespace."""
        name = self._places()[0]
        return self.settings if name == "local" else self.backend(name).layered()

    def has_code(self, run_id: str) -> bool:
        """Whether the code of a run was recorded."""
        return bool(run_id) and self.get(run_id, gone=True).has_code()

    def logs(self, name: str, **chosen: Any) -> Iterator[LogLine]:
        """The lines of a job, also of one that only the record knows; see `Handle.logs`."""
        return self.get(name, gone=True).logs(**chosen)

    def wait(self, name: str, timeout: float | None = None, **limits: Any) -> Seen:
        """A job at its end, also one that only the record knows; see `Handle.wait`."""
        return self.get(name, gone=True).wait(timeout, **limits)

    def delete(self, name: str, *, force: bool = False, timeout: float | None = None) -> Seen:
        """End a job and take it from the list; see `Handle.delete`."""
        return self.get(name).delete(force=force, timeout=timeout)

    def get(self, name: str, *, gone: bool = False) -> Handle:
        """The job of this name, as a handle; with `gone` also one that only the record knows."""
        if not name.rpartition("/")[2]:
            raise SpecError(f"{name!r} is no name of a job", why="is a variable of the script empty?")
        if "@" in name:
            run = self._numbered(name)
            return self.handle(run) if gone else self._find(run.backend, run.run_id)
        try:
            return self._living(name)
        except (NotFoundError, BackendError, ForbiddenError):
            found = self._remembered(name) if gone else None
            if found is None:
                raise
            return found

    def _living(self, name: str) -> Handle:
        """The job of this name that exists: at the default backend, else on this machine."""
        tried: NotFoundError | None = None
        for backend in self._places():
            try:
                return self._find(backend, name)
            except NotFoundError as error:
                tried = tried or error
        raise tried or NotFoundError(f"job {name!r} not found")

    def _remembered(self, name: str) -> Handle | None:
        """The run of this name that only a record knows, the newest of all backends."""
        found = []
        for backend in self._memories():
            with contextlib.suppress(NotFoundError):
                found.append(self._find(backend, name, gone=True))
        return max(found, key=lambda one: one.get().observed.created, default=None)

    def _numbered(self, name: str) -> Seen:
        """The run that NAME@2 or @last means, counted from the newest over all backends."""
        stem, _, number = name.rpartition("/")[2].rpartition("@")
        runs = self.history(stem)
        if not stem and number == "last":
            runs, number = [seen for seen in runs if seen.user == self.backend(seen.backend).user], "1"
        position = int(number) if number.isdecimal() else 0
        if not runs or position < 1:
            raise NotFoundError(f"job {name!r} not found", hint="arena history shows what there was")
        if position > len(runs):
            why = f"{stem!r} has {len(runs)} runs"
            raise NotFoundError(f"there is no {name}", why=why, hint=f"arena history {stem}")
        return runs[position - 1]

    def _find(self, backend: str, name: str, *, gone: bool = False) -> Handle:
        """The job there; on this machine, where there is one job of a name, a type that was named must be its own."""
        found = Handle(self, self.backend(backend).find(name, gone=gone), backend)
        kind, _, bare = name.rpartition("/")
        if kind and backend == "local" and found.get().trainer != engines.trainer(kind):
            raise NotFoundError(f"job {bare!r} is of another type than {kind!r}", hint=f"arena get {bare}")
        return found

    @property
    def default(self) -> str:
        """The backend that commands on a NAME ask first."""
        return choice.backend(self.settings, self.env, "name")[0]

    def list(
        self, *, state: Sequence[str] | str = (), labels: Mapping[str, str] | None = None, user: str = ""
    ) -> builtins.list[Handle]:
        """The jobs that exist now, newest first."""
        query = Query(states=_states(state), labels=labels or {}, user=user)
        return [self.handle(seen) for seen in self.seen(query)]

    def handle(self, seen: Seen) -> Handle:
        """A job that was listed, as a handle."""
        return Handle(self, Ref.of(seen), seen.backend, seen)

    def history(self, name: str = "") -> builtins.list[Seen]:
        """All runs that are remembered (of one name), newest first."""
        return builtins.list(self.seen(Query(name=name, gone=True)))

    def seen(self, query: Query) -> Iterator[Seen]:
        """The jobs that match; what went half right is in `warnings`. What is remembered comes from all backends."""
        if not query.gone:
            return self.backend(self._places()[0]).list(query, self.warnings)
        lists = [self.backend(backend).list(query, self.warnings) for backend in self._memories()]
        return heapq.merge(*lists, key=lambda seen: seen.observed.created, reverse=True)

    def changes(self, query: Query) -> Iterator[builtins.list[Seen]]:
        """The jobs that match, newest first: now, and all of them again when something has changed, without end."""
        return self.backend(self._places()[0]).changes(query, self.warnings)

    @property
    def user(self) -> str:
        """Who the caller is to the backend."""
        return self.backend(self._places()[0]).user

    def prunable(self, seconds: float, *, all_users: bool = False) -> builtins.list[Handle]:
        """The finished jobs that ended longer ago than so many seconds: mine, or everybody's."""
        before = datetime.now(UTC) - timedelta(seconds=seconds)
        query = Query(user="" if all_users else self.user)
        found = [seen for seen in self.seen(query) if seen.state.final]
        return [self.handle(one) for one in found if (one.observed.finished or one.observed.created) <= before]

    def backend(self, name: str) -> Backend:
        """The backend of this name, made once."""
        if name not in self._backends:
            self._backends[name] = choice.open_backend(name, self.settings, self.env)
        return self._backends[name]

    def _places(self) -> builtins.list[str]:
        """Where a name is looked for: the default backend, then this machine."""
        first = self.default
        return builtins.list(dict.fromkeys((first, "local"))) if self.settings.value("backend") is None else [first]

    def _memories(self) -> builtins.list[str]:
        """Where runs are remembered: both backends keep records, whether or not a cluster answers."""
        from arena import files

        chosen = self.settings.text("backend")
        state, _ = files.choose(self.settings.text("state_dir") or "", self.env)
        there = {"kubernetes": (state / "cluster").is_dir(), "local": sys.platform != "win32"}
        return [chosen] if chosen else [name for name, yes in there.items() if yes]


class Handle:
    """A job that was submitted or found; `seen` is how it was when the handle was made, `get()` how it is now."""

    def __init__(self, client: Client, ref: Ref, backend: str, seen: Seen | None = None) -> None:
        self.client = client
        self.ref = ref
        self.where = client.backend(backend)
        self.seen = seen

    @property
    def name(self) -> str:
        """The job's name."""
        return self.ref.name

    @property
    def run_id(self) -> str:
        """The id of this run."""
        return self.ref.run_id

    def get(self) -> Seen:
        """The job as it is now."""
        return self.where.get(self.ref)

    def wait(self, timeout: float | None = None, *, start_timeout: float | None = None, check: bool = False) -> Seen:
        """The job at its end. Seconds; WaitTimeoutError after `timeout`, JobFailedError with `check`."""
        *_, seen = self.watch(timeout=timeout, start_timeout=start_timeout)
        if check and seen.state is not State.SUCCEEDED:
            raise JobFailedError(seen)
        return seen

    def watch(self, *, timeout: float | None = None, start_timeout: float | None = None) -> Iterator[Seen]:
        """The job now and at each change until its end."""
        begun = time.monotonic()
        limits = [begun + limit for limit in (timeout, start_timeout) if limit is not None]
        for seen in self.where.watch(self.ref, limits):
            yield seen
            if seen.state.final or seen.deleted:
                return
            self.check_time(seen, time.monotonic() - begun, timeout, start_timeout)

    def check_time(self, seen: Seen, passed: float, timeout: float | None, start_timeout: float | None) -> None:
        """WaitTimeoutError or NotStartedError when a job that has not ended is out of the time given."""
        if timeout is not None and passed >= timeout:
            raise WaitTimeoutError(
                f"job {self.name!r} is {seen.state.name} after {timeout:g} s and goes on",
                hint=f"arena wait {self.name}, arena delete {self.name}",
            )
        if start_timeout is not None and passed >= start_timeout and not seen.begun:
            raise NotStartedError(
                f"job {self.name!r} did not start within {start_timeout:g} s: {seen.state.name}",
                why=showing.with_why(self, seen).why or seen.status.message,
                hint=f"arena why {self.name}",
            )

    def logs(
        self,
        *,
        follow: bool = False,
        tail: int | None = None,
        since: datetime | None = None,
        replica: Sequence[str] | str = (),
        rank: Sequence[int] | int | str | None = None,
        role: str = "",
    ) -> Iterator[LogLine]:
        """The lines of all (or the chosen) replicas: each once, in order per replica. It may be left at any time.

        `tail` counts lines of each replica; a `since` without a time zone is local time.
        """
        if tail is not None and tail < 0:
            raise SpecError(f"tail: {tail} lines are not possible")
        since = since and since.astimezone()
        names, ranks = showing.choose(self.get(), replica=replica, rank=rank, role=role)
        return self.raw_logs(LogQuery(follow=follow, tail=tail, since=since, replicas=names, ranks=ranks))

    def raw_logs(self, query: LogQuery) -> Iterator[LogLine]:
        """The lines a query asks for."""
        return self.where.logs(self.ref, query)

    def job(self) -> Job:
        """The job that was submitted; secret values are `***` in it."""
        seen = self.get()
        if seen.job is None:
            raise self._unknown_job(seen)
        return seen.job

    def _unknown_job(self, seen: Seen) -> UnsupportedError:
        if seen.backend == "local":
            return UnsupportedError(f"job {self.name!r} is of a type that is not installed here ({seen.trainer})")
        return UnsupportedError(
            f"what was typed for job {self.name!r} is not known here",
            why="others made it, or it was sent as an object (submit -f), or was too long for its object",
            hint=f"arena export {self.name} --manifest prints its object",
        )

    def has_code(self) -> bool:
        """Whether the run's code was recorded."""
        return self.where.has_code(self.ref)

    def exec(self, replica: str, words: Sequence[str]) -> int:
        """Run a command with a replica's folder and environment, on this terminal; its exit code."""
        return self.where.exec(self.ref, replica, words)

    def copy(self, path: str, dest: str | os.PathLike[str] = ".", *, replica: str = "") -> Sequence[str]:
        """Copy a file or folder of a replica (rank 0 by default) here; the lines of what in it was refused."""
        return self.where.copy(self.ref, replica, path, str(self.client.cwd / dest))

    def fetch(self, paths: Sequence[str], folder: str | os.PathLike[str] = ".") -> Sequence[str]:
        """Wait for the end of a job made with `fetch` and bring its files; the lines of what did not come."""
        return self.where.fetch(self.ref, paths, str(self.client.cwd / folder))

    def stop(self, *, force: bool = False) -> Seen:
        """End the job and keep it in the list; with `force` also one that somebody else runs."""
        check_owner(self.get(), self.where.user, "stop", force=force)
        return self.where.stop(self.ref)

    def delete(self, *, force: bool = False, wait: bool = True, timeout: float | None = None) -> Seen:
        """End the job if it runs, and take it from the list; its record stays. Returns when its processes are gone.

        WaitTimeoutError when they are not gone after `timeout` seconds; their end goes on.
        """
        return self.where.delete(self.ref, force=force, wait=wait, timeout=timeout)

    def why(self) -> str:
        """One cause, its evidence and the next step."""
        return showing.why(self)

    def __repr__(self) -> str:
        return f"<arena job {self.name} ({self.run_id})>"

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return showing.mimebundle(self.get())


def as_job(target: Target, args: Sequence[object], kwargs: Mapping[str, object], fields: Mapping[str, Any]) -> Job:
    """The job that a target of `run` means."""
    if isinstance(target, Job):
        if args or kwargs:
            raise SpecError("args and kwargs belong to a program or function; a job has its command")
        return build(type(target), {**structs.asdict(target), **fields})
    if callable(target):
        raise UnsupportedError(
            f"the function {getattr(target, '__name__', target)!r} cannot be run yet", hint="run a script or a command"
        )
    if isinstance(args, str | bytes):
        raise SpecError(f"args: {args!r} is one text; give a list of words")
    if kwargs:
        raise SpecError("kwargs belong to a function; a program takes args")
    words = [target] if isinstance(target, str | os.PathLike) else target
    if isinstance(words, bytes | Mapping) or not isinstance(words, Iterable):
        raise SpecError(f"what should run? Give a script, the words of a command, or a job, not {target!r}")
    command = tuple(_word(word) for word in (*words, *args))
    kind = jobs.load(fields.get("type", "job"))
    return build(kind, {**{k: v for k, v in fields.items() if k != "type"}, "command": command})


def _states(state: Sequence[str] | str) -> tuple[str, ...]:
    """The states asked for, each a state there is."""
    words = (state,) if isinstance(state, str) else tuple(state)
    if unknown := [word for word in words if word not in State.__members__]:
        raise SpecError(f"state: {unknown[0]!r} is no state", hint=", ".join(State.__members__))
    return words


def _word(word: object) -> object:
    """A word of a command: paths and numbers as text, bytes as they are, to be refused by name."""
    if word is None:
        raise SpecError("None is no word of a command")
    return os.fspath(word) if isinstance(word, str | bytes | os.PathLike) else str(word)


def build(kind: type[Job], fields: Mapping[str, Any]) -> Job:
    """A job of Python values; unknown fields are refused, everything else is checked as everywhere."""
    known = kind.__struct_fields__
    for name in fields:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            raise SpecError(f"{name!r} is no field of {kind.__name__}", hint=hint)
    return check(kind(**{key: _frozen(value) for key, value in fields.items()}))


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, builtins.list) else value


def replace_context(context: Context, given: Mapping[str, Any]) -> Context:
    """The context with what the caller knows better."""
    return structs.replace(context, **given)


def run(
    target: Target, *, args: Sequence[object] = (), kwargs: Mapping[str, object] | None = None, **fields: Any
) -> Handle:
    """Start a script, command or job with a client of its own; see `Client.run`."""
    return Client().run(target, args=args, kwargs=kwargs, **fields)


def get(name: str) -> Handle:
    """The job of this name; see `Client.get`."""
    return Client().get(name)


def list() -> builtins.list[Handle]:  # noqa: A001
    """The jobs that exist now; see `Client.list`."""
    return Client().list()


def history(name: str = "") -> builtins.list[Seen]:
    """All runs that are remembered; see `Client.history`."""
    return Client().history(name)


def delete(name: str) -> Seen:
    """End and remove a job; see `Handle.delete`."""
    return Client().get(name).delete()
