"""What is asked before a submit, all at once: the job, a pod of each role, what they name, quotas, nodes, code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from arena.backends.kubernetes import fitting, refusals
from arena.backends.kubernetes.fitting import Asked, Node, Quota
from arena.backends.kubernetes.helping import is_ours, raise_first
from arena.backends.kubernetes.paths import Paths
from arena.backends.kubernetes.planning import Made
from arena.backends.kubernetes.refusals import Answers, Place
from arena.backends.kubernetes.stored import Store
from arena.backends.kubernetes.templates import counted, named_by, pods_of
from arena.engines.base import Manifest
from arena.errors import AlreadyExistsError, ArenaError, BackendError
from arena.kube.api import together

if TYPE_CHECKING:
    from arena.kube.api import Api

Defaults = Callable[[], Mapping[str, str]]


class ChangedError(BackendError):
    """What a plan was made with is no longer so."""


class Asking:
    """The questions about one plan; nothing is written. `defaults` reads those of the namespace as they are now."""

    def __init__(self, api: Api, made: Made, paths: Paths, store: Store, defaults: Defaults | None) -> None:
        self.api = api
        self.made = made
        self.templated = made.templated
        self.paths = paths
        self.store = store
        self.defaults = defaults

    def ask(self, name: str) -> tuple[Manifest, list[str]]:
        """The job as the server would make it, and what is to be said; raises what is against it.

        A job that waits for one of its helpers only is as it was planned.
        """
        pods = list(pods_of(self.templated, name, self.made.namespace))
        named = sorted(named_by(self.templated, self.made.helpers))
        calls: list[Callable[[], Any]] = [self._dry(self.made.thing), *map(self._dry, pods)]
        calls += [self._read(kind, name) for kind, name in named]
        calls += [self._quotas, self._nodes, self.store.read, self._same_defaults]
        judged = [one for one in self.made.helpers if not is_ours(one) or one in self.templated]
        answered: list[Any] = together([*map(self._dry, judged), *calls])
        helpers, (thing, *others) = answered[: len(judged)], answered[len(judged) :]
        *others, quotas, nodes, stored, same = others
        raise_first([same, *(refusals.told(one, place_of(self.made)) for one in helpers if _is_against(one))])
        thing = self.made.thing if refusals.is_unseen(thing, self.made.helpers) else thing
        answers = Answers(
            thing=thing,
            pods=[self._seen(pod, answer) for pod, answer in zip(pods, others[: len(pods)], strict=True)],
            counts=[count for _, count in counted(self.templated)],
            named=list(zip(named, others[len(pods) :], strict=True)),
            quotas=quotas,
            queued=self.made.queued,
        )
        raise_first([refusals.refusal(answers, place_of(self.made)), stored])
        said = [] if isinstance(nodes, ArenaError) else list(misfits(refusals.asked_of(answers), nodes))
        return thing, said

    def _quotas(self) -> list[Quota]:
        return self.api.list(f"/api/v1/namespaces/{self.made.namespace}/resourcequotas", Quota).items

    def _nodes(self) -> list[Node]:
        """The nodes, where the job wants something that not every node has."""
        wanted = [fitting.asked_by(template) for template, _ in counted(self.templated)]
        if not any(one.selector or any("/" in name for name in one.needs) for one in wanted):
            return []
        return self.api.list("/api/v1/nodes", Node).items

    def _same_defaults(self) -> None:
        if self.defaults and self.made.defaults is not None and self.defaults() != self.made.defaults:
            raise ChangedError("the namespace's defaults have changed")

    def _seen(self, pod: Manifest, answer: Any) -> Any:
        """What the server says of a pod; the pod as it is where only one of its own helpers is not there yet."""
        return pod if refusals.is_unseen(answer, self.made.helpers) else answer

    def _dry(self, manifest: Manifest) -> Callable[[], Any]:
        return lambda: self.api.create(self.paths.of(manifest), manifest, dry_run=True)

    def _read(self, kind: str, name: str) -> Callable[[], Any]:
        return lambda: self.api.get(f"{self.paths.to('v1', kind)}/{name}")


def _is_against(answer: object) -> TypeGuard[ArenaError]:
    """Whether a helper cannot be made; one that is there already is looked at when it is to be."""
    return isinstance(answer, ArenaError) and not isinstance(answer, AlreadyExistsError)


def place_of(made: Made) -> Place:
    """Where a job goes, for those who read a refusal."""
    return Place(made.namespace, made.engine.kind, made.engine.operator, made.hidden, made.flags)


def misfits(pods: Iterable[Asked], nodes: Sequence[Node]) -> Iterator[str]:
    """What today's nodes cannot hold: said, not refused, for nodes may come."""
    for line in dict.fromkeys(line for pod in pods for line in fitting.too_large(pod, nodes)):
        yield f"no node fits today: {line}"
    for line in dict.fromkeys(line for pod in pods if (line := fitting.not_matching(pod, nodes))):
        yield f"no node fits today: {line}"
