"""The objects a job needs beside it whatever kind carries it: files, TensorBoard, Arena (Go)'s bookkeeping."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path

from arena import cluster
from arena.engines import pods, tensorboard, upstream, volumes
from arena.engines.base import PART_LABEL, Manifest, Work
from arena.errors import SpecError
from arena.quantity import format_bytes

MOST = 1_000_000  # bytes of one ConfigMap


def companions(work: Work, engine: str, files: Mapping[str, bytes]) -> list[Manifest]:
    """What is made before the job and owned by it; `files` holds what `--config-file` names.

    Arena (Go)'s ConfigMap is there for the kind it knows the type by.
    """
    found = list(_config_maps(work, files))
    if work.job.tensorboard:
        found += tensorboard.pair(work)
    if upstream.is_upstream(work) and engine == work.job.trainer:
        found.append(upstream.bookkeeping(work, [_resource(one) for one in found]))
    return found


def problems(work: Work) -> Iterator[str]:
    """What the flags of this module's objects leave open."""
    yield from pods.problems(work)
    yield from tensorboard.problems(work)
    places: dict[tuple[str, str], str] = {}
    for file, _ in map(cluster.parse_config_file, work.job.config_file):
        key = (volumes.config_name(work.job, file), volumes.file_key(file))
        if places.setdefault(key, file) != file:
            yield f"--config-file: {file} and {places[key]} are too much alike: rename one"


def notes(work: Work) -> Iterator[str]:
    """What is kept but not acted upon."""
    if work.job.model_source:
        yield f"--model-source is kept with the job ({upstream.MODEL_SOURCE}); no model registry is told"


def read_files(work_files: tuple[str, ...], cwd: str, home: str = "") -> dict[str, bytes]:
    """The content of the files that `--config-file` names, by the names given."""
    found = {}
    for file, _ in map(cluster.parse_config_file, work_files):
        path = Path(home, file[2:]) if home and file.startswith("~/") else Path(cwd, file)
        try:
            found[file] = path.read_bytes()
        except OSError as error:
            raise SpecError(f"--config-file: {file} cannot be read", why=str(error.strerror)) from error
    size = sum(map(len, found.values()))
    if size > MOST:
        raise SpecError(f"--config-file: {format_bytes(size)} are too much", why=f"at most {format_bytes(MOST)} travel")
    return found


def _config_maps(work: Work, files: Mapping[str, bytes]) -> Iterator[Manifest]:
    """A ConfigMap for each folder that files come from."""
    names = list(dict.fromkeys(volumes.config_name(work.job, file) for file in files))
    for name in names:
        metadata = pods.metadata(work, name)
        metadata["labels"] = {**metadata["labels"], PART_LABEL: "config-file"}
        found: Manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        for file, content in files.items():
            if volumes.config_name(work.job, file) == name:
                kind, text = _held(content)
                found.setdefault(kind, {})[volumes.file_key(file)] = text
        yield found


def _held(content: bytes) -> tuple[str, str]:
    """The part of a ConfigMap that can hold a content, and how."""
    try:
        return "data", content.decode()
    except UnicodeDecodeError:
        return "binaryData", base64.b64encode(content).decode()


def _resource(manifest: Manifest) -> str:
    """An object as Arena (Go) notes it: `deployment.apps/NAME`."""
    group = manifest["apiVersion"].rpartition("/")[0]
    kind = manifest["kind"].lower()
    return f"{kind}{'.' + group if group else ''}/{manifest['metadata']['name']}"
