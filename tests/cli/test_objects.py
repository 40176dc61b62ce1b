"""Objects in files and flags about objects, where there is no cluster."""

import json
from typing import Any

import pytest

from arena.cli.objects import is_object

JOB = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: x}\nspec: {template: {spec: {containers: [{name: c}]}}}\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (JOB, True),
        ('{"apiVersion": "batch/v1", "kind": "Job"}', True),
        ("{kind: Job, apiVersion: batch/v1}", True),
        ("# a comment\n---\nkind: Job\napiVersion: v1\n", True),
        ("type: job\nname: kind\n", False),
        ("command: 'kind: apiVersion: x'\n", False),
        ("", False),
    ],
)
def test_what_is_an_object(text: str, found: bool) -> None:
    assert is_object(text) is found


def test_a_dry_run_prints_it_unchanged_and_asks_nobody(here: Any, arena: Any) -> None:
    result = here("submit", "-f", str(arena.file("job.yaml", JOB)), "--dry-run", "-o", "json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout) == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "x"},
        "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}},
    }


def test_the_file_may_stand_in_the_flag_s_word(here: Any, arena: Any) -> None:
    result = here("submit", f"-f{arena.file('job.yaml', JOB)}", "--dry-run", "-o", "name")
    assert (result.exit_code, result.stdout) == (0, "x\n"), result.stderr


def test_a_secret_is_named_and_left_out_whatever_it_holds(here: Any, arena: Any) -> None:
    secret = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: door}\nstringData: {colour: green}\n"
    words = ["submit", "-f", str(arena.file("job.yaml", JOB + secret)), "--dry-run"]
    hidden = here(*words)
    assert hidden.stderr == "Note: Secret 'door' is left out: what it holds is secret; --show-secrets prints it\n"
    assert ("green" in hidden.stdout, "name: x" in hidden.stdout) == (False, True)
    shown = here(*words, "--show-secrets")
    assert ("green" in shown.stdout, shown.stderr) == (True, "")
    made = here("submit", "pytorch", "--name", "x", "--image", "i", "--env", "HF_TOKEN=a", "--dry-run", "true")
    assert "Note: Secret 'x-" in made.stderr


def test_set_and_patch_change_it(here: Any, arena: Any) -> None:
    patch = arena.file("patch.yaml", "spec: {suspend: true}")
    more = ["--patch", str(patch), "--set", "spec.template.spec.containers.c.image=i:1"]
    result = here("submit", "-f", str(arena.file("job.yaml", JOB)), "--dry-run", "-o", "json", *more)
    spec = json.loads(result.stdout)["spec"]
    assert (spec["suspend"], spec["template"]["spec"]["containers"][0]["image"]) == (True, "i:1")


def test_this_machine_takes_no_object(here: Any, arena: Any) -> None:
    file = str(arena.file("job.yaml", JOB))
    assert here("submit", "-f", file).exit_code == 6
    result = here("submit", "-f", file, "-b", "local")
    assert (result.exit_code, "-b kubernetes" in result.stderr) == (5, True)


def test_the_word_for_it_is_no_type(here: Any) -> None:
    result = here("submit", "object")
    assert (result.exit_code, "arena submit -f FILE" in result.stderr) == (2, True)


@pytest.mark.parametrize("flags", [["--set", "spec.a=1"], ["--patch", "p.yaml"]])
def test_on_this_machine_they_are_noted(here: Any, arena: Any, flags: list[str]) -> None:
    arena.file("p.yaml", "spec: {}\nmetadata: {labels: {a: b}}")
    noted = here("run", "--dry-run", *flags, "true")
    assert (noted.exit_code, "no effect on this machine" in noted.stderr) == (0, True)
    assert here("run", "--strict", *flags, "true").exit_code == 125


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--set", "alone"], "--set"),
        (["--set", "a..b=1"], "no path"),
        (["--set", "a={"], "YAML"),
        (["--patch", "nosuch.yaml"], "nosuch.yaml"),
    ],
)
def test_what_cannot_be_read(here: Any, flags: list[str], said: str) -> None:
    result = here("submit", "job", "-b", "local", "--dry-run", *flags, "true")
    assert result.exit_code in (2, 3)
    assert said in result.stderr


@pytest.mark.parametrize("words", [("submit", "pytorch"), ("-b", "kubernetes", "submit", "job")])
def test_a_dry_run_needs_no_cluster(here: Any, words: tuple[str, ...]) -> None:
    result = here(*words, "--name", "x", "--image", "i", "--dry-run", "-o", "json", "true")
    assert result.exit_code == 0, result.stderr
    kinds = {one["kind"] for one in json.loads(result.stdout).get("items", [json.loads(result.stdout)])}
    assert kinds & {"PyTorchJob", "Job"}


def test_a_submit_needs_one(here: Any) -> None:
    result = here("submit", "pytorch", "--name", "x", "--image", "i", "true")
    assert (result.exit_code, result.stdout) == (6, "")
    assert "no cluster configured" in result.stderr
