"""The code of a run, as its record has it: laid out again for a rerun, frozen for a snapshot."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from arena import code, files
from arena.backends.local import state
from arena.errors import NotFoundError, SpecError

PATIENCE = 60.0  # seconds to wait for code that is just being packed
FOLDER = "code"
BASE = "base.json"  # the folder that `working_dir` is relative to
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
    while files.is_locked(run.path / PACKING) and time.monotonic() < deadline:
        time.sleep(0.005)


def _to_come(run: state.Run) -> bool:
    """Whether the code may still be packed: somebody packs it, or the job has not come so far."""
    return files.is_locked(run.path / PACKING) or not run.facts().finished


def folders_again(parent: state.Run, run: state.Run, working_dir: str) -> tuple[str, str]:
    """Where a rerun starts, and what its `working_dir` is relative to: the parent's folders, inside the copy."""
    _check_kept(parent)
    made, base = parent.made(), base_folder(parent)
    new_base = in_copy(run, made.code, base)
    if working_dir != made.job.get("working_dir", ""):
        return in_copy(run, made.code, os.path.join(base, working_dir)), new_base
    outside = _inside(made.code, made.cwd) is None
    return made.cwd if outside else in_copy(run, made.code, made.cwd), new_base


def _check_kept(parent: state.Run) -> None:
    found, hint = captured(parent), "--code here takes what is here now"
    if found is None:
        raise NotFoundError(f"the code of run {parent.run_id} was not recorded", hint=hint)
    if not found.stored:
        raise NotFoundError(f"the code of run {parent.run_id} was not kept", why=found.reason, hint=hint)


def in_copy(run: state.Run, project: str, folder: str) -> str:
    """A folder of the project, in the copy of it that a run gets; SpecError where it is none of the project's."""
    relative = _inside(project, folder)
    if relative is None:
        raise SpecError(f"--working-dir: {os.path.normpath(folder)} lies outside the project", why=f"that is {project}")
    return os.path.normpath(run.path / FOLDER / relative)


def _inside(project: str, folder: str) -> str | None:
    """A folder relative to the project, as named or as links lead there; None outside."""
    for name in (os.path.abspath, os.path.realpath):
        relative = os.path.relpath(name(folder), name(project))
        if relative.split(os.sep)[0] != os.pardir:
            return relative
    return None


def keep_base(run: state.Run, folder: str) -> None:
    """Remember the folder that a run's `working_dir` is relative to: the folder it starts in does not tell."""
    run.write(BASE, {"folder": folder})


def base_folder(run: state.Run) -> str:
    """The folder that a run's `working_dir` is relative to."""
    made = run.made()
    if not made.job.get("working_dir"):
        return made.cwd
    try:
        return str(json.loads((run.path / BASE).read_bytes())["folder"])
    except FileNotFoundError:  # of an older arena
        folder = made.cwd.removesuffix(f"/{os.path.normpath(made.job['working_dir'])}")
        return made.code if folder == made.cwd else folder


def lay_again(parent: state.Run, run: state.Run, store: Path) -> None:
    """Lay the parent's code into a run that is being made, and remember it as this run's code.

    What never travels is linked while it is there; what came to the project since is no part of that code.
    """
    found = captured(parent)
    assert found is not None
    code.restore(found, store, run.path / FOLDER)
    project = Path(parent.made().code)
    if project.is_dir():
        _link_rest(project, run.path / FOLDER, {".git", *_travelling(project)})
    run.write("code.json", found.to_json())


def freeze(project: Path, run: state.Run, store: Path, limit: int) -> None:
    """Copy the project's code into a run that is being made; what does not travel is linked, not lost."""
    found = code.capture(project, store, limit)
    if not found.stored:
        raise NotFoundError("the code cannot be frozen", why=found.reason, hint="run it without --snapshot")
    code.restore(found, store, run.path / FOLDER)
    _link_rest(project, run.path / FOLDER)
    run.write("code.json", found.to_json())


def _travelling(project: Path) -> Iterator[str]:
    """The files that would travel now, and their folders."""
    for path in code.travelling_files(project):
        yield path
        yield from map(str, Path(path).parents)


def _link_rest(project: Path, copy: Path, without: Collection[str] = ()) -> None:
    """Link what the folders of the copy lack of the project's; nothing is linked over, no link is followed."""
    for place, _, _ in os.walk(copy):
        folder = os.path.relpath(place, copy)
        for name in _entries(project / folder, top=folder == "."):
            if os.path.normpath(f"{folder}/{name}") not in without:
                with contextlib.suppress(FileExistsError):
                    os.symlink(_target(project / folder / name), Path(place) / name)


def _entries(folder: Path, *, top: bool) -> list[str]:
    """The names in a folder of the project, if it is one (still); a repository's own only at the top."""
    if folder.is_symlink() and not top:
        return []
    try:
        return [name for name in os.listdir(folder) if top or name != ".git"]
    except OSError:
        return []


def _target(entry: Path) -> str:
    """What a link to an entry names: where an absolute link leads, for the copy that holds it may be removed."""
    link = os.readlink(entry) if entry.is_symlink() else ""
    return link if os.path.isabs(link) else os.path.abspath(entry)
