"""Programs `arena-NAME` on the PATH are commands: listed by the help, run with their own words and code."""

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def own(arena: Any) -> Any:
    """`arena` with a program `arena-hello` on the PATH."""
    tool = arena.file("bin/arena-hello", '#!/bin/sh\necho "hello $*"\nexit 3\n')
    tool.chmod(0o755)
    arena.file("bin/arena-not", "no program")
    arena.env["PATH"] = f"{tool.parent}:/nonexistent:{arena.env['PATH']}"
    return arena


def test_a_program_is_a_command(own: Any) -> None:
    result = own("hello", "--name", "x", "--help")
    assert (result.exit_code, result.stdout) == (3, "hello --name x --help\n")


def test_the_help_lists_it(own: Any) -> None:
    shown = own("--help").stdout
    assert "hello" in [line.split()[0] for line in shown.splitlines() if line.strip()]
    assert "arena-hello" in "".join(shown.split())
    assert "arena-not" not in "".join(shown.split())


def test_without_any_there_is_no_such_section(arena: Any, tmp_path: Path) -> None:
    assert "on the PATH" not in arena("--help", env={"PATH": str(tmp_path)}).stdout


def test_one_that_is_no_program_is_named(own: Any) -> None:
    path = own.file("bin/arena-odd", "garbage")
    path.chmod(0o755)
    odd = own("odd")
    assert (odd.exit_code, odd.stderr.splitlines()[0]) == (6, f"Error: {path}: Exec format error")


def test_one_that_is_nearly_typed_is_meant(own: Any) -> None:
    assert own("helo").stderr.startswith("Error: there is no command 'helo'. Did you mean 'hello'?")
