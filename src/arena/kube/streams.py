"""Answers that come for as long as one listens: the changes of objects, the lines of a log."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec
from msgspec import Struct, field

from arena.errors import BackendError
from arena.kube.config import Access
from arena.kube.errors import Answer, CutError, ExpiredError, refusal

if TYPE_CHECKING:
    import httpx2

    from arena.kube.api import Api

T = TypeVar("T")

TICK = 0.05  # how often somebody looks whether a stream is to end
LASTS = 290  # seconds, then the server ends a watch and it is opened anew
PATIENCE = 60.0  # a watch that was cut is taken up again for so long


class Event(Struct, Generic[T], frozen=True):
    """A change: ADDED, MODIFIED or DELETED with the object, or RELISTED with the list of all there are now."""

    type: str
    object: T | list[T]
    version: str = ""

    @property
    def items(self) -> list[T]:
        """The objects: all of them when RELISTED, else the one."""
        return cast(list[T], self.object) if self.type == "RELISTED" else [cast(T, self.object)]


class Stops:
    """Ends streams from outside: a thread that is blocked in a read sees neither an event nor a close."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: dict[int, tuple[httpx2.Response, threading.Event | None]] = {}
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def guard(self, response: httpx2.Response, stop: threading.Event | None) -> Iterator[None]:
        """Meanwhile the stream is cut when `stop` is set, or by `all`."""
        with self._lock:
            self._watched[id(response)] = (response, stop)
            if stop is not None and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="arena-kube-stops", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                del self._watched[id(response)]

    def all(self) -> None:
        """Cut every stream."""
        with self._lock:
            for response, _ in self._watched.values():
                _cut(response)

    def _run(self) -> None:
        while self._cut_stopped():
            time.sleep(TICK)

    def _cut_stopped(self) -> bool:
        with self._lock:
            for response, stop in self._watched.values():
                if stop is not None and stop.is_set():
                    _cut(response)
            if not self._watched:
                self._thread = None
            return bool(self._watched)


def cut_into_lines(response: httpx2.Response, access: Access, stop: threading.Event | None) -> Iterator[bytes]:
    """The lines of an answer as they come, without their ends."""
    import httpx2

    rest = b""
    try:
        for piece in response.iter_bytes():
            *whole, rest = (rest + piece).split(b"\n")
            yield from whole
            if stop is not None and stop.is_set():
                return
    except (httpx2.RequestError, httpx2.StreamError) as error:
        if stop is not None and stop.is_set():
            return
        if rest:
            yield rest
        raise CutError(f"the stream from {access.server} was cut", why=str(error)) from error
    if rest:
        yield rest


class _Change(Struct):
    type: str
    object: msgspec.Raw


class _Meta(Struct, rename="camel"):
    resource_version: str = ""


class _Versioned(Struct):
    metadata: _Meta = field(default_factory=_Meta)


def watched(
    api: Api, path: str, kind: type[T], version: str, query: Mapping[str, str], stop: threading.Event
) -> Iterator[Event[T]]:
    """Every change after a version; what goes wrong on the way is repaired or raised."""
    asked = {**query, "watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(LASTS)}
    state = _State(version)
    while not stop.is_set():
        try:
            yield from _changes(api, path, kind, asked, state, stop)
            stop.wait(0 if state.moved() else 0.5)  # a server that ends every watch at once is not asked in a loop
        except ExpiredError:
            listed = api.list(path, kind, labels=query["labelSelector"], fields=query["fieldSelector"])
            state.version = listed.version
            yield Event("RELISTED", listed.items, listed.version)
        except BackendError as error:
            state.failed(error)
            stop.wait(state.pause)


class _State:
    """How far a watch has come, and how long it has been failing."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.opened = False
        self.pause = 0.0
        self._since: float | None = None
        self._mark = version

    def came(self, version: str) -> None:
        self.version = version or self.version
        self._since, self.pause = None, 0.0

    def moved(self) -> bool:
        """Whether anything came since this was asked last."""
        moved, self._mark = self.version != self._mark, self.version
        return moved

    def failed(self, error: BackendError) -> None:
        """Note a failure; one that has lasted too long, or came before anything else, is raised."""
        now = time.monotonic()
        self._since = self._since or now
        if not self.opened or now - self._since > PATIENCE:
            raise error
        self.pause = min(max(self.pause * 2, 0.1), 5.0)


def _changes(
    api: Api, path: str, kind: type[T], query: Mapping[str, str], state: _State, stop: threading.Event
) -> Iterator[Event[T]]:
    """The changes of one connection."""
    asked = {**query, "resourceVersion": state.version}
    with api.wire.open(path, asked, read=LASTS + 30) as response, api.stops.guard(response, stop):
        state.opened = True
        for line in cut_into_lines(response, api.access, stop):
            if not line.strip():
                continue
            change = _read(line, _Change)
            if change.type == "ERROR":
                raise refusal(_read(change.object, Answer), api.access)
            state.came(_read(change.object, _Versioned).metadata.resource_version)
            if change.type != "BOOKMARK":
                yield Event(change.type, _read(change.object, kind), state.version)


def _read(content: Any, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise CutError("a change the server told is not understood", why=str(error)) from error


def _cut(response: httpx2.Response) -> None:
    """Wake whoever reads: the connection ends under him."""
    stream = response.extensions.get("network_stream")
    found = stream.get_extra_info("socket") if stream else None
    if found is not None:
        with contextlib.suppress(OSError):
            socket.socket.shutdown(found, socket.SHUT_RDWR)
