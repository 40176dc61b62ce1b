"""A submit: asked first, then helpers, the job, and owners; at most four round trips one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import convert

from arena.backends.base import Plan, Ref
from arena.backends.kubernetes.planning import Made
from arena.backends.kubernetes.stored import Store, is_code
from arena.engines.base import MANAGED_BY, Manifest
from arena.engines.patching import apply_patch
from arena.errors import AlreadyExistsError, ArenaError, BackendError, NotFoundError
from arena.kube.api import Meta, together

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

    def __init__(self, api: Api, plan: Plan, defaults: Callable[[], Mapping[str, str]] | None = None) -> None:
        self.api = api
        self.plan = plan
        self.defaults = defaults
        made = plan.data
        assert isinstance(made, Made)
        self.made = made
        self.namespace = made.work.namespace
        self.created: list[str] = []
        self.shared: dict[str, Manifest] = {}
        self.unowned: list[Manifest] = []
        self.store = Store(api, self.namespace)

    def carry_out(self) -> Ref:
        """Ask, make the helpers, make the job, give it its helpers."""
        self.ask()
        try:
            self.make_helpers()
            thing = self.api.create(self.path_of(self.made.thing), self.made.thing)
        except BaseException:
            self.undo()
            raise
        self.give(thing)
        uid = thing["metadata"]["uid"]
        return Ref(
            name=self.plan.name, run_id=self.plan.run_id, namespace=self.namespace, kind=self.made.engine.name, uid=uid
        )

    def ask(self) -> Manifest:
        """The job as the server would make it, once it has said yes to one pod of each role too; nothing is written."""
        calls: list[Callable[[], Any]] = [
            lambda: self.api.create(self.path_of(self.made.thing), self.made.thing, dry_run=True)
        ]
        calls += [self._dry_pod(pod) for pod in pods_of(self.made)]
        calls += [self._read(kind, name) for kind, name in named_by(self.made.thing, self.made.helpers)]
        answers: list[Any] = together([*calls, self.store.read, self._same_defaults])
        raise_first([answer for answer in answers if isinstance(answer, ChangedError)] or answers)
        thing: Manifest = answers[0]
        return thing

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
        together(own + [self._join(path, patch) for path in self.shared])

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
        together(calls + [self._remove(path) for path in self.created])

    def _remove(self, path: str) -> Callable[[], Any]:
        return lambda: self.api.delete(path)

    def path_of(self, manifest: Manifest) -> str:
        """Where objects of this kind are made."""
        kind = manifest["kind"]
        if kind in PATHS:
            return PATHS[kind].format(self.namespace)
        engine = self.made.engine
        resource = self.api.discovery.find(engine.kind, engine.group)
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
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key == "template" and isinstance(value, Mapping) and "containers" in (value.get("spec") or {}):
                yield dict(value)
            else:
                yield from templates(value)
    elif isinstance(node, list):
        for value in node:
            yield from templates(value)


def named_by(thing: Manifest, helpers: Sequence[Manifest]) -> set[tuple[str, str]]:
    """The claims and secrets that pods of this job wait for, but for those the submit makes itself."""
    own = {helper["metadata"]["name"] for helper in helpers}
    found = {pair for template in templates(thing) for pair in _named(template["spec"])}
    return {(kind, name) for kind, name in found if name not in own}


def _named(spec: Manifest) -> Iterator[tuple[str, str]]:
    for volume in spec.get("volumes", []):
        if claim := volume.get("persistentVolumeClaim"):
            yield "PersistentVolumeClaim", claim["claimName"]
        if secret := volume.get("secret"):
            yield "Secret", secret["secretName"]
        if config := volume.get("configMap"):
            yield "ConfigMap", config["name"]
    for secret in spec.get("imagePullSecrets", []):
        yield "Secret", secret["name"]


def raise_first(answers: Iterable[object]) -> None:
    """The first refusal among the answers, raised."""
    for answer in answers:
        if isinstance(answer, ArenaError):
            raise answer
