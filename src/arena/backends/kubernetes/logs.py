"""Logs of a job on a cluster: every line of every replica exactly once and in order, while it runs and afterwards."""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from arena.backends.base import LogLine, LogQuery, Ref
from arena.backends.kubernetes.cutting import Cutter
from arena.backends.kubernetes.reading import PODS, Found
from arena.backends.kubernetes.records import Record
from arena.backends.kubernetes.starts import Seats, Start, has_ended, is_before_last
from arena.backends.kubernetes.tapes import Tape, Tapes, is_wanted, is_whole, kept_lines, numbered
from arena.backends.kubernetes.watching import Watch
from arena.engines.objects import Pod
from arena.errors import ArenaError, BackendError, NotFoundError, SpecError
from arena.kube.errors import InvalidError, RefusedError

if TYPE_CHECKING:
    from arena.backends.kubernetes.backend import KubernetesBackend

ROOM = 20_000  # lines that wait for whoever reads them
PAUSE = 0.2  # seconds before a stream that ended too early is taken up again; longer each time
LONGEST_PAUSE = 5.0
TRIES = 4  # connections for what is there already
LEAVING = 5.0  # seconds for the threads of a reader that has gone
PATIENCE = 60.0  # seconds in which nothing but failures ends it

FORGOTTEN = "the node keeps it no more"
Notes = Callable[[str], None]


def read_logs(
    backend: KubernetesBackend, ref: Ref, query: LogQuery, record: Record | None = None, tapes: Tapes | None = None
) -> Iterator[LogLine]:
    """The lines that the query asks for; what could not be read is told to `backend.notes`.

    With tapes every line of every replica is kept on its way, whatever is asked for.
    """
    reading = Reading(backend, ref, query, record, tapes)
    lines = _followed(reading) if query.follow else _merged(reading)
    return (line for line in lines if is_wanted(line, query))


class Reading(Struct, frozen=True):
    """What is read, for whom, and what is kept of it."""

    backend: KubernetesBackend
    ref: Ref
    query: LogQuery
    record: Record | None = None
    tapes: Tapes | None = None

    def stream(self, start: Start, pod_of: Callable[[str], Pod | None]) -> Stream:
        """The log of one start."""
        tape = self.tapes.tape(start) if self.tapes and not is_whole(self.tapes.record, start) else None
        return Stream(self.backend, start, pod_of, pieces=self.query.pieces, tape=tape)

    def kept(self, start: Start) -> Iterator[LogLine] | None:
        """The log of a start, where the record has all of it; the node may have it no more."""
        if self.record is None or not is_whole(self.record, start):
            return None
        return kept_lines(self.record, start, pieces=self.query.pieces)


def chosen(starts: Iterable[Start], query: LogQuery) -> list[Start]:
    """The starts that the query asks for: of one attempt, else of all when following, else each replica's last."""
    found = [start for start in starts if query.replicas is None or start.replica in query.replicas]
    if query.attempt is not None:
        return [start for start in found if start.attempt == query.attempt]
    if query.follow and query.tail is None:
        return found
    return list({start.replica: start for start in found}.values())


# --- what there is -------------------------------------------------------------------------------------------


def _merged(reading: Reading) -> Iterator[LogLine]:
    """All that is there, by time."""
    backend, query = reading.backend, reading.query
    found = backend.whole(reading.ref)
    if found.blind:
        raise found.blind
    pods = {pod.metadata.uid: pod for pod in found.pods}
    starts = numbered(reading.record, Seats(found.engine).starts(found.thing, found.pods))
    streams = [
        _tailed(reading.kept(start) or _all(reading.stream(start, pods.get), query, backend.notes.add), query)
        for start in chosen(starts, query)
    ]
    return heapq.merge(*streams, key=lambda line: line.time)


def _all(stream: Stream, query: LogQuery, note: Notes) -> Iterator[LogLine]:
    """The lines that are there now."""
    try:
        for lines in stream.all(tail=query.tail, since=query.since):
            yield from lines
        yield from stream.rest()
    except RefusedError:  # a right that is missing for one is missing for all
        raise
    except ArenaError as error:
        note(f"{stream.start.replica}: its log was not seen: {_why(error)}")


def _why(error: ArenaError) -> str:
    deleted = isinstance(error, NotFoundError) and error.what != FORGOTTEN
    return "the pod was deleted" if deleted else str(error.why or error.what)


