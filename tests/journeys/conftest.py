"""Days that are not ready are no tests yet; `ARENA_JOURNEYS=all` plays them too."""

import os

import pytest

ALL = os.environ.get("ARENA_JOURNEYS") == "all"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take the days out that are not ready."""
    early = [item for item in items if not is_ready(item)]
    if early and not ALL:
        config.hook.pytest_deselected(items=early)
        items[:] = [item for item in items if is_ready(item)]


def is_ready(item: pytest.Item) -> bool:
    """Whether a test is no day, or a day that is ready."""
    call = getattr(item, "callspec", None)
    return call is None or getattr(call.params.get("day"), "ready", True)
