"""TensorFlow's roles: who there is, what each has, and where it comes from."""

from __future__ import annotations

from typing import Any

import pytest

from arena.errors import SpecError
from arena.job import Role, check
from arena.jobs.tensorflow import TensorFlowJob


def roles(**fields: Any) -> dict[str, Role]:
    job = check(TensorFlowJob(command=("t.py",), **fields))
    return {role.name: role for role in job.roles()}


def test_one_worker_alone_is_the_chief() -> None:
    assert [*roles()] == ["chief"]
    assert [*roles(ps=Role(count=1))] == ["ps", "worker"]
    assert [*roles(workers=2)] == ["worker"]
    assert [*roles(chief=Role(count=1))] == ["chief", "worker"]


def test_gpus_are_those_of_all_but_ps() -> None:
    found = roles(ps=Role(count=1), chief=Role(count=1), evaluator=Role(count=1), workers=2, gpus=2)
    assert {name: role.gpus for name, role in found.items()} == {"ps": 0, "chief": 2, "worker": 2, "evaluator": 2}
    assert roles(ps=Role(count=1, gpus=1), gpus=2)["ps"].gpus == 1


def test_a_role_has_its_own_else_the_job_s() -> None:
    found = roles(ps=Role(count=1), worker=Role(cpu="3", image="w"), chief=Role(count=1), cpu="1", memory="2Gi")
    assert (found["worker"].cpu, found["worker"].memory) == ("3", "2Gi")
    assert (found["chief"].cpu, found["chief"].image) == ("1", "w")
    assert (found["ps"].cpu, found["ps"].image) == ("", "")


def test_each_role_has_a_port_of_its_own() -> None:
    found = roles(ps=Role(count=1), chief=Role(count=1), evaluator=Role(count=1), worker=Role(port=7))
    assert {name: role.port for name, role in found.items()} == {
        "worker": 7,
        "chief": 20000,
        "ps": 20001,
        "evaluator": 0,
    }


@pytest.mark.parametrize(("policy", "ends"), [("", "first"), ("ChiefWorker", "first"), ("AllWorkers", "all")])
def test_who_decides_the_end(policy: str, ends: str) -> None:
    assert roles(workers=2, success_policy=policy)["worker"].ends == ends


def test_the_order_of_roles_is_written_in_full() -> None:
    assert TensorFlowJob(command=("t",), role_sequence="w,p, Chief").sequence() == "Worker,PS,Chief"
    assert TensorFlowJob(command=("t",)).sequence() == ""


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"role_sequence": "w,x"}, "--role-sequence: 'x'"),
        ({"chief": Role(count=2)}, "--chief: there is one or none"),
        ({"evaluator": Role(count=1, port=3)}, "--evaluator: port cannot be set"),
        ({"worker": Role(count=3)}, "--worker: count cannot be set"),
        ({"starting_timeout": "soon"}, "--starting-timeout"),
        ({"ps": Role(count=1, affinity_constraint="required")}, "--ps-affinity-constraint: needs --ps-affinity-policy"),
        ({"ps": Role(cpu_limit="1GGi")}, "--ps-cpu-limit"),
    ],
)
def test_what_a_role_has_no_place_for_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        roles(**fields)
    assert said in str(caught.value)
