"""Where things are: the cache outside the repository, and this package's own files."""

import os
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE.parent


def cache() -> Path:
    """The folder of everything that is built or runs; it can be removed when no test bed is up."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "arena-testbed"


def beds() -> Path:
    """The folder of the test beds that run, one folder each, named by number."""
    return cache() / "beds"
