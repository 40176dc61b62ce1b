"""A job as it changes: its object and its pods watched side by side, joined here; and all jobs of a place."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import structs

from arena.backends.base import Ref
from arena.backends.kubernetes import reading
from arena.backends.kubernetes.reading import PODS, All, Found, Reader, join, pods_path
from arena.engines.base import Engine
from arena.engines.objects import Pod
from arena.errors import ArenaError
from arena.kube.errors import RefusedError
from arena.kube.streams import Event
from arena.status import Seen

QUIET = 0.05  # seconds in which changes that come together are one
LISTENS = 1.0  # seconds; a wait without an end hears no signal on Windows


class Watch:
    """The job now; `wait` returns when it has changed. Two threads watch until the block is left."""

    def __init__(self, reader: Reader, ref: Ref, found: Found) -> None:
        self.reader = reader
        self.ref = ref
        self.engine = found.engine
        self.thing: Any = found.thing
        self.pods: dict[str, Pod] = {}
        self.left: set[str] = set()
        self.deleted: datetime | None = None
        self.error: ArenaError | None = None
        self.blind: RefusedError | None = None
        self.changed = threading.Condition()
        self.number = 0
        self.shown = 0
        self.stop = threading.Event()
        self.listed = threading.Event()

    def __enter__(self) -> Watch:
        for target in (self._watch_thing, self._watch_pods):
            threading.Thread(target=self._guarded, args=(target,), daemon=True).start()
        self.listed.wait(30)
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop.set()

    def seen(self) -> Seen:
        """The job as the events have it."""
        if self.error:
            raise self.error
        with self.changed:
            self.shown = self.number
            pods = [pod for uid, pod in self.pods.items() if uid not in self.left or _has_ended(pod)]
            found = Found(self.engine, self.thing, tuple(pods), self.blind)
        return reading.seen(found, deleted=self.deleted)

    def found(self) -> Found:
        """The object and pods as the events have them."""
        with self.changed:
            return Found(self.engine, self.thing, tuple(self.pods.values()), self.blind)

    def pod(self, uid: str) -> Pod | None:
        """The pod as the events have it; one that was deleted, as it was last."""
        return self.pods.get(uid)

    def refresh(self) -> None:
        """Read the pods once more: the events of pods may come after that of their job."""
        if not self.blind:
            self._set(self.reader.pods(self.engine, self.ref.name))

    def wait_for(self, look: Callable[[], bool], seconds: float) -> None:
        """Return when `look` is true, asked at each change, or after so many seconds."""
        with self.changed:
            self.changed.wait_for(look, seconds)

    def wait(self, until: float | None) -> None:
        """Return when something has changed since `seen`, or at that time (monotonic)."""
        with self.changed:
            while self.number == self.shown and not self.error:
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    return
                self.changed.wait(min(left, 60.0) if left is not None else 60.0)
        time.sleep(QUIET)

    def _guarded(self, target: Any) -> None:
        try:
            target()
        except ArenaError as error:
            with self.changed:
                self.error = error
                self.changed.notify_all()
            self.listed.set()

    def _watch_thing(self) -> None:
        path, fields = self.reader.path(self.engine), f"metadata.name={self.ref.name}"
        version = self.thing.metadata.resource_version
        for event in self.reader.api.watch(path, self.engine.thing, version=version, fields=fields, stop=self.stop):
            if event.type == "RELISTED":
                mine = [one for one in event.items if one.metadata.uid == self.thing.metadata.uid]
                self._change(mine[0] if mine else None)
            for one in event.items if event.type != "RELISTED" else ():
                if one.metadata.uid == self.thing.metadata.uid:
                    self._change(None if event.type == "DELETED" else one)

    def _change(self, thing: Any) -> None:
        with self.changed:
            if thing is None:
                self.deleted = datetime.now(UTC)
            else:
                self.thing = thing
            self._tell()

    def _watch_pods(self) -> None:
        path, labels = PODS.format(self.reader.namespace), f"{self.engine.pod_label}={self.ref.name}"
        try:
            listed = self.reader.api.list(path, Pod, labels=labels)
        except RefusedError as error:  # the job object alone is watched
            self.blind = error
            self.listed.set()
            return
        self._set(listed.items)
        self.listed.set()
        for event in self.reader.api.watch(path, Pod, version=listed.version, labels=labels, stop=self.stop):
            if event.type == "RELISTED":
                self._set(event.items)
            for pod in event.items if event.type != "RELISTED" else ():
                self._put(pod, gone=event.type == "DELETED")

    def _set(self, pods: list[Pod]) -> None:
        """A whole list: pods that are not in it any more keep their last state."""
        with self.changed:
            there = {pod.metadata.uid for pod in pods}
            self.left |= self.pods.keys() - there
            self.pods = {
                **{uid: _left(pod) for uid, pod in self.pods.items() if uid not in there},
                **{pod.metadata.uid: pod for pod in pods},
            }
            self._tell()

    def _put(self, pod: Pod, *, gone: bool) -> None:
        with self.changed:
            pod = _asked_once(pod, self.pods.get(pod.metadata.uid))
            self.pods[pod.metadata.uid] = _left(pod) if gone else pod
            if gone:
                self.left.add(pod.metadata.uid)
            self._tell()

    def _tell(self) -> None:
        self.number += 1
        self.changed.notify_all()


class Board:
    """All jobs of some kinds (None: the pods) as they change: one thread each watches until the block is left."""

    def __init__(self, reader: Reader, kinds: Sequence[Engine | None]) -> None:
        self.reader = reader
        self.kinds = kinds
        self.there: dict[Engine | None, dict[str, Any]] = {}
        self.failed: list[tuple[Engine | None, ArenaError]] = []
        self.broken: Exception | None = None
        self.changed = threading.Condition()
        self.is_new = False
        self.stop = threading.Event()

    def __enter__(self) -> Board:
        for engine in self.kinds:
            threading.Thread(target=self._watch, args=(engine,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop.set()

    def wait(self, quiet: float) -> None:
        """Return so many seconds after something has changed since `all`; first every kind is read."""
        with self.changed:
            while not (self.broken or (self.is_new and len(self.there) + len(self.failed) == len(self.kinds))):
                self.changed.wait(LISTENS)
            if self.broken:
                raise self.broken
        time.sleep(quiet)

    def all(self) -> All:
        """The jobs as the events have them, and what is not watched any more; the error where nothing is."""
        with self.changed:
            self.is_new = False
            if not self.there:
                raise self.failed[0][1]
            things = {engine: [*found.values()] for engine, found in self.there.items() if engine is not None}
            pods = [*self.there.get(None, {}).values()]
        return join(things, pods), [*self.failed]

    def _watch(self, engine: Engine | None) -> None:
        try:
            path, kind = (self.reader.path(engine), engine.thing) if engine else (pods_path(self.reader.namespace), Pod)
            for event in self.reader.api.watch(path, kind, version="", stop=self.stop):
                self._take(engine, event)
        except ArenaError as error:
            with self.changed:
                self.there.pop(engine, None)
                self.failed.append((engine, error))
                self._tell()
        except Exception as error:  # noqa: BLE001  (whoever waits gets it)
            with self.changed:
                self.broken = error
                self._tell()

    def _take(self, engine: Engine | None, event: Event[Any]) -> None:
        objects = {one.metadata.uid: one for one in event.items}
        with self.changed:
            if event.type == "RELISTED":
                self.there[engine] = objects
            elif event.type == "DELETED":
                for uid in objects:
                    self.there[engine].pop(uid, None)
            else:
                self.there[engine] |= objects
            self._tell()

    def _tell(self) -> None:
        self.is_new = True
        self.changed.notify_all()


def _asked_once(pod: Pod, before: Pod | None) -> Pod:
    """A pod that knows when its deletion was first asked for: the kubelet asks once more when all has ended."""
    if before is None or before.metadata.deletion_timestamp is None:
        return pod
    first = before.metadata
    metadata = structs.replace(
        pod.metadata,
        deletion_timestamp=first.deletion_timestamp,
        deletion_grace_period_seconds=first.deletion_grace_period_seconds,
    )
    return structs.replace(pod, metadata=metadata)


def _has_ended(pod: Pod) -> bool:
    """Whether the end of a program was seen; a pod that left without one is as if it had not been seen at all."""
    return any(status.state.terminated for status in pod.status.container_statuses)


def _left(pod: Pod) -> Pod:
    """A pod that was deleted, as it was last; it is marked so."""
    metadata = structs.replace(pod.metadata, deletion_timestamp=pod.metadata.deletion_timestamp or datetime.now(UTC))
    return structs.replace(pod, metadata=metadata)
