"""Which tests run side by side where pytest has several workers (`-n 2 --dist loadgroup`).

Tests that need no cluster keep this machine busy and measure it, so they run one after another, in one lane; those on a
test bed mostly wait for its pods, and each may run on whichever worker is free, on that worker's own test bed.
"""

from collections.abc import Generator

import pytest
from _pytest.nodeid import NodeId

MACHINE = "machine"
ON_A_BED = ("cluster", "kubelet")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None, None, None]:
    """Give each test its lane where there are several workers."""
    found = yield
    if getattr(config.option, "loadgroup", False):
        for item in items:
            if lane := lane_of(item):
                _mark(item, lane)
    return found


def _mark(item: pytest.Item, lane: str) -> None:
    """Put the lane behind the test's id, where xdist looks for it: xdist 3.8 itself cannot do so since pytest 9.2."""
    item._id = NodeId.parse(f"{item.nodeid}@{lane}")


def lane_of(item: pytest.Item) -> str:
    """The lane of a test; empty where any worker may take it."""
    if not any(item.get_closest_marker(name) for name in ON_A_BED):
        return MACHINE
    return item.nodeid.partition("::")[0] if _shares(item) else ""


def _shares(item: pytest.Item) -> bool:
    """Whether its module has made something for all its tests."""
    found = getattr(item, "_fixtureinfo", None)
    fixtures = found.name2fixturedefs.values() if found else ()
    return any(fixture.scope == "module" for several in fixtures for fixture in several)
