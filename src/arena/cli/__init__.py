"""The command line: a thin face of `arena.client`."""
