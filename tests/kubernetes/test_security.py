"""Namespaces of the pod security level `restricted`: jobs that may be so become so, and it is said."""

import json

import pytest

from cluster.spaces import Space

LEVEL = "pod-security.kubernetes.io/enforce=restricted"
USER = ("--set", "spec.template.spec.securityContext.runAsUser=1234")


def restrict(space: Space) -> None:
    space.bed.kubectl("label", "namespace", space.name, LEVEL)


@pytest.mark.cluster
def test_a_job_gets_what_the_namespace_asks_for(space: Space) -> None:
    restrict(space)
    made = space.cli("submit", "job", "--name", "a", "-w", "2", "--", "true")
    assert made.exit_code == 0, made.stderr
    assert "Warning: " in made.stderr
    assert "takes restricted pods only: these have no privileges and do not run as root" in made.stderr
    spec = json.loads(space.kubectl("get", "job", "a", "-o", "json"))["spec"]["template"]["spec"]
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    own = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert [one["securityContext"] for one in (*spec["initContainers"], *spec["containers"])] == [own] * 3


@pytest.mark.cluster
def test_elsewhere_nothing_is_set(space: Space) -> None:
    assert space.cli("submit", "job", "--name", "a", "--", "true").exit_code == 0
    spec = json.loads(space.kubectl("get", "job", "a", "-o", "json"))["spec"]["template"]["spec"]
    assert (spec["securityContext"], "securityContext" in spec["containers"][0]) == ({}, False)


@pytest.mark.kubelet
@pytest.mark.timeout(180)
def test_it_runs_as_the_user_that_is_named_and_root_is_told(alive: Space) -> None:
    restrict(alive)
    ran = alive.cli("run", "--name", "a", *USER, "--", "id", "-u")
    assert (ran.exit_code, ran.stdout) == (0, "1234\n"), ran.stderr
    stuck = alive.cli("run", "--name", "b", "--start-timeout", "20s", "--", "id", "-u")
    assert stuck.exit_code == 125, stuck.stderr
    why = alive.cli("why", "b", "-o", "json").json
    assert (why["cause"], "runAsUser" in why["next"]) == ("RunsAsRoot", True)
