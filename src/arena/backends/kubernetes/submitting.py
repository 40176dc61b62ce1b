"""A submit: asked first, then helpers, the job, and owners; at most four round trips one after another."""

from __future__ import annotations

import time
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
from arena.errors import AlreadyExistsError, ArenaError, BackendError, NotFoundError, UnsupportedError
from arena.kube.api import Meta, together
from arena.kube.errors import ConflictError, UnknownOutcomeError

if TYPE_CHECKING:
    from arena.kube.api import Api

# What every cluster serves, so that nobody has to ask where it is.
BUILT_IN = {
    ("v1", "ConfigMap"): "/api/v1/namespaces/{}/configmaps",
    ("v1", "Secret"): "/api/v1/namespaces/{}/secrets",
    ("v1", "Service"): "/api/v1/namespaces/{}/services",
    ("v1", "Pod"): "/api/v1/namespaces/{}/pods",
    ("v1", "PersistentVolumeClaim"): "/api/v1/namespaces/{}/persistentvolumeclaims",
    ("apps/v1", "Deployment"): "/apis/apps/v1/namespaces/{}/deployments",
}
PATCHES = "runtimePatches"  # parts of templates that a TrainJob does not have itself
UNSEEN = 10.0  # seconds that an operator has to see what was made before its job


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
        self.namespace = made.namespace
        self.created: list[str] = []
        self.owned: list[str] = []
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
            left = [] if self.unsure and not isinstance(error, AlreadyExistsError) else self.undo()
            if isinstance(error, ArenaError):
                raise _with_left(refusals.told(error, self.place), left) from error.__cause__
            raise
        self.give(thing)
        metadata = thing["metadata"]
        return Ref(
            name=metadata["name"],
            run_id=self.plan.run_id or metadata["uid"],
            namespace=self.namespace,
            kind=self.made.engine.name,
            uid=metadata["uid"],
        )

    def _make_job(self) -> Manifest:
        """The job as it was made; where the connection broke it is sent again, as only one of that name can be."""
        path = self.path_of(self.made.thing)
        try:
            return self._make_seen(path)
        except UnknownOutcomeError:
            self.unsure = True  # what a job may need is not undone
            if not self.plan.run_id:  # nothing tells this job from another of its name
                raise
        try:
            made = self.api.create(path, self.made.thing)
        except (AlreadyExistsError, UnknownOutcomeError):
            found = self._mine(path)
            if found is None:
                raise
            made = found
        self.unsure = False
        return made

    def _make_seen(self, path: str) -> Manifest:
        """The job as it was made, asked for again while its operator has not yet seen what was made before it."""
        end = time.monotonic() + UNSEEN
        while True:
            try:
                return self.api.create(path, self.made.thing)
            except ArenaError as error:
                if not refusals.is_unseen(error, self.made.helpers) or time.monotonic() > end:
                    raise
            time.sleep(0.1)

    def _mine(self, path: str) -> Manifest | None:
        """The job of this very run, if the server has it."""
        try:
            found = self.api.get(f"{path}/{self.plan.name}")
        except NotFoundError:
            return None
        return found if (found["metadata"].get("labels") or {}).get(RUN_LABEL) == self.plan.run_id else None

    def ask(self) -> Manifest:
        """The job as the server would make it, once it has said yes to one pod of each role too; nothing is written.

        A job that waits for one of its helpers only is as it was planned.
        """
        pods = list(pods_of(self.made.thing, self.plan.name, self.namespace))
        named = sorted(named_by(self.made.thing, self.made.helpers))
        calls: list[Callable[[], Any]] = [self._dry(self.made.thing), *map(self._dry, pods)]
        calls += [self._read(kind, name) for kind, name in named]
        calls += [self._quotas, self._nodes, self.store.read, self._same_defaults, self._helpers]
        answered: list[Any] = together(calls)
        thing, *others = answered
        *others, quotas, nodes, stored, same, helpers = others
        raise_first([same])
        thing = self.made.thing if refusals.is_unseen(thing, self.made.helpers) else thing
        answers = Answers(
            thing=thing,
            pods=others[: len(pods)],
            counts=[count for _, count in counted(self.made.thing)],
            named=list(zip(named, others[len(pods) :], strict=True)),
            quotas=quotas,
            queued=self.made.queued,
        )
        raise_first([refusals.refusal(answers, self.place), stored, helpers])
        self.warnings = [] if isinstance(nodes, ArenaError) else list(misfits(refusals.asked_of(answers), nodes))
        made: Manifest = thing
        return made

    @property
    def place(self) -> Place:
        """Where it goes, for those who read a refusal."""
        engine = self.made.engine
        return Place(self.namespace, engine.kind, engine.operator, self.made.hidden, self.made.flags)

    def _quotas(self) -> list[Quota]:
        return self.api.list(f"/api/v1/namespaces/{self.namespace}/resourcequotas", Quota).items

    def _nodes(self) -> list[Node]:
        """The nodes, where the job wants something that not every node has."""
        wanted = [fitting.asked_by(template) for template, _ in counted(self.made.thing)]
        if not any(one.selector or any("/" in name for name in one.needs) for one in wanted):
            return []
        return self.api.list("/api/v1/nodes", Node).items

    def _same_defaults(self) -> None:
        if self.defaults and self.made.defaults is not None and self.defaults() != self.made.defaults:
            raise ChangedError("the namespace's defaults have changed")

    def _helpers(self) -> None:
        """Ask for the helpers that are not arena's; one that is there already is looked at when it is to be made."""
        for helper in self.made.helpers:
            if not is_ours(helper):
                with suppress(AlreadyExistsError):
                    self._dry(helper)()

    def _dry(self, manifest: Manifest) -> Callable[[], Any]:
        return lambda: self.api.create(self.path_of(manifest), manifest, dry_run=True)

    def _read(self, kind: str, name: str) -> Callable[[], Any]:
        return lambda: self.api.get(f"{self.path('v1', kind)}/{name}")

    def make_helpers(self) -> None:
        """The helpers, side by side; those that are there already from a submit that was killed are taken over."""
        going = self.store.room_for(self.made.helpers, datetime.now(UTC))
        calls: list[Callable[[], Any]] = [partial(self.store.remove, one) for one in going]
        calls += [self._share(one) if is_code(one) else partial(self._make, one) for one in self.made.helpers]
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

    def _make(self, helper: Manifest) -> None:
        path = f"{self.path_of(helper)}/{helper['metadata']['name']}"
        try:
            self.api.create(self.path_of(helper), helper)
        except AlreadyExistsError:
            if not self._take_over(path, helper):
                return
            self.taken.add(path)
        self.created.append(path)
        if is_ours(helper):
            self.owned.append(path)

    def _take_over(self, path: str, helper: Manifest) -> bool:
        """Whether what is there is this job's now: an own helper is, another's is used where it is as it should be."""
        there = self.api.get(path)
        if is_ours(helper) and is_ours(there):
            self.api.patch(path, {"metadata": {"labels": helper["metadata"]["labels"]}})
            return True
        what = f"{helper['kind']} {helper['metadata']['name']!r} exists"
        if is_ours(helper):
            raise AlreadyExistsError(f"{what} and is not arena's", hint="another --name")
        if differing := next(differences(helper, there), ""):
            raise AlreadyExistsError(f"{what} and has another {differing}", hint="kubectl apply -f, or another name")
        return False

    def give(self, thing: Mapping[str, Any]) -> None:
        """Make the job the owner of its helpers: whoever deletes it deletes them."""
        patch = {"metadata": {"ownerReferences": [owner_of(thing)]}}
        own = [self._give(path, patch) for path in self.owned]
        answers = together(own + [self._join(path, patch) for path in self.shared])
        refused = [answer.what for answer in answers if isinstance(answer, ArenaError)]
        self.warnings += [f"not all it needs goes when it is deleted: {refused[0]}"] if refused else []

    def _give(self, path: str, patch: Manifest) -> Callable[[], Any]:
        """An owner more; of a kind of an operator's, which knows no such patch, the only one."""
        known = any(path.startswith(one.format(self.namespace)) for one in BUILT_IN.values())
        return lambda: self.api.patch(path, patch, how="strategic" if known else "merge")

    def _join(self, path: str, patch: Manifest) -> Callable[[], Any]:
        """One more owner of shared code; it is made again when its last other owner took it away meanwhile."""

        def join() -> Any:
            try:
                return self.api.patch(path, patch, how="strategic")
            except NotFoundError:
                helper = self.shared[path]
                return self.api.create(self.path_of(helper), apply_patch(helper, patch))

        return join

    def undo(self) -> list[str]:
        """Remove the helpers that were made for a job that is not; what could not be removed, and why."""
        calls: list[Callable[[], Any]] = [partial(self.store.remove, convert(one, Meta)) for one in self.unowned]
        answers = together(calls + [self._remove(path) for path in self.created if path not in self.taken])
        return [error.what for error in answers if isinstance(error, ArenaError)]

    def _remove(self, path: str) -> Callable[[], None]:
        """Remove a helper, unless it is gone or another submit of that name has taken it over."""

        def remove() -> None:
            with suppress(NotFoundError, ConflictError):
                there = self.api.get(path)["metadata"]
                if (there.get("labels") or {}).get(RUN_LABEL, self.plan.run_id) == self.plan.run_id:
                    self.api.delete(path, uid=there["uid"], version=there["resourceVersion"])

        return remove

    def path_of(self, manifest: Manifest) -> str:
        """Where objects of this kind are made."""
        return self.path(manifest["apiVersion"], manifest["kind"])

    def path(self, version: str, kind: str) -> str:
        """Where objects of this kind are made; UnsupportedError where it is not served."""
        if known := BUILT_IN.get((version, kind)):
            return known.format(self.namespace)
        if resource := self.api.discovery.serving(version, kind):
            return resource.path(self.namespace)
        engine = self.made.engine
        missing = f"{engine.operator} is not installed" if kind == engine.kind else ""
        raise UnsupportedError(f"this cluster serves no {kind} of {version}", why=missing, hint="arena doctor")


