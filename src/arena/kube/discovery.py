"""What a cluster serves: its kinds, where they are, and what fields they have; kept on disk for ten minutes."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec
from msgspec import Struct, field

from arena.errors import ArenaError
from arena.kube import forks
from arena.kube.errors import AbsentError, Answer, UnpublishedError, strange
from arena.kube.wire import JSON

if TYPE_CHECKING:
    from arena.kube.api import Api

KEPT = 600.0  # seconds
AGGREGATED = ",".join(
    [*(f"{JSON};g=apidiscovery.k8s.io;v={v};as=APIGroupDiscoveryList" for v in ("v2", "v2beta1")), JSON]
)
KINDS = ("APIGroupDiscoveryList", "APIVersions", "APIGroupList")


class Resource(Struct, frozen=True, order=True):
    """A kind as a cluster serves it.

    >>> Resource("batch", "v1", "jobs", "Job", True).path("team-a", "train", "status")
    '/apis/batch/v1/namespaces/team-a/jobs/train/status'
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """As it stands in an object: `batch/v1`, `v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str, name: str = "", sub: str = "") -> str:
        """Where its objects are; without a namespace in all of them."""
        root = "/apis" if self.group else "/api"
        place = ["namespaces", quote(namespace, safe="")] if self.namespaced and namespace else []
        return "/".join([root, self.api_version, *place, self.plural, *filter(None, (quote(name, safe=""), sub))])


class _Known(Struct):
    """What is kept on disk: every version of every kind, the preferred first, and the fields that were asked for."""

    at: float = 0.0
    resources: list[Resource] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    properties: dict[str, list[str]] = field(default_factory=dict)


class Discovery:
    """The kinds of one cluster, asked for once; threads may share it."""

    def __init__(self, api: Api, cache: Path | None) -> None:
        self._api = api
        self._file = cache / f"{api.access.asker}.json" if cache else None
        self._lock = forks.Lock()
        self._known: _Known | None = None
        self._remembered = False

    def find(self, kind: str, group: str, version: str = "") -> Resource | None:
        """The kind in this version, else in the one the server prefers; None where it is not served."""
        found = [one for one in self.resources() if (one.kind, one.group) == (kind, group)]
        return next((one for one in found if one.version == version), found[0] if found else None)

    def resources(self) -> list[Resource]:
        """All kinds in all versions, in the server's order of preference."""
        return self._current().resources

    def serving(self, api_version: str, kind: str) -> Resource | None:
        """The kind in this very version; one that is not remembered is asked for, as it may be new."""
        wanted = (api_version, kind)
        if found := self._serving(wanted):
            return found
        return self._serving(wanted) if self.renew() else None

    def _serving(self, wanted: tuple[str, str]) -> Resource | None:
        return next((one for one in self.resources() if (one.api_version, one.kind) == wanted), None)

    def renew(self) -> bool:
        """Whether what was known came from the disk; then it is asked for again."""
        with self._lock:
            self._current()
            remembered, self._remembered = self._remembered, False
            if remembered:
                self._known = self._ask()
            return remembered

    @property
    def warnings(self) -> list[str]:
        """What could not be asked: the groups whose own server is down."""
        return self._current().warnings

    def refresh(self) -> None:
        """Forget what is known; the next question goes to the server."""
        with self._lock:
            self._known = None
            if self._file:
                self._file.unlink(missing_ok=True)

    def properties(self, resource: Resource, path: Sequence[str] = ("spec",)) -> frozenset[str]:
        """The names of the fields below a path of the kind's schema; none where there is no such path."""
        wanted = "/".join([resource.api_version, resource.kind, *path])
        with self._lock:
            known = self._current()
            if wanted not in known.properties:
                known.properties[wanted] = sorted(_properties(self._api, resource, path))
                self._write(known)
            return frozenset(known.properties[wanted])

    def _current(self) -> _Known:
        with self._lock:
            if self._known is None or not 0 <= time.time() - self._known.at < KEPT:
                read = self._read()
                self._remembered = read is not None
                self._known = read or self._ask()
            return self._known

    def _ask(self) -> _Known:
        resources, warnings = _served(self._api)
        known = _Known(time.time(), resources, warnings)
        if not warnings:  # what is down now may be there in a moment
            self._write(known)
        return known

    def _read(self) -> _Known | None:
        """What is on disk, if it is ours and young enough."""
        if self._file is None:
            return None
        with contextlib.suppress(OSError, msgspec.DecodeError):
            known = msgspec.json.decode(self._file.read_bytes(), type=_Known)
            return known if 0 <= time.time() - known.at < KEPT else None
        return None

    def _write(self, known: _Known) -> None:
        if self._file is None or known.warnings:
            return
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, path = tempfile.mkstemp(dir=self._file.parent)
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.encode(known))
            os.replace(path, self._file)


class _Kind(Struct):
    kind: str = ""


