"""Which image a job gets when nobody named one: a short table, by what its script imports."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from arena.errors import UnsupportedError
from arena.job import Job
from arena.settings import Settings

REQUIRED = "required"  # the word of the setting `image` that turns the table off
BUILT_IN = {
    "torch": "pytorch/pytorch:2.7.1-cuda12.8-cudnn9-runtime",
    "tensorflow": "tensorflow/tensorflow:2.19.0",
    "jax": "nvcr.io/nvidia/jax:25.10-py3",
}
PLAIN = "python:3.12-slim"
WITH_GPUS = {"tensorflow": "tensorflow/tensorflow:2.19.0-gpu"}
RELATED = {"torchvision": "torch", "torchaudio": "torch", "keras": "tensorflow", "flax": "jax", "optax": "jax"}
LARGEST = 1_000_000  # bytes of a script that is looked into


def choose(job: Job, settings: Settings, script: str | None) -> tuple[str, str]:
    """The image of a job, and who said so; `script` is the text of what it starts, None where the table is not asked.

    >>> from arena.jobs.plain import PlainJob
    >>> settings = Settings.load({}, {"HOME": "/nonexistent"}, Path("/"))
    >>> choose(PlainJob(command=("train.py",)), settings, "import torch.nn")[0]
    'pytorch/pytorch:2.7.1-cuda12.8-cudnn9-runtime'
    """
    named = job.named_image()
    if is_locked(settings):
        instead = f", instead of {named[0]}" if named else ""
        return str(settings.text("image")), f"locked: {settings.source('image')}{instead}"
    if named:
        return named
    set_ = settings.text("image")
    if set_ and set_ != REQUIRED:
        return set_, settings.source("image")
    if set_ == REQUIRED or script is None:
        why = f"{settings.source('image')}: image is {REQUIRED}" if set_ else "a container needs one"
        raise UnsupportedError("no image", why=why, hint="--image IMAGE, or arena config set image IMAGE")
    return built_in(imported(script), gpus=job.gpus > 0), "built-in default, arena config set image IMAGE changes it"


def is_locked(settings: Settings) -> bool:
    """Whether the site says which image all jobs have, whatever is typed."""
    return settings.layer("image") == "locked" and settings.text("image") != REQUIRED


def built_in(modules: Sequence[str], *, gpus: bool = False) -> str:
    """The image of the table for a program that imports these."""
    for name, image in BUILT_IN.items():
        if name in modules:
            return WITH_GPUS.get(name, image) if gpus else image
    return PLAIN


def imported(script: str) -> tuple[str, ...]:
    """The packages that a script imports anywhere in it, and those that bring them; none where it is not Python.

    >>> imported("import os\\nfrom torchvision import models")
    ('os', 'torch', 'torchvision')
    """
    try:
        tree = ast.parse(script)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    found = {name.partition(".")[0] for name in _names(tree)}
    return tuple(sorted(found | {RELATED[name] for name in found if name in RELATED}))


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""


def script_names(command: Sequence[str]) -> list[str]:
    """The relative paths that the program of a command may have: of a file, or of a module after `-m`.

    >>> script_names(("-m", "team.train"))
    ['team/train.py', 'team/train/__main__.py', 'team/train/__init__.py']
    """
    if "-m" in command[:-1]:
        stem = command[list(command).index("-m") + 1].replace(".", "/")
        return [f"{stem}.py", f"{stem}/__main__.py", f"{stem}/__init__.py"]
    return [word for word in command if word.endswith(".py")][:1]


def read_script(command: Sequence[str], folder: Path) -> str:
    """The text of the script that a command starts in a folder; empty where there is none to be read."""
    for name in script_names(command):
        path = os.path.join(folder, name)
        try:
            if os.path.isfile(path) and os.path.getsize(path) <= LARGEST:
                return Path(path).read_bytes().decode(errors="replace")
        except OSError:
            continue
    return ""
