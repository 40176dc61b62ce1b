"""An operator's own object, sent as it stands in a file: nothing is rendered, nothing is added but the namespace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from arena import engines
from arena.backends.base import Ref
from arena.backends.kubernetes.submitting import raise_first
from arena.engines.base import RUN_LABEL, Engine, Manifest
from arena.errors import SpecError, UnsupportedError
from arena.kube.api import together
from arena.kube.errors import UnknownOutcomeError

if TYPE_CHECKING:
    from arena.kube.api import Api


class Objects(Struct, frozen=True):
    """What a file holds: one job object of a known kind, and what it needs beside it."""

    engine: Engine
    thing: Manifest
    helpers: tuple[Manifest, ...] = ()

    @property
    def all(self) -> tuple[Manifest, ...]:
        """Helpers first."""
        return (*self.helpers, self.thing)


def objects_of(documents: Sequence[Any], file: str) -> Objects:
    """The job and the helpers among the documents of a file; SpecError unless exactly one of them is a job."""
    known = {(engine.kind, engine.group): engine for engine in map(engines.load, engines.ENGINES)}
    documents = [one for document in documents for one in _items(document)]
    for number, one in enumerate(documents, 1):
        if not (isinstance(one, Mapping) and one.get("apiVersion") and one.get("kind") and _has_metadata(one)):
            raise SpecError(f"{file}: document {number} is no object: apiVersion, kind and metadata are needed")
    jobs = [one for one in documents if key_of(one) in known]
    if len(jobs) != 1:
        found = ", ".join(f"{one['kind']} {one['metadata'].get('name', '')}".strip() for one in jobs or documents)
        what = f"{file}: {len(jobs)} jobs in one file" if jobs else f"{file} holds no job that arena knows"
        raise SpecError(what, why=f"it holds {found}", hint=f"kubectl apply -f {file}, or one job to a file")
    (thing,) = jobs
    return Objects(known[key_of(thing)], thing, tuple(one for one in documents if one is not thing))


def _items(document: Any) -> Sequence[Any]:
    """The objects of a document: those of a `List`, as a dry run prints them, else itself."""
    if isinstance(document, Mapping) and document.get("kind") == "List" and isinstance(document.get("items"), list):
        items: list[Any] = document["items"]
        return items
    return [document]


def _has_metadata(one: Mapping[str, Any]) -> bool:
    return isinstance(one.get("metadata"), Mapping) and bool(one["metadata"])


def key_of(manifest: Mapping[str, Any]) -> tuple[str, str]:
    """Kind and group of an object."""
    version = str(manifest["apiVersion"])
    return str(manifest["kind"]), version.rpartition("/")[0]


class Sending:
    """One file on its way to the server; what it has made is removed again when its job is refused."""

    def __init__(self, api: Api, objects: Objects, namespace: str) -> None:
        self.api = api
        self.objects = objects
        self.namespace = namespace
        self.created: list[str] = []

    def ask(self) -> tuple[Manifest, ...]:
        """The objects as the server would make them; nothing is made."""
        answers = together([lambda one=one: self._create(one, dry_run=True) for one in self.objects.all])  # type: ignore[misc]
        raise_first(answers)
        return tuple(map(applicable, answers))  # type: ignore[arg-type]

    def carry_out(self) -> Ref:
        """Ask, make the helpers in their order, make the job."""
        self.ask()
        try:
            for helper in self.objects.helpers:
                made = self._create(helper)
                self.created.append(f"{self._path(helper)}/{made['metadata']['name']}")
            thing = self._create(self.objects.thing)
        except UnknownOutcomeError:  # the job may be there: what it may need is not taken from it
            raise
        except BaseException:
            together([lambda path=path: self.api.delete(path) for path in self.created])  # type: ignore[misc]
            raise
        metadata = thing["metadata"]
        run_id = (metadata.get("labels") or {}).get(RUN_LABEL) or metadata["uid"]
        engine = self.objects.engine.name
        return Ref(name=metadata["name"], run_id=run_id, namespace=self.namespace, kind=engine, uid=metadata["uid"])

    def _create(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        body = {**manifest, "metadata": {**manifest["metadata"], "namespace": self._namespace(manifest)}}
        return self.api.create(self._path(manifest), body, dry_run=dry_run)

    def _namespace(self, manifest: Manifest) -> str:
        named = str(manifest["metadata"].get("namespace") or self.namespace)
        if named != self.namespace:
            raise SpecError(
                f"the object is for namespace {named!r}, the command for {self.namespace!r}", hint=f"-n {named}"
            )
        return named

    def _path(self, manifest: Manifest) -> str:
        version, kind = manifest["apiVersion"], manifest["kind"]
        for resource in self.api.discovery.resources():
            if (resource.api_version, resource.kind) == (version, kind):
                return resource.path(self.namespace)
        raise UnsupportedError(f"this cluster serves no {kind} of {version}", hint="arena doctor")


def applicable(thing: Manifest) -> Manifest:
    """An object of the cluster as kubectl apply takes it: without what the server wrote into it."""
    metadata = {key: value for key, value in thing["metadata"].items() if key not in _WRITTEN}
    annotations = {key: value for key, value in metadata.get("annotations", {}).items() if key != _APPLIED}
    if "annotations" in metadata:
        metadata["annotations"] = annotations
    found = {**thing, "metadata": metadata}
    found.pop("status", None)
    return _without_selector(found) if thing["kind"] == "Job" else found


_WRITTEN = {"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "ownerReferences", "selfLink"}
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_OF_JOBS = {"controller-uid", "batch.kubernetes.io/controller-uid", "job-name", "batch.kubernetes.io/job-name"}


def _without_selector(job: Manifest) -> Manifest:
    """A Job without the selector and the labels by which its controller tells its pods from others'."""
    spec = {key: value for key, value in job["spec"].items() if key != "selector"}
    template = spec["template"]
    labels = {key: value for key, value in (template["metadata"].get("labels") or {}).items() if key not in _OF_JOBS}
    spec["template"] = {**template, "metadata": {**template["metadata"], "labels": labels}}
    own = job["metadata"]
    kept = {key: value for key, value in (own.get("labels") or {}).items() if key not in _OF_JOBS}
    return {**job, "metadata": {**own, "labels": kept}, "spec": spec}
