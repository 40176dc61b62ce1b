"""What git says of a folder: its files, its commit, its uncommitted changes. Nothing where it has no word."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from arena.code.looks import NEVER
from arena.quantity import format_bytes
from arena.secrets import mask_text

DIFF_LIMIT = 1_000_000

# Only these reach git: a GIT_DIR of the caller's hook, or a GIT_CONFIG_PARAMETERS, would show another repository.
_GIT_ENV = {"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH"}
# A repository's own settings start no program: neither monitors nor hooks, external diffs or transports.
_GIT = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "protocol.allow=never")
_PATIENCE = 60.0

Env = Mapping[str, str] | None  # for git; None is this process's own


def commit_of(root: Path, env: Env = None) -> str | None:
    """The commit the folder stands on; None without one, without a repository, without git."""
    return _said(root, ["rev-parse", "--verify", "--quiet", "HEAD^{commit}"], env, 200).strip() or None


def diff_of(root: Path, limit: int = DIFF_LIMIT, *, env: Env = None) -> str:
    """The uncommitted changes of tracked files, cut at the limit; credentials are left out and tokens masked."""
    without = [f":(exclude,icase,glob)**/{name}" for name in NEVER] + [
        f":(exclude,icase,glob)**/{name}/**" for name in NEVER
    ]
    options = ["--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short", "--ignore-submodules=dirty"]
    text = _said(root, ["diff", *options, "HEAD", "--", ".", *without], env, limit + 1)
    cut = len(text) > limit
    return mask_text(text[:limit]) + (f"\n... (cut at {format_bytes(limit)})\n" if cut else "")


def listed(root: Path, env: Env) -> Iterator[str]:
    """The files that belong to the folder: tracked and new ones, minus ignored. Submodules are named, not opened."""
    process = _start(root, ["ls-files", "-z", "--cached", "--others", "--exclude-standard"], env)
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


def _said(root: Path, words: Sequence[str], env: Env, most: int) -> str:
    """What git says, at most so many bytes of it and in a minute; nothing when it fails or is not there."""
    process = _start(root, words, env)
    if process is None:
        return ""
    from threading import Timer

    clock = Timer(_PATIENCE, process.kill)
    clock.daemon = True
    clock.start()
    data = b""
    try:
        data = process.stdout.read(most)
    finally:
        clock.cancel()
        code = _end(process, at_once=len(data) == most)
    return data.decode(errors="replace") if len(data) == most or code == 0 else ""


def _start(root: Path, words: Sequence[str], env: Env) -> Any:
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
