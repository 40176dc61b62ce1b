"""Ends streams from outside: a thread that is blocked in a read sees neither an event nor a close."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from arena.kube import forks
from arena.kube.alive import watch_peer

TICK = 0.05  # seconds between two looks at the events


class Stopped(Exception):
    """The stream was ended by whoever listens to it."""


class Guard:
    """One stream, and the event that ends it."""

    def __init__(self, stop: threading.Event | None, closed: threading.Event) -> None:
        self._stop = stop
        self._closed = closed
        self._stream: Any = None

    @property
    def stopped(self) -> bool:
        """Whether the stream is to end."""
        return self._closed.is_set() or (self._stop is not None and self._stop.is_set())

    def wait(self, seconds: float) -> None:
        """Wait, or be woken."""
        (self._stop or self._closed).wait(seconds)

    def trace(self, name: str, info: Mapping[str, Any]) -> None:
        """Hear from the HTTP library on which connection the stream runs, before its first byte has come."""
        if not name.endswith(("connect_tcp.complete", "start_tls.complete")):
            return
        self._stream = info["return_value"]
        if name.endswith("connect_tcp.complete"):
            watch_peer(self._stream.get_extra_info("socket"))  # on the way to a proxy the library sets no options

    def cut(self) -> None:
        """Wake whoever reads: the connection ends under him."""
        found = self._stream.get_extra_info("socket") if self._stream is not None else None
        if found is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(found, socket.SHUT_RDWR)


class Stops:
    """All streams of one client; a single thread looks whether one is to end, and lives as long as there are any."""

    def __init__(self) -> None:
        self.closed = threading.Event()
        self._lock = forks.Lock()
        self._guards: set[Guard] = set()
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def guard(self, stop: threading.Event | None) -> Iterator[Guard]:
        """Meanwhile the stream is cut when `stop` is set, or all are."""
        guard = Guard(stop, self.closed)
        with self._lock:
            self._guards.add(guard)
            if self._thread is None and stop is not None:
                self._thread = threading.Thread(target=self._run, name="arena-kube-stops", daemon=True)
                self._thread.start()
        try:
            yield guard
        finally:
            with self._lock:
                self._guards.discard(guard)

    def all(self) -> None:
        """End every stream, for good."""
        self.closed.set()
        self._cut_stopped()

    def _run(self) -> None:
        while self._cut_stopped():
            time.sleep(TICK)

    def _cut_stopped(self) -> bool:
        with self._lock:
            for guard in self._guards:
                if guard.stopped:
                    guard.cut()
            on = bool(self._guards) and not self.closed.is_set()
            if not on:
                self._thread = None
            return on
