"""`arena version`."""

from __future__ import annotations

import platform
import sys

import click

from arena._version import __version__


@click.command()
@click.option("--short", is_flag=True, help="Only the version.")
@click.option("--client", is_flag=True, hidden=True)
def version(short: bool, client: bool) -> None:
    """Print the version, the Python it runs with and where it is."""
    print(f"arena: v{__version__}")
    if not short:
        print(f"  Python: {platform.python_version()} ({sys.executable})")
        print(f"  Platform: {sys.platform}/{platform.machine()}")
        print(f"  Path: {sys.argv[0]}")
