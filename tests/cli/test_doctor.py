"""`arena doctor` without a cluster, on a real one, and with fewer rights; the Role it prints is enough."""

from typing import Any

import pytest
from testbed.bed import Bed

IMAGE = "localhost/arena-work:1"


def test_without_a_cluster(arena: Any) -> None:
    result = arena("doctor")
    assert result.exit_code == 0
    assert "no cluster is configured" in result.stdout
    assert "jobs can run on this machine" in result.stdout


def test_every_arena_on_the_path(arena: Any) -> None:
    folders = []
    for name, head in (("go", b"\x7fELF"), ("ours", b"#!/bin/sh\n")):
        folder = arena.cwd / name
        folder.mkdir()
        (folder / "arena").write_bytes(head)
        (folder / "arena").chmod(0o755)
        folders.append(str(folder))
    found = arena("doctor", "-o", "json", env={"PATH": ":".join([*folders, arena.env["PATH"]])}).json["arena"]
    assert found["programs"][:2] == [
        f"{folders[0]}/arena (Go or another compiled program)",
        f"{folders[1]}/arena (a script)",
    ]


def test_a_kubeconfig_that_is_missing(arena: Any) -> None:
    result = arena("doctor", env={"KUBECONFIG": "/nonexistent"})
    assert result.exit_code == 6
    assert "/nonexistent" in result.stdout


def test_a_server_that_does_not_answer(arena: Any) -> None:
    dead = arena.file("dead", DEAD)
    result = arena("doctor", env={"KUBECONFIG": str(dead)})
    assert result.exit_code == 6
    assert "https://127.0.0.1:1" in result.stdout


DEAD = """
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: x}}]
current-context: c
"""


def test_the_role_needs_no_cluster(arena: Any) -> None:
    result = arena("doctor", "--role", "-n", "team-z", "-o", "json")
    assert result.exit_code == 0
    assert (result.json["kind"], result.json["metadata"]["namespace"]) == ("Role", "team-z")
    assert {"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"]}.items() <= next(
        rule for rule in result.json["rules"] if rule["resources"] == ["pytorchjobs"]
    ).items()


@pytest.mark.cluster
def test_on_a_cluster(arena: Any, bed: Bed) -> None:
    result = arena("doctor", env={"KUBECONFIG": str(bed.kubeconfig("alice"))})
    assert result.exit_code == 0, result.stdout
    for words in (
        "context",
        "team-a",
        "alice",
        "v1.",
        "jobs.batch: yes",
        "requests.nvidia.com/gpu 0 of 16",
        "not installed",
    ):
        assert words in result.stdout
    found = arena("doctor", "-o", "json", env={"KUBECONFIG": str(bed.kubeconfig("alice"))}).json
    assert (found["ok"], found["user"], found["namespace"], found["problems"]) == (True, "alice", "team-a", [])
    assert found["quotas"]["team"]["pods"].endswith(" of 60")
    assert {kind["kind"]: kind["version"] for kind in found["kinds"]}["Job"] == "v1"


@pytest.mark.cluster
def test_without_rights(arena: Any, bed: Bed) -> None:
    result = arena("doctor", env={"KUBECONFIG": str(bed.kubeconfig("guest"))})
    assert result.exit_code == 7
    assert "jobs.batch: no get, list" in result.stdout
    assert "arena doctor --role" in result.stdout


@pytest.mark.cluster
def test_the_role_is_enough(arena: Any, bed: Bed, name: str) -> None:
    """Everything a job needs, as somebody who has nothing but this Role."""
    env = {"KUBECONFIG": str(bed.kubeconfig("guest")), "ARENA_IMAGE": IMAGE, "ARENA_JOB_NAMESPACE": name}
    bed.kubectl("create", "namespace", name)
    bed.kubectl("apply", "-f", "-", given=arena("doctor", "--role", env=env).stdout)
    bed.kubectl("-n", name, "create", "rolebinding", "b", "--role", "arena-user", "--user", "guest")
    arena.file("train.py", "print(1)")
    bed.wait("rights", lambda: arena("doctor", env=env).exit_code == 0)
    words = ["--name", "mnist", "-w", "2", "--env", "HF_TOKEN=hush", "train.py"]
    made = arena("submit", "job", *words, env=env)
    assert made.exit_code == 0, made.stderr
    assert arena("list", "-o", "name", env=env).stdout == "mnist\n"
    for command in (["get", "mnist", "-e"], ["why", "mnist"], ["export", "mnist", "--manifest"], ["stop", "mnist"]):
        result = arena(*command, env=env)
        assert result.exit_code == 0, result.stderr
        assert "may not" not in result.stderr.replace("nodes may not be read", "")
    assert arena("delete", "mnist", env=env).exit_code == 0
    assert "orbidden" not in arena("list", "--strict", env=env).stderr
    bed.kubectl("delete", "namespace", name, "--wait=false")