def _tailed(lines: Iterator[LogLine], query: LogQuery) -> Iterator[LogLine]:
    if query.tail is None:
        return lines
    return iter(deque((line for line in lines if is_wanted(line, query)), maxlen=query.tail))


def keep_all(backend: KubernetesBackend, record: Record, tapes: Tapes, found: Found) -> None:
    """Keep what there is of every log that is not whole yet, side by side; that of a start that has ended then is.

    RefusedError where logs may not be read.
    """
    from arena.kube.api import together

    if found.blind:
        raise found.blind
    reading = Reading(backend, record.ref(), LogQuery(), record, tapes)
    pods = {pod.metadata.uid: pod for pod in found.pods}
    starts = numbered(record, Seats(found.engine).starts(found.thing, found.pods))
    missing = [start for start in starts if not is_whole(record, start)]
    for answer in together([_keeper(reading.stream(start, pods.get), backend.notes.add) for start in missing]):
        if isinstance(answer, RefusedError):
            raise answer


def _keeper(stream: Stream, note: Notes) -> Callable[[], None]:
    def keep() -> None:
        pod = stream.pod_of(stream.start.uid)
        over = pod is not None and has_ended(stream.start, pod)
        try:
            for _ in stream.all():
                pass
            stream.rest()
        except (NotFoundError, SpecError) as error:
            note(f"{stream.start.replica}: the log of its attempt {stream.start.attempt} is lost: {_why(error)}")
            if over and stream.tape:
                stream.tape.end()
        except RefusedError:
            raise
        except ArenaError as error:
            note(f"{stream.start.replica}: its log was not kept: {_why(error)}")
        else:
            if over and stream.tape:
                stream.tape.end()

    return keep


class Stream:
    """The log of one start, read over as many connections as it takes. `pod_of` gives the pod as it is now."""

    def __init__(
        self,
        backend: KubernetesBackend,
        start: Start,
        pod_of: Callable[[str], Pod | None],
        *,
        pieces: bool = False,
        tape: Tape | None = None,
    ) -> None:
        self.api = backend.api
        self.start = start
        self.path = f"{PODS.format(backend.namespace)}/{start.pod}/log"
        self.pod_of = pod_of
        self.tape = tape
        self.cutter = Cutter(start, pieces=pieces, tape=tape)

    def once(
        self,
        *,
        follow: bool,
        stop: threading.Event | None = None,
        tail: int | None = None,
        since: datetime | None = None,
    ) -> Iterator[list[LogLine]]:
        """The lines that one connection brings, after those that were given before."""
        from arena.kube.stops import Stopped
        from arena.kube.wire import READ

        query = self._query(follow=follow, tail=tail, since=since)
        self.cutter.begin()
        patience = None if follow else READ
        try:
            with self.api.wire.open(self.path, query, first=patience, read=patience, stop=stop) as opened:
                self._heed_restart(query)
                for piece in opened.pieces():
                    if lines := self.cutter.feed(piece):
                        yield lines
                    self._heed_trouble()
        except Stopped:
            return

    def all(self, tail: int | None = None, since: datetime | None = None) -> Iterator[list[LogLine]]:
        """The lines that are there now; a connection that breaks is followed by another."""
        for number in range(1, TRIES + 1):
            try:
                yield from self.once(follow=False, tail=tail, since=since)
                return
            except BackendError:
                if number == TRIES:
                    raise
                time.sleep(PAUSE * number)

    def rest(self) -> list[LogLine]:
        """What is left when there is no more: a last line that has no end."""
        lines = self.cutter.end()
        self._heed_trouble()
        return lines

    def _heed_restart(self, query: Mapping[str, str]) -> None:
        """Leave a log that is another start's: meanwhile the container was started again."""
        from arena.kube.errors import CutError

        if ("previous" in query) is not self._is_before_last():
            raise CutError(f"the log of pod {self.start.pod} is another's", why="its container was started again")

    def _heed_trouble(self) -> None:
        from arena.kube.errors import CutError

        if self.cutter.trouble:
            raise CutError(f"the log of pod {self.start.pod} cannot be read", why=self.cutter.trouble)

    def _query(self, *, follow: bool, tail: int | None, since: datetime | None) -> Mapping[str, str]:
        query = {"container": self.start.container, "timestamps": "true"}
        query |= {"previous": "true"} if self._is_before_last() else {"follow": "true"} if follow else {}
        if again := self.cutter.position.since:
            query["sinceTime"] = again
        elif since is not None:
            query["sinceTime"] = since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if tail is not None and since is None and not again:
            query["tailLines"] = str(tail)
        return query

    def _is_before_last(self) -> bool:
        """Whether it is to be asked for as the log before the last; NotFoundError where the node keeps it no more."""
        pod = self.pod_of(self.start.uid)
        before = is_before_last(self.start, pod) if pod else False
        if before is None:
            raise NotFoundError(FORGOTTEN)
        return before


