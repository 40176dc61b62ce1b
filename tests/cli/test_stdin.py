"""`-` is stdin wherever a command takes a run file or an object."""

import json
from typing import Any

import pytest

from arena import runfile


def test_run_takes_a_run_file_from_stdin(arena: Any) -> None:
    ran = arena.shell("printf 'name: a\ncommand: [echo, hi, no]' | arena run -f - --env A=1")
    assert (ran.exit_code, ran.stdout) == (0, "hi no\n")
    again = arena.shell("arena export a | arena rerun - --name b -- echo ho")
    assert again.exit_code == 0, again.stderr
    assert arena("logs", "-f", "b").stdout == "ho\n"
    assert "A: " in arena("export", "b").stdout


def test_submit_takes_the_type_and_the_job_from_it(arena: Any) -> None:
    text = r"type: pytorch\ncommand: t.py\nworkers: 2"
    made = arena.shell(f"printf '{text}' | arena submit -f - -b local --dry-run -o json")
    assert made.exit_code == 0, made.stderr
    assert [one["name"] for one in made.json["replicas"]] == ["master-0", "worker-0"]


def test_submit_takes_an_object_from_it(arena: Any) -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}}
    made = arena.shell(f"echo '{json.dumps(job)}' | arena submit -f - --dry-run -o json")
    assert (made.exit_code, made.json) == (0, job), made.stderr


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("printf 'command: t.py\nworkers: x' | arena run -f -", "stdin:2: workers: must be a whole number"),
        ("printf 'command: &a t.py' | arena rerun -", "stdin:1: anchors and aliases"),
        ("printf 'a: {' | arena submit -f -", "stdin:2: is not YAML"),
        ("printf 'type: x' | arena submit -f -", "stdin:1: type: "),
        (r"printf '\n\xff' | arena run -f -", "stdin:2: is not UTF-8"),
        ("head -c 2000000 /dev/zero | arena run -f -", "stdin is larger than 1 MiB"),
        ("arena run -f -", "stdin: command: what should run?"),
        ("arena run -f - <&-", "stdin: command: what should run?"),
        ("printf 'A=1\nB' | arena run --env-file - true", "stdin:2: 'B' is not KEY=VALUE"),
    ],
)
def test_errors_say_stdin(arena: Any, line: str, said: str) -> None:
    refused = arena.shell(line)
    assert refused.exit_code in (2, 125)
    assert refused.stderr.startswith(f"Error: {said}")
    assert not arena.state.exists()


def test_a_file_of_that_name_is_read_by_its_path(arena: Any) -> None:
    arena.file("-", "command: [echo, hi]")
    assert arena("run", "-f", "./-").stdout == "hi\n"
    assert runfile.label("./-") == "./-"
