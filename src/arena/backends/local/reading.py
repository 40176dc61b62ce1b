"""Logs as people read them: whole lines of chosen replicas, in order, followed while the job lives."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from arena.backends.base import LogLine, LogQuery
from arena.backends.local import state
from arena.backends.source import Source
from arena.status import Replica, Seen

IDLE = 0.02


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
    streams = [_all(_source(run, _in_attempt(replica, attempt), query), query) for replica in replicas]
    return heapq.merge(*streams, key=lambda line: line.time)


def _all(source: Source, query: LogQuery) -> Iterator[LogLine]:
    lines = source.all()
    if query.tail is None:
        return lines
    return iter(deque((line for line in lines if _wanted(line, query)), maxlen=query.tail))


def _source(run: state.Run, replica: Replica, query: LogQuery) -> Source:
    return Source(run.attempt(replica.attempt), replica, query.pieces)


def _in_attempt(replica: Replica, attempt: int) -> Replica:
    from msgspec.structs import replace

    return replica if replica.attempt == attempt else replace(replica, attempt=attempt)


def _follow(run: state.Run, query: LogQuery, look: Callable[[], Seen]) -> Iterator[LogLine]:
    """What comes, over all attempts, until the job has ended and everything was read."""
    attempt = query.attempt or 1
    if query.attempt is None and query.tail is not None:
        attempt = run.facts().attempt
    while True:
        sources = [_source(run, _in_attempt(r, attempt), query) for r in _chosen(look(), query)]
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
