"""`arena exec`, which Arena (Go) calls attach."""

from __future__ import annotations

import os

import click

from arena.cli import common


@click.command(
    "exec",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="""\b
Examples:
  arena exec mnist                          a shell with the first replica's folder and environment
  arena exec --replica worker-1 mnist -- env
""",
)
@click.option("--replica", "--instance", "-i", metavar="NAME", help="Which replica; the first one by default.")
@click.option("--rank", metavar="RANK", help="The replica that runs this rank.")
@click.argument("name", shell_complete=common.complete_names)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def execute(ctx: click.Context, name: str, words: tuple[str, ...], replica: str | None, rank: str | None) -> int:
    """Run a command (a shell by default) with a replica's folder and environment; its exit code is passed on."""
    from arena import showing

    job = common.client(ctx).get(name)
    seen = job.get()
    names, _ = showing.choose(seen, replica=replica or (), rank=rank)
    chosen = next((r for r in seen.observed.replicas if names is None or r.name in names), None)
    words = words[1:] if words[:1] == ("--",) else words
    return job.exec(chosen.name if chosen else "", words or (os.environ.get("SHELL") or "sh",))


common.placed(execute)