# --- what comes ----------------------------------------------------------------------------------------------


class Mailbox:
    """Lines on their way from many threads to one reader; who writes waits while there is no room."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.batches: list[list[LogLine]] = []
        self.size = 0
        self.closed = False
        self.error: BaseException | None = None

    def put(self, lines: list[LogLine]) -> None:
        """More lines."""
        with self.changed:
            while self.size > ROOM and not self.closed:
                self.changed.wait()
            if self.closed:
                return
            if not self.batches:
                self.changed.notify_all()
            self.batches.append(lines)
            self.size += len(lines)

    def take(self) -> list[list[LogLine]]:
        """All that has come, at least something; nothing at the end."""
        with self.changed:
            while not (self.batches or self.closed):
                self.changed.wait()
            found, self.batches, self.size = self.batches, [], 0
            self.changed.notify_all()
        if not found and self.error:
            raise self.error
        return found

    def close(self, error: BaseException | None = None) -> None:
        """No more comes, or nobody listens any more."""
        with self.changed:
            self.closed, self.error = True, self.error or error
            self.changed.notify_all()


def _followed(reading: Reading) -> Iterator[LogLine]:
    """What comes, until the job has ended and everything was read."""
    following = Following(reading)
    thread = threading.Thread(target=following.run, name=f"arena-logs-{reading.ref.name}", daemon=True)
    thread.start()
    try:
        while batches := following.mailbox.take():
            for lines in batches:
                yield from lines
    finally:
        following.leave()
        thread.join(LEAVING)


class Following:
    """Follows the replicas of a job, those too that come later: one thread each, and this one that looks for them."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.query = reading.query
        self.mailbox = Mailbox()
        self.stop = threading.Event()
        self.readers: dict[str, Reader] = {}
        self.known: set[tuple[str, int]] = set()
        self.first = True

    def run(self) -> None:
        """Until the job has ended and every log was read."""
        try:
            backend, ref = self.reading.backend, self.reading.ref
            with Watch(backend.reader, ref, backend.whole(ref)) as watch:
                if watch.blind:
                    raise watch.blind
                self.seats = Seats(watch.engine)
                self._look_on(watch)
                for reader in self.readers.values():
                    reader.finish()
            self.mailbox.close()
        except BaseException as error:  # noqa: BLE001  (whoever reads the lines gets it)
            self.mailbox.close(error)

    def leave(self) -> None:
        """Nobody listens any more."""
        self.stop.set()
        self.mailbox.close()

    def _look_on(self, watch: Watch) -> None:
        while not self.stop.is_set():
            seen = watch.seen()
            self._begin(watch, watch.found())
            if seen.deleted:
                return
            if seen.state.final:
                watch.refresh()
                self._begin(watch, watch.found())
                return
            watch.wait(time.monotonic() + 1)

    def _begin(self, watch: Watch, found: Found) -> None:
        """Give starts that are new to the reader of their replica."""
        starts = numbered(self.reading.record, self.seats.starts(found.thing, found.pods))
        for start in starts if self.reading.tapes or not self.first else chosen(starts, self.query):
            if start.key not in self.known and (self.reading.tapes or self.is_asked_for(start)):
                self._reader(watch, start.replica).take(start, tail=self.query.tail if self.first else None)
        self.known |= {start.key for start in starts}
        self.first = self.first and not starts

    def is_asked_for(self, start: Start) -> bool:
        query = self.query
        return (query.replicas is None or start.replica in query.replicas) and query.attempt in (None, start.attempt)

    def _reader(self, watch: Watch, replica: str) -> Reader:
        if replica not in self.readers:
            self.readers[replica] = Reader(self, watch, replica)
        return self.readers[replica]


