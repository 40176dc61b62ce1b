"""A submit: asked first, then helpers, the job, and owners; at most four round trips one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import convert

from arena.backends.base import Plan, Ref, unheard
from arena.backends.kubernetes import fitting, refusals
from arena.backends.kubernetes.fitting import Asked, Node, Quota
from arena.backends.kubernetes.planning import Made
from arena.backends.kubernetes.refusals import Answers, Place
from arena.backends.kubernetes.stored import Store, is_code
from arena.engines.base import MANAGED_BY, RUN_LABEL, Manifest
from arena.engines.patching import apply_patch
from arena.errors import AlreadyExistsError, ArenaError, BackendError, NotFoundError
from arena.kube.api import Meta, together
from arena.kube.errors import UnknownOutcomeError

if TYPE_CHECKING:
    from arena.kube.api import Api

PATHS = {
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "Service": "/api/v1/namespaces/{}/services",
    "Pod": "/api/v1/namespaces/{}/pods",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
}


class ChangedError(BackendError):
    """What a plan was made with is no longer so."""


class Submission:
    """One submit of one plan; what it has made is undone when it fails before its job is there."""

    def __init__(
        self,
        api: Api,
        plan: Plan,
        defaults: Callable[[], Mapping[str, str]] | None = None,
        committed: Callable[[], None] = unheard,
    ) -> None:
        self.api = api
        self.plan = plan
        self.defaults = defaults
        self.committed = committed
        made = plan.data
        assert isinstance(made, Made)
        self.made = made
        self.namespace = made.work.namespace
        self.created: list[str] = []
        self.taken: set[str] = set()
        self.shared: dict[str, Manifest] = {}
        self.unowned: list[Manifest] = []
        self.unsure = False
        self.store = Store(api, self.namespace)
        self.warnings: list[str] = []

    def carry_out(self) -> Ref:
        """Ask, make the helpers, make the job, give it its helpers."""
        self.ask()
        try:
            self.make_helpers()
            self.committed()
            thing = self._make_job()
        except BaseException as error:
            if not self.unsure or isinstance(error, AlreadyExistsError):
                self.undo()
            if isinstance(error, ArenaError):
                raise refusals.told(error, self.place) from error.__cause__
            raise
        self.give(thing)
        uid = thing["metadata"]["uid"]
        return Ref(
            name=self.plan.name, run_id=self.plan.run_id, namespace=self.namespace, kind=self.made.engine.name, uid=uid
        )

    def _make_job(self) -> Manifest:
        """The job as it was made; where the connection broke it is sent again, as only one of that name can be."""
        path = self.path_of(self.made.thing)
        try:
            return self.api.create(path, self.made.thing)
        except UnknownOutcomeError:
            self.unsure = True  # what a job may need is not undone
        try:
            made = self.api.create(path, self.made.thing)
        except (AlreadyExistsError, UnknownOutcomeError):
            found = self._mine(path)
            if found is None:
                raise
            made = found
        self.unsure = False
        return made

    def _mine(self, path: str) -> Manifest | None:
        """The job of this very run, if the server has it."""
        try:
            found = self.api.get(f"{path}/{self.plan.name}")
        except NotFoundError:
            return None
        return found if (found["metadata"].get("labels") or {}).get(RUN_LABEL) == self.plan.run_id else None

    def ask(self) -> Manifest:
        """The job as the server would make it, once it has said yes to one pod of each role too; nothing is written."""
        pods, named = list(pods_of(self.made)), sorted(named_by(self.made.thing, self.made.helpers))
        calls: list[Callable[[], Any]] = [
            lambda: self.api.create(self.path_of(self.made.thing), self.made.thing, dry_run=True)
        ]
        calls += [*(self._dry_pod(pod) for pod in pods), *(self._read(kind, name) for kind, name in named)]
        calls += [self._quotas, self._nodes, self.store.read, self._same_defaults]
        answered: list[Any] = together(calls)
        thing, *others = answered
        *others, quotas, nodes, stored, same = others
        raise_first([same])
        answers = Answers(
            thing=thing,
            pods=others[: len(pods)],
            counts=[count for _, count in counted(self.made.thing)],
            named=list(zip(named, others[len(pods) :], strict=True)),
            quotas=quotas,
            queued=bool(self.made.work.job.queue_name or self.made.work.job.queue),
        )
        raise_first([refusals.refusal(answers, self.place), stored])
        self.warnings = [] if isinstance(nodes, ArenaError) else list(misfits(refusals.asked_of(answers), nodes))
        made: Manifest = thing
        return made

    @property
    def place(self) -> Place:
        """Where it goes, for those who read a refusal."""
        engine = self.made.engine
        return Place(self.namespace, engine.kind, engine.operator, self.made.work.secret_env)

    def _quotas(self) -> list[Quota]:
        return self.api.list(f"/api/v1/namespaces/{self.namespace}/resourcequotas", Quota).items

    def _nodes(self) -> list[Node]:
        """The nodes, where the job wants something that not every node has."""
        wanted = [fitting.asked_by(template) for template, _ in counted(self.made.thing)]
        if not any(one.selector or any("/" in name for name in one.needs) for one in wanted):
            return []
        return self.api.list("/api/v1/nodes", Node).items

    def _same_defaults(self) -> None:
        if self.defaults and self.defaults() != self.made.defaults:
            raise ChangedError("the namespace's defaults have changed")

    def _dry_pod(self, pod: Manifest) -> Callable[[], Any]:
        return lambda: self.api.create(self.path_of(pod), pod, dry_run=True)

    def _read(self, kind: str, name: str) -> Callable[[], Any]:
        return lambda: self.api.get(f"{PATHS[kind].format(self.namespace)}/{name}")

    def make_helpers(self) -> None:
        """The helpers, side by side; those that are there already from a submit that was killed are taken over."""
        going = self.store.room_for(self.made.helpers, datetime.now(UTC))
        calls: list[Callable[[], Any]] = [partial(self.store.remove, one) for one in going]
        calls += [self._share(one) if is_code(one) else self._make(one) for one in self.made.helpers]
        raise_first(together(calls))

    def _share(self, helper: Manifest) -> Callable[[], None]:
        """Code is there already or it is made; it belongs to no run alone, so none takes it over."""
        path, name = self.path_of(helper), helper["metadata"]["name"]

        def share() -> None:
            if name not in self.store.found:
                with suppress(AlreadyExistsError):
                    self.unowned.append(self.api.create(path, helper)["metadata"])
            self.shared[f"{path}/{name}"] = helper

        return share

    def _make(self, helper: Manifest) -> Callable[[], None]:
        path, name = self.path_of(helper), helper["metadata"]["name"]

        def make() -> None:
            try:
                self.api.create(path, helper)
            except AlreadyExistsError:
                self._take_over(f"{path}/{name}", helper)
                self.taken.add(f"{path}/{name}")
            self.created.append(f"{path}/{name}")

        return make

    def _take_over(self, path: str, helper: Manifest) -> None:
        there = self.api.get(path)
        labels = there["metadata"].get("labels") or {}
        if labels.get(MANAGED_BY) != "arena":
            kind, name = helper["kind"], helper["metadata"]["name"]
            raise AlreadyExistsError(f"{kind} {name!r} exists and is not arena's", hint="another --name")
        self.api.patch(path, {"metadata": {"labels": helper["metadata"]["labels"]}})

    def give(self, thing: Mapping[str, Any]) -> None:
        """Make the job the owner of its helpers: whoever deletes it deletes them."""
        patch = {"metadata": {"ownerReferences": [owner_of(thing)]}}
        own = [self._give(path, patch) for path in self.created]
        answers = together(own + [self._join(path, patch) for path in self.shared])
        refused = [answer.what for answer in answers if isinstance(answer, ArenaError)]
        self.warnings += [f"not all it needs goes when it is deleted: {refused[0]}"] if refused else []

    def _give(self, path: str, patch: Manifest) -> Callable[[], Any]:
        return lambda: self.api.patch(path, patch, how="strategic")

    def _join(self, path: str, patch: Manifest) -> Callable[[], Any]:
        """One more owner of shared code; it is made again when its last other owner took it away meanwhile."""

        def join() -> Any:
            try:
                return self.api.patch(path, patch, how="strategic")
            except NotFoundError:
                helper = self.shared[path]
                return self.api.create(self.path_of(helper), apply_patch(helper, patch))

        return join

    def undo(self) -> None:
        """Remove the helpers that were made for a job that is not."""
        calls: list[Callable[[], Any]] = [partial(self.store.remove, convert(one, Meta)) for one in self.unowned]
        together(calls + [self._remove(path) for path in self.created if path not in self.taken])

    def _remove(self, path: str) -> Callable[[], None]:
        """Remove a helper, unless another submit of that name has taken it over."""

        def remove() -> None:
            there = self.api.get(path)["metadata"]
            if (there.get("labels") or {}).get(RUN_LABEL) == self.plan.run_id:
                self.api.delete(path, uid=there["uid"], version=there["resourceVersion"])

        return remove

    def path_of(self, manifest: Manifest) -> str:
        """Where objects of this kind are made."""
        kind = manifest["kind"]
        if kind in PATHS:
            return PATHS[kind].format(self.namespace)
        engine = self.made.engine
        resource = self.api.discovery.find(engine.kind, engine.group, engine.version)
        if resource is None:
            raise BackendError(f"this cluster serves no {engine.kind}", why=f"{engine.operator} is not installed")
        return resource.path(self.namespace)


def owner_of(thing: Mapping[str, Any]) -> Manifest:
    """The reference that makes this object an owner; nothing blocks its deletion."""
    metadata = thing["metadata"]
    return {
        "apiVersion": thing["apiVersion"],
        "kind": thing["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def pods_of(made: Made) -> Iterator[Manifest]:
    """One pod of each template in the job object: quota, limits, security and webhooks answer to it."""
    for number, template in enumerate(templates(made.thing)):
        metadata = {**template.get("metadata", {}), "name": f"{made.work.run_id}-ask-{number}"[:253]}
        metadata["namespace"] = made.work.namespace
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def templates(node: Any) -> Iterator[Manifest]:
    """Every pod template below: a mapping `template` whose spec has containers."""
    return (template for template, _ in counted(node))


def counted(node: Any, times: int = 1) -> Iterator[tuple[Manifest, int]]:
    """Every pod template below, and how many pods are made of it."""
    if isinstance(node, Mapping):
        if "template" in node:
            times *= int(node.get("replicas", node.get("parallelism", 1)))
        for key, value in node.items():
            if key == "template" and isinstance(value, Mapping) and "containers" in (value.get("spec") or {}):
                yield dict(value), times
            else:
                yield from counted(value, times)
    elif isinstance(node, list):
        for value in node:
            yield from counted(value, times)


def misfits(pods: Iterable[Asked], nodes: Sequence[Node]) -> Iterator[str]:
    """What today's nodes cannot hold: said, not refused, for nodes may come."""
    for line in dict.fromkeys(line for pod in pods for line in fitting.too_large(pod, nodes)):
        yield f"no node fits today: {line}"
    for line in dict.fromkeys(line for pod in pods if (line := fitting.not_matching(pod, nodes))):
        yield f"no node fits today: {line}"


def named_by(thing: Manifest, helpers: Sequence[Manifest]) -> set[tuple[str, str]]:
    """The claims and secrets that pods of this job wait for, but for those the submit makes itself."""
    own = {helper["metadata"]["name"] for helper in helpers}
    found = {pair for template in templates(thing) for pair in _named(template["spec"])}
    return {(kind, name) for kind, name in found if name not in own}


def _named(spec: Manifest) -> Iterator[tuple[str, str]]:
    for volume in spec.get("volumes", []):
        if claim := volume.get("persistentVolumeClaim"):
            yield "PersistentVolumeClaim", claim["claimName"]
        if (secret := volume.get("secret")) and not secret.get("optional"):
            yield "Secret", secret["secretName"]
        if (config := volume.get("configMap")) and not config.get("optional"):
            yield "ConfigMap", config["name"]
    for secret in spec.get("imagePullSecrets", []):
        yield "Secret", secret["name"]


def raise_first(answers: Iterable[object]) -> None:
    """The first refusal among the answers, raised."""
    for answer in answers:
        if isinstance(answer, ArenaError):
            raise answer
