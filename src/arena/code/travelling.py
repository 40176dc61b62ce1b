"""Which folder travels, and which of its files: git's word, a walk's where it has none, without keys and credentials.

Nothing here raises for an odd file: it is left out, and `left_out` says why.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from arena.code import git
from arena.code.git import Env
from arena.code.looks import exists, is_credential, is_folder, is_inside, lstat, read, readlink, scan
from arena.settings import git_root, project_file

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


class LeftOut(NamedTuple):
    """A file that does not travel, and why."""

    path: str
    reason: str


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


def _private(root: Path, home: Path | None) -> bool:
    place = Path(os.path.realpath(root))
    homes = {Path(os.path.realpath(home))} if home else set()
    return (
        place == Path(place.anchor)
        or place in {*homes, Path("/root"), Path("/home"), Path("/Users")}
        or place.parent in (Path("/home"), Path("/Users"))
        or any(exists(place / name) for name in (".ssh", ".kube"))
    )


def _travelling(root: Path, include: Sequence[str], rules: list[Rule], left: list[LeftOut], env: Env) -> Iterator[str]:
    named = dict.fromkeys(_named(root, include, left))
    for path in named:
        yield from _within(root, path, left)
    for path in _listed(root, rules, left, env):
        if path in named or _ignored(path, rules):
            continue
        if is_credential(path):
            left.append(LeftOut(path, _CREDENTIAL))
        else:
            yield from _checked(root, path, left)


def _code_folders(root: Path) -> list[str]:
    found = [entry for entry in scan(root) if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)]
    return sorted(entry.name for entry in found if not _no_code(entry) and scan(entry.path))


def _listed(root: Path, rules: list[Rule], left: list[LeftOut], env: Env, depth: int = 0) -> Iterator[str]:
    """Git's word; a walk's where git has none (no repository, no git, a folder that git ignores)."""
    listed = False
    for path in git.listed(root, env):
        listed = True
        inner = root / path
        if not is_folder(inner):
            yield path
        elif depth < _DEEPEST and exists(inner / ".git"):  # a submodule or a repository inside: by its own word
            yield from (f"{path.rstrip('/')}/{one}" for one in _listed(inner, [], left, env, depth + 1))
    if not listed:
        yield from _walk(root, "", rules, left)


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
            if not is_folder(entry.path):
                yield path
            elif is_credential(path):
                left.append(LeftOut(path, _CREDENTIAL))
            elif not _no_code(entry) and not (final and _ignored(f"{path}/", rules)):
                folders.append(path)


def _no_code(folder: os.DirEntry[str]) -> bool:
    return folder.name in _NOT_CODE or exists(Path(folder.path) / "pyvenv.cfg")


def _named(root: Path, include: Sequence[str], left: list[LeftOut]) -> Iterator[str]:
    for pattern in include:
        try:
            found = [root / pattern] if exists(root / pattern) else sorted(root.glob(pattern))
        except (OSError, ValueError, NotImplementedError):
            found = []
        if not found:
            left.append(LeftOut(pattern, "was named, but is not there"))
        for one in found:
            path = os.path.relpath(one, root).replace(os.sep, "/")
            yield from _files_below(one, path) if is_folder(one) else [path]


def _files_below(folder: Path, path: str) -> Iterator[str]:
    for place, _, names in os.walk(folder):
        inner = os.path.relpath(place, folder).replace(os.sep, "/")
        yield from (os.path.normpath(f"{path}/{inner}/{name}").replace(os.sep, "/") for name in sorted(names))


def _within(root: Path, path: str, left: list[LeftOut]) -> Iterator[str]:
    """The same for a path that somebody typed: it must lie below the folder, also after links."""
    if ".." in path.split("/") or os.path.isabs(path) or "\0" in path or not is_inside(root, (root / path).parent):
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
    status = lstat(root / path)
    if status is None:
        return "is not there any more"
    if stat.S_ISLNK(status.st_mode) and not is_inside(root, root / path):
        target = readlink(root / path).encode(errors="backslashreplace").decode()
        return f"is a link that leads outside: {target}"
    kinds = {stat.S_IFIFO: "is a pipe", stat.S_IFSOCK: "is a socket", stat.S_IFDIR: "is a folder"}
    regular = stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)
    return "" if regular else kinds.get(stat.S_IFMT(status.st_mode), "is a device")


class Rule(NamedTuple):
    """A line of `.arenaignore`: what it matches, and whether it takes files back (`!`)."""

    pattern: str
    again: bool


def _ignore_rules(root: Path) -> list[Rule]:
    data = read(root / _IGNORE_FILE, 1 << 16)
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
