"""A TrainJob brings its pods' template in a runtime of its own, and says what lists of jobs show."""

import json
from typing import Any

import msgspec
import pytest

from arena.engines import load
from arena.engines.base import Manifest
from arena.job import Job
from arena.jobs.plain import PlainJob
from arena.jobs.pytorch import PyTorchJob
from engines.works import work

FILE = ("train.py",)


def template(engine_name: str, job: Job) -> Manifest:
    """The one pod template of a job."""
    engine = load(engine_name)
    if engine_name == "job":
        found: Manifest = engine.render(work(job))["spec"]
    else:
        (runtime,) = engine.helpers(work(job))
        found = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]
    found["template"]["spec"]["containers"][0].pop("name")
    return found


def test_its_pods_are_those_of_an_indexed_job() -> None:
    fields: dict[str, Any] = {"host_network": True, "rdma": True, "image_pull_policy": "Always", "retry": 2}
    job = PyTorchJob(name="a", command=FILE, workers=2, annotation={"x": "y"}, running_timeout="1h", **fields)
    found, usual = (json.dumps(template(name, job)) for name in ("trainjob", "job"))
    assert found.replace("a-node-0-0.a", "a-0.a") == usual


@pytest.mark.parametrize(
    ("fields", "flag"),
    [({"ttl_after_finished": "1h"}, "--ttl-after-finished"), ({"env": {"PET_NNODES": "3"}}, "--env")],
)
def test_what_its_operator_would_not_heed_is_refused(fields: dict[str, Any], flag: str) -> None:
    problems = load("trainjob").problems(work(PyTorchJob(name="a", command=FILE, **fields)))
    assert [problem.partition(": ")[0] for problem in problems] == [flag]


def test_a_variable_stands_once_and_the_user_s_wins() -> None:
    job = PlainJob(name="a", command=FILE, workers=2, env={"MASTER_PORT": "29400"})
    env = template("trainjob", job)["template"]["spec"]["containers"][0]["env"]
    assert [one["value"] for one in env if one["name"] == "MASTER_PORT"] == ["29400"]


def test_without_pods_its_replicas_have_their_ranks_gpus_and_limits() -> None:
    engine = load("trainjob")
    job = PlainJob(name="a", command=FILE, workers=2, nproc_per_node=4, gpus=4, memory="1Gi")
    thing = msgspec.json.decode(json.dumps(engine.render(work(job))), type=engine.thing)
    found = [(one.name, one.rank, one.nproc, one.gpus, one.memory_limit) for one in engine.read(thing, ()).replicas]
    assert found == [("worker-0", 0, 4, 4, 1 << 30), ("worker-1", 4, 4, 4, 1 << 30)]
