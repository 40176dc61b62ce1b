"""The log of one start of a container: each line once and in order, however often the connection is cut.

A log is taken up again by `sinceTime`, which is cut to whole seconds: the lines of that second come again. The file is
only ever appended to, so they are the first ones that come, and as many as were counted.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Protocol

from arena.backends.base import LogLine
from arena.backends.kubernetes.starts import Start

LONGEST = 8 * 2**20  # a line longer than this is given out in pieces
ENTRY = 16 * 1024  # a longer line is several entries in the node's file, each with a time of its own
STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")
LONG = b"?"


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
        if second > self.second and (not self.hold or (self.hold != LONG and second > self.hold)):
            self.second, self.count, self.hold = second, 1, b""
        elif second >= self.second:
            self.count += 1
            if self.hold == LONG:
                self.hold = second
        if size > ENTRY:
            self.hold = LONG

    @property
    def since(self) -> str:
        """The time to ask from; empty at the beginning."""
        return f"{self.second.decode()}Z" if self.second else ""


class Again:
    """Leaves out the lines that come again when a log is asked for from a position."""

    def __init__(self, position: Position) -> None:
        self.newest = position.newest
        self.count = self.left = position.count
        self.second = position.second
        self.gap = False  # lines are missing: the node has begun a new file meanwhile

    def comes_again(self, stamp: bytes) -> bool:
        """Whether the line of this time was there before."""
        return stamp[:19] < self.second or (self.left > 0 and stamp <= self.newest)

    def fresh(self, lines: list[bytes]) -> list[bytes]:
        """These lines without those that came before; none of these is newer than the newest of them."""
        for number, line in enumerate(lines):
            stamp = line.partition(b" ")[0]
            if stamp[:19] < self.second:
                continue
            if stamp > self.newest:
                self.gap = self.left == self.count
                self.left = 0
            if not self.left:
                return lines[number:]
            self.left -= 1
        return []


class Tape(Protocol):
    """Where lines are kept on their way."""

    def write(self, lines: list[bytes]) -> None:
        """Whole lines, each after its time and a blank."""

    def write_part(self, stamp: bytes, data: bytes) -> None:
        """What has come of a line whose rest is to come."""


class Cutter:
    """Cuts what a container's log sends into lines; after a cut it leaves out what was given before."""

    def __init__(self, start: Start, *, pieces: bool = False, tape: Tape | None = None) -> None:
        self.start = start
        self.pieces = pieces
        self.tape = tape
        self.position = Position()
        self.gap = False
        self.trouble = ""  # what the node says in the log's place
        self._again: Again | None = None
        self._rest: list[bytes] = []
        self._size = 0
        self._head = b""  # the time of a line that was given before its end
        self._given = 0  # how many of its bytes
        self._drop = 0  # how many of these come a second time

    def begin(self) -> None:
        """A new connection, asked from `position.since`."""
        self._rest, self._size, self.trouble = [], 0, ""
        self._again = Again(self.position) if self.position.second else None
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
            if self.pieces or self._size > LONGEST:
                found += self._unfinished()
        return found

    def end(self) -> list[LogLine]:
        """A last line that has no end."""
        text = b"".join(self._rest)
        self._rest, self._size = [], 0
        return self._lines([text]) if text else []

    def _unfinished(self) -> list[LogLine]:
        """What is new of a line that has not ended."""
        stamp, _, data = b"".join(self._rest).partition(b" ")
        match = STAMP.fullmatch(stamp)
        if match is None or not data:
            return []
        stamp = utc(match)
        if self._again and self._again.comes_again(stamp):
            return []
        self._rest, self._size = [stamp + b" "], 0
        data = self._fresh(stamp, data)
        if not data:
            return []
        self._given += len(data)
        if self.tape:
            self.tape.write_part(stamp, data)
        return [self._line(stamp, data, partial=True)]

    def _fresh(self, stamp: bytes, data: bytes) -> bytes:
        """The data of a line without what was given of it before."""
        if self._head != stamp:
            self._head, self._given, self._drop = stamp, 0, 0
        dropped = min(self._drop, len(data))
        self._drop -= dropped
        return data[dropped:]

    def _lines(self, lines: list[bytes]) -> list[LogLine]:
        if lines[0][29:31] != b"Z ":
            lines = self._plain(lines)
        if self._again:
            lines = self._again.fresh(lines)
            self.gap = self.gap or self._again.gap
            self._again = self._again if self._again.left or not lines else None
        found = []
        if self._head and lines:
            stamp, _, data = lines[0].partition(b" ")
            data = self._fresh(stamp, data)
            self.position.passed(stamp, len(data) + self._given)
            found, self._head, self._given = [self._line(stamp, data)], b"", 0
            if self.tape:
                self.tape.write([stamp + b" " + data])
            lines = lines[1:]
        return found + self._whole(lines)

    def _plain(self, lines: list[bytes]) -> list[bytes]:
        """Lines with their times in UTC, up to the first that has none: that one is the node's own word."""
        found = []
        for line in lines:
            stamp, _, data = line.partition(b" ")
            match = STAMP.fullmatch(stamp)
            if match is None:
                self.trouble = line.decode(errors="replace")
                break
            found.append(utc(match) + b" " + data)
        return found

    def _whole(self, lines: list[bytes]) -> list[LogLine]:
        """The lines as values: what most of the time is spent on."""
        start, passed, parse = self.start, self.position.passed, datetime.fromisoformat
        name, role, index, rank, attempt = start.replica, start.role, start.index, start.rank, start.attempt
        found = []
        for line in lines:
            stamp, _, data = line.partition(b" ")
            try:
                found.append(LogLine(parse(stamp.decode()), name, role, index, rank, data, False, attempt))
            except ValueError:
                self.trouble = line.decode(errors="replace")
                break
            passed(stamp, len(data))
        if self.tape and found:
            self.tape.write(lines[: len(found)])
        return found

    def _line(self, stamp: bytes, data: bytes, *, partial: bool = False) -> LogLine:
        start, at = self.start, datetime.fromisoformat(stamp.decode())
        return LogLine(at, start.replica, start.role, start.index, start.rank, data, partial, start.attempt)


def utc(stamp: re.Match[bytes]) -> bytes:
    """A time as the node wrote it, in its own zone, in UTC and with nine digits."""
    whole, digits, zone = stamp.groups(default=b"")
    at = datetime.fromisoformat((whole + (zone or b"Z")).decode()).astimezone(UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%S").encode() + b"." + digits.ljust(9, b"0") + b"Z"
