"""What is kept of a run's code: each file by name and hash, its content stored once, whatever the run."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from arena.code import git
from arena.code.git import Env
from arena.code.looks import exists, is_inside, lstat, read, readlink, scan
from arena.code.travelling import LeftOut, named_files, travelling_files
from arena.errors import AlreadyExistsError, BackendError, NotFoundError
from arena.quantity import format_bytes

LIMIT = 10_000_000  # bytes of one run
FILE_LIMIT = 20_000
LEFT_OUT_LIMIT = 200  # lines; the rest is counted
YOUNG = 3600.0  # seconds in which a blob may belong to a run that is just being recorded


class CodeFile(NamedTuple):
    """A file as it was: `mode` tells links (their text is the content); no `sha256` if it was not read."""

    path: str
    mode: int
    size: int
    sha256: str


class Capture(NamedTuple):
    """The code of a run: what it was, by name and hash, and whether its content is stored."""

    commit: str | None
    diff: str
    files: tuple[CodeFile, ...]
    hash: str
    stored: bool
    left_out: tuple[LeftOut, ...] = ()
    reason: str = ""  # why it is not stored

    def blobs(self) -> set[str]:
        """The hashes that `gc` has to keep for this capture."""
        return {file.sha256 for file in self.files if file.sha256} if self.stored else set()

    def to_json(self) -> dict[str, Any]:
        """Plain values that any writer of JSON takes; a name that is not UTF-8 becomes NUL and its bytes in hex."""
        return {
            **self._asdict(),
            "files": [[_as_text(file.path), *file[1:]] for file in self.files],
            "left_out": [[_as_text(one.path), one.reason] for one in self.left_out],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Capture:
        """What `to_json` gave."""
        files = tuple(CodeFile(_as_name(path), *rest) for path, *rest in data["files"])
        left_out = tuple(LeftOut(_as_name(path), reason) for path, reason in data["left_out"])
        return cls(**{**data, "files": files, "left_out": left_out})


def capture(
    root: Path,
    store: Path,
    limit: int = LIMIT,
    *,
    file_limit: int = FILE_LIMIT,
    include: Sequence[str] = (),
    only: Sequence[str] | None = None,
    env: Env = None,
) -> Capture:
    """Record the code below `root` (or `only` these paths of it), its content too if all of it fits the limit."""
    left: list[LeftOut] = []
    paths = (
        named_files(root, only, left)
        if only is not None
        else travelling_files(root, include=include, left_out=left, env=env)
    )
    found, more = _survey(root, paths, file_limit, left)
    total = sum(status.st_size for _, status in found)
    reason = f"more than {file_limit} files" if more else ""
    if total > limit:
        reason = f"{format_bytes(total)} in {len(found)} files: more than {format_bytes(limit)}"
    files, trouble = _keep(root, found, None if reason else store, limit, left)
    reason = reason or trouble
    commit, diff = (git.commit_of(root, env), git.diff_of(root, env=env)) if only is None else (None, "")
    return Capture(commit, diff, files, _hash(files), not reason, _shortened(left), reason)


def restore(captured: Capture, store: Path, dest: Path) -> None:
    """Make the tree again in a new or empty folder, each file checked against its hash."""
    if not captured.stored:
        raise NotFoundError("the code of this run was not kept", why=captured.reason)
    if exists(dest) and (not dest.is_dir() or any(dest.iterdir())):
        raise AlreadyExistsError(f"{dest} is there already and not empty")
    dest.mkdir(parents=True, exist_ok=True)
    # Links come last: until then every folder below dest is one made here, and nothing can be written through a link.
    for file in sorted(captured.files, key=lambda file: stat.S_ISLNK(file.mode)):
        _restore_file(file, _load(store, file), dest)


def contents(captured: Capture, store: Path) -> Iterator[tuple[CodeFile, bytes]]:
    """Each file with its content (of a link: where it leads), checked against its hash."""
    if not captured.stored:
        raise NotFoundError("the code of this run was not kept", why=captured.reason)
    for file in captured.files:
        yield file, _load(store, file)


def gc(store: Path, keep: set[str], *, older_than: float = YOUNG) -> int:
    """Remove the blobs that no record names; the bytes won. Young ones stay: their record is being written."""
    import time

    freed, before = 0, time.time() - older_than
    for name, path in _blobs(store):
        status = lstat(path)
        if status and name not in keep and status.st_mtime <= before:
            freed += _remove(path, status.st_size)
    return freed


def _as_text(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        return "\0" + os.fsencode(name).hex()
    return name


def _as_name(text: str) -> str:
    return os.fsdecode(bytes.fromhex(text[1:])) if text.startswith("\0") else text


def _survey(
    root: Path, paths: Iterable[str], file_limit: int, left: list[LeftOut]
) -> tuple[list[tuple[str, os.stat_result]], bool]:
    """The first files with their sizes, and whether there are more than may be."""
    found: list[tuple[str, os.stat_result]] = []
    for path in paths:
        if len(found) >= file_limit or len(left) > file_limit:
            return sorted(found), True
        status = lstat(root / path)
        if status is None:
            left.append(LeftOut(path, "is not there any more"))
        else:
            found.append((path, status))
    return sorted(found), False


def _keep(
    root: Path, found: Iterable[tuple[str, os.stat_result]], store: Path | None, limit: int, left: list[LeftOut]
) -> tuple[tuple[CodeFile, ...], str]:
    """Hash all that fits the limit and store it, until the store fails; then why it did."""
    files, room, trouble = [], limit, ""
    for path, status in found:
        mode = stat.S_IFMT(status.st_mode) | stat.S_IMODE(status.st_mode) & 0o777
        if status.st_size > room:
            files.append(CodeFile(path, mode, status.st_size, ""))
            continue
        data = content(root, path, status)
        if data is None:
            left.append(LeftOut(path, "cannot be read"))
            continue
        room -= len(data)
        sha256 = _sha256(data)
        files.append(CodeFile(path, mode, len(data), sha256))
        if store is not None and not trouble:
            trouble = _save(store, sha256, data)
    return tuple(files), trouble


def content(root: Path, path: str, status: os.stat_result) -> bytes | None:
    """The bytes of a file as its status has it, or where a link leads; None if it cannot be read."""
    if stat.S_ISLNK(status.st_mode):
        return os.fsencode(_link_text(root, path)) or None
    return read(root / path, status.st_size)


def _link_text(root: Path, path: str) -> str:
    """Where the link leads, so written that it leads there in any copy of the folder."""
    text = readlink(root / path)
    if not os.path.isabs(text) and not _leaves(path, text):
        return text
    return os.path.relpath(os.path.realpath(root / path), os.path.realpath((root / path).parent))


def _leaves(path: str, text: str) -> bool:
    return os.path.normpath(os.path.join(os.path.dirname(path), text)).split(os.sep)[0] == ".."


def _save(store: Path, sha256: str, data: bytes) -> str:
    """Store a blob unless it is there; why not, if it cannot be."""
    import tempfile
    import zlib

    blob = _blob(store, sha256)
    try:
        status = lstat(blob)
        if status and status.st_size:
            os.utime(blob)  # young again: `gc` spares it until the record that names it is written
            return ""
        for folder in (store, blob.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=blob.parent, prefix=".new-")  # 0600
        try:
            with open(handle, "wb") as stream:
                stream.write(zlib.compress(data))
            os.replace(temporary, blob)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        return f"it could not be stored: {error.strerror}"
    return ""


def _blob(store: Path, sha256: str) -> Path:
    return store / sha256[:2] / sha256[2:]


def _sha256(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


def _hash(files: Iterable[CodeFile]) -> str:
    """One hash for the tree: names, contents, links and what may be executed; not the umask of whoever cloned it."""
    lines = []
    for file in files:
        kind = "link" if stat.S_ISLNK(file.mode) else "program" if file.mode & 0o100 else "file"
        lines.append(f"{kind}\0{file.path}\0{file.sha256 or file.size}\0")
    return _sha256(os.fsencode("".join(lines)))


def _shortened(left: list[LeftOut]) -> tuple[LeftOut, ...]:
    more = len(left) - LEFT_OUT_LIMIT
    return (*left[:LEFT_OUT_LIMIT], LeftOut("", f"and {more} more")) if more > 0 else tuple(left)


def _load(store: Path, file: CodeFile) -> bytes:
    import zlib

    if not re.fullmatch(r"[0-9a-f]{64}", file.sha256):
        raise BackendError(f"the kept code is damaged: {file.path!r} has no hash")
    try:
        packed = _blob(store, file.sha256).read_bytes()
        data = zlib.decompressobj().decompress(packed, file.size + 1)
    except FileNotFoundError:
        raise NotFoundError(f"the kept code is not complete: {file.path!r} is missing") from None
    except (OSError, zlib.error) as error:
        raise BackendError(f"the kept code is damaged: {file.path!r}", why=str(error)) from error
    if _sha256(data) != file.sha256:
        raise BackendError(f"the kept code is damaged: {file.path!r} is not what it was")
    return data


def _restore_file(file: CodeFile, data: bytes, dest: Path) -> None:
    target, link = dest / file.path, os.fsdecode(data) if stat.S_ISLNK(file.mode) else None
    parts = file.path.split("/")
    if {"", ".", ".."} & set(parts) or os.path.isabs(file.path) or (os.name == "nt" and set(file.path) & set("\\:")):
        raise BackendError(f"the kept code is damaged: {file.path!r} leads outside")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if link is not None and (os.path.isabs(link) or _leaves(file.path, link) or not is_inside(dest, target.parent)):
            raise BackendError(f"the kept code is damaged: the link {file.path!r} leads outside")
        if link is not None:
            os.symlink(link, target)
        else:
            with open(target, "xb") as stream:
                stream.write(data)
            os.chmod(target, stat.S_IMODE(file.mode) & 0o777)
    except (OSError, ValueError) as error:
        raise BackendError(f"{file.path!r} cannot be restored", why=str(error)) from error


def _blobs(store: Path) -> Iterator[tuple[str, str]]:
    """Name and path of all that lies in the store, half-written blobs of killed processes too."""
    for folder in scan(store):
        if re.fullmatch(r"[0-9a-f]{2}", folder.name):
            yield from ((folder.name + blob.name, blob.path) for blob in scan(folder.path))


def _remove(path: str, size: int) -> int:
    try:
        os.unlink(path)
    except OSError:
        return 0
    return size
