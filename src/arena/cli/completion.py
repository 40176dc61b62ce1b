"""`arena completion`, and what completes."""

from __future__ import annotations

import os

import click


@click.command(
    epilog="""\b
Examples:
  eval "$(arena completion bash)"                       in ~/.bashrc
  eval "$(arena completion zsh)"                        in ~/.zshrc
  arena completion fish > ~/.config/fish/completions/arena.fish
"""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell: commands, flags, values, names of live jobs."""
    from click.shell_completion import get_completion_class

    from arena.cli.main import COMPLETE, arena

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(arena, {}, "arena", COMPLETE).source())


def job_names(incomplete: str) -> list[str]:
    """The names of jobs on this machine that begin so: the links in the state folder, nothing is started or asked."""
    from arena import files

    folder, _ = files.choose(os.environ.get("ARENA_STATE_DIR", ""), dict(os.environ))
    try:
        return sorted(name for name in os.listdir(folder / "names") if name.startswith(incomplete))
    except OSError:
        return []
