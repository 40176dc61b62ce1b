"""How much history stays, for records of either backend: when it is looked after, and what goes when it is too much."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path

from arena import files, logfile

EVERY = 3600.0


def due(stamp: Path) -> int | None:
    """The lock of whoever looks after the history now; None where that was done in this hour, or is being done."""
    with contextlib.suppress(FileNotFoundError):
        if time.time() - stamp.stat().st_mtime < EVERY:
            return None
    lock = files.try_lock(stamp)
    if lock is not None:
        os.utime(stamp)
    return lock


def size(path: Path) -> int:
    """The bytes of all files below."""
    total = 0
    for place, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total


def remove_logs(paths: list[Path]) -> None:
    """Remove the logs of a run, leaving a line that says so in each one's place."""
    note = f"{logfile.stamp()} stderr F [arena: this log was removed, the history was larger than history.max_size]\n"
    for path in paths:
        name, number, _ = path.name.rsplit(".", 2)
        if path.stat().st_size <= len(note):
            continue
        if logfile.segments(path.parent, name)[:1] == [int(number)]:
            files.write_text(path, note)
        else:
            path.unlink()


def collect(state: Path) -> None:
    """Remove the code that no record of either backend names; none of it where a record cannot be read."""
    from arena import code

    named: set[str] = set()
    for path in (*state.glob("runs/*/code.json"), *state.glob("cluster/*/code.json")):
        try:
            named |= code.Capture.from_json(json.loads(path.read_bytes())).blobs()
        except FileNotFoundError:
            continue
        except (ValueError, KeyError, TypeError, OSError):
            return
    code.gc(state / "blobs", named)
