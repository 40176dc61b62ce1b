"""`arena export` and `arena rerun`: a run as a file, and once more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from arena.cli import common


@click.command(
    epilog="""\b
Examples:
  arena export mnist > mnist.yaml         its run file; arena run -f mnist.yaml repeats it
  arena export mnist@2                    an older run
"""
)
@click.argument("name", shell_complete=common.complete_names)
@click.option("--manifest", is_flag=True, help="What a cluster would get, instead of the run file.")
@click.pass_context
def export(ctx: click.Context, name: str, manifest: bool) -> None:
    """Print the run file of a job: what run -f and submit -f read. Secret values are masked."""
    from arena import runfile
    from arena.errors import UnsupportedError

    if manifest:
        raise UnsupportedError("manifests are not in this version yet", hint="arena export without --manifest")
    click.echo(runfile.dump(common.client(ctx).get(name, gone=True).job(), masked=True), nl=False)


class Words(click.Command):
    """A command that gets its words as they were typed: what they mean depends on the run they name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args[:1] in (["--help"], ["-h"]) or not args:
            return super().parse_args(ctx, args)
        ctx.params["words"] = tuple(args)
        return []


@click.command(
    cls=Words,
    epilog="""\b
Examples:
  arena rerun mnist --name again               its recorded code and words, under another name
  arena rerun mnist@2 -- train.py --lr 0.01    an older run with other words
  arena rerun mnist --code here -w 4           what lies here now, with four workers
  arena rerun mnist --help                     the flags of its type
""",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, shell_complete=common.complete_names)
@click.pass_context
def rerun(ctx: click.Context, words: tuple[str, ...]) -> Any:
    """Run a job again: rerun RUN [flags] [-- words]. RUN is a name, NAME@2, a run id, a run file or a record folder."""
    from arena.cli import run

    source, rest = (words[0], list(words[1:])) if words and not words[0].startswith("-") else ("", list(words))
    if not source:
        raise click.UsageError("which run? arena rerun RUN [flags] [-- words]", ctx)
    file = _file(source)
    if file is not None:
        return run.submit_file_again(ctx, file, rest)
    job = common.client(ctx).get(source, gone=True)
    return run.submit_again(ctx, job.job(), job.run_id, rest)


def _file(source: str) -> Path | None:
    path = Path(source)
    if path.is_dir() and (path / "run.yaml").is_file():
        return path / "run.yaml"
    return path if source.endswith((".yaml", ".yml", ".json")) and path.is_file() else None


common.placed(export)
