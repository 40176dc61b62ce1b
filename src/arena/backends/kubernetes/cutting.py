"""The log of one start of a container: each line once and in order, however often the connection is cut.

A log is taken up again by `sinceTime`, which is cut to whole seconds: the lines of that second come again. The file is
only ever appended to, so they are the first ones that come, and as many as were counted.
"""

from __future__ import annotations

from datetime import UTC, datetime

from arena.backends.base import LogLine
from arena.backends.kubernetes.starts import Start

LONGEST = 8 * 2**20  # a line longer than this is given out in pieces
ENTRY = 16 * 1024  # a longer line is several entries in the node's file, each with a time of its own


class Position:
    """How far a log was read: the newest whole second, how many lines came since it began, and the newest time."""

    __slots__ = ("count", "hold", "newest", "second")

    def __init__(self) -> None:
        self.second = b""
        self.count = 0
        self.newest = b""
        self.hold = b""

    def passed(self, stamp: bytes, size: int) -> None:
        """One more line.

        The entries of a long line may reach into later seconds, up to that of the next line: until they are past, the
        second stays, or the rest of that line would come as a line of its own.
        """
        second = stamp[:19]
        if stamp > self.newest:
            self.newest = stamp
        if second > self.second and (not self.hold or (self.hold != b"?" and second > self.hold)):
            self.second, self.count, self.hold = second, 1, b""
        elif second >= self.second:
            self.count += 1
            if self.hold == b"?":
                self.hold = second
        if size > ENTRY:
            self.hold = b"?"

    @property
    def since(self) -> str:
        """The time to ask from; empty at the beginning."""
        if not self.newest:
            return ""
        zone = self.newest[19:].lstrip(b".0123456789")
        at = datetime.fromisoformat((self.second + zone).decode()).astimezone(UTC)
        return at.strftime("%Y-%m-%dT%H:%M:%SZ")


class Cutter:
    """Cuts what a container's log sends into lines; after a cut it leaves out what was given before."""

    def __init__(self, start: Start, *, pieces: bool = False) -> None:
        self.start = start
        self.pieces = pieces
        self.position = Position()
        self.gap = False  # lines are missing: the node has begun a new file meanwhile
        self.trouble = ""  # what the node says in the log's place
        self._rest: list[bytes] = []
        self._size = 0
        self._again = 0  # lines that come a second time
        self._head = b""  # the time of a line that was given before its end
        self._given = 0  # how many of its bytes
        self._drop = 0  # how many of these come a second time

    def begin(self) -> None:
        """A new connection, asked from `position.since`."""
        self._rest, self._size, self.trouble = [], 0, ""
        self._again = self.position.count
        self._drop = self._given

    def feed(self, piece: bytes) -> list[LogLine]:
        """The lines that a piece of the answer ends."""
        *whole, rest = piece.split(b"\n")
        found: list[LogLine] = []
        if whole:
            whole[0] = b"".join((*self._rest, whole[0]))
            self._rest, self._size = [], 0
            found = self._lines(whole)
        if rest:
            self._rest.append(rest)
            self._size += len(rest)
            if (self.pieces or self._size > LONGEST) and not self._again:
                found += self._unfinished()
        return found

    def end(self) -> list[LogLine]:
        """A last line that has no end."""
        text = b"".join(self._rest)
        self._rest, self._size = [], 0
        return self._lines([text]) if text else []

    def _unfinished(self) -> list[LogLine]:
        """What is new of a line that has not ended."""
        stamp, blank, data = b"".join(self._rest).partition(b" ")
        self._rest, self._size = [stamp + blank], 0
        data = self._fresh(stamp, data)
        if not data:
            return []
        self._given += len(data)
        return [self._line(stamp, data, partial=True)]

    def _fresh(self, stamp: bytes, data: bytes) -> bytes:
        """The data of a line without what was given of it before."""
        if self._head != stamp:
            self._head, self._given, self._drop = stamp, 0, 0
        dropped = min(self._drop, len(data))
        self._drop -= dropped
        return data[dropped:]

    def _lines(self, lines: list[bytes]) -> list[LogLine]:
        if self._again:
            lines = self._new(lines)
        found = []
        if self._head and lines:
            stamp, _, data = lines[0].partition(b" ")
            data = self._fresh(stamp, data)
            self.position.passed(stamp, len(data) + self._given)
            found, lines = [self._line(stamp, data)], lines[1:]
            self._head, self._given = b"", 0
        return found + self._whole(lines)

    def _new(self, lines: list[bytes]) -> list[bytes]:
        """Lines without those that came before; none of these is newer than the newest of them."""
        newest = self.position.newest
        for number, line in enumerate(lines):
            if line.partition(b" ")[0] > newest:
                self.gap = self.gap or self._again == self.position.count
                self._again = 0
            if not self._again:
                return lines[number:]
            self._again -= 1
        return []

    def _whole(self, lines: list[bytes]) -> list[LogLine]:
        """The lines as values: what most of the time is spent on."""
        start, passed, parse = self.start, self.position.passed, datetime.fromisoformat
        name, role, index, rank, attempt = start.replica, start.role, start.index, start.rank, start.attempt
        found = []
        for line in lines:
            stamp, _, data = line.partition(b" ")
            try:
                time = parse(stamp.decode())
            except ValueError:
                self.trouble = line.decode(errors="replace")
                return found
            passed(stamp, len(data))
            found.append(LogLine(time, name, role, index, rank, data, False, attempt))
        return found

    def _line(self, stamp: bytes, data: bytes, *, partial: bool = False) -> LogLine:
        start, at = self.start, datetime.fromisoformat(stamp.decode())
        return LogLine(at, start.replica, start.role, start.index, start.rank, data, partial, start.attempt)