class _Served(Struct, rename="camel"):
    """A resource, in the words of aggregated discovery and of the older lists."""

    resource: str = ""
    response_kind: _Kind | None = None
    scope: str = ""
    name: str = ""
    kind: str = ""
    namespaced: bool = False

    def at(self, group: str, version: str) -> Resource:
        kind = self.response_kind.kind if self.response_kind else self.kind
        return Resource(group, version, self.resource or self.name, kind, self.namespaced or self.scope == "Namespaced")


class _Version(Struct, rename="camel"):
    version: str
    freshness: str = "Current"
    resources: list[_Served] | None = None


class _Name(Struct, frozen=True):
    name: str = ""


class _Group(Struct):
    metadata: _Name = _Name()
    name: str = ""
    versions: list[_Version] | None = None


class _Answer(Struct):
    """What /api and /apis answer: aggregated (`items`), or names only."""

    kind: str = ""
    items: list[_Group] | None = None
    groups: list[_Group] | None = None
    versions: list[str] | None = None
    resources: list[_Served] | None = None


def _served(api: Api) -> tuple[list[Resource], list[str]]:
    """Every kind, and what could not be asked."""
    from arena.kube.api import decode, together

    def ask(root: str) -> _Answer:
        try:
            answer: _Answer = decode(api.wire.ask("GET", root, accept=AGGREGATED).content, _Answer)
        except AbsentError as error:
            raise strange(error.answer, api.access) from error
        if answer.kind not in KINDS:
            raise strange(Answer(200, message=f"{answer.kind or 'no kind'} at {root}"), api.access)
        return answer

    resources: list[Resource] = []
    warnings: list[str] = []
    older: list[tuple[str, str]] = []
    for answer in together([lambda: ask("/api"), lambda: ask("/apis")]):
        if isinstance(answer, ArenaError):
            raise answer
        older += [("", version) for version in answer.versions or ()]
        older += [(group.name, one.version) for group in answer.groups or () for one in group.versions or ()]
        for group in answer.items or ():
            _take(group, resources, warnings)
    _ask_each(api, older, resources, warnings)
    return resources, warnings


def _take(group: _Group, resources: list[Resource], warnings: list[str]) -> None:
    name = group.metadata.name
    for version in group.versions or ():
        if version.freshness != "Current":
            warnings.append(f"the server of {name}/{version.version} does not answer: its kinds may have changed")
        resources += [one.at(name, version.version) for one in version.resources or ()]


def _ask_each(api: Api, versions: list[tuple[str, str]], resources: list[Resource], warnings: list[str]) -> None:
    """An older server, group by group; one that is down is a warning."""
    from arena.kube.api import together

    paths = [f"/apis/{group}/{version}" if group else f"/api/{version}" for group, version in versions]
    answers = together([lambda path=path: api.get(path, _Answer) for path in paths])  # type: ignore[misc]
    for (group, version), answer in zip(versions, answers, strict=True):
        if isinstance(answer, ArenaError):
            warnings.append(f"the server of {group}/{version} does not answer: {answer.what}")
            continue
        resources += [one.at(group, version) for one in answer.resources or () if "/" not in one.name]


class _Document(Struct):
    url: str = field(name="serverRelativeURL")


class _Documents(Struct):
    paths: dict[str, _Document]


class _Gvk(Struct, frozen=True):
    group: str = ""
    version: str = ""
    kind: str = ""


class _Schema(Struct, rename="camel"):
    properties: dict[str, _Schema] | None = None
    items: _Schema | None = None
    all_of: list[_Schema] | None = None
    ref: str = field(default="", name="$ref")
    kinds: list[_Gvk] | None = field(default=None, name="x-kubernetes-group-version-kind")


class _Components(Struct):
    schemas: dict[str, _Schema]


class _OpenApi(Struct):
    components: _Components


def _properties(api: Api, resource: Resource, path: Sequence[str]) -> set[str]:
    root = ("apis/" if resource.group else "api/") + resource.api_version
    document = api.get("/openapi/v3", _Documents).paths.get(root)
    if document is None:
        raise UnpublishedError(f"the server publishes no schema of {resource.api_version}")
    address = document.url.partition("?")[0]  # with a hash that is old by now the server would redirect
    schemas = api.get(address, _OpenApi).components.schemas
    wanted = _Gvk(resource.group, resource.version, resource.kind)
    schema = next((one for one in schemas.values() if wanted in (one.kinds or ())), _Schema())
    for name in path:
        schema = (_followed(schema, schemas).properties or {}).get(name, _Schema())
    return set(_followed(schema, schemas).properties or ())


def _followed(schema: _Schema, schemas: dict[str, _Schema]) -> _Schema:
    """The schema itself, through references and the items of lists."""
    while not schema.properties:
        inner = schema.all_of[0] if schema.all_of else schema.items
        if schema.ref:
            inner = schemas.get(schema.ref.rpartition("/")[2])
        if inner is None:
            break
        schema = inner
    return schema
