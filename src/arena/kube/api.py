"""The verbs of the API server: get, list, watch, create, patch, delete, and answers that are streams."""

from __future__ import annotations

import contextlib
import gc
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, Literal, Self, TypeVar, overload

import msgspec
from msgspec import Struct, field

from arena.errors import ArenaError, BackendError
from arena.kube.config import Access
from arena.kube.discovery import Discovery
from arena.kube.errors import BETWEEN, ExpiredError
from arena.kube.streams import Event, read_lines, watched
from arena.kube.wire import JSON, READ, Wire

if TYPE_CHECKING:
    from arena.kube.channels import Forward

T = TypeVar("T")
Object = dict[str, Any]
Pages = list[Any]
How = Literal["merge", "json", "strategic", "apply"]

PATCHES: Mapping[How, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
AS_TABLE = f"{JSON};as=Table;v=v1;g=meta.k8s.io,{JSON}"
AS_METADATA = f"{JSON};as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,{JSON}"
LANES = 16  # requests side by side


class Listed(Struct, Generic[T], frozen=True):
    """All objects of a list, and the version of the world they were read at: a watch goes on from there."""

    items: list[T]
    version: str


class Owner(Struct, frozen=True, rename="camel"):
    """Whom an object belongs to."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Meta(Struct, frozen=True, rename="camel"):
    """An object's metadata."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    owner_references: tuple[Owner, ...] = ()
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None


class Column(Struct, frozen=True):
    """A column of a table; priority 0 is shown by default."""

    name: str
    type: str = "string"
    priority: int = 0
    description: str = ""


Columns = list[Column]


class Table(Struct, frozen=True):
    """What kubectl would print: columns, and rows of cells."""

    columns: list[Column]
    rows: list[list[Any]]


class _Partial(Struct, frozen=True):
    metadata: Meta = Meta()


class _ListMeta(Struct, rename="camel"):
    resource_version: str = ""
    more: str = field(default="", name="continue")


class _Page(Struct, Generic[T]):
    metadata: _ListMeta = field(default_factory=_ListMeta)
    items: list[T] | None = None


class _Row(Struct):
    cells: list[Any] = field(default_factory=list)


class _TablePage(Struct, rename="camel"):
    metadata: _ListMeta = field(default_factory=_ListMeta)
    column_definitions: list[Column] | None = None
    rows: list[_Row] | None = None


class Api:
    """One API server as one user; threads may share it.

    with Api(access) as api:
        api.list("/api/v1/namespaces/team-a/pods", Pod).items
    """

    def __init__(self, access: Access, *, agent: str = "arena", cache: Path | None = None) -> None:
        self.access = access
        self.wire = Wire(access, agent)
        self.agent = agent
        self.discovery = Discovery(self, cache)

    @property
    def namespace(self) -> str:
        """The namespace that the access names."""
        return self.access.namespace

    @overload
    def get(self, path: str, **query: str) -> Object: ...
    @overload
    def get(self, path: str, kind: type[T], **query: str) -> T: ...

    def get(self, path: str, kind: Any = dict, **query: str) -> Any:
        """What is at a path, as a `kind`; `bytes` is the answer itself."""
        content = self.wire.ask("GET", path, query, accept=JSON if kind is not bytes else "*/*").content
        return content if kind is bytes else decode(content, kind)

    def list(self, path: str, kind: type[T], *, labels: str = "", fields: str = "", limit: int = 500) -> Listed[T]:
        """All objects of a list, page by page; a list that changed too much meanwhile is read from the start."""
        pages = self._pages(path, _Page[kind], JSON, labels, fields, limit)  # type: ignore[valid-type]
        version = pages[0].metadata.resource_version
        return Listed([item for page in pages for item in page.items or ()], version)

    def metadata(self, path: str, *, labels: str = "", fields: str = "", limit: int = 500) -> Listed[Meta]:
        """The metadata of all objects of a list: a fraction of the bytes."""
        pages = self._pages(path, _Page[_Partial], AS_METADATA, labels, fields, limit)
        items = [item.metadata for page in pages for item in page.items or ()]
        return Listed(items, pages[0].metadata.resource_version)

    def table(self, path: str, *, labels: str = "", fields: str = "", limit: int = 500) -> Table:
        """The list as kubectl prints it, without the objects."""
        pages = self._pages(path, _TablePage, AS_TABLE, labels, fields, limit, includeObject="None")
        columns: Columns = next((page.column_definitions for page in pages if page.column_definitions), [])
        return Table(columns, [row.cells for page in pages for row in page.rows or ()])

    def watch(
        self,
        path: str,
        kind: type[T],
        *,
        version: str,
        labels: str = "",
        fields: str = "",
        stop: threading.Event | None = None,
    ) -> Iterator[Event[T]]:
        """Every change after a version, each once, until `stop` is set; a cut stream is taken up again.

        Where the server has forgotten the version, the event RELISTED brings all objects as they are now.
        """
        query = {"labelSelector": labels, "fieldSelector": fields}
        return watched(self, path, kind, version, query, stop or threading.Event())

    def create(self, path: str, body: Mapping[str, Any], *, dry_run: bool = False) -> Object:
        """The object as the server made it; a field it does not know is refused."""
        return self._write("POST", path, body, {"fieldValidation": "Strict"}, dry_run)

    def patch(
        self, path: str, body: Mapping[str, Any] | Sequence[Any], *, dry_run: bool = False, how: How = "merge"
    ) -> Object:
        """The object as it is after the patch; "apply" makes it where it is not, and takes the fields it names."""
        query = {"fieldManager": self.agent, "force": "true"} if how == "apply" else {}
        return self._write("PATCH", path, body, query, dry_run, PATCHES[how])

    def delete(
        self, path: str, *, uid: str = "", version: str = "", propagation: str = "Background", grace: int | None = None
    ) -> Object:
        """What the server says; with a `uid` only that very object is deleted, not a later one of its name.

        With a `version` it is deleted only if nobody has changed it since.
        """
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        only = {key: value for key, value in (("uid", uid), ("resourceVersion", version)) if value}
        body |= {"preconditions": only} if only else {}
        body |= {"gracePeriodSeconds": grace} if grace is not None else {}
        return self._write("DELETE", path, body, {}, False)

    def lines(self, path: str, *, stop: threading.Event | None = None, **query: str) -> Iterator[bytes]:
        """The lines of an answer while it comes, without their ends; a cut connection is a `CutError`."""
        return read_lines(self, path, query, stop, None if query.get("follow") == "true" else READ)

    def exec(
        self,
        path: str,
        words: Sequence[str],
        *,
        container: str = "",
        stdin: BinaryIO | None = None,
        stdout: BinaryIO,
        stderr: BinaryIO,
        tty: bool = False,
    ) -> int:
        """The exit code of a program run in a container (`path` ends in /exec); 127, 126 where it could not start."""
        from arena.kube.channels import execute

        return execute(self, path, words, container=container, stdin=stdin, stdout=stdout, stderr=stderr, tty=tty)

    def forward(self, path: str, port: int, local: int = 0) -> Forward:
        """A port of this machine that leads to a pod's (`path` ends in /portforward), until it is closed."""
        from arena.kube.channels import Forward

        return Forward(self, path, port, local)

    def now(self) -> datetime:
        """The time by the server's clock, as far as its answers have told it."""
        return datetime.now(UTC) + self.wire.ahead()

    def close(self) -> None:
        """End all streams and connections."""
        self.wire.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _pages(self, path: str, kind: Any, accept: str, labels: str, fields: str, limit: int, **more: str) -> Pages:
        query = {"labelSelector": labels, "fieldSelector": fields, "limit": str(limit), **more}
        for attempt in range(3):
            try:
                return [*self._page_by_page(path, kind, accept, query)]
            except ExpiredError:
                if attempt == 2:
                    raise
        raise AssertionError  # not reached

    def _page_by_page(self, path: str, kind: Any, accept: str, query: Mapping[str, str]) -> Iterator[Any]:
        more = ""
        while True:
            page = decode(self.wire.ask("GET", path, {**query, "continue": more}, accept=accept).content, kind)
            yield page
            more = page.metadata.more
            if not more:
                return

    def _write(
        self, method: str, path: str, body: Any, query: Mapping[str, str], dry_run: bool, content: str = JSON
    ) -> Object:
        query = {**query, "dryRun": "All"} if dry_run else query
        response = self.wire.ask(method, path, query, body=json.dumps(body).encode(), content=content)
        made: Object = decode(response.content, dict)
        return made


def decode(content: bytes, kind: Any) -> Any:
    """The answer as a `kind`, read without the collector: nothing of it is garbage, and it would look at it all."""
    with _no_collector():
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.DecodeError as error:
            why = str(error) if content else "it is empty"
            raise BackendError("the server's answer is not understood", why=why, hint=BETWEEN) from error


@contextlib.contextmanager
def _no_collector() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def together(calls: Sequence[Callable[[], T]]) -> list[T | ArenaError]:
    """What each call gives, made side by side; an error of ours is its result, any other is raised."""
    if len(calls) <= 1:
        return [_result(call) for call in calls]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(LANES, len(calls))) as threads:
        return list(threads.map(_result, calls))


def _result(call: Callable[[], T]) -> T | ArenaError:
    try:
        return call()
    except ArenaError as error:
        return error
