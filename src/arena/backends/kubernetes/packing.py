"""The archive that carries a job's code: which files, where the program starts in them, the same bytes everywhere."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import os
import posixpath
import shlex
import stat
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, structs

from arena import code, images
from arena.backends.base import Context
from arena.backends.kubernetes.travel import PART, SIZE_ANNOTATION, Parcel, Recorded, lost
from arena.engines.base import MANAGED_BY, PART_LABEL, Code, Manifest
from arena.errors import SpecError
from arena.job import Job, launch
from arena.quantity import few, format_bytes
from arena.settings import Settings

MOST = 1_000_000  # bytes in one ConfigMap: the server takes 1 MiB, keys and names included
MOST_FILES = 20_000
MOST_RAW = 64 << 20  # bytes that are read at all: beyond it nothing packs into MOST
PLAIN = 100_000  # bytes of a tar that is not compressed: an image may have a tar and no gzip
THEN = 946_684_800  # the time of every file: 2000, as zip archives know no earlier one than 1980
LARGEST = 5  # files that a refusal names
FOLDER = "/arena/code"
OTHER_WAYS = (
    "leave files out in .arenaignore, put them into the image (--image), let the program clone them with git,"
    " or send none: ARENA_UPLOAD_MAX=0"
)


class Packed(Struct, frozen=True):
    """A folder as one archive (compressed unless it is small), and the files in it with their sizes."""

    data: bytes
    sizes: Mapping[str, int]

    @property
    def key(self) -> str:
        """Its name, which tells whether it is compressed."""
        return "code.tgz" if self.data[:2] == b"\x1f\x8b" else "code.tar"


def parcel_here(job: Job, context: Context, settings: Settings, namespace: str) -> Parcel:
    """The project's files, or the script alone where the folder must not travel."""
    root = Path(context.code or context.cwd)
    left: list[code.LeftOut] = []
    paths = sorted(set(_whole(root, left) if context.code else _alone(job, root)))
    notes = (*(_left_behind(root, paths, left) if context.code else [_only(paths)]), *lost(job, context.fetch))
    if not paths:
        return Parcel(working_dir=job.working_dir, notes=notes)
    start = starting_folder(job, context, root)
    found = archive(root, paths, start)
    check_size(found, settings)
    parcel = parcel_of(found, start, namespace)
    return structs.replace(parcel, notes=notes, renamed=renamed(job, context, root, found.sizes))


def recorded_parcel(job: Job, recorded: Recorded, settings: Settings, namespace: str) -> Parcel:
    """The recorded files, started where the earlier run began."""
    start = posixpath.normpath(posixpath.join(recorded.base, job.working_dir))
    if start.startswith(".."):
        raise SpecError(f"--working-dir: {job.working_dir} lies outside the recorded code")
    start = "" if start == "." else start
    packer, contents = Packer(), {}
    for file, data in code.contents(recorded.captured, recorded.store):
        packer.check_room(file.path, file.size)
        packer.add(file.path, file.mode, data)
        contents[file.path] = data
    found = packer.packed(start)
    check_size(found, settings)
    names = [posixpath.normpath(posixpath.join(start, name)) for name in images.script_names(job.command)]
    script = next((contents[name] for name in names if name in contents), b"")
    parcel = parcel_of(found, start, namespace)
    return structs.replace(parcel, notes=tuple(lost(job)), script=script.decode(errors="replace"))


def parcel_of(found: Packed, start: str, namespace: str = "") -> Parcel:
    """An archive as the ConfigMap that carries it."""
    sha256, count = hashlib.sha256(found.data).hexdigest(), len(found.sizes)
    made = Code(config_map=f"arena-code-{sha256[:16]}", sha256=sha256, key=found.key, folder=FOLDER)
    return Parcel(
        code=made,
        working_dir=start,
        manifests=(manifest(made, found.data, namespace),),
        facts=(f"code {count} file{'s' * (count != 1)}, {format_bytes(len(found.data))}",),
    )


def manifest(made: Code, data: bytes, namespace: str = "") -> Manifest:
    """The ConfigMap: the same for every run that brings the same files, so no run is named in it."""
    metadata: Manifest = {
        "name": made.config_map,
        "labels": {MANAGED_BY: "arena", PART_LABEL: PART},
        "annotations": {SIZE_ANNOTATION: str(len(data))},
    }
    if namespace:
        metadata["namespace"] = namespace
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "immutable": True,
        "binaryData": {made.key: base64.b64encode(data).decode()},
    }


# --- which files -------------------------------------------------------------------------------------------


def _whole(root: Path, left: list[code.LeftOut]) -> Iterator[str]:
    for number, path in enumerate(code.travelling_files(root, left_out=left)):
        if number >= MOST_FILES:
            raise SpecError(f"the code has more than {MOST_FILES} files: {root}", hint=OTHER_WAYS)
        yield path


def _alone(job: Job, root: Path) -> Iterator[str]:
    """The script of the command, the one file that travels out of a folder that must not."""
    script = script_of(job.command, root)
    if script:
        yield from code.named_files(root, [script])


def script_of(command: Sequence[str], folder: Path) -> str:
    """The first word that names a file below the folder, relative to it; empty where none does.

    >>> script_of(("python3", "/nowhere.py"), Path("/"))
    ''
    """
    for word in _words(command):
        path = os.path.relpath(os.path.join(folder, word), folder)
        if not path.startswith("..") and os.path.isfile(folder / path):
            return path.replace(os.sep, "/")
    return ""


def _words(command: Sequence[str]) -> Sequence[str]:
    """The words of a command, of a shell line too as far as it can be split."""
    if launch(tuple(command))[:1] == ("sh",) and len(command) == 1:
        try:
            return shlex.split(command[0])
        except ValueError:
            return ()
    return command


