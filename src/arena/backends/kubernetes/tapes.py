"""The logs of a record: written while they are read, taken up again where an earlier command left off."""

from __future__ import annotations

import contextlib
import heapq
import os
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import structs

from arena import files
from arena.backends.base import LogLine, LogQuery
from arena.backends.kubernetes.cutting import ENTRY, Again, Position
from arena.backends.kubernetes.records import Record
from arena.backends.kubernetes.starts import Start
from arena.backends.source import Source
from arena.logfile import LogWriter, segment, segments
from arena.status import Observed, Replica, State


class Tapes:
    """The logs of one run, held by one process at a time: `take` gives None while another writes them."""

    def __init__(self, record: Record, lock: int, limit: int) -> None:
        self.record = record
        self.lock = lock
        self.limit = limit
        self.open: list[Tape] = []

    @classmethod
    def take(cls, record: Record, limit: int) -> Tapes | None:
        """The logs to be written by this process."""
        record.logs.mkdir(mode=0o700, exist_ok=True)
        lock = files.try_lock(record.logs / "lock")
        return None if lock is None else cls(record, lock, limit)

    def tape(self, start: Start) -> Tape:
        """The tape of one start."""
        folder = self.record.logs / str(start.attempt)
        folder.mkdir(mode=0o700, exist_ok=True)
        tape = Tape(folder, start.replica, self.limit)
        self.open.append(tape)
        return tape

    def close(self) -> None:
        """Write what is left, and let others write."""
        for tape in self.open:
            tape.writer.close()
        os.close(self.lock)

    @property
    def whole(self) -> bool:
        """Whether everything could be written."""
        return not any(tape.writer.dropped for tape in self.open)


class Tape:
    """The log of one start as it is kept."""

    def __init__(self, folder: Path, name: str, limit: int) -> None:
        self.folder = folder
        self.name = name
        position = _wound(folder, name)
        self.again = Again(position) if position.second else None
        self.writer = LogWriter(folder, name, limit)

    def write(self, lines: list[bytes]) -> None:
        """Whole lines, each after its time and a blank; those that are kept already are left out."""
        if self.again:
            lines = self.again.fresh(lines)
            if not lines:
                return
            self.again = None
        self.writer.put(b"".join([line.replace(b" ", b" stdout F ", 1) + b"\n" for line in lines]))

    def write_part(self, stamp: bytes, data: bytes) -> None:
        """What has come of a line whose rest is to come."""
        if self.again and self.again.comes_again(stamp):
            return
        self.again = None
        self.writer.put(stamp + b" stdout P " + data.replace(b"\n", b"") + b"\n")

    def end(self) -> None:
        """All of it was read, and all of it is kept; where that cannot be noted it is read once more."""
        self.writer.close()
        if not self.writer.dropped:
            with contextlib.suppress(OSError):
                files.write_text(_end(self.folder, self.name), "")


def is_whole(record: Record, start: Start) -> bool:
    """Whether the log of a start is kept to its end."""
    return _end(record.logs / str(start.attempt), start.replica).exists()


def _end(folder: Path, name: str) -> Path:
    return folder / f"{name}.end"


def _wound(folder: Path, name: str) -> Position:
    """How far a log is kept; what was written of a line or entry without its end is taken back."""
    position = Position()
    numbers = segments(folder, name)
    for number in numbers[-2:]:
        path = segment(folder, name, number)
        data = path.read_bytes()
        kept = _whole_lines(data, position)
        if kept < len(data):
            os.truncate(path, kept)
    return position


def _whole_lines(data: bytes, position: Position) -> int:
    """Pass the lines of a file; how many bytes the whole ones are."""
    kept = offset = size = 0
    for entry in data.split(b"\n")[:-1]:
        offset += len(entry) + 1
        stamp, _, rest = entry.partition(b" ")
        size += len(rest)
        if rest[7:9] == b"F ":
            position.passed(stamp, size if size > ENTRY else 0)
            kept, size = offset, 0
    return kept


# --- whose log is which -------------------------------------------------------------------------------------------


