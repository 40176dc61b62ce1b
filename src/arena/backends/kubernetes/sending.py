"""An operator's own object, planned as it stands in a file: nothing is rendered, nothing is added but the namespace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from arena import engines
from arena.backends.base import Context, Plan
from arena.backends.kubernetes.planning import Made
from arena.backends.kubernetes.templates import templated
from arena.engines import pods, shapes
from arena.engines.base import RUN_LABEL, Engine, Manifest
from arena.errors import SpecError

if TYPE_CHECKING:
    from arena.kube.api import Api


class Objects(Struct, frozen=True):
    """What a file holds: one job object of a known kind, and what it needs beside it."""

    engine: Engine
    thing: Manifest
    helpers: tuple[Manifest, ...] = ()
    file: str = ""

    @property
    def all(self) -> tuple[Manifest, ...]:
        """Helpers first."""
        return (*self.helpers, self.thing)


def objects_of(documents: Sequence[Any], file: str) -> Objects:
    """The job and the helpers among the documents of a file; SpecError unless exactly one of them is a job."""
    known = {(engine.kind, engine.group): engine for engine in map(engines.load, engines.ENGINES)}
    documents = [_filled(one) for document in documents for one in _items(document)]
    for number, one in enumerate(documents, 1):
        if not (isinstance(one, Mapping) and one.get("apiVersion") and one.get("kind") and _has_metadata(one)):
            raise SpecError(f"{file}: document {number} is no object: apiVersion, kind and metadata are needed")
    jobs = [one for one in documents if key_of(one) in known]
    if len(jobs) != 1:
        found = ", ".join(f"{one['kind']} {one['metadata'].get('name', '')}".strip() for one in jobs or documents)
        what = f"{file}: {len(jobs)} jobs in one file" if jobs else f"{file} holds no job that arena knows"
        raise SpecError(what, why=f"it holds {found}", hint=f"kubectl apply -f {file}, or one job to a file")
    (thing,) = jobs
    if nameless := [one["kind"] for one in documents if one is not thing and not one["metadata"].get("name")]:
        raise SpecError(f"{file}: a {nameless[0]} beside the job needs a metadata.name")
    return Objects(known[key_of(thing)], thing, tuple(one for one in documents if one is not thing), file)


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


def plan_of(objects: Objects, context: Context, api: Api, namespace: str) -> Plan:
    """The submit of an operator's own object: nothing is added to it, and its own helpers are owned by nobody."""
    thing, *helpers = (_placed(one, api, namespace) for one in (objects.thing, *objects.helpers))
    for one in templated(thing, helpers):
        shapes.check_shape(one, objects.file)
    labels = thing["metadata"].get("labels") or {}
    queued = pods.KUEUE in labels or bool(thing.get("spec", {}).get("suspend"))
    made = Made(
        engine=objects.engine,
        namespace=namespace,
        helpers=tuple(helpers),
        thing=thing,
        flags=False,
        queued=queued,
    )
    return Plan(
        backend="kubernetes",
        name=str(thing["metadata"].get("name") or thing["metadata"].get("generateName") or ""),
        run_id=labels.get(RUN_LABEL, ""),
        context=context,
        facts=(f"namespace {namespace}", f"engine {objects.engine.name}", f"{thing['kind']} of {objects.file}"),
        steps=(*helpers, thing),
        data=made,
    )


def _placed(manifest: Manifest, api: Api, namespace: str) -> Manifest:
    """An object in the namespace of the command; of a kind that has no namespace as it is."""
    named = str(manifest["metadata"].get("namespace") or namespace)
    if named != namespace:
        raise SpecError(f"the object is for namespace {named!r}, the command for {namespace!r}", hint=f"-n {named}")
    resource = api.discovery.serving(str(manifest["apiVersion"]), str(manifest["kind"]))
    if resource is None or resource.namespaced:
        return {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}
    return manifest


def renamed(objects: Objects, new: str, old: str) -> Objects:
    """The objects of a run as those of another one: its id stands in names and labels, and where they are named."""
    thing, *helpers = (_renamed(one, new, old) for one in (objects.thing, *objects.helpers))
    return structs.replace(objects, thing=thing, helpers=tuple(helpers))


def _renamed(node: Any, new: str, old: str) -> Any:
    if isinstance(node, Mapping):
        return {key: _renamed(value, new, old) for key, value in node.items()}
    if isinstance(node, list):
        return [_renamed(one, new, old) for one in node]
    return node.replace(old, new) if isinstance(node, str) else node


def _filled(node: Any) -> Any:
    """What a file says, without its nulls: they mean that nothing is said."""
    if isinstance(node, Mapping):
        return {key: _filled(value) for key, value in node.items() if value is not None}
    return [_filled(one) for one in node] if isinstance(node, list) else node


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
