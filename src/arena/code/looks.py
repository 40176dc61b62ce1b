"""What lies at a path, and what its name says. Nothing here raises: an odd file is one that is not there."""

from __future__ import annotations

import os
import stat
from fnmatch import fnmatchcase
from pathlib import Path

NEVER = (".ssh", ".kube", ".aws", ".netrc", ".env*", "*.pem", "id_*", ".gnupg", ".git-credentials", ".pypirc")
# An `id_*` of this kind is a module, not a key.
_NO_KEY = (".py", ".pyi", ".ipynb", ".md")


def exists(path: Path) -> bool:
    """Whether there is anything, a link that leads nowhere too."""
    return lstat(path) is not None


def is_folder(path: str | Path) -> bool:
    """Whether it is a folder itself, not a link to one."""
    status = lstat(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def lstat(path: str | Path) -> os.stat_result | None:
    """The status of what is there, of a link its own; None where nothing is."""
    try:
        return os.lstat(path)
    except (OSError, ValueError):
        return None


def readlink(path: Path) -> str:
    """Where a link leads, as it says; empty where there is none."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def scan(folder: str | Path) -> list[os.DirEntry[str]]:
    """What is in a folder; nothing where it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def read(path: Path, most: int) -> bytes | None:
    """At most so many bytes of a regular file; None if it is none or cannot be read. Never waits for a pipe."""
    flags = os.O_RDONLY
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):
        flags |= getattr(os, name, 0)
    try:
        with open(os.open(path, flags), "rb") as stream:
            return stream.read(most) if stat.S_ISREG(os.fstat(stream.fileno()).st_mode) else None
    except (OSError, ValueError):
        return None


def is_inside(root: Path, path: Path) -> bool:
    """Whether a path leads below a folder, or to it, links followed."""
    real, top = os.path.realpath(path), os.path.realpath(root)
    return real == top or real.startswith(top.rstrip(os.sep) + os.sep)


def is_credential(path: str) -> bool:
    """Whether a part of the path is named as keys and credentials are."""
    return any(
        fnmatchcase(part.lower(), pattern) and not (pattern == "id_*" and part.endswith(_NO_KEY))
        for part in path.split("/")
        for pattern in NEVER
    )
