"""The kinds a cluster serves, by the words of the setting `engines:`. Each is one file, loaded when it is used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from arena import jobs
from arena.errors import SpecError

if TYPE_CHECKING:
    from arena.engines.base import Engine

ENGINES = {
    "job": "arena.engines.batchjob:IndexedJob",
    "pytorchjob": "arena.engines.pytorchjob:PyTorchJobEngine",
    "tfjob": "arena.engines.tfjob:TFJobEngine",
    "mpijob": "arena.engines.mpijob:MPIJobEngine",
    "trainjob": "arena.engines.trainjob:TrainJobEngine",
}


def trainer(word: str) -> str:
    """The kind that a word of -T or KIND/NAME means: its own name, or that of a type that it carries.

    >>> trainer("tf"), trainer("PyTorchJobs"), trainer("trainjob")
    ('tfjob', 'pytorchjob', 'trainjob')
    """
    own = word.lower().removesuffix("s")
    return own if own in ENGINES else jobs.load(word).trainer


def load(name: str) -> Engine:
    """The engine of this word.

    >>> load("job").kind
    'Job'
    """
    if name not in ENGINES:
        raise SpecError(f"engines: {name!r} is no kind that arena makes", why="known: " + ", ".join(ENGINES))
    module, _, attribute = ENGINES[name].partition(":")
    found: Engine = getattr(importlib.import_module(module), attribute)()
    return found