def numbered(record: Record | None, starts: Iterable[Start]) -> list[Start]:
    """The starts with the attempts they have in the record: pods that are gone counted too."""
    if record is None:
        return list(starts)
    path = record.path / "starts.json"
    known = files.read_if(path, dict[str, tuple[str, int]]) or {}
    before = dict(known)
    last: dict[str, int] = defaultdict(int)
    starts = list(starts)
    there = {_name(start) for start in starts}
    for key, (replica, attempt) in known.items():
        if key not in there:
            last[replica] = max(last[replica], attempt)
    found = []
    for start in starts:
        attempt = known[_name(start)][1] if _name(start) in known else max(start.attempt, last[start.replica] + 1)
        last[start.replica] = attempt
        known[_name(start)] = (start.replica, attempt)
        found.append(start if attempt == start.attempt else structs.replace(start, attempt=attempt))
    if known != before:
        files.write(path, known)
    return found


def _name(start: Start) -> str:
    return f"{start.uid}/{start.count}"


# --- reading ------------------------------------------------------------------------------------------------------


def read_kept(record: Record, observed: Observed, query: LogQuery) -> Iterator[LogLine]:
    """The kept lines that a query asks for, by time; of all attempts, one after the other, when following."""
    chosen = [r for r in _last(observed) if query.replicas is None or r.name in query.replicas]
    if query.follow and query.attempt is None and query.tail is None:
        for attempt in _attempts(record):
            yield from _merged(record, [structs.replace(replica, attempt=attempt) for replica in chosen], query)
        return
    picked = [structs.replace(r, attempt=query.attempt or _newest(record, r)) for r in chosen]
    yield from _merged(record, picked, query)


def kept_lines(record: Record, start: Start, *, pieces: bool) -> Iterator[LogLine]:
    """The kept log of one start."""
    replica = Replica(role=start.role, index=start.index, rank=start.rank, attempt=start.attempt)
    return Source(record.logs / str(start.attempt), replica, pieces).all()


def unkept(record: Record, observed: Observed, query: LogQuery) -> list[str]:
    """The replicas asked for that have ended, or are gone, and of whose log nothing is kept."""
    over = [r for r in observed.replicas if r.state is not State.PENDING]
    asked = [r for r in over if query.replicas is None or r.name in query.replicas]
    return [r.name for r in asked if not any(_is_kept(record, r.name, number) for number in _attempts(record))]


def _is_kept(record: Record, name: str, attempt: int) -> bool:
    folder = record.logs / str(attempt)
    return bool(segments(folder, name)) or _end(folder, name).exists()


def _last(observed: Observed) -> list[Replica]:
    """Each replica once, those too of which only an earlier attempt is known."""
    return list({r.name: r for r in (*observed.earlier, *observed.replicas)}.values())


def _attempts(record: Record) -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(record.logs) if name.isdecimal())
    except FileNotFoundError:
        return []


def _newest(record: Record, replica: Replica) -> int:
    """The last attempt whose log is kept; else the one it is in."""
    there = [number for number in _attempts(record) if segments(record.logs / str(number), replica.name)]
    return max(there, default=replica.attempt)


def _merged(record: Record, replicas: Iterable[Replica], query: LogQuery) -> Iterator[LogLine]:
    alone = [r if r.nproc == 1 else structs.replace(r, rank=None) for r in replicas]
    streams = [_one(Source(record.logs / str(r.attempt), r, query.pieces), query) for r in alone]
    return heapq.merge(*streams, key=lambda line: line.time)


def _one(source: Source, query: LogQuery) -> Iterator[LogLine]:
    lines = (line for line in source.all() if is_wanted(line, query))
    return lines if query.tail is None else iter(deque(lines, maxlen=query.tail))


def is_wanted(line: LogLine, query: LogQuery) -> bool:
    """Whether a line is one of those asked for; where several ranks share a log, all of it is."""
    return (query.since is None or line.time >= query.since) and (
        query.ranks is None or line.rank is None or line.rank in query.ranks
    )
