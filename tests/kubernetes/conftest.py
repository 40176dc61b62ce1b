"""The command line in a namespace of its own, for the tests of the cluster backend that type it."""

from collections.abc import Iterator

import pytest
from testbed.bed import Bed
from testbed.faults import FaultProxy

from cli.conftest import Arena, arena, here  # noqa: F401  (fixtures)
from cluster.spaces import Space


@pytest.fixture
def space(bed: Bed, arena: Arena) -> Iterator[Space]:  # noqa: F811
    """A namespace of a cluster whose pods nobody runs."""
    made = Space(bed, arena)
    yield made
    made.end()


@pytest.fixture
def alive(node: Bed, arena: Arena) -> Iterator[Space]:  # noqa: F811
    """A namespace of a cluster with a node and operators."""
    made = Space(node, arena)
    yield made
    made.end()


@pytest.fixture
def proxy(space: Space) -> Iterator[FaultProxy]:
    """What stands between arena and that API server."""
    with FaultProxy(space.bed) as started:
        space.cli.env["KUBECONFIG"] = str(started.kubeconfig("admin"))
        yield started
