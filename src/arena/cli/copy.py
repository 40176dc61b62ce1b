"""`arena cp`, and the files that `run --fetch` brings at the end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from arena.cli import common

if TYPE_CHECKING:
    from arena.client import Handle

OWN_FAILURE = 125
LAST = 30.0  # seconds for a copy to come to its end after the job has


@click.command(
    epilog="""\b
Examples:
  arena cp mnist:model.txt .                 out of the replica that has rank 0
  arena cp mnist/worker-1:/tmp/trace out     a folder of another one, under a new name
"""
)
@click.argument("source", metavar="NAME[/REPLICA]:PATH")
@click.argument("dest", metavar="DEST")
@click.option("--replica", "--instance", "-i", metavar="NAME", help="Which replica; the one of rank 0 by default.")
@common.type_option()
@click.pass_context
def cp(ctx: click.Context, /, source: str, dest: str, replica: str | None, kind: str) -> int:
    """Copy a file or folder of a job here, while it runs; a relative PATH is one of the folder the program began in."""
    from arena.errors import BackendError

    name, found, path = parts(source, dest)
    job = common.named(common.client(ctx), name, kind)
    refused = job.copy(path, dest, replica=replica or found)
    for line in refused:
        common.say(f"Warning: {line}: not copied")
    if refused:
        raise BackendError(f"{len(refused)} of the files were not copied")
    return 0


common.placed(cp)


def parts(source: str, dest: str) -> tuple[str, str, str]:
    """Name, replica and path of `NAME[/REPLICA]:PATH`.

    >>> parts("mnist/worker-1:out/x", "."), parts("job/mnist:x", ".")
    (('mnist', 'worker-1', 'out/x'), ('job/mnist', '', 'x'))
    """
    name, colon, path = source.partition(":")
    if not colon or not name or not path or "." in name.split("/"):
        if ":" in dest:
            raise click.UsageError("cp copies from a job to here, not the other way: NAME[/REPLICA]:PATH DEST")
        raise click.UsageError(f"{source!r} is not NAME[/REPLICA]:PATH")
    words = name.split("/")
    if len(words) == 3 or (len(words) == 2 and _is_kind(words[0])):
        return "/".join(words[:2]), "".join(words[2:]), path
    if len(words) > 3:
        raise click.UsageError(f"{source!r} is not NAME[/REPLICA]:PATH")
    return words[0], "".join(words[1:]), path


def _is_kind(word: str) -> bool:
    from arena import jobs
    from arena.engines import ENGINES

    return word.lower() in {*ENGINES, *jobs.names(), *jobs.ALIASES}


def fetched(job: Handle, paths: Sequence[str], finish: Callable[[], int]) -> int:
    """The code of `finish`, while the paths are brought beside it; 125 where a job that succeeded left one behind."""
    fetching = _Fetching(job, paths)
    fetching.start()
    code = finish()
    fetching.join(LAST)
    for line in fetching.failed:
        common.say(f"Warning: --fetch: {line}")
    return OWN_FAILURE if fetching.failed and not code else code


class _Fetching(threading.Thread):
    """Brings the paths, and ends with the job."""

    def __init__(self, job: Handle, paths: Sequence[str]) -> None:
        super().__init__(name="arena-fetch", daemon=True)
        self.job = job
        self.paths = paths
        self.failed: Sequence[str] = ["the copy did not come to its end"]

    def run(self) -> None:
        from arena.errors import ArenaError

        try:
            self.failed = self.job.fetch(self.paths)
        except ArenaError as error:
            self.failed = [error.what]
