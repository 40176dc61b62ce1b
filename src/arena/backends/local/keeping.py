"""How much history stays: records up to an age, logs up to a size, code as long as a record names it.

Looked after by the commands themselves, at most once an hour per state folder. A run that has not ended is never
touched. A record leaves through `new/`, so that what a kill leaves half-removed is swept like a half-made submit.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from arena import files, keeping
from arena.backends.local import state
from arena.errors import BackendError

STAMP = "kept"


class Record(Struct, frozen=True):
    """A run that has ended: when, and how many bytes its logs take."""

    run: state.Run
    ended: float
    logs: int


def keep(folder: state.StateDir, max_age: float, max_size: int) -> None:
    """Remove records older than `max_age` seconds, the oldest logs beyond `max_size` bytes, and code nobody names."""
    with contextlib.suppress(OSError):
        lock = keeping.due(folder.path / STAMP)
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
            keeping.collect(folder.path)
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
    size = keeping.size(folder.path)
    for record in records:
        if size <= max_size:
            return
        if record.logs:
            size -= record.logs
            keeping.remove_logs(list(_logs(record.run)))
