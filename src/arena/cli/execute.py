"""`arena exec`, which Arena (Go) calls attach."""

from __future__ import annotations

import os

import click

from arena.cli import common


class Exec(click.Command):
    """`exec NAME [FLAGS] [--] WORDS`: flags stand beside the name; from the next word on all is the program's."""

    allow_interspersed_args = False

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        from arena.cli.main import attached

        valued = {name for param in self.params if not getattr(param, "is_flag", True) for name in param.opts}
        flags: list[str] = []
        name: list[str] = []
        rest = list(args)
        while rest and rest[0] != "--" and (rest[0].startswith("-") or not name):
            word = rest.pop(0)
            (flags if word.startswith("-") else name).append(word)
            flags += [rest.pop(0)] if word in valued and rest else []
        words = rest[1:] if rest[:1] == ["--"] else rest
        flags = attached(self, flags)
        return super().parse_args(ctx, [*flags, "--", *(name or words[:1]), *(words if name else words[1:])])


@click.command(
    "exec",
    cls=Exec,
    epilog="""\b
Examples:
  arena exec mnist                          a shell with the first replica's folder and environment
  arena exec mnist --replica worker-1 -- env
""",
)
@click.option("--replica", "--instance", "-i", metavar="NAME", help="Which replica; the first one by default.")
@click.option("--rank", metavar="RANK", help="The replica that runs this rank.")
@common.type_option()
@click.argument("name", shell_complete=common.complete_names)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def execute(
    ctx: click.Context, name: str, kind: str, words: tuple[str, ...], replica: str | None, rank: str | None
) -> int:
    """Run a command (a shell by default) with a replica's folder and environment; its exit code is passed on."""
    from arena import showing

    job = common.named(common.client(ctx), name, kind)
    seen = job.get()
    names, _ = showing.choose(seen, replica=replica or (), rank=rank)
    chosen = next((r for r in seen.observed.replicas if names is None or r.name in names), None)
    return job.exec(chosen.name if chosen else "", words or (os.environ.get("SHELL") or "sh",))


common.placed(execute)
