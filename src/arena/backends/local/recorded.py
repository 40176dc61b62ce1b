"""The code of a run, as its record has it: laid out again for a rerun, frozen for a snapshot."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path

from arena import code
from arena.backends.local import state
from arena.errors import NotFoundError

PATIENCE = 60.0  # seconds to wait for code that is just being packed
FOLDER = "code"
PACKING = "code.lock"  # held by the packer
SETTLE = 1.0  # seconds for which the end of a short job waits for its code to be packed


def captured(run: state.Run) -> code.Capture | None:
    """What was recorded of a run's code; None where it had no folder to record."""
    if not run.made().code:
        return None
    deadline = time.monotonic() + PATIENCE
    path = run.path / "code.json"
    while not path.exists() and _to_come(run) and time.monotonic() < deadline:
        time.sleep(0.02)
    try:
        return code.Capture.from_json(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None


def settle(run: state.Run) -> None:
    """Wait a moment while the code is packed: who sees the end of a job may change its code at once."""
    deadline = time.monotonic() + SETTLE
    while state.is_locked(run.path / PACKING) and time.monotonic() < deadline:
        time.sleep(0.005)


def _to_come(run: state.Run) -> bool:
    """Whether the code may still be packed: somebody packs it, or the job has not come so far."""
    return state.is_locked(run.path / PACKING) or not run.facts().finished


def folder_again(parent: state.Run, run: state.Run) -> str:
    """The folder in which a rerun starts: the parent's, inside the copy of its code."""
    made, found = parent.made(), captured(parent)
    if found is None:
        raise NotFoundError(
            f"the code of run {parent.run_id} was not recorded", hint="--code here takes what is here now"
        )
    if not found.stored:
        raise NotFoundError(
            f"the code of run {parent.run_id} was not kept", why=found.reason, hint="--code here takes what is here now"
        )
    return str(run.path / FOLDER / inside(made))


def inside(made: state.Made) -> str:
    """The working folder relative to the project."""
    relative = os.path.relpath(made.cwd, made.code) if made.code else "."
    return "." if relative.startswith("..") else relative


def lay_again(parent: state.Run, run: state.Run, store: Path) -> None:
    """Lay the parent's code into a run that is being made, and remember it as this run's code."""
    found = captured(parent)
    assert found is not None
    code.restore(found, store, run.path / FOLDER)
    run.write("code.json", found.to_json())


def freeze(project: Path, run: state.Run, store: Path, limit: int) -> None:
    """Copy the project's code into a run that is being made; what does not travel is linked, not lost."""
    found = code.capture(project, store, limit)
    if not found.stored:
        raise NotFoundError("the code cannot be frozen", why=found.reason, hint="run it without --snapshot")
    code.restore(found, store, run.path / FOLDER)
    for entry in os.listdir(project):
        with contextlib.suppress(FileExistsError):
            os.symlink(project / entry, run.path / FOLDER / entry)
    run.write("code.json", found.to_json())
