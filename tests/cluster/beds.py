"""The test beds of these tests: real clusters that are started once, and only where they are built.

`cluster` tests need the API server (and simulated nodes), `kubelet` tests a node that runs pods, with the operators.

A pytest plug-in for all tests: the topmost conftest.py loads it. A test that asks for no test bed starts none.
"""

import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from testbed.bed import Bed, running
from testbed.errors import BedError
from testbed.operators import OPERATORS
from testbed.parts import check_built, check_machine

MARKS = {
    "cluster": "needs the test bed's API server (python -m testbed build)",
    "kubelet": "needs the test bed's node and operators (python -m testbed build)",
}

STARTS = 180.0  # seconds for a test bed to be there, on a busy machine
OURS = os.environ.get("ARENA_TESTBED")  # read once: tests run without any variable of arena's


def pytest_configure(config: pytest.Config) -> None:
    for name, meaning in MARKS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without a test bed these tests are left out, and one line says how to get it; where it is required they fail.

    Whichever of them is a worker's first starts its test bed: all have the time for that on top of their own.
    """
    for item in items:
        if any(item.get_closest_marker(name) for name in MARKS):
            limit = item.get_closest_marker("timeout")
            seconds = limit.args[0] if limit else float(config.getini("timeout"))
            item.add_marker(pytest.mark.timeout(seconds + STARTS), append=False)
    reason = why_not()
    if reason and not os.environ.get("ARENA_REQUIRE_CLUSTER"):
        for item in items:
            if any(item.get_closest_marker(name) for name in MARKS):
                item.add_marker(pytest.mark.skip(reason=reason))


def why_not() -> str:
    """Why no test bed can be started, with the command that changes it; empty when one can."""
    try:
        check_machine()
        check_built()
    except BedError as error:
        said = str(error)
        return said if "testbed build" in said else f"{said} (then: python -m testbed build)"
    return ""


@pytest.fixture(scope="session")
def bed() -> Iterator[Bed]:
    """A control plane without a node."""
    with Bed.start(kubelet=False) as started:
        yield started


@pytest.fixture(scope="session")
def node() -> Iterator[Bed]:
    """A cluster with one real node and every operator; MPIJob is that of the mpi-operator there (v2beta1).

    `ARENA_TESTBED=N` takes test bed N, which runs already, and leaves it running.
    """
    if OURS:
        yield next(bed for bed in running() if str(bed.place.number) == OURS)
        return
    with Bed.start(operators=tuple(OPERATORS)) as started:
        yield started


@pytest.fixture
def name() -> str:
    """A name that no other test has."""
    return f"t{uuid.uuid4().hex[:8]}"
