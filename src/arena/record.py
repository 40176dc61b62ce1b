"""What is remembered: an index over the folders of all runs.

The folders are the truth; the index is one SQLite file that can be deleted at any time. An entry is trusted as long as
its folder's modification time is the one that was read, and as its run has ended. Plain rollback journal, no WAL: the
state folder may lie on a network file system.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

LAYOUT = 1
DamagedError = sqlite3.DatabaseError
TABLE = f"""
CREATE TABLE IF NOT EXISTS runs_{LAYOUT} (
    run_id TEXT PRIMARY KEY, changed INTEGER, created REAL, name TEXT, gone INTEGER, final INTEGER,
    made BLOB, facts BLOB, deleted BLOB
)
"""


class Row(Struct, frozen=True, gc=False):
    """One run as its files were: the bytes of `job.json`, `state.json` and `deleted.json`."""

    run_id: str
    changed: int
    created: float
    name: str
    final: bool
    made: bytes
    facts: bytes
    deleted: bytes


class Index:
    """The runs of one state folder, by name and time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Index:
        self.db = self._open()
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(sqlite3.Error):
            self.db.commit()
        self.db.close()

    def known(self) -> dict[str, int]:
        """When each run's folder had changed when it was read; runs that had not ended are not in it."""
        return dict(self.db.execute(f"SELECT run_id, changed FROM runs_{LAYOUT} WHERE final"))

    def put(self, row: Row) -> None:
        """Remember a run as it is now; what cannot be written is remembered until the end of this command."""
        values = (
            row.run_id, row.changed, row.created, row.name, bool(row.deleted), row.final, row.made, row.facts,
            row.deleted,
        )  # fmt: skip
        insert = f"INSERT OR REPLACE INTO runs_{LAYOUT} VALUES (?,?,?,?,?,?,?,?,?)"
        try:
            self.db.execute(insert, values)
        except sqlite3.OperationalError:
            self._leave_the_disk()
            self.db.execute(insert, values)

    def _leave_the_disk(self) -> None:
        """Go on with a copy in memory where the file cannot be written."""
        copy = sqlite3.connect(":memory:")
        self.db.rollback()
        self.db.backup(copy)
        self.db.close()
        self.db = copy

    def forget(self, run_ids: set[str]) -> None:
        """Remove runs whose folders are gone."""
        with contextlib.suppress(sqlite3.Error):
            self.db.executemany(f"DELETE FROM runs_{LAYOUT} WHERE run_id = ?", [(run_id,) for run_id in run_ids])

    def rows(self, name: str = "", *, gone: bool = True) -> Iterator[Row]:
        """The runs, newest first; of one name, and without deleted ones where asked."""
        where = ["1"] + ["name = :name"] * bool(name) + ["NOT gone"] * (not gone)
        query = (
            f"SELECT run_id, changed, created, name, final, made, facts, deleted FROM runs_{LAYOUT} "
            f"WHERE {' AND '.join(where)} ORDER BY created DESC, run_id DESC"
        )
        for values in self.db.execute(query, {"name": name}):
            yield Row(*values)

    def _open(self) -> sqlite3.Connection:
        for path in (str(self.path), str(self.path), ":memory:"):
            try:
                return _connect(path)
            except sqlite3.DatabaseError as error:
                if not isinstance(error, sqlite3.OperationalError):
                    with contextlib.suppress(OSError):
                        os.unlink(path)  # damaged; it can be made again
        raise AssertionError("sqlite in memory cannot fail")


def _connect(path: str) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=5, isolation_level="DEFERRED")
    try:
        db.execute("PRAGMA synchronous = OFF")
        db.execute(TABLE)
        db.execute(f"SELECT 1 FROM runs_{LAYOUT} LIMIT 1")
    except sqlite3.Error:
        db.close()
        raise
    if path != ":memory:":
        with contextlib.suppress(OSError):
            os.chmod(path, 0o600)
    return db


def changed(found: Mapping[str, int], known: Mapping[str, int]) -> list[str]:
    """The runs that must be read: new ones, changed ones, and those that had not ended."""
    return [run_id for run_id, when in found.items() if known.get(run_id) != when]
