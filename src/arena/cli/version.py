"""`arena version`."""

from __future__ import annotations

import platform
import sys

import click

from arena._version import __version__


@click.command()
@click.option("--short", is_flag=True, help="Only the version.")
@click.option("--client", is_flag=True, hidden=True, expose_value=False)
def version(short: bool) -> None:
    """Print the version, the Python it runs with and where it is; `arena --version` prints the first of these lines."""
    click.echo(f"arena: v{__version__}")
    if not short:
        click.echo(f"  Python: {platform.python_version()} ({sys.executable})")
        click.echo(f"  Platform: {sys.platform}/{platform.machine()}")
        click.echo(f"  Path: {sys.argv[0]}")
