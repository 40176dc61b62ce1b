"""Jobs as they are on the cluster: objects and pods joined, one kind or all of them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from arena import jobs, status, why
from arena.engines import ENGINES, load
from arena.engines.base import MANAGED_BY, RUN_ANNOTATION, RUN_LABEL, Engine
from arena.engines.objects import Container, Pod, Template, Thing
from arena.errors import ArenaError, ForbiddenError, NotFoundError
from arena.job import Env, Job
from arena.kube.errors import RefusedError
from arena.secrets import MASK
from arena.status import Observed, Seen

if TYPE_CHECKING:
    from arena.kube.api import Api

PODS = "/api/v1/namespaces/{}/pods"


class Found(Struct, frozen=True):
    """A job object and its pods; `blind` is why these may not be read."""

    engine: Engine
    thing: Any
    pods: tuple[Pod, ...] = ()
    blind: RefusedError | None = None


All = tuple[list[Found], list[tuple[Engine | None, ArenaError]]]


def pods_path(namespace: str) -> str:
    """Where the pods of a namespace are; without one, those of all namespaces."""
    return PODS.format(namespace) if namespace else "/api/v1/pods"


class Reader:
    """Reads the jobs of one namespace."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace

    def served(self) -> list[Engine]:
        """The engines whose kind this cluster serves."""
        found = [load(name) for name in ENGINES]
        return [engine for engine in found if self.api.discovery.find(engine.kind, engine.group, engine.version)]

    def path(self, engine: Engine, name: str = "") -> str:
        """Where the objects of a kind are."""
        resource = self.api.discovery.find(engine.kind, engine.group, engine.version)
        if resource is None:
            raise NotFoundError(f"this cluster serves no {engine.kind}", why=f"{engine.operator} is not installed")
        return resource.path(self.namespace, name)

    def named(self, name: str, kinds: Sequence[Engine]) -> list[Found]:
        """The objects of this name, of all these kinds, without their pods."""
        answers = self._together([self._getter(engine, name) for engine in kinds])
        found = [Found(engine, thing) for engine, thing in zip(kinds, answers, strict=True) if isinstance(thing, Thing)]
        if not found:
            _raise_other(answers)
        return found

    def _getter(self, engine: Engine, name: str) -> Callable[[], Thing]:
        return lambda: self.api.get(self.path(engine, name), engine.thing)

    def whole(self, engine: Engine, name: str) -> Found:
        """One job with its pods, read side by side; the object alone where its pods may not be read."""
        thing, pods = self._together([self._getter(engine, name), lambda: self.pods(engine, name)])
        if isinstance(pods, RefusedError) and not isinstance(thing, ArenaError):
            return Found(engine, thing, blind=pods)
        for answer in (thing, pods):
            if isinstance(answer, ArenaError):
                raise answer
        return Found(engine, thing, tuple(pods))

    def pods(self, engine: Engine, name: str) -> list[Pod]:
        """The pods of one job."""
        return self.api.list(PODS.format(self.namespace), Pod, labels=f"{engine.pod_label}={name}").items

    def all(self, kinds: Sequence[Engine]) -> All:
        """Every job of these kinds with its pods, and what could not be read (None: the pods)."""
        calls: list[Callable[[], Any]] = [self._lister(engine) for engine in kinds]
        *lists, pods = self._together([*calls, lambda: self.api.list(pods_path(self.namespace), Pod).items])
        failed: list[tuple[Engine | None, ArenaError]] = []
        if isinstance(pods, ArenaError):
            failed.append((None, pods))
            pods = []
        answers = list(zip(kinds, lists, strict=True))
        failed += [(engine, answer) for engine, answer in answers if isinstance(answer, ArenaError)]
        return join({engine: answer for engine, answer in answers if not isinstance(answer, ArenaError)}, pods), failed

    def _lister(self, engine: Engine) -> Callable[[], Any]:
        return lambda: self.api.list(self.path(engine), engine.thing).items

    def _together(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        from arena.kube.api import together

        return together(calls)


def join(things: Mapping[Engine, Iterable[Any]], pods: Iterable[Pod]) -> list[Found]:
    """The jobs among objects, each with its pods."""
    by_job = _by_job(pods, list(things))
    return [
        Found(engine, one, tuple(by_job[engine.name, one.metadata.namespace, one.metadata.name]))
        for engine, those in things.items()
        for one in those
        if not _belongs(one)
    ]


def _belongs(thing: Thing) -> bool:
    """Whether another job made this one: the Job of a JobSet, the launcher of an MPIJob."""
    kinds = {load(name).kind for name in ENGINES} | {"JobSet", "CronJob"}
    return any(owner.kind in kinds - {"CronJob"} for owner in thing.metadata.owner_references)


def _raise_other(answers: Sequence[object]) -> None:
    """What kept a kind from being asked; a right that is missing only where no kind could be asked at all."""
    others = [one for one in answers if isinstance(one, ArenaError) and not isinstance(one, NotFoundError)]
    failed = [one for one in others if not isinstance(one, ForbiddenError)]
    if failed or (others and len(others) == len(answers)):
        raise [*failed, *others][0]


def _by_job(pods: Iterable[Pod], kinds: Sequence[Engine]) -> dict[tuple[str, str, str], list[Pod]]:
    found: dict[tuple[str, str, str], list[Pod]] = defaultdict(list)
    for pod in pods:
        for engine in kinds:
            if name := pod.metadata.labels.get(engine.pod_label):
                found[engine.name, pod.metadata.namespace, name].append(pod)
    return found


def seen(found: Found, *, deleted: datetime | None = None) -> Seen:
    """The job as people see it."""
    thing, engine = found.thing, found.engine
    observed = engine.read(thing, found.pods)
    if deleted:
        observed = _deleted(observed, deleted)
    words = annotated(thing)
    state = status.decide(observed)
    return Seen(
        name=thing.metadata.name,
        run_id=thing.metadata.labels.get(RUN_LABEL) or thing.metadata.uid,
        uid=thing.metadata.uid,
        status=state,
        observed=observed,
        backend="kubernetes",
        namespace=thing.metadata.namespace,
        trainer=engine.name,
        engine=engine.name,
        job=job_of(thing, words),
        patch=words["patch"] if isinstance(words.get("patch"), dict) else {},
        sets=_sets(words.get("sets")),
        user=str(words.get("user") or _upstream_user(thing)),
        duration=duration(observed),
        managed_by=manager(thing),
        typed=tuple(words.get("typed") or ()),
        parent=str(words.get("parent") or ""),
        warnings=(*_blindness(found), *filter(None, [leaving(thing)]), *observed.warnings, *why.warnings_of(observed)),
        deleted=deleted,
        leaving=leaving(thing),
    )


def leaving(thing: Thing) -> str:
    """What keeps an object that was deleted; nothing for one that was not."""
    metadata = thing.metadata
    if metadata.deletion_timestamp is None:
        return ""
    return f"it is being deleted, held by finalizer {', '.join(metadata.finalizers) or 'none'}"


def _blindness(found: Found) -> list[str]:
    if found.blind is None:
        return []
    return [f"its pods are not seen, the state is the {found.engine.kind}'s own word: {found.blind.what}"]


def _upstream_user(thing: Thing) -> str:
    """Whom Arena (Go) names; nobody where it writes the name it has for every client certificate."""
    name = thing.metadata.annotations.get("arena.kubeflow.org/username", "")
    return "" if name == "kubecfg:certauth:admin" else name


def manager(thing: Thing) -> str:
    """Who made the object: arena, arena-go, or what its label says."""
    labels = thing.metadata.labels
    return labels.get(MANAGED_BY) or ("arena-go" if labels.get("createdBy") and labels.get("release") else "")


def annotated(thing: Thing) -> dict[str, Any]:
    """What our annotation says; nothing where it is not ours or damaged."""
    try:
        found = json.loads(thing.metadata.annotations.get(RUN_ANNOTATION) or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def job_of(thing: Thing, words: Mapping[str, Any]) -> Job | None:
    """The job that was submitted, its environment as the object has it; None for jobs of others."""
    from arena import declared

    if not isinstance(words.get("job"), dict):
        return None
    try:
        kind = jobs.load(str(words.get("type") or "job"))
        job, _ = declared.examine(kind, {key: value for key, value in words["job"].items() if key != "type"})
    except ArenaError:
        return None
    return structs.replace(job, env=_environment(thing, words.get("env") or ())) if job else None


def _sets(words: Any) -> tuple[tuple[str, Any], ...]:
    """The paths and values of --set, as the annotation has them."""
    pairs = [one for one in words if isinstance(one, list) and len(one) == 2] if isinstance(words, list) else []
    return tuple((str(path), value) for path, value in pairs)


def _environment(thing: Thing, names: Sequence[str]) -> Env:
    container = next(_containers(thing), None)
    there = {one.name: one for one in container.env} if container else {}
    return {name: _value(there[name]) for name in names if name in there}


def _value(variable: Any) -> str:
    return MASK if variable.value_from else variable.value.replace("$$", "$")


def _containers(node: Any) -> Any:
    """The main containers of an object's templates."""
    if isinstance(node, Template):
        yield from (one for one in node.spec.containers if isinstance(one, Container))
    elif isinstance(node, Struct):
        for name in node.__struct_fields__:
            yield from _containers(getattr(node, name))
    elif isinstance(node, Mapping):
        for value in node.values():
            yield from _containers(value)
    elif isinstance(node, list | tuple):
        for value in node:
            yield from _containers(value)


def left(seen: Seen, at: datetime) -> Seen:
    """A job that was seen, as it is once it has been deleted."""
    observed = _deleted(seen.observed, at)
    return structs.replace(seen, observed=observed, status=status.decide(observed), deleted=at)


def _deleted(observed: Observed, at: datetime) -> Observed:
    """A job that left while it was watched: cancelled, unless it had ended before."""
    if status.decide(observed).state.final:
        return observed
    return structs.replace(observed, word="Deleted", reason="Deleted", finished=at)


def duration(observed: Observed) -> float:
    """For how many seconds a job has run, or ran; while it waits, for how long it does."""
    begin = observed.started or observed.created
    return max(0.0, ((observed.finished or datetime.now(UTC)) - begin).total_seconds())
