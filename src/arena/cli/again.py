"""`arena export` and `arena rerun`: a run as a file, and once more."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from arena.cli import common

if TYPE_CHECKING:
    from arena.client import Handle


@click.command(
    epilog="""\b
Examples:
  arena export mnist > mnist.yaml         its run file; arena run -f mnist.yaml repeats it
  arena export mnist@2                    an older run
  arena export mnist --manifest | kubectl apply --dry-run=server -f -
"""
)
@click.argument("name", shell_complete=common.complete_names)
@common.type_option()
@click.option("--manifest", is_flag=True, help="What a cluster would get, instead of the run file.")
@click.pass_context
def export(ctx: click.Context, name: str, kind: str, manifest: bool) -> None:
    """Print the run file of a job: what run -f and submit -f read. Secret values are masked."""
    from arena import runfile

    handle = common.named(common.client(ctx), name, kind, gone=True)
    seen = handle.get()
    common.say_recorded(handle, seen)
    if manifest:
        _print_manifest(handle)
    else:
        click.echo(runfile.dump(handle.job(), masked=True), nl=False)
        if seen.patch or seen.sets:
            common.say("Note: --patch and --set of this run are not in its run file; arena rerun has them")


def _print_manifest(handle: Handle) -> None:
    """The object as kubectl apply takes it: from the cluster, else what the recorded job would become now."""
    from arena.backends.kubernetes.backend import KubernetesBackend
    from arena.backends.kubernetes.sending import applicable
    from arena.cli import output

    seen = handle.get()
    if isinstance(handle.where, KubernetesBackend) and not (seen.deleted or seen.recorded):
        output.emit_objects([applicable(handle.where.manifest(handle.ref))], "yaml")
        return
    from arena.cli.objects import cluster_of
    from arena.errors import UnsupportedError

    if seen.job is None:
        why = "it was submitted as an object, or others made it, and objects are not kept"
        raise UnsupportedError(f"job {handle.name!r} is not in the cluster any more", why=why)
    job = handle.job()
    cluster_of(handle.client, "a manifest")
    plan = handle.client.plan(job, creates="run" if job.type_name == "job" else "type", dry="client",
                              patch=seen.patch, sets=seen.sets)  # fmt: skip
    common.say(f"{handle.name} is not in the cluster: this is what its recorded job becomes now")
    output.emit_objects([one for one in plan.steps if one["kind"] != "Secret"][-1:], "yaml")


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
  arena export mnist | arena rerun - -w 4      a run file from stdin
  arena rerun mnist --help                     the flags of its type
""",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, shell_complete=common.complete_names)
@click.pass_context
def rerun(ctx: click.Context, words: tuple[str, ...]) -> Any:
    """Run a job again: rerun RUN [flags] [-- words].

    RUN is a name, NAME@2, a run id, a run file (- is stdin) or a record folder.
    """
    from arena.cli import run
    from arena.runfile import STDIN

    named = words and (words[0] == STDIN or not words[0].startswith("-"))
    source, rest = (words[0], list(words[1:])) if named else ("", list(words))
    if not source:
        raise click.UsageError("which run? arena rerun RUN [flags] [-- words]", ctx)
    file = _file(source)
    if file is not None:
        return run.submit_file_again(ctx, file, rest)
    job = common.client(ctx).get(source, gone=True)
    seen = job.get()
    common.say_recorded(job, seen)
    return run.submit_again(ctx, job.job(), rest, seen)


def _file(source: str) -> Path | None:
    from arena.runfile import STDIN

    path = Path(source)
    if path.is_dir() and (path / "run.yaml").is_file():
        return path / "run.yaml"
    is_file = source.endswith((".yaml", ".yml", ".json")) and path.is_file()
    return path if source == STDIN or is_file else None


common.placed(export)
