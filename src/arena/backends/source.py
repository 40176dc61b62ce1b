"""One kept log as lines: the entries of its file put together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from arena.backends.base import LogLine
from arena.logfile import Entry, LogReader, parse_time
from arena.status import Replica

LONGEST = 8 * 2**20  # a line longer than this is given out in pieces


class Source:
    """The lines of one replica in one attempt."""

    def __init__(self, folder: Path, replica: Replica, pieces: bool) -> None:
        self.replica = replica
        self.reader = LogReader(folder, replica.name)
        self.pieces = pieces
        self.parts: dict[int, list[Entry]] = {}

    def all(self) -> Iterator[LogLine]:
        """The lines there are, the last one too where it has no end."""
        yield from self.read()
        yield from self.rest()

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
