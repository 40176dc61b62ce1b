"""Files that several processes share: written by rename, read as values, locked by the kernel; and where they are."""

from __future__ import annotations

import _thread
import contextlib
import errno
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from arena.errors import BackendError

T = TypeVar("T")


def choose(explicit: str, env: dict[str, str]) -> tuple[Path, str]:
    """The state folder, and a line to say once where it is an emergency: ARENA_STATE_DIR, XDG, home, else TMPDIR."""
    if explicit:
        return Path(explicit), ""
    if xdg := env.get("XDG_STATE_HOME"):
        return Path(xdg) / "arena", ""
    home = env.get("HOME", "")
    folder = Path(home or "/nonexistent") / ".local" / "state" / "arena"
    if home and _writable(folder):
        return folder, ""
    spare = Path(env.get("TMPDIR") or "/tmp") / f"arena-{os.getuid()}"
    return spare, f"no home folder can be written: the state of local jobs is in {spare}"


def _writable(folder: Path) -> bool:
    while not folder.exists():
        folder = folder.parent
    return os.access(folder, os.W_OK)


def private(path: Path) -> None:
    """BackendError where a folder in a shared place is not ours alone."""
    with contextlib.suppress(FileNotFoundError):
        found = path.lstat()
        if found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise BackendError(
                f"{path} is not a private folder of yours", hint="remove it, or set ARENA_STATE_DIR to one you own"
            )


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """BackendError where the disk does not take what is written."""
    try:
        yield
    except OSError as error:
        raise BackendError(
            f"{path} cannot be written: {error.strerror}", hint="make room, or set ARENA_STATE_DIR"
        ) from error


def read(path: Path, kind: type[T]) -> T:
    """The value in a JSON file; BackendError names the file when it cannot be one."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise BackendError(f"{path} cannot be read: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise BackendError(f"{path} is damaged: {error}") from error


def read_if(path: Path, kind: type[T]) -> T | None:
    """The value in a JSON file, or None where there is no file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BackendError(f"{path} cannot be read: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise BackendError(f"{path} is damaged: {error}") from error


def write(path: Path, value: object, *, reserve: Path | None = None) -> None:
    """Write a value as JSON by rename. On a full disk the reserve of the run gives its place."""
    data = msgspec.json.format(msgspec.json.encode(value), indent=1)
    try:
        write_bytes(path, data)
    except OSError as error:
        if reserve is None or error.errno not in (errno.ENOSPC, errno.EDQUOT) or not reserve.exists():
            raise
        reserve.unlink()
        write_bytes(path, data)


def write_bytes(path: Path, data: bytes) -> None:
    """Write by rename, mode 0600; nothing half-made stays."""
    new = path.with_name(f".{path.name}.{os.getpid()}-{_thread.get_ident()}")
    try:
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(file, view) :]
        finally:
            os.close(file)
        os.replace(new, path)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink()
        raise


def write_text(path: Path, text: str) -> None:
    """Write text by rename."""
    write_bytes(path, text.encode())


def try_lock(path: Path) -> int | None:
    """An open file that holds the lock at `path`, or None where another process holds it.

    The kernel gives it back when the last process that has the file open ends.
    """
    return lock_file(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def lock_file(file: int) -> int | None:
    """The same open file, locked; or None, and it is closed, where another process holds the lock."""
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file


def take_lock(path: Path, patience: float = 1.0) -> int | None:
    """The same, for the one who is to hold it: those who only look whether it is held do so for a moment."""
    deadline = time.monotonic() + patience
    while (lock := try_lock(path)) is None and time.monotonic() < deadline:
        time.sleep(0.002)
    return lock


@contextlib.contextmanager
def mutex(path: Path) -> Iterator[None]:
    """Alone for a moment."""
    import fcntl

    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock."""
    import fcntl

    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)
