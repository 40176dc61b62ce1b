"""What cannot act is refused, with its name; nothing that was typed is dropped or means something else."""

from typing import Any

import pytest


@pytest.mark.parametrize("flag", ["-n", "-b", "--namespace", "--context", "--kubeconfig"])
def test_a_flag_without_its_value_deletes_nothing(arena: Any, flag: str) -> None:
    arena("run", "-d", "--name", "kept", "--", "sleep", "30")
    refused = arena("delete", "kept", flag)
    assert refused.exit_code == 2
    assert flag in refused.stderr
    assert arena("get", "kept", "-o", "json").json["state"] in ("PENDING", "RUNNING")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("run", "-d", "--rm", "true"), "--rm"),
        (("run", "-d", "--timeout", "5s", "true"), "--timeout"),
        (("submit", "job", "-b", "local", "--start-timeout", "5s", "true"), "--start-timeout"),
        (("run", "-o", "json", "true"), "-o json"),
        (("run", "--name", "", "true"), "--name"),
        (("run", "-e", "ARENA_RUN_ID=x", "true"), "ARENA_RUN_ID"),
        (("run", "--strict", "--cpu", "2", "true"), "--cpu"),
        (("submit", "tf", "-b", "local", "--strict", "--ps", "1", "--ps-cpu", "2", "true"), "--ps-cpu"),
    ],
)
def test_what_cannot_act_is_refused_by_name(arena: Any, words: tuple[str, ...], named: str) -> None:
    refused = arena(*words)
    assert refused.exit_code in (2, 125)
    assert named in refused.stderr
    assert arena("list", "-o", "json").json == []


def test_the_type_typed_must_be_the_files(arena: Any) -> None:
    file = arena.file("tf.yaml", 'type: tensorflow\ncommand: "true"\n')
    refused = arena("submit", "pytorch", "-f", str(file), "-b", "local")
    assert refused.exit_code == 2
    assert "tensorflow, not pytorch" in refused.stderr


@pytest.mark.parametrize("words", [("run",), ("submit", "job")])
def test_an_operator_s_object_is_no_run_file(arena: Any, words: tuple[str, ...]) -> None:
    file = arena.file("job.yaml", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\n")
    refused = arena(*words, "-f", str(file), "-b", "local")
    assert refused.exit_code in (2, 125)
    assert f"Try: arena submit -f {file}" in refused.stderr


def test_settings_of_roles_are_noted(arena: Any) -> None:
    done = arena("submit", "tf", "-b", "local", "--name", "a", "--ps", "1", "--ps-image", "x", "--wait", "true")
    assert done.exit_code == 0
    assert "--ps-image has no effect" in done.stderr


@pytest.mark.parametrize("flags", [("--chief", "--evaluator"), ("--chief", "1", "--evaluator=1")])
def test_a_role_alone_is_one_replica(arena: Any, flags: tuple[str, ...]) -> None:
    made = arena("submit", "tf", "-b", "local", *flags, "--dry-run", "-o", "json", "true")
    assert [one["name"] for one in made.json["replicas"]] == ["chief-0", "worker-0", "evaluator-0"]


def test_a_time_limit_with_rm_says_that_the_job_is_gone(arena: Any) -> None:
    ended = arena("run", "--rm", "--timeout", "0.5s", "--name", "a", "--", "sleep", "30")
    assert ended.exit_code == 124
    assert "deleted" in ended.stderr
    assert "goes on" not in ended.stderr
    assert arena("get", "a").exit_code == 3


def test_exec_passes_the_code_of_a_signal(arena: Any) -> None:
    arena("run", "-d", "--name", "a", "--", "sleep", "30")
    arena.until(lambda: arena("get", "a", "-o", "json").json["state"] == "RUNNING")
    assert arena("exec", "a", "--", "sh", "-c", "kill -9 $$").exit_code == 137


def test_rerun_of_a_local_job_is_local(arena: Any) -> None:
    assert arena("submit", "pytorch", "-b", "local", "--name", "a", "--wait", "true").exit_code == 0
    assert arena("rerun", "a", "--name", "b").exit_code == 0
    assert arena("wait", "b").exit_code == 0
