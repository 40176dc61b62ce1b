"""The log of a replica: the kubelet's line format, written by the keeper and read by everybody.

    2026-11-30T17:20:49.123456789Z stdout F a whole line
    2026-11-30T17:20:49.123456789Z stdout P a piece, its rest follows

`stdout` is stdout and stderr in one; `stdout.3` is the process with LOCAL_RANK 3 of several. A log is kept in
segments; when it grows without end, the first and the last ones stay.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

PIECE = 16 * 1024
SEGMENT = 8 * 2**20
LEAST = 2**16  # bytes of a segment where little is to be kept
ROOM = 2**20


class LogWriter:
    """Writes one replica's log. Nothing it meets on the disk stops it: what cannot be written is counted."""

    def __init__(self, folder: Path, name: str, limit: int) -> None:
        self.folder = folder
        self.name = name
        self.segment = min(SEGMENT, max(LEAST, limit // 2))
        self.keep = max(2, limit // self.segment)
        numbers = segments(folder, name)
        self.number = numbers[-1] if numbers else 0
        self.file = -1
        self.size = 0
        self.dropped = 0
        self.pending: dict[str, bytes] = {}
        self.since: dict[str, float] = {}

    def feed(self, stream: str, chunk: bytes) -> None:
        """Take what a process wrote; whole lines go to the file at once, the rest waits for its end."""
        *lines, rest = (self.pending.pop(stream, b"") + chunk).split(b"\n")
        head = f"{stamp()} {stream} ".encode()
        out = [piece for line in lines for piece in _pieces(head, line)]
        while len(rest) > PIECE:
            out.append(head + b"P " + rest[:PIECE] + b"\n")
            rest = rest[PIECE:]
        if lines:
            self.since.pop(stream, None)
        if rest:
            self.pending[stream] = rest
            self.since.setdefault(stream, time.monotonic())
        if out:
            self._write(b"".join(out))

    def put(self, entries: bytes) -> None:
        """Take whole entries, which have their time already."""
        self._write(entries)

    def flush(self) -> None:
        """Write what has no line end yet as pieces, so that readers see it."""
        for stream, rest in self.pending.items():
            self._write(f"{stamp()} {stream} P ".encode() + rest + b"\n")
        self.pending.clear()
        self.since.clear()

    def waiting(self) -> float:
        """For how many seconds a piece of a line has been waiting for the rest."""
        return time.monotonic() - min(self.since.values()) if self.since else 0.0

    def close(self, reserve: Path | None = None) -> None:
        """Write what is left; `reserve` is a file that gives its place on a full disk to the note of what was lost."""
        self.flush()
        if self.dropped and not self._append(b"") and reserve:
            with contextlib.suppress(OSError):
                reserve.unlink()
            self._append(b"")
        if self.file >= 0:
            os.close(self.file)
            self.file = -1

    def _write(self, data: bytes) -> None:
        if (self.dropped and not self._has_room()) or not self._append(data):
            self.dropped += len(data)

    def _append(self, data: bytes) -> bool:
        """Write all of it, after a line that says what could not be written before; or, on a full disk, nothing."""
        try:
            if self.file < 0 or self.size >= self.segment:
                self._open()
            if self.dropped:
                note = f"{stamp()} stderr F [arena: {self.dropped} bytes of this log could not be written]\n"
                data = note.encode() + data
            self.size += _write_all(self.file, data)
            self.dropped = 0
        except OSError:
            return False
        return True

    def _has_room(self) -> bool:
        """Whether a disk that was full has room for more than the last words of jobs."""
        with contextlib.suppress(OSError):
            found = os.statvfs(self.folder)
            return found.f_bavail * found.f_frsize >= ROOM
        return False

    def _open(self) -> None:
        if self.file >= 0:
            os.close(self.file)
            self.file = -1
            self.number += 1
        path = segment(self.folder, self.name, self.number)
        self.file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.size = os.fstat(self.file).st_size
        if self.size and os.pread(self.file, 1, self.size - 1) != b"\n":
            self.size += os.write(self.file, b"\n")  # whoever wrote before us was killed while it wrote
        for old in segments(self.folder, self.name)[1 : -self.keep + 1]:
            with contextlib.suppress(OSError):
                segment(self.folder, self.name, old).unlink()


def _write_all(file: int, data: bytes) -> int:
    """Write it all or, on a full disk, nothing of it."""
    start = os.fstat(file).st_size
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(file, view) :]
    except OSError:
        os.ftruncate(file, start)
        raise
    return len(data)


def _pieces(head: bytes, line: bytes) -> Iterator[bytes]:
    while len(line) > PIECE:
        yield head + b"P " + line[:PIECE] + b"\n"
        line = line[PIECE:]
    yield head + b"F " + line + b"\n"


def stamp() -> str:
    """The time as the kubelet writes it."""
    seconds, nanos = divmod(time.time_ns(), 10**9)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{nanos:09d}Z"


def segment(folder: Path, name: str, number: int) -> Path:
    """The file of one segment."""
    return folder / f"{name}.{number}.log"


def segments(folder: Path, name: str) -> list[int]:
    """The numbers of the segments there are, in order."""
    pattern = re.compile(re.escape(name) + r"\.(\d+)\.log")
    try:
        found = [pattern.fullmatch(entry) for entry in os.listdir(folder)]
    except FileNotFoundError:
        return []
    return sorted(int(match[1]) for match in found if match)


class Entry:
    """One line of the file: time, local rank of the process, whether the line ends here, and its bytes."""

    __slots__ = ("data", "local_rank", "time", "whole")

    def __init__(self, line: bytes) -> None:
        self.time, stream, tag, self.data = line.split(b" ", 3)
        self.local_rank = int(stream[7:]) if stream[6:7] == b"." else 0
        self.whole = tag == b"F"


ENTRY = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z std(?:out|err)(?:\.\d+)? [FP] ")


def entries(lines: list[bytes]) -> list[Entry]:
    """The entries in these lines, without what was left half-written by a killed keeper."""
    try:
        return [Entry(line) for line in lines]
    except ValueError:
        return [Entry(line) for line in lines if ENTRY.match(line)]


def parse_time(text: bytes) -> datetime:
    """The time of an entry, to the microsecond."""
    return datetime.fromisoformat(text[:26].decode()).replace(tzinfo=UTC)


class LogReader:
    """Reads one replica's log from its beginning, over segments, as it grows."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self.number: int | None = None
        self.offset = 0
        self.rest = b""

    def read(self, limit: int = 2**20) -> list[Entry]:
        """The entries that are new, at most about `limit` bytes of them; empty where there is nothing new."""
        if self.number is None and not self._first():
            return []
        data = self._data(limit)
        while not data:
            moved, data = self._advance()
            if not moved:
                return []
            data += self._data(limit)
        *lines, self.rest = (self.rest + data).split(b"\n")
        return entries(lines)

    def _first(self) -> bool:
        numbers = segments(self.folder, self.name)
        self.number = numbers[0] if numbers else None
        return bool(numbers)

    def _data(self, limit: int) -> bytes:
        try:
            with open(segment(self.folder, self.name, self.number or 0), "rb") as file:
                if file.seek(0, os.SEEK_END) < self.offset:
                    self.offset, self.rest = file.tell(), b""  # a write that did not fit was taken back
                file.seek(self.offset)
                data = file.read(limit)
        except FileNotFoundError:
            return b""
        self.offset += len(data)
        return data

    def _advance(self) -> tuple[bool, bytes]:
        """Go to the next segment, if there is one; with what came to the old one since."""
        number = self.number or 0
        later = [n for n in segments(self.folder, self.name) if n > number]
        if not later:
            return False, b""
        gap = later[0] != number + 1
        text, self.rest = self.rest + self._data(2**24), b""
        if text and not text.endswith(b"\n"):
            text = (
                text[: text.rfind(b"\n") + 1] if gap else text + b"\n"
            )  # half an entry is gone, or was never finished
        if gap:
            text += f"{stamp()} stderr F [arena: the middle of this log was not kept]\n".encode()
        self.number, self.offset = later[0], 0
        return True, text


def tail(folder: Path, name: str, count: int, reach: int = 128 * 1024) -> list[str]:
    """The last lines of a log, as text; looked for in the last `reach` bytes of its last segment."""
    numbers = segments(folder, name)
    if not numbers:
        return []
    with open(segment(folder, name, numbers[-1]), "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - reach))
        lines = file.read().split(b"\n")
    whole = lines[1:-1] if size > reach else lines[:-1]
    return [Entry(line).data.decode(errors="replace") for line in whole[-count:]]
