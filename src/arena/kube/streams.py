"""Answers that come for as long as one listens: the changes of objects, the lines of a log."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec
from msgspec import Struct, field

from arena.errors import BackendError
from arena.kube.errors import Answer, CutError, ExpiredError, ServerError, SilentError, refusal
from arena.kube.stops import Stopped
from arena.kube.wire import READ, Open

if TYPE_CHECKING:
    from arena.kube.api import Api

T = TypeVar("T")

LASTS = 290  # seconds, then the server ends a watch and it is opened anew
PATIENCE = 60.0  # so long a watch that was cut is taken up again


class Event(Struct, Generic[T], frozen=True):
    """A change: ADDED, MODIFIED or DELETED with the object, or RELISTED with the list of all there are now."""

    type: str
    object: T | list[T]
    version: str = ""

    @property
    def items(self) -> list[T]:
        """The objects: all of them when RELISTED, else the one."""
        return cast(list[T], self.object) if self.type == "RELISTED" else [cast(T, self.object)]


def read_lines(
    api: Api, path: str, query: Mapping[str, str], stop: threading.Event | None, read: float | None
) -> Iterator[bytes]:
    """The lines of an answer while it comes; a container that says nothing yet sends not even a header."""
    try:
        with api.wire.open(path, query, first=read, read=read, stop=stop) as opened:
            yield from _lines(opened)
    except Stopped:
        return


def watched(
    api: Api, path: str, kind: type[T], version: str, query: Mapping[str, str], stop: threading.Event
) -> Iterator[Event[T]]:
    """Every change after a version; what goes wrong on the way is repaired or raised."""
    state = _State(version)
    while not (stop.is_set() or api.wire.stops.closed.is_set()):
        try:
            if not state.version:
                yield _relisted(api, path, kind, query, state)
            yield from _changes(api, path, kind, query, state, stop)
        except Stopped:
            return
        except ExpiredError:
            state.version = ""
        except (CutError, SilentError, ServerError) as error:
            state.failed(error)
        stop.wait(state.pause())


class _State:
    """How far a watch has come, and how long it has been failing."""

    def __init__(self, version: str) -> None:
        self.version = version
        self._opened = False
        self._since: float | None = None
        self._idle = 0

    def opened(self) -> None:
        """The server has taken the watch up."""
        self._opened, self._since = True, None

    def came(self, version: str) -> None:
        """Something came."""
        self.version, self._idle = version or self.version, 0

    def failed(self, error: BackendError) -> None:
        """Raise what went wrong before the first answer, or for too long."""
        self._since = self._since or time.monotonic()
        if not self._opened or time.monotonic() - self._since > PATIENCE:
            raise error

    def pause(self) -> float:
        """Seconds until the next try: none after something came, longer and longer after nothing did."""
        self._idle += 1
        return 0 if self._idle == 1 else min(0.1 * 2**self._idle, 5.0)


def _relisted(api: Api, path: str, kind: type[T], query: Mapping[str, str], state: _State) -> Event[T]:
    listed = api.list(path, kind, labels=query["labelSelector"], fields=query["fieldSelector"])
    state.version = listed.version
    return Event("RELISTED", listed.items, listed.version)


def _changes(
    api: Api, path: str, kind: type[T], query: Mapping[str, str], state: _State, stop: threading.Event
) -> Iterator[Event[T]]:
    """The changes of one connection."""
    asked = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(LASTS)}
    asked |= {**query, "resourceVersion": state.version}
    with api.wire.open(path, asked, first=READ, read=LASTS + 30, stop=stop) as opened:
        state.opened()
        for line in filter(None, _lines(opened)):
            change = _read(line, _Change)
            if change.type == "ERROR":
                raise refusal(_read(change.object, Answer), api.access)
            version = _read(change.object, _Versioned).metadata.resource_version
            event = None if change.type == "BOOKMARK" else Event(change.type, _read(change.object, kind), version)
            state.came(version)
            if event:
                yield event


class _Change(Struct):
    type: str
    object: msgspec.Raw


class _Meta(Struct, rename="camel"):
    resource_version: str = ""


class _Versioned(Struct):
    metadata: _Meta = field(default_factory=_Meta)


def _read(content: Any, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise BackendError("a change the server told is not understood", why=str(error)) from error


def _lines(opened: Open) -> Iterator[bytes]:
    """Whole lines without their ends; the last one may have none, unless the stream was cut."""
    rest = b""
    for piece in opened.pieces():
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            if opened.guard.stopped:
                return
            yield line
    if rest:
        yield rest
