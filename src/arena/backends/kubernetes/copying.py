"""Files out of running containers: a tar made there, through exec, laid out here."""

from __future__ import annotations

import io
import os
import posixpath
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, cast

from arena import receiving
from arena.engines import results
from arena.errors import ArenaError, BackendError, NotFoundError
from arena.status import Replica, Seen, State

if TYPE_CHECKING:
    from arena.kube.api import Api

ABSENT = 44  # what the script says where the path is not there

# $1 the folder, $2 the name in it. With tar, or any Python.
SEND = r"""cd -- "$1" 2>/dev/null || exit 44
if [ -L "./$2" ] && [ -d "./$2" ]; then cd -- "./$2" || exit 44; set -- . .; fi
[ -e "./$2" ] || exit 44
if [ -L "./$2" ]; then h=h; else h=; fi
if command -v tar >/dev/null 2>&1; then exec tar -c${h}f - "./$2"; fi
if command -v python3 >/dev/null 2>&1; then py=python3; else py=python; fi
exec $py -c 'import os,sys,tarfile
out=getattr(sys.stdout,"buffer",sys.stdout); name=sys.argv[1]
t=tarfile.open(fileobj=out,mode="w|",dereference=os.path.islink(name)); t.add(name); t.close()' "./$2"
"""
WAIT = f"while [ ! -s {results.CODE} ]; do sleep 1 || exit 1; done"
MARK = f"echo 1 > {results.FETCHED}"


class Pod:
    """A container that runs, reached by exec."""

    def __init__(self, api: Api, path: str, container: str) -> None:
        self.api = api
        self.path = f"{path}/exec"
        self.container = container

    def copy(self, path: str, dest: str | os.PathLike[str]) -> list[str]:
        """Copy a file or folder here; the lines of what was refused. NotFoundError where it is not there."""
        return self.bring(path, receiving.target_of(path, dest))

    def bring(self, path: str, target: Path) -> list[str]:
        """The same, under this very name."""
        folder, name = posixpath.split(posixpath.normpath(path))
        said = io.BytesIO()
        with self._streamed(["sh", "-c", SEND, "sh", folder or ".", name or "."], said) as (stream, code):
            refused = receiving.receive(stream, target)
        if code[0] == ABSENT:
            raise NotFoundError(f"{path} is not there", why="relative paths are those of the folder it started in")
        if code[0]:
            words = said.getvalue().decode(errors="replace").strip().splitlines()
            raise BackendError(f"{path} was not copied whole", why=words[-1] if words else f"tar ended with {code[0]}")
        return refused

    def run(self, script: str) -> int:
        """The exit code of a script in the container."""
        return self.api.exec(
            self.path, ["sh", "-c", script], container=self.container, stdout=io.BytesIO(), stderr=io.BytesIO()
        )

    @contextmanager
    def _streamed(self, words: Sequence[str], said: BinaryIO) -> Iterator[tuple[IO[bytes], list[int]]]:
        """What a program writes while it runs, and its code once it has ended."""
        ours, theirs = os.pipe()
        code: list[int] = []
        failed: list[ArenaError] = []

        def run() -> None:
            with open(theirs, "wb") as out:
                try:
                    code.append(self._exec(words, out, said))
                except ArenaError as error:
                    failed.append(error)
                except BrokenPipeError:  # nobody reads on
                    pass

        thread = threading.Thread(target=run, name="arena-copy", daemon=True)
        thread.start()
        try:
            with open(ours, "rb") as stream:
                yield stream, code
                while stream.read(1 << 20):
                    pass
                thread.join()
        except BackendError as error:
            thread.join(5)
            raise (failed[0] if failed else error) from error
        if failed:
            raise failed[0]

    def _exec(self, words: Sequence[str], out: IO[bytes], said: BinaryIO) -> int:
        return self.api.exec(self.path, words, container=self.container, stdout=cast(BinaryIO, out), stderr=said)


class Fetch:
    """Brings paths of rank 0 at the end of its program, of each start of it; the last one wins."""

    def __init__(self, pod_of: Callable[[str], Pod], paths: Sequence[str], folder: str) -> None:
        self.pod_of = pod_of
        self.paths = paths
        self.folder = Path(folder)
        self.done: set[tuple[str, int]] = set()
        self.failed: list[str] = [f"{path} was not brought: it never started" for path in paths]

    def until_end(self, states: Iterable[Seen]) -> Sequence[str]:
        """Fetch whenever rank 0 has come to an end, until its job has; the lines of what did not come."""
        for seen in states:
            one = first(seen)
            if one is None or one.state is not State.RUNNING or not one.pod or (one.pod, one.attempt) in self.done:
                continue
            self.done.add((one.pod, one.attempt))
            self._bring(self.pod_of(one.pod))
        return self.failed

    def _bring(self, pod: Pod) -> None:
        try:
            if pod.run(WAIT):
                return
            self.failed = [line for path in self.paths for line in self._one(pod, path)]
            pod.run(MARK)
        except ArenaError as error:
            self.failed = [f"nothing was brought: {error.what}"]

    def _one(self, pod: Pod, path: str) -> Iterator[str]:
        target = place_of(path, self.folder)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            yield from pod.bring(path, target)
        except ArenaError as error:
            yield f"{error.what}{f': {error.why}' if error.why else ''}"
        except OSError as error:
            yield f"{target} cannot be written: {error.strerror}"


def ready(seen: Seen, replica: str) -> Replica:
    """The replica to copy from, rank 0 where none is named; an error says why files cannot be had any more."""
    everyone = seen.observed.replicas
    one = next((r for r in everyone if r.name == replica), None) if replica else first(seen)
    if one is None:
        raise NotFoundError(f"job {seen.name!r} has no replica {replica!r}", hint=f"arena get {seen.name}")
    if one.ended or seen.state.final:
        raise BackendError(
            f"{one.name} of job {seen.name!r} has ended: its files went with it",
            hint="next time: --fetch PATH brings files back at the end, --output CLAIM:/path keeps them",
        )
    if one.started is None:
        raise BackendError(f"{one.name} of job {seen.name!r} has not started", hint=f"arena why {seen.name}")
    return one


def first(seen: Seen) -> Replica | None:
    """The replica that has rank 0."""
    everyone = seen.observed.replicas
    ranked = [one for one in everyone if one.rank == 0]
    return ranked[-1] if ranked else next(iter(everyone), None)


def place_of(path: str, folder: Path) -> Path:
    """Where a fetched path is laid: the same place below the folder, or under its last name where it leads elsewhere.

    >>> place_of("out/model.txt", Path("/p")).as_posix(), place_of("/tmp/x", Path("/p")).as_posix()
    ('/p/out/model.txt', '/p/x')
    """
    plain = posixpath.normpath(path)
    inside = not plain.startswith("/") and plain.split("/")[0] != ".."
    return folder / (plain if inside else posixpath.basename(plain) or "root")