def is_ours(manifest: Mapping[str, Any]) -> bool:
    """Whether arena made an object, or rendered it."""
    return bool((manifest["metadata"].get("labels") or {}).get(MANAGED_BY) == "arena")


def differences(wanted: Any, there: Any, path: str = "") -> Iterator[str]:
    """The paths at which an object is not as a file has it; what else it has does not count.

    >>> list(differences({"data": {"a": "1"}}, {"data": {"a": "2", "b": "3"}}))
    ['data.a']
    """
    if isinstance(wanted, Mapping) and isinstance(there, Mapping):
        for key, value in wanted.items():
            yield from differences(value, there.get(key), f"{path}.{key}".lstrip("."))
    elif wanted != there:
        yield path


def _with_left(error: ArenaError, left: Sequence[str]) -> ArenaError:
    """The error, and what its submit could not take back."""
    if left:
        error.hint = "; ".join(filter(None, [error.hint, f"what was made for it was not removed: {left[0]}"]))
    return error


def owner_of(thing: Mapping[str, Any]) -> Manifest:
    """The reference that makes this object an owner; nothing blocks its deletion."""
    metadata = thing["metadata"]
    return {
        "apiVersion": thing["apiVersion"],
        "kind": thing["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def pods_of(thing: Manifest, name: str, namespace: str) -> Iterator[Manifest]:
    """One pod of each template in the job object: quota, limits, security and webhooks answer to it."""
    for number, template in enumerate(templates(thing)):
        metadata = {**template.get("metadata", {}), "name": f"{name}-ask-{number}"[:253], "namespace": namespace}
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
            if key == PATCHES:
                continue
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
