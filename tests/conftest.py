"""What every test stands on: no variable of this shell gets in, and no process of a test outlives it."""

import os
import shutil
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import arena

pytest_plugins = ["plugins.again", "plugins.lanes", "plugins.strict", "cluster.beds"]

MARK = "TEST_OF"
PATIENCE = 10.0  # seconds for what was ended to be gone


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that would change what arena does are not there."""
    for name in list(os.environ):
        if name == "PYTHONUNBUFFERED" or name.startswith("ARENA_"):
            monkeypatch.delenv(name)


@pytest.fixture
def job_env(tmp_path: Path, plain_environment: None) -> Iterator[dict[str, str]]:
    """The environment of a user with a home and a state folder of his own; at the end his jobs are ended."""
    mark = uuid.uuid4().hex
    env = {**os.environ, MARK: mark, "HOME": str(tmp_path / "home"), "ARENA_STATE_DIR": str(tmp_path / "state")}
    env |= {"ARENA_LOCAL_GRACE": "1s", "VIRTUAL_ENV": sys.prefix}
    env["PATH"] = f"{sys.prefix}/bin{os.pathsep}{env['PATH']}"
    yield env
    for job in arena.Client(backend="local", env=env).list():
        if not job.get().state.final:
            job.delete(force=True)
    deadline = time.monotonic() + PATIENCE
    while left := processes(mark):
        assert time.monotonic() < deadline, f"these outlived their test: {left}"
        time.sleep(0.02)
    shutil.rmtree(tmp_path / "state", ignore_errors=True)


def processes(mark: str) -> list[str]:
    """The living processes that were started with this mark, as people know them."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark:
                found.append(f"{process.pid} {' '.join(process.cmdline())[:200]}")
        except psutil.Error:
            continue
    return found
