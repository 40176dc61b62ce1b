"""How often operators start a replica again, where a policy was typed and where a number was."""

from typing import Any

import pytest

from arena.engines import load
from arena.jobs.mpi import MPIJob
from arena.jobs.pytorch import PyTorchJob
from arena.jobs.tensorflow import TensorFlowJob
from engines.works import work

ONE = ("sh", "-c", "exit 3")
# the engine, its job's type, whether Arena (Go)'s command made it, what was typed, and the limit in the object
LIMITS: list[tuple[str, Any, bool, dict[str, Any], int | None]] = [
    ("pytorchjob", PyTorchJob, False, {}, None),
    ("pytorchjob", PyTorchJob, False, {"restart_policy": "OnFailure"}, 12),
    ("pytorchjob", PyTorchJob, False, {"restart_policy": "OnFailure", "retry": 1}, 1),
    ("pytorchjob", PyTorchJob, True, {}, 0),
    ("pytorchjob", PyTorchJob, True, {"restart_policy": "OnFailure"}, 12),
    ("tfjob", TensorFlowJob, True, {}, None),
    ("tfjob", TensorFlowJob, True, {"restart_policy": "Always"}, 12),
    ("mpijob", MPIJob, False, {}, 0),
    ("mpijob", MPIJob, True, {"restart_policy": "OnFailure"}, 6),
]


@pytest.mark.parametrize(("engine", "kind", "upstream", "typed", "limit"), LIMITS)
def test_a_policy_without_a_number_starts_each_replica_again_as_often_as_a_job_does(
    engine: str, kind: Any, upstream: bool, typed: dict[str, Any], limit: int | None
) -> None:
    job = kind(name="mnist", command=ONE, workers=2, **typed)
    policy = load(engine).render(work(job, upstream=upstream))["spec"]["runPolicy"]
    assert policy.get("backoffLimit") == limit