class Task(Struct, frozen=True):
    """A start to be read, from its end where a tail was asked for."""

    start: Start
    tail: int | None = None


class Reader:
    """Reads the starts of one replica, one after the other, in a thread of its own."""

    def __init__(self, following: Following, watch: Watch, replica: str) -> None:
        from queue import SimpleQueue

        self.following = following
        self.watch = watch
        self.tasks: SimpleQueue[Task | None] = SimpleQueue()
        self.thread = threading.Thread(target=self._run, name=f"arena-log-{replica}", daemon=True)
        self.thread.start()

    def take(self, start: Start, *, tail: int | None = None) -> None:
        """One more start to be read, after the others."""
        self.tasks.put(Task(start, tail))

    def finish(self) -> None:
        """Return when all was read."""
        self.tasks.put(None)
        self.thread.join()

    def _run(self) -> None:
        try:
            for task in iter(self.tasks.get, None):
                self._read(task)
        except BaseException as error:  # noqa: BLE001  (whoever reads the lines gets it)
            self.following.mailbox.close(error)

    def _read(self, task: Task) -> None:
        following, reading = self.following, self.following.reading
        shown = following.is_asked_for(task.start)
        for lines in self._kept(task) or self._comes(task, reading.stream(task.start, self.watch.pod)):
            if shown:
                following.mailbox.put(lines)

    def _kept(self, task: Task) -> Iterator[list[LogLine]] | None:
        kept, query = self.following.reading.kept(task.start), structs.replace(self.following.query, tail=task.tail)
        return None if kept is None else ([line] for line in _tailed(kept, query))

    def _comes(self, task: Task, stream: Stream) -> Iterator[list[LogLine]]:
        following = self.following
        note = following.reading.backend.notes.add
        yield from Persistent(stream, self.watch, following.stop, note).lines(task.tail, following.query.since)


class Persistent:
    """One start's log to its end: connections that break or end too early are followed by others."""

    def __init__(self, stream: Stream, watch: Watch, stop: threading.Event, note: Notes) -> None:
        self.stream = stream
        self.start = stream.start
        self.watch = watch
        self.stop = stop
        self.note = note
        self.failing: float | None = None
        self.pause = PAUSE

    def lines(self, tail: int | None, since: datetime | None) -> Iterator[list[LogLine]]:
        """The lines, and the end only when it is the end."""
        to_the_end = False
        while not self.stop.is_set():
            over = self._over()
            try:
                for lines in self.stream.once(follow=True, stop=self.stop, tail=tail, since=since):
                    self.failing, self.pause = None, PAUSE
                    yield lines
                if over:
                    yield self.stream.rest()
                    self._ended()
                    return
                to_the_end = True
            except NotFoundError:
                self._ended() if to_the_end else self._missed()
                return
            except ArenaError as error:
                if over and isinstance(error, InvalidError):  # the node has lost its container
                    self._missed()
                    return
                to_the_end = False
                self._failed(error)
            self._wait(over)

    def _ended(self) -> None:
        if self.stream.tape:
            self.stream.tape.end()
        if self.stream.cutter.gap:
            self.note(f"{self.start.replica}: a part of its log was not seen: the node had begun a new file")

    def _over(self) -> bool:
        """Whether nothing more can come than is written already."""
        pod = self.watch.pod(self.start.uid)
        return pod is None or has_ended(self.start, pod) or self.start.uid in self.watch.left

    def _missed(self) -> None:
        """Say that a pod has gone before its log was read to the end."""
        what = "the end of its log" if self.stream.cutter.position.newest else "its log"
        why = "the pod was deleted" if self.start.uid in self.watch.left else FORGOTTEN
        self.note(f"{self.start.replica}: {what} was not seen: {why}")

    def _failed(self, error: ArenaError) -> None:
        now = time.monotonic()
        self.failing = self.failing or now
        if isinstance(error, RefusedError) or (
            not isinstance(error, BackendError) and now - self.failing > PATIENCE / 4
        ):
            raise error
        if now - self.failing > PATIENCE:
            raise error

    def _wait(self, over: bool) -> None:
        """Until the pod has changed, or for a while that grows."""
        if not over:
            self.watch.wait_for(self._over, self.pause)
        else:
            self.stop.wait(self.pause)
        self.pause = min(self.pause * 2, LONGEST_PAUSE)
