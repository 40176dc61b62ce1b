"""`arena config show|set` and `arena schema`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from arena.cli import common

if TYPE_CHECKING:
    from arena.client import Client
    from arena.settings import Settings


class Config(click.Group):
    """Its commands take `-o=json`, as all others do."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from arena.cli.main import attached

        name, command, rest = super().resolve_command(ctx, args)
        return name, command, attached(command, rest) if command else rest


@click.group(cls=Config)
def config() -> None:
    """Show the settings and where each comes from, or set one of yours."""


@config.command()
@common.output_option("table", "json", "yaml")
@click.pass_context
def show(ctx: click.Context, fmt: str) -> None:
    """Every setting with its value and its source: a flag, a variable, a file, built-in."""
    from arena.cli import output
    from arena.settings import config_json, config_rows, written

    settings = _settings(common.client(ctx))
    if fmt != "table":
        output.emit(config_json(settings), fmt)
        return
    columns: tuple[output.Column[Any], ...] = (
        output.Column("KEY", lambda row: row.key),
        output.Column("VALUE", lambda row: "-" if row.value is None else written(row.value)),
        output.Column("SOURCE", lambda row: row.source),
    )
    output.write(output.table(config_rows(settings), columns))
    common.say_overruled(ctx, settings, "env")
    for name in settings.unknown_env:
        common.say(f"Warning: {name} is no variable of arena's")


def _settings(client: Client) -> Settings:
    """The settings, with those of the namespace where jobs run on a cluster that answers."""
    from arena.errors import ArenaError

    try:
        return client.layered()
    except ArenaError as error:
        common.say(f"Warning: without the defaults of the namespace: {error.what}")
        return client.settings


def _keys(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from arena.settings import SETTINGS

    return [setting.key for setting in SETTINGS if setting.key.startswith(incomplete)]


def _types(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from arena import jobs

    return [name for name in jobs.names() if name.startswith(incomplete)]


@config.command("set")
@click.argument("key", shell_complete=_keys)
@click.argument("value")
def set_(key: str, value: str) -> None:
    """Set KEY to VALUE in your own file; other lines and comments stay.

    \b
    Example: arena config set backend local
    """
    from arena.settings import set_user_value

    common.say(f"{key} is {value} now, in {set_user_value(key, value, os.environ)}")


@click.command()
@click.argument("kind", required=False, metavar="[TYPE]", shell_complete=_types)
def schema(kind: str | None) -> None:
    """Print the JSON Schema of run files, of one type or all, for editors and checks."""
    from arena.cli import output
    from arena.schema import schema as made

    output.emit(made(kind), "json")


common.placed(show)
