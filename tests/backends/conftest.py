"""The backends that keep the contract. One more backend is one more parameter and its place."""

from pathlib import Path

import pytest

from backends.place import LocalPlace


@pytest.fixture(params=["local"])
def place(request: pytest.FixtureRequest, job_env: dict[str, str], tmp_path: Path) -> LocalPlace:
    """A backend with a project folder."""
    folder = tmp_path / "p"
    folder.mkdir()
    return {"local": LocalPlace}[request.param](job_env, folder)
