"""The backends that keep the contract. One more backend is one more parameter and its place.

What cannot hold on a cluster is a named exception: `@pytest.mark.exception("…")`, whose words stand in
docs/architecture.md.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from backends.place import KubernetesPlace, LocalPlace

ON_A_CLUSTER = pytest.param("kubernetes", marks=[pytest.mark.kubelet, pytest.mark.timeout(180)])


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "exception(words): a part of the contract that holds on one machine only")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test on every backend, but for the named exceptions."""
    if "place" in metafunc.fixturenames:
        alone = metafunc.definition.get_closest_marker("exception")
        metafunc.parametrize("place", ["local"] if alone else ["local", ON_A_CLUSTER], indirect=True)


@pytest.fixture
def place(request: pytest.FixtureRequest, job_env: dict[str, str], tmp_path: Path) -> Iterator[LocalPlace]:
    """A backend with a project folder."""
    folder = tmp_path / "p"
    folder.mkdir()
    if request.param == "local":
        yield LocalPlace(job_env, folder)
        return
    made = KubernetesPlace(job_env, folder, request.getfixturevalue("node"))
    yield made
    made.end()