def _only(paths: Sequence[str]) -> str:
    """What to say where a home folder, or one with keys in it, is the current one."""
    where = "the current folder is a home folder, or holds .ssh or .kube"
    return f"only {paths[0]} travels: {where}" if paths else f"no code travels: {where}"


def _left_behind(root: Path, paths: Iterable[str], left: Sequence[code.LeftOut]) -> Iterator[str]:
    """The folders at the top and the files of which somebody might think that they travel."""
    tops = {path.partition("/")[0] for path in paths}
    who = "git" if (root / ".git").exists() else ".arenaignore"
    for name in code.folders_at_top(root):
        if name not in tops:
            yield f"{name}/ is ignored by {who}: not sent"
    if left:
        yield f"{few([f'{one.path} {one.reason}' for one in left])}: not sent"


# --- packing -----------------------------------------------------------------------------------------------


def archive(root: Path, paths: Sequence[str], start: str = "") -> Packed:
    """The files as a tar: the same bytes for the same files, whoever packs them and when."""
    packer = Packer()
    for path in paths:
        status = os.lstat(root / path)
        packer.check_room(path, status.st_size if stat.S_ISREG(status.st_mode) else 0)
        packer.add(path, status.st_mode, _content(root, path, status))
    return packer.packed(start)


def _content(root: Path, path: str, status: os.stat_result) -> bytes:
    found = code.content(root, path, status)
    if found is None:
        raise SpecError(f"the code cannot travel: {path} cannot be read", hint="name it in .arenaignore, or chmod it")
    return found


class Packer:
    """Makes an archive of contents, without the times, owners and rights that differ from one clone to the next."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self._total = 0
        self._raw = io.BytesIO()
        self._tar = tarfile.TarFile(
            fileobj=self._raw, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape"
        )

    def check_room(self, path: str, size: int) -> None:
        """SpecError where so much has come together that it cannot be packed into anything small."""
        if self._total + size > MOST_RAW:
            raise _too_large({**self.sizes, path: size}, f"more than {format_bytes(MOST_RAW)}", limited=False)

    def add(self, path: str, mode: int, data: bytes) -> None:
        """One more file, or a link whose target is the data."""
        info = tarfile.TarInfo(path)
        info.mtime = THEN
        if stat.S_ISLNK(mode):
            info.type, info.linkname, info.mode, data = tarfile.SYMTYPE, os.fsdecode(data), 0o777, b""
        else:
            info.size, info.mode = len(data), 0o755 if mode & 0o100 else 0o644
        self.sizes[path] = len(data)
        self._total += len(data)
        self._tar.addfile(info, io.BytesIO(data))

    def packed(self, start: str = "") -> Packed:
        """What was added, as one archive; with the folder a program starts in, also where no file is in it."""
        if start and not start.startswith("/") and not any(path.startswith(f"{start}/") for path in self.sizes):
            info = tarfile.TarInfo(start)
            info.type, info.mode, info.mtime = tarfile.DIRTYPE, 0o755, THEN
            self._tar.addfile(info)
        self._tar.close()
        raw = self._raw.getvalue()
        return Packed(raw if len(raw) <= PLAIN else gzip.compress(raw, 9, mtime=0), self.sizes)


def check_size(found: Packed, settings: Settings) -> None:
    """SpecError, with the largest files, where an archive is larger than may travel."""
    set_ = settings.size("upload.max")
    limit, limited = min(set_, MOST), set_ < MOST
    if len(found.data) > limit:
        told = f"{format_bytes(len(found.data))} compressed, at most {format_bytes(limit)} travel through a ConfigMap"
        raise _too_large(found.sizes, told, limited=limited)


def _too_large(sizes: Mapping[str, int], told: str, *, limited: bool) -> SpecError:
    largest = sorted(sizes, key=lambda path: (-sizes[path], path))[:LARGEST]
    names = ", ".join(f"{path} ({format_bytes(sizes[path])})" for path in largest)
    more = "; or raise upload.max" if limited else ""
    return SpecError(f"the code is too large: {told}", why=f"the largest files: {names}", hint=OTHER_WAYS + more)


# --- where it starts ---------------------------------------------------------------------------------------


def starting_folder(job: Job, context: Context, root: Path) -> str:
    """The folder the program starts in: relative to the code, or a path of the image where the user named one."""
    folder = os.path.join(context.cwd, job.working_dir)
    inside = _inside(root, folder)
    if inside is not None:
        return "" if inside == "." else inside
    if os.path.isabs(job.working_dir):
        return job.working_dir
    raise SpecError(
        f"--working-dir: {job.working_dir or context.cwd} lies outside the project", why=f"what travels is {root}"
    )


def renamed(job: Job, context: Context, root: Path, sizes: Mapping[str, int]) -> dict[str, str]:
    """The words that are paths of this machine, as the pods have them: the program's own, and this Python's."""
    words = {context.python: "python3"} if context.python.startswith("/") else {}
    for word in job.command:
        path = _inside(root, os.path.join(context.cwd, job.working_dir, word))
        if path and path in sizes:
            if os.path.isabs(word):
                words[word] = posixpath.join(FOLDER, path)
            break
    return words


def _inside(root: Path, path: str) -> str | None:
    """A path relative to the project, as named or as links lead there; None outside."""
    for name in (os.path.abspath, os.path.realpath):
        relative = os.path.relpath(name(path), name(root))
        if relative.split(os.sep)[0] != os.pardir:
            return relative.replace(os.sep, "/")
    return None
