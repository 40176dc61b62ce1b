"""How much history stays: records up to an age, logs up to a size, code as long as a record names it.

Looked after by the commands themselves, at most once an hour per state folder. A run that has not ended is never
touched. A record leaves through `new/`, so that what a kill leaves half-removed is swept like a half-made submit.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from arena import files, logfile
from arena.backends.local import state
from arena.errors import BackendError

EVERY = 3600.0
STAMP = "kept"


class Record(Struct, frozen=True):
    """A run that has ended: when, and how many bytes its logs take."""

    run: state.Run
    ended: float
    logs: int


def keep(folder: state.StateDir, max_age: float, max_size: int) -> None:
    """Remove records older than `max_age` seconds, the oldest logs beyond `max_size` bytes, and code nobody names."""
    with contextlib.suppress(OSError):
        lock = _due(folder.path / STAMP)
        if lock is None:
            return
        try:
            records = [record for entry in folder.runs() if (record := _record(state.Run(Path(entry.path))))]
            records.sort(key=lambda record: record.ended)
            oldest = time.time() - max_age
            for record in records:
                if record.ended < oldest:
                    remove(folder, record.run)
            _shrink(folder, [record for record in records if record.ended >= oldest], max_size)
            _collect(folder)
        finally:
            os.close(lock)


def remove(folder: state.StateDir, run: state.Run) -> None:
    """Take a record out of the history; nothing happens to a run that somebody holds."""
    lock = run.try_lock()
    if lock is None:
        return
    try:
        made = files.read_if(run.path / "job.json", state.Made)
        if made:
            folder.release(made.name, run.run_id)
        leaving = folder.path / "new" / run.run_id
        os.rename(run.path, leaving)
        shutil.rmtree(leaving, ignore_errors=True)
    except BackendError:
        pass  # damaged: somebody may want to look at it
    finally:
        os.close(lock)


def _due(stamp: Path) -> int | None:
    """The lock of whoever looks after the history now; None where that was done in this hour, or is being done."""
    with contextlib.suppress(FileNotFoundError):
        if time.time() - stamp.stat().st_mtime < EVERY:
            return None
    lock = files.try_lock(stamp)
    if lock is not None:
        os.utime(stamp)
    return lock


def _record(run: state.Run) -> Record | None:
    """The run as a record; None while it has not ended, or cannot be read."""
    with contextlib.suppress(BackendError):
        facts = run.facts()
        if facts.finished:
            return Record(run, facts.finished.timestamp(), sum(path.stat().st_size for path in _logs(run)))
    return None


def _logs(run: state.Run) -> Iterator[Path]:
    yield from run.path.glob("attempt-*/*.log")


def _shrink(folder: state.StateDir, records: list[Record], max_size: int) -> None:
    """Remove logs, those of the oldest runs first, until the state folder is small enough."""
    size = _size(folder.path)
    for record in records:
        if size <= max_size:
            return
        if record.logs:
            size -= record.logs
            _remove_logs(record.run)


def _size(path: Path) -> int:
    """The bytes of all files below."""
    total = 0
    for place, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total


def _remove_logs(run: state.Run) -> None:
    """Remove the logs of a run, leaving a line that says so in each one's place."""
    note = f"{logfile.stamp()} stderr F [arena: this log was removed, the history was larger than history.max_size]\n"
    for path in _logs(run):
        name, number, _ = path.name.rsplit(".", 2)
        if logfile.segments(path.parent, name)[:1] == [int(number)] and path.stat().st_size > len(note):
            files.write_text(path, note)
        elif path.stat().st_size > len(note):
            path.unlink()


def _collect(folder: state.StateDir) -> None:
    """Remove the code that no record names; none of it where a record cannot be read."""
    from arena import code

    named: set[str] = set()
    for path in (folder.path / "runs").glob("*/code.json"):
        try:
            named |= code.Capture.from_json(json.loads(path.read_bytes())).blobs()
        except FileNotFoundError:
            continue
        except (ValueError, KeyError, TypeError, OSError):
            return
    code.gc(folder.path / "blobs", named)
