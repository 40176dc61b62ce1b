"""Jobs on this machine, and the processes behind them."""

from pathlib import Path

import pytest

from backends.place import LocalPlace


@pytest.fixture
def place(job_env: dict[str, str], tmp_path: Path) -> LocalPlace:
    """This machine, with a project folder."""
    folder = tmp_path / "p"
    folder.mkdir()
    return LocalPlace(job_env, folder)
