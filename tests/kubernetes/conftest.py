"""The command line, for the tests of the cluster backend that type it."""

from cli.conftest import arena, here  # noqa: F401  (fixtures)
