"""The code of a run: which folder travels, and what of it is kept with the record.

The folder is the project's; git says which files belong to it (tracked and new ones, minus ignored), a walk does where
there is no git. Keys and credentials stay behind unless they are named. What is kept is content-addressed: equal files
are stored once, whatever the run. Nothing here raises for an odd file: it is left out, and `left_out` says why.

Paths are relative, with `/`; names that are not UTF-8 are Python's surrogates, and a hex text in JSON.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any, NamedTuple

from arena.errors import AlreadyExistsError, BackendError, NotFoundError
from arena.quantity import format_bytes
from arena.secrets import mask_text
from arena.settings import git_root, project_file

LIMIT = 10_000_000  # bytes of one run
FILE_LIMIT = 20_000
DIFF_LIMIT = 1_000_000
LEFT_OUT_LIMIT = 200  # lines; the rest is counted
YOUNG = 3600.0  # seconds in which a blob may belong to a run that is just being recorded

NEVER = (".ssh", ".kube", ".aws", ".netrc", ".env*", "*.pem", "id_*", ".gnupg", ".git-credentials", ".pypirc")
# An `id_*` of this kind is a module, not a key.
_NO_KEY = (".py", ".pyi", ".ipynb", ".md")
_NOT_CODE = (
    ".git",
    ".hg",
    ".svn",
    "__pycache__",
    "node_modules",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".tox",
)
_CREDENTIAL = "looks like a key or credential"
_IGNORE_FILE = ".arenaignore"
_DEEPEST = 64

# Only these reach git: a GIT_DIR of the caller's hook, or a GIT_CONFIG_PARAMETERS, would show another repository.
_GIT_ENV = {"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH"}
# A repository's own settings start no program: neither monitors nor hooks, external diffs or transports.
_GIT = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "protocol.allow=never")
_GIT_PATIENCE = 60.0


Env = Mapping[str, str] | None  # for git; None is this process's own


class LeftOut(NamedTuple):
    """A file that does not travel, and why."""

    path: str
    reason: str


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


def project_root(cwd: Path, home: Path | None) -> Path | None:
    """The folder that travels: of the nearest `arena.yaml`, else the git root, else this one.

    None for `/`, a home folder (git root or not) and a folder that holds `.ssh` or `.kube`: there only the script does.
    """
    named = project_file(cwd, home)
    root = named.parent if named else git_root(cwd) or cwd
    return None if _private(root, home) else root


def travelling_files(
    root: Path,
    *,
    include: Sequence[str] = (),
    left_out: list[LeftOut] | None = None,
    env: Env = None,
) -> Iterator[str]:
    """The relative paths of what travels; what does not though one might expect it is added to `left_out`.

    `include` names files and folders (or patterns) that travel even if they are ignored or look like credentials.
    """
    left = [] if left_out is None else left_out
    rules = _ignore_rules(root)
    tops: set[str] = set()
    for path in _travelling(root, include, rules, left, env):
        tops.add(path.partition("/")[0])
        yield path
    ignored = [name for name in _code_folders(root) if name not in tops and _ignored(f"{name}/", rules)]
    left += [LeftOut(f"{name}/", f"is ignored by {_IGNORE_FILE}") for name in ignored]


def named_files(root: Path, named: Sequence[str], left_out: list[LeftOut] | None = None) -> Iterator[str]:
    """Those of the paths that somebody named which may travel: files and links below the folder."""
    left = [] if left_out is None else left_out
    return (path for one in named for path in _within(root, one, left))


def folders_at_top(root: Path) -> list[str]:
    """The names of the folders at the top that hold something and could be taken for code or data.

    Those that `.arenaignore` names are told by `travelling_files`.
    """
    rules = _ignore_rules(root)
    return [name for name in _code_folders(root) if not _ignored(f"{name}/", rules)]


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
    commit, diff = (commit_of(root, env), diff_of(root, env=env)) if only is None else (None, "")
    return Capture(commit, diff, files, _hash(files), not reason, _shortened(left), reason)


def restore(captured: Capture, store: Path, dest: Path) -> None:
    """Make the tree again in a new or empty folder, each file checked against its hash."""
    if not captured.stored:
        raise NotFoundError("the code of this run was not kept", why=captured.reason)
    if _exists(dest) and (not dest.is_dir() or any(dest.iterdir())):
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
        status = _lstat(path)
        if status and name not in keep and status.st_mtime <= before:
            freed += _remove(path, status.st_size)
    return freed


def commit_of(root: Path, env: Env = None) -> str | None:
    """The commit the folder stands on; None without one, without a repository, without git."""
    return _git(root, ["rev-parse", "--verify", "--quiet", "HEAD^{commit}"], env, 200).strip() or None


def diff_of(root: Path, limit: int = DIFF_LIMIT, *, env: Env = None) -> str:
    """The uncommitted changes of tracked files, cut at the limit; credentials are left out and tokens masked."""
    without = [f":(exclude,icase,glob)**/{name}" for name in NEVER] + [
        f":(exclude,icase,glob)**/{name}/**" for name in NEVER
    ]
    options = ["--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short", "--ignore-submodules=dirty"]
    text = _git(root, ["diff", *options, "HEAD", "--", ".", *without], env, limit + 1)
    cut = len(text) > limit
    return mask_text(text[:limit]) + (f"\n... (cut at {format_bytes(limit)})\n" if cut else "")


def _as_text(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        return "\0" + os.fsencode(name).hex()
    return name


def _as_name(text: str) -> str:
    return os.fsdecode(bytes.fromhex(text[1:])) if text.startswith("\0") else text


# Which folder


def _private(root: Path, home: Path | None) -> bool:
    place = Path(os.path.realpath(root))
    homes = {Path(os.path.realpath(home))} if home else set()
    return (
        place == Path(place.anchor)
        or place in {*homes, Path("/root"), Path("/home"), Path("/Users")}
        or place.parent in (Path("/home"), Path("/Users"))
        or any(_exists(place / name) for name in (".ssh", ".kube"))
    )


# Which files


def _travelling(root: Path, include: Sequence[str], rules: list[Rule], left: list[LeftOut], env: Env) -> Iterator[str]:
    named = dict.fromkeys(_named(root, include, left))
    for path in named:
        yield from _within(root, path, left)
    for path in _listed(root, rules, left, env):
        if path in named or _ignored(path, rules):
            continue
        if _credential(path):
            left.append(LeftOut(path, _CREDENTIAL))
        else:
            yield from _checked(root, path, left)


def _code_folders(root: Path) -> list[str]:
    found = [entry for entry in _scan(root) if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)]
    return sorted(entry.name for entry in found if not _no_code(entry) and _scan(entry.path))


def _listed(root: Path, rules: list[Rule], left: list[LeftOut], env: Env, depth: int = 0) -> Iterator[str]:
    """Git's word; a walk's where git has none (no repository, no git, a folder that git ignores)."""
    listed = False
    for path in _git_files(root, env):
        listed = True
        inner = root / path
        if not _is_folder(inner):
            yield path
        elif depth < _DEEPEST and _exists(inner / ".git"):  # a submodule or a repository inside: by its own word
            yield from (f"{path.rstrip('/')}/{one}" for one in _listed(inner, [], left, env, depth + 1))
    if not listed:
        yield from _walk(root, "", rules, left)


def _git_files(root: Path, env: Env) -> Iterator[str]:
    process = _start_git(root, ["ls-files", "-z", "--cached", "--others", "--exclude-standard"], env)
    if process is not None:
        try:
            last = b""
            for name in _records(process.stdout):
                if name != last:  # a file in conflict is listed once per side
                    yield os.fsdecode(name)
                last = name
        finally:
            _end(process)


def _records(stream: IO[bytes]) -> Iterator[bytes]:
    """The parts between NULs, as they come; a huge list is never held at once."""
    rest = b""
    while chunk := stream.read(1 << 16):
        *whole, rest = (rest + chunk).split(b"\0")
        yield from whole


def _walk(root: Path, start: str, rules: list[Rule], left: list[LeftOut]) -> Iterator[str]:
    final = not any(rule.again for rule in rules)  # nothing below an ignored folder can come back
    folders = [start]
    while folders:
        folder = folders.pop()
        try:
            entries = sorted(os.scandir(root / folder), key=lambda entry: entry.name)
        except OSError as error:
            left.append(LeftOut(folder, f"cannot be read: {error.strerror}"))
            continue
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if not _is_folder(entry.path):
                yield path
            elif _credential(path):
                left.append(LeftOut(path, _CREDENTIAL))
            elif not _no_code(entry) and not (final and _ignored(f"{path}/", rules)):
                folders.append(path)


def _no_code(folder: os.DirEntry[str]) -> bool:
    return folder.name in _NOT_CODE or _exists(Path(folder.path) / "pyvenv.cfg")


def _credential(path: str) -> bool:
    return any(
        fnmatchcase(part.lower(), pattern) and not (pattern == "id_*" and part.endswith(_NO_KEY))
        for part in path.split("/")
        for pattern in NEVER
    )


def _named(root: Path, include: Sequence[str], left: list[LeftOut]) -> Iterator[str]:
    for pattern in include:
        try:
            found = [root / pattern] if _exists(root / pattern) else sorted(root.glob(pattern))
        except (OSError, ValueError, NotImplementedError):
            found = []
        if not found:
            left.append(LeftOut(pattern, "was named, but is not there"))
        for one in found:
            path = os.path.relpath(one, root).replace(os.sep, "/")
            yield from _files_below(one, path) if _is_folder(one) else [path]


def _files_below(folder: Path, path: str) -> Iterator[str]:
    for place, _, names in os.walk(folder):
        inner = os.path.relpath(place, folder).replace(os.sep, "/")
        yield from (os.path.normpath(f"{path}/{inner}/{name}").replace(os.sep, "/") for name in sorted(names))


def _within(root: Path, path: str, left: list[LeftOut]) -> Iterator[str]:
    """The same for a path that somebody typed: it must lie below the folder, also after links."""
    if ".." in path.split("/") or os.path.isabs(path) or "\0" in path or not _inside(root, (root / path).parent):
        left.append(LeftOut(path, "lies outside the folder"))
    else:
        yield from _checked(root, path, left)


def _checked(root: Path, path: str, left: list[LeftOut]) -> Iterator[str]:
    """The path, if it is a file or a link that stays inside."""
    reason = _odd(root, path)
    if reason:
        left.append(LeftOut(path, reason))
    else:
        yield path


def _odd(root: Path, path: str) -> str:
    status = _lstat(root / path)
    if status is None:
        return "is not there any more"
    if stat.S_ISLNK(status.st_mode) and not _inside(root, root / path):
        target = _readlink(root / path).encode(errors="backslashreplace").decode()
        return f"is a link that leads outside: {target}"
    kinds = {stat.S_IFIFO: "is a pipe", stat.S_IFSOCK: "is a socket", stat.S_IFDIR: "is a folder"}
    regular = stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)
    return "" if regular else kinds.get(stat.S_IFMT(status.st_mode), "is a device")


def _inside(root: Path, path: Path) -> bool:
    real, top = os.path.realpath(path), os.path.realpath(root)
    return real == top or real.startswith(top.rstrip(os.sep) + os.sep)


class Rule(NamedTuple):
    """A line of `.arenaignore`: what it matches, and whether it takes files back (`!`)."""

    pattern: str
    again: bool


def _ignore_rules(root: Path) -> list[Rule]:
    data = _read(root / _IGNORE_FILE, 1 << 16)
    lines = [line.rstrip() for line in (data or b"").decode(errors="surrogateescape").splitlines()]
    return [
        Rule(_ignore_pattern(line.removeprefix("!")), line.startswith("!"))
        for line in lines
        if line.strip("/!") and not line.startswith("#")
    ]


def _ignore_pattern(line: str) -> str:
    """A .gitignore line as an expression: `/` at the end for folders, within it from the top, `**` over folders."""
    start = "" if "/" in line.rstrip("/") else "(?:.*/)?"
    words = {"**/": "(?:.*/)?", "/**": "/.*", "*": "[^/]*", "?": "[^/]"}
    body = re.sub(r"(?:\*\*/)+", "**/", line.removeprefix("\\").strip("/"))
    parts = re.split(r"(\*\*/|/\*\*$|\*+|\?|\[[^]/]+\])", body)
    text = "".join(words.get(part) or _literal(part) for part in parts)
    return f"{start}{text}{'/.*' if line.endswith('/') else '(?:/.*)?'}"


def _literal(part: str) -> str:
    """A part without a word of its own: stars within a name, a set of letters, or just what it says."""
    if part.startswith("**"):
        return "[^/]*"
    if part.startswith("[") and len(part) > 2:
        letters = re.sub(r"([\\\[\]&~|^])", r"\\\1", part[1:-1])
        letters = f"[^/{letters[1:]}]" if letters.startswith("!") and len(letters) > 1 else f"[{letters}]"
        try:
            return re.compile(letters).pattern
        except re.error:  # such as [z-a]
            pass
    return re.escape(part)


def _ignored(path: str, rules: list[Rule]) -> bool:
    ignored = False
    for rule in rules:
        if ignored == rule.again and re.fullmatch(rule.pattern, path, re.DOTALL):
            ignored = not rule.again
    return ignored


# Keeping


def _survey(
    root: Path, paths: Iterable[str], file_limit: int, left: list[LeftOut]
) -> tuple[list[tuple[str, os.stat_result]], bool]:
    """The first files with their sizes, and whether there are more than may be."""
    found: list[tuple[str, os.stat_result]] = []
    for path in paths:
        if len(found) >= file_limit or len(left) > file_limit:
            return sorted(found), True
        status = _lstat(root / path)
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
    return _read(root / path, status.st_size)


def _link_text(root: Path, path: str) -> str:
    """Where the link leads, so written that it leads there in any copy of the folder."""
    text = _readlink(root / path)
    if not os.path.isabs(text) and not _leaves(path, text):
        return text
    return os.path.relpath(os.path.realpath(root / path), os.path.realpath((root / path).parent))


def _leaves(path: str, text: str) -> bool:
    return os.path.normpath(os.path.join(os.path.dirname(path), text)).split(os.sep)[0] == ".."


def _read(path: Path, most: int) -> bytes | None:
    """At most so many bytes of a regular file; None if it is none or cannot be read. Never waits for a pipe."""
    flags = os.O_RDONLY
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):
        flags |= getattr(os, name, 0)
    try:
        with open(os.open(path, flags), "rb") as stream:
            return stream.read(most) if stat.S_ISREG(os.fstat(stream.fileno()).st_mode) else None
    except (OSError, ValueError):
        return None


def _save(store: Path, sha256: str, data: bytes) -> str:
    """Store a blob unless it is there; why not, if it cannot be."""
    import tempfile
    import zlib

    blob = _blob(store, sha256)
    try:
        status = _lstat(blob)
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


# Restoring


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
        if link is not None and (os.path.isabs(link) or _leaves(file.path, link) or not _inside(dest, target.parent)):
            raise BackendError(f"the kept code is damaged: the link {file.path!r} leads outside")
        if link is not None:
            os.symlink(link, target)
        else:
            with open(target, "xb") as stream:
                stream.write(data)
            os.chmod(target, stat.S_IMODE(file.mode) & 0o777)
    except (OSError, ValueError) as error:
        raise BackendError(f"{file.path!r} cannot be restored", why=str(error)) from error


# Git


def _git(root: Path, words: Sequence[str], env: Env, most: int) -> str:
    """What git says, at most so many bytes of it and in a minute; nothing when it fails or is not there."""
    process = _start_git(root, words, env)
    if process is None:
        return ""
    from threading import Timer

    clock = Timer(_GIT_PATIENCE, process.kill)
    clock.daemon = True
    clock.start()
    data = b""
    try:
        data = process.stdout.read(most)
    finally:
        clock.cancel()
        code = _end(process, at_once=len(data) == most)
    return data.decode(errors="replace") if len(data) == most or code == 0 else ""


def _start_git(root: Path, words: Sequence[str], env: Env) -> Any:
    import shutil
    import subprocess

    env = os.environ if env is None else env
    program = shutil.which("git", path=env.get("PATH", os.defpath))
    if program is None or not os.path.isabs(program):
        return None
    clean = {name: value for name, value in env.items() if not name.startswith("GIT_") or name in _GIT_ENV}
    clean |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C"}
    try:
        return subprocess.Popen(
            [program, *_GIT, *words],
            cwd=root,
            env=clean,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except (OSError, ValueError):
        return None


def _end(process: Any, at_once: bool = True) -> int:
    """Its code; what is still talking though nobody listens is ended."""
    process.stdout.close()
    if at_once:
        process.kill()
    return int(process.wait())


# Files


def _exists(path: Path) -> bool:
    return _lstat(path) is not None


def _is_folder(path: str | Path) -> bool:
    status = _lstat(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def _lstat(path: str | Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (OSError, ValueError):
        return None


def _readlink(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _blobs(store: Path) -> Iterator[tuple[str, str]]:
    """Name and path of all that lies in the store, half-written blobs of killed processes too."""
    for folder in _scan(store):
        if re.fullmatch(r"[0-9a-f]{2}", folder.name):
            yield from ((folder.name + blob.name, blob.path) for blob in _scan(folder.path))


def _scan(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _remove(path: str, size: int) -> int:
    try:
        os.unlink(path)
    except OSError:
        return 0
    return size
