"""Who types: a person has a home, a folder, an environment and perhaps another uid.

Another uid may not reach the interpreter (a home folder of mode 700 above it). For such a person a private mount
namespace puts an empty folder in the place of the closed one and binds the interpreter into it; the same namespace
makes the root read-only for a day that asks for it. What cannot be had here is said in `Person.reason`.
"""

import importlib.util
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from journeys.child import Child
from journeys.observed import Observed

STEP_LIMIT = 240.0
BIN = Path(sys.executable).parent
# Set by bash itself in every step: not the person's.
BASH_OWN = frozenset({"_", "SHLVL", "OLDPWD"})


@dataclass
class Person:
    """A user at a shell; `reason` tells why this one cannot type here."""

    name: str
    uid: int
    cwd: Path
    scratch: Path
    env: dict[str, str]
    wrap: tuple[str, ...] = ()
    reason: str = ""
    state: Path = field(init=False)

    def __post_init__(self) -> None:
        self.state = self.scratch / f".shell-of-{self.name}"

    def start(self, command: str, *, terminal: bool = False) -> Child:
        """Start a command in bash; without a terminal its stdin is closed."""
        script = command if terminal else f"exec 0<&-\n{command}"
        return Child([*self.wrap, "bash", "-c", script], self.env, self.cwd, terminal=terminal)

    def run(self, command: str, limit: float = STEP_LIMIT) -> Observed:
        """Run a command to its end; where it leaves folder and exported variables, the next one begins."""
        dump = f"/usr/bin/env -0 >{shlex.quote(str(self.state))}"
        child = self.start(f"trap {shlex.quote(dump)} EXIT\n{command}")
        seen = child.finish(limit)
        child.end()
        self.carry_over()
        return seen

    def carry_over(self) -> None:
        """Take folder and environment from the shell that just ended."""
        if not self.state.exists():
            return
        words = self.state.read_bytes().decode(errors="surrogateescape").split("\0")
        self.env = {name: value for name, _, value in (word.partition("=") for word in words if word)}
        self.cwd = Path(self.env["PWD"])
        for name in BASH_OWN & self.env.keys():
            del self.env[name]
        self.state.unlink()


def environment(name: str, home: Path) -> dict[str, str]:
    """A plain environment: the tested `arena` and its Python first on the PATH, and nothing of the machine's own."""
    path = [str(BIN), *os.environ.get("PATH", os.defpath).split(":")]
    who = {"USER": name, "LOGNAME": name, "HOME": str(home), "SHELL": "/bin/bash"}
    return {"PATH": ":".join(dict.fromkeys(path)), "LANG": "C.UTF-8", "TERM": "xterm", **who}


def other_user(uid: int, root: Path, writable: Path | None = None) -> tuple[tuple[str, ...], str]:
    """The words before a command that make another uid run it (none if that cannot be), and why not.

    With `writable` the root is read-only but for that folder.
    """
    if os.geteuid() != 0:
        return (), "another uid needs root"
    wrap = (*namespace(mounts(root, writable)), "setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--")
    problem = probe(wrap)
    return ((), problem) if problem else (wrap, "")


def namespace(script: Iterable[str]) -> tuple[str, ...]:
    """The words that run a command in a mount namespace prepared by these shell lines; none when there are none.

    The folder is entered anew: through the old one the old mounts would still be seen.
    """
    lines = list(script)
    if not lines:
        return ()
    return (
        "unshare",
        "--mount",
        "--propagation=private",
        "sh",
        "-ec",
        "\n".join([*lines, 'cd "$(pwd -P)"', 'exec "$@"']),
        "sh",
    )


def mounts(root: Path, writable: Path | None) -> Iterator[str]:
    """Shell lines that open what is closed to other users, and close what shall not be written."""
    closed = closed_folders(needed_paths(root))
    for number, path in enumerate(paths := sorted({path for group in closed.values() for path in group})):
        hold = root / f"hold{number}"
        hold.mkdir(exist_ok=True)
        yield f"mount --bind {shlex.quote(str(path))} {hold}"
    yield from (f"mount -t tmpfs -o mode=755 none {shlex.quote(str(folder))}" for folder in closed)
    for number, path in enumerate(paths):
        yield f"mkdir -p {shlex.quote(str(path))}; mount --bind {root}/hold{number} {shlex.quote(str(path))}"
    if writable:
        yield f"mount --bind {writable} {writable}; mount -o remount,bind,ro /"


def needed_paths(root: Path) -> list[Path]:
    """What every person must be able to read: interpreter, environment, source tree, the day's folder."""
    product = importlib.util.find_spec("arena")
    source = [Path(place).parent for place in product.submodule_search_locations or ()] if product else []
    return [Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), *source, root]


def closed_folders(paths: Iterable[Path]) -> dict[Path, list[Path]]:
    """The outermost folders that other users may not enter, each with the needed paths below it."""
    closed: dict[Path, list[Path]] = {}
    for path in paths:
        blocking = [folder for folder in reversed((path, *path.parents)) if not folder.stat().st_mode & 0o001]
        if blocking:
            closed.setdefault(blocking[0], []).append(path)
    return closed


def probe(wrap: tuple[str, ...]) -> str:
    """Why the tested Python does not run behind these words; empty when it does."""
    code = f"import sys, encodings; sys.exit(sys.base_prefix != {sys.base_prefix!r})"
    try:
        done = subprocess.run([*wrap, sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    except OSError as error:
        return str(error)
    return "" if done.returncode == 0 else f"the interpreter cannot be used by another uid: {done.stderr.strip()}"
