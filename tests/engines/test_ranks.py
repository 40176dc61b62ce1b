"""What one pod template tells all ranks, and what it cannot."""

from typing import ClassVar

import pytest

from arena.engines import ranks
from arena.engines.base import Work
from arena.job import Job, Joined, Seat
from arena.jobs.plain import PlainJob


class Sweep(Job, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Each replica has a value of its own."""

    type_name: ClassVar[str] = "sweep"

    def join(self, seat: Seat) -> Joined:
        return Joined({"VALUE": ("0.1", "0.5")[seat.index], "RANK": str(seat.rank)})


def work(job: Job) -> Work:
    return Work(job=job, name="a", namespace="n", run_id="a-1", roles=tuple(job.roles()), image="i")


@pytest.mark.parametrize("workers", [1, 2])
def test_ranks_are_read_from_the_pod(workers: int) -> None:
    job = PlainJob(command=("true",), workers=workers)
    env = {one["name"]: one.get("value") for one in ranks.told(work(job), "a-0.a:29500")}
    assert env["RANK"] == ("$(ARENA_INDEX)" if workers == 2 else "0")
    assert (env["WORLD_SIZE"], env["MASTER_ADDR"], env["LOCAL_RANK"]) == (str(workers), "a-0.a", "0")
    assert not list(ranks.unlike(work(job), "a-0.a:29500"))


def test_other_values_of_a_replicas_own_are_named() -> None:
    (problem,) = ranks.unlike(work(Sweep(command=("true",), workers=2)), "a-0.a:29500")
    assert problem.startswith("VALUE: type 'sweep'")
