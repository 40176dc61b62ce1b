"""The schema of run files: valid itself, and of one mind with the reader on examples and counter-examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given

from arena import jobs, runfile
from arena.errors import SpecError
from arena.job import Job
from arena.schema import schema
from plugins.strategies import KINDS, any_job, patient

ALL = jsonschema.Draft202012Validator(schema())
ONE = {kind: jsonschema.Draft202012Validator(schema(kind)) for kind in KINDS}

GOOD = [
    "command: t.py",
    "command: [t.py, --lr, 0.1, true]",
    "type: job\ncommand: t.py\nworkers: 2",
    "type: tf\ncommand: t.py\nps: 1\nchief: {count: 1, cpu: 2, memory: 4Gi}",
    "type: mpi\ncommand: t.py\nslots_per_worker: 4",
    "command: t.py\nenv: {A: 1, B: no, C: x}\nsnapshot: true\nrestart_policy: OnFailure",
    "command: t.py\nname: no\ncpu: 0.5\nrunning_timeout: 90s",
    "command: t.py\ndata: claim:/data\ntoleration: [a=b:NoSchedule]",
]

BAD = [
    "workers: 2",
    "command: []",
    "command: t.py\nworkers: 0",
    "command: t.py\nworkers: 10001",
    "command: t.py\nworkers: two",
    "command: t.py\nworkers: true",
    "command: t.py\nsnapshot: 1",
    "command: t.py\nrestart_policy: Sometimes",
    "command: t.py\nname: Upper",
    f"command: t.py\nname: {'a' * 64}",
    "command: t.py\nenv: [A=1]",
    "command: t.py\nenv: {A: [1]}",
    "command: t.py\nenv: {A: }",
    "command: t.py\nworking-dir: src",
    "command: t.py\nslots_per_worker: 2",
    "type: mpi\ncommand: t.py\nps: 1",
    "type: tensorflow\ncommand: t.py\nps: {cpus: 2}",
    "type: tensorflow\ncommand: t.py\nps: -1",
    "type: nosuch\ncommand: t.py",
    "command: {a: b}",
    "- a",
]


def errors(validator: Any, text: str) -> list[str]:
    return [error.message for error in validator.iter_errors(yaml.safe_load(text))]


@pytest.mark.parametrize("kind", [None, *KINDS])
def test_it_is_a_schema(kind: str | None) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(kind))


@pytest.mark.parametrize("text", GOOD)
def test_what_is_read_is_valid(text: str) -> None:
    assert runfile.read(text, "job.yaml").job()
    assert not errors(ALL, text)
    kind = jobs.ALIASES.get(found := runfile.read(text, "job.yaml").type, found)
    assert not errors(ONE[kind], text)


@pytest.mark.parametrize("text", BAD)
def test_what_is_refused_is_not_valid(text: str) -> None:
    with pytest.raises(SpecError):
        runfile.read(text, "job.yaml").job()
    assert errors(ALL, text)


@patient
@given(any_job)
def test_every_dump_is_valid(job: Job) -> None:
    for text in (runfile.dump(job), runfile.dump(job, masked=False)):
        assert not errors(ALL, text)
        assert not errors(ONE[job.type_name], text)


def test_it_says_what_the_declarations_say() -> None:
    workers = schema("pytorch")["properties"]["workers"]  # type: ignore[index]
    assert workers == {
        "description": "number of workers",
        "type": "integer",
        "minimum": 1,
        "maximum": 10_000,
        "default": 1,
    }


def test_one_type_does_not_take_another() -> None:
    assert errors(ONE["mpi"], "command: t.py")
    assert errors(ONE["mpi"], "type: job\ncommand: t.py")


def test_the_journeys_run_file_is_valid() -> None:
    file = Path(__file__).parent / "journeys" / "files" / "job.yaml"
    assert not errors(ALL, file.read_text())
    assert runfile.load(file).command[0] == "sh"
