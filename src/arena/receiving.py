"""Files that come as a tar stream from where a job runs, laid out here: nothing outside the place named is touched.

What a program wrote into its folder is not trusted: names that climb, links that lead out, devices and pipes are left
where they are and told.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from arena.errors import BackendError, NotFoundError, SpecError


def target_of(path: str, dest: str | os.PathLike[str]) -> Path:
    """Where a copy of PATH is laid: inside DEST where that is a folder, else under that very name."""
    found = Path(dest)
    name = posixpath.basename(posixpath.normpath(path))
    if found.is_dir() and name not in ("", ".", "..", "/"):
        found = found / name
    if not found.parent.is_dir():
        raise SpecError(f"{dest}: there is no folder {found.parent}")
    return found


def receive(stream: IO[bytes], target: Path) -> list[str]:
    """Lay out an archive whose one top entry becomes `target`; what was refused, a line each."""
    laid = _Laid(target)
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                laid.add(archive, member)
    except tarfile.TarError as error:
        if not laid.count:
            return laid.refused
        raise BackendError("the copy is not whole", why=str(error)) from error
    return laid.refused


class _Laid:
    """What has been laid out of one archive."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.top: str | None = None
        self.count = 0
        self.refused: list[str] = []

    def add(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        self.count += 1
        place = self._place(member.name)
        if place is None:
            self._refuse(member.name, "leads outside")
        elif member.isdir():
            self._folder(place, member.name)
        elif member.issym():
            self._link(place, member)
        elif member.islnk():
            self._same(place, member)
        elif member.isfile():
            content = archive.extractfile(member)
            assert content is not None
            self._file(place, member, content)
        else:
            self._refuse(member.name, "is no file, folder or link")

    def _refuse(self, name: str, why: str) -> None:
        self.refused.append(f"{name.encode(errors='backslashreplace').decode()} {why}")

    def _place(self, name: str) -> Path | None:
        """Where a member goes; None where its name climbs, or is not below the first one's."""
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if name.startswith("/") or ".." in parts or "\0" in name or (os.name == "nt" and set(name) & set("\\:")):
            return None
        if self.top is None:
            self.top = parts[0] if parts else ""
        if self.top and parts[:1] != [self.top]:
            return None
        return self.target.joinpath(*(parts[1:] if self.top else parts))

    def _ready(self, place: Path, name: str) -> bool:
        """Whether the folder of a place is there and is one: no link on the way is followed."""
        folder = place.parent
        if place == self.target:
            return True
        for one in (self.target, *(self.target / part for part in _above(folder.relative_to(self.target)))):
            if not os.path.lexists(one):
                one.mkdir()
            if one.is_symlink() or not one.is_dir():
                self._refuse(name, f"would be written through {one}, which is no folder")
                return False
        return True

    def _folder(self, place: Path, name: str) -> None:
        if self._ready(place, name):
            if place.is_symlink() or (place.exists() and not place.is_dir()):
                self._refuse(name, f"is a folder, {place} is none")
            else:
                place.mkdir(exist_ok=True)

    def _file(self, place: Path, member: tarfile.TarInfo, content: IO[bytes]) -> None:
        if not self._free(place, member.name):
            return
        with _new(place, member.mode & 0o777 | 0o600) as stream:
            shutil.copyfileobj(content, stream, 1 << 20)
        os.utime(place, (member.mtime, member.mtime))

    def _free(self, place: Path, name: str) -> bool:
        if not self._ready(place, name):
            return False
        if place.is_dir() and not place.is_symlink():
            self._refuse(name, f"is a file, {place} is a folder")
            return False
        return True

    def _link(self, place: Path, member: tarfile.TarInfo) -> None:
        """A link that stays inside what is copied; nothing is written through it."""
        up = posixpath.normpath(posixpath.join(posixpath.dirname(self._below(place)), member.linkname))
        if member.linkname.startswith("/") or up.split("/")[0] == "..":
            self._refuse(member.name, f"is a link that leads outside: {member.linkname}")
        elif place == self.target:
            self._refuse(member.name, f"is a link: copy {member.linkname}")
        elif self._free(place, member.name):
            with contextlib.suppress(FileNotFoundError):
                place.unlink()
            place.symlink_to(member.linkname)

    def _same(self, place: Path, member: tarfile.TarInfo) -> None:
        """Another name of a file that came before: a copy of it."""
        first = self._place(member.linkname)
        if first is None or first.is_symlink() or not first.is_file() or not self._ready(first, member.name):
            self._refuse(member.name, f"is another name of {member.linkname}, which was not copied")
        elif self._free(place, member.name):
            with open(first, "rb") as content, _new(place, first.stat().st_mode & 0o777) as stream:
                shutil.copyfileobj(content, stream, 1 << 20)

    def _below(self, place: Path) -> str:
        return place.relative_to(self.target).as_posix()


def _above(relative: Path) -> list[Path]:
    """The folders on the way to a relative one, from the top, itself last."""
    return [one for one in (*reversed(relative.parents), relative) if one != Path(".")]


@contextlib.contextmanager
def _new(place: Path, mode: int) -> Iterator[IO[bytes]]:
    """A file that takes its name only when it is whole; what had the name, a link too, is replaced."""
    handle, temporary = tempfile.mkstemp(dir=place.parent, prefix=".arena-")
    try:
        with open(handle, "wb") as stream:
            yield stream
        os.chmod(temporary, mode)
        os.replace(temporary, place)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def copy_here(path: str, dest: str | os.PathLike[str]) -> list[str]:
    """Copy a file or folder of this machine by the same rules; the lines of what was refused."""
    import threading

    target = target_of(path, dest)
    real = os.path.realpath(path)
    if not os.path.exists(real):
        raise NotFoundError(f"{path} is not there")
    if os.path.realpath(target) == real:
        raise SpecError(f"{path} and {target} are the same")
    ours, theirs = os.pipe()
    thread = threading.Thread(target=_send, args=(real, theirs), daemon=True)
    thread.start()
    with open(ours, "rb") as stream:
        return receive(stream, target)


def _send(path: str, handle: int) -> None:
    """Write a file or folder of this machine as such an archive."""
    with (
        contextlib.suppress(OSError),
        open(handle, "wb") as stream,
        tarfile.open(fileobj=stream, mode="w|", format=tarfile.GNU_FORMAT) as archive,
    ):
        archive.add(path, arcname=posixpath.basename(path) or ".")
