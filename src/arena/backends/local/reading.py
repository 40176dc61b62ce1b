"""Logs as people read them: whole lines of chosen replicas, in order, followed while the job lives."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from arena.backends.base import LogLine, LogQuery
from arena.backends.local import state
from arena.logfile import Entry, LogReader, parse_time
from arena.status import Replica, Seen

IDLE = 0.02
LONGEST = 8 * 2**20  # a line longer than this is given out in pieces


class Source:
    """The lines of one replica in one attempt."""

    def __init__(self, run: state.Run, replica: Replica, pieces: bool) -> None:
        self.replica = replica
        self.reader = LogReader(run.attempt(replica.attempt), replica.name)
        self.pieces = pieces
        self.parts: dict[int, list[Entry]] = {}

    def read(self) -> Iterator[LogLine]:
        """The lines that are new."""
        while entries := self.reader.read():
            for entry in entries:
                yield from self._take(entry)

    def some(self) -> Iterator[LogLine]:
        """About a megabyte of what is new, so that no replica keeps the others waiting."""
        for entry in self.reader.read():
            yield from self._take(entry)

    def rest(self) -> Iterator[LogLine]:
        """What never got its line end."""
        for parts in self.parts.values():
            yield self._line(parts, partial=True)
        self.parts.clear()

    def _take(self, entry: Entry) -> Iterator[LogLine]:
        if self.pieces:
            yield self._line([entry], partial=not entry.whole)
            return
        parts = self.parts.pop(entry.local_rank, [])
        parts.append(entry)
        if entry.whole or sum(len(part.data) for part in parts) > LONGEST:
            yield self._line(parts, partial=not entry.whole)
        else:
            self.parts[entry.local_rank] = parts

    def _line(self, parts: list[Entry], *, partial: bool) -> LogLine:
        first, replica = parts[0], self.replica
        return LogLine(
            time=parse_time(first.time),
            replica=replica.name,
            role=replica.role,
            index=replica.index,
            rank=None if replica.rank is None else replica.rank + first.local_rank,
            data=b"".join(part.data for part in parts),
            partial=partial,
            attempt=replica.attempt,
        )


def read_logs(run: state.Run, query: LogQuery, look: Callable[[], Seen]) -> Iterator[LogLine]:
    """The lines that the query asks for."""
    if query.follow:
        lines = _follow(run, query, look)
    else:
        attempt = query.attempt or run.facts().attempt
        lines = _merged(run, query, _chosen(look(), query), attempt)
    return (line for line in lines if _wanted(line, query))


def _wanted(line: LogLine, query: LogQuery) -> bool:
    return (query.since is None or line.time >= query.since) and (query.ranks is None or line.rank in query.ranks)


def _chosen(seen: Seen, query: LogQuery) -> list[Replica]:
    return [r for r in seen.observed.replicas if query.replicas is None or r.name in query.replicas]


def _merged(run: state.Run, query: LogQuery, replicas: Iterable[Replica], attempt: int) -> Iterator[LogLine]:
    """All that is there, by time."""
    streams = [_all(Source(run, _in_attempt(replica, attempt), query.pieces), query) for replica in replicas]
    return heapq.merge(*streams, key=lambda line: line.time)


def _all(source: Source, query: LogQuery) -> Iterator[LogLine]:
    lines = _both(source)
    if query.tail is None:
        return lines
    return iter(deque((line for line in lines if _wanted(line, query)), maxlen=query.tail))


def _both(source: Source) -> Iterator[LogLine]:
    yield from source.read()
    yield from source.rest()


def _in_attempt(replica: Replica, attempt: int) -> Replica:
    from msgspec.structs import replace

    return replica if replica.attempt == attempt else replace(replica, attempt=attempt)


def _follow(run: state.Run, query: LogQuery, look: Callable[[], Seen]) -> Iterator[LogLine]:
    """What comes, over all attempts, until the job has ended and everything was read."""
    attempt = query.attempt or 1
    if query.attempt is None and query.tail is not None:
        attempt = run.facts().attempt
    while True:
        sources = [Source(run, _in_attempt(r, attempt), query.pieces) for r in _chosen(look(), query)]
        if query.tail is not None:
            yield from _skip_to_tail(sources, query)
        yield from _follow_attempt(run, sources, attempt, look)
        if run.facts().attempt <= attempt or query.attempt is not None:
            return
        attempt += 1


def _skip_to_tail(sources: list[Source], query: LogQuery) -> Iterator[LogLine]:
    kept = [deque((line for line in s.read() if _wanted(line, query)), maxlen=query.tail) for s in sources]
    yield from heapq.merge(*kept, key=lambda line: line.time)


def _follow_attempt(run: state.Run, sources: list[Source], attempt: int, look: Callable[[], Seen]) -> Iterator[LogLine]:
    checked = time.monotonic()
    while True:
        facts = run.facts()
        over = facts.finished is not None or facts.attempt > attempt or run.gone() is not None
        quiet = True
        for source in sources:
            for line in source.read() if over else source.some():
                quiet = False
                yield line
        if over:
            for source in sources:
                yield from source.rest()
            return
        if quiet:
            time.sleep(IDLE)
        if time.monotonic() - checked > 1.0:
            look()
            checked = time.monotonic()
