"""What a TrainJob has no place for is refused with the flag that asked for it."""

import pytest

from arena.engines import load
from arena.jobs.pytorch import PyTorchJob
from engines.works import work


@pytest.mark.parametrize(
    ("fields", "flag"),
    [
        ({"image_pull_policy": "Always"}, "--image-pull-policy"),
        ({"rdma": True}, "--rdma"),
        ({"ttl_after_finished": "1h"}, "--ttl-after-finished"),
        ({"host_network": True}, "hostNetwork"),  # and the DNS policy that goes with it
    ],
)
def test_what_it_has_no_place_for(fields: dict[str, object], flag: str) -> None:
    job = PyTorchJob(name="mnist", command=("train.py",), workers=2, **fields)  # type: ignore[arg-type]
    problems = load("trainjob").problems(work(job))
    assert [problem.partition(": ")[0] for problem in problems][:1] == [flag]


def test_what_it_has_a_place_for() -> None:
    job = PyTorchJob(name="mnist", command=("train.py",), workers=2, retry=2, selector={"pool": "a"})
    assert list(load("trainjob").problems(work(job))) == []
