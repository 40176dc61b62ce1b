"""docs/why.md and the code name the same causes and the same reasons."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from arena import waits, why
from arena.cli.main import arena
from arena.why import CAUSES

DOC = Path(__file__).parents[1] / "docs" / "why.md"


def rows() -> dict[str, list[str]]:
    found = [line.strip("|").split("|") for line in DOC.read_text(encoding="utf-8").splitlines() if line[:3] == "| `"]
    return {cells[0].strip(" `"): cells[1:] for cells in found}


def test_the_list_is_the_code_s() -> None:
    assert {cause: tuple(re.findall(r"`(\w+)`", cells[0])) for cause, cells in rows().items()} == dict(CAUSES)


def test_each_cause_says_what_happened_and_what_to_do() -> None:
    assert all(len(cells) == 3 and all(cell.strip() for cell in cells) for cells in rows().values())


def flags(command: click.Command, parent: click.Context | None = None) -> Iterator[str]:
    """The flags of a command and of all below it."""
    ctx = click.Context(command, parent=parent)
    for param in command.get_params(ctx):
        yield from param.opts
    for name in command.list_commands(ctx) if isinstance(command, click.Group) else ():
        if below := command.get_command(ctx, name):  # type: ignore[attr-defined]
            yield from flags(below, ctx)


@pytest.mark.parametrize("path", [DOC, Path(why.__file__), Path(waits.__file__)], ids=lambda path: path.name)
def test_flags_that_help_are_flags_there_are(path: Path) -> None:
    named = re.findall(r"(?<![\w-])--[a-z][a-z-]+", path.read_text(encoding="utf-8"))
    assert named
    assert {*named} <= {*flags(arena)}
