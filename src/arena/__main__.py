"""`python -m arena` is always this arena, whatever else of the name is on the PATH."""

from arena.cli.main import main

main()
