"""Jobs as the engines make them, carried out by real operators."""

import json
from typing import Any

import pytest
from testbed.api import Api, wait_for
from testbed.bed import Bed

from arena import status
from arena.engines import load
from arena.job import Job, Seat
from arena.jobs.mpi import MPIJob
from arena.jobs.peers import torch_env
from arena.jobs.plain import PlainJob
from arena.jobs.pytorch import PyTorchJob
from arena.jobs.tensorflow import TensorFlowJob
from arena.status import Observed, State
from cluster.pods import log
from engines import record
from engines.record import look, path
from engines.scenes import RANK_1_FAILS
from engines.works import work

# The first test waits for the test bed too.
pytestmark = [pytest.mark.kubelet, pytest.mark.timeout(240)]

ENV = "import json, os, sys; sys.stdout.write(json.dumps(dict(os.environ)) + '\\n')"


def make(api: Api, engine_name: str, job: Job) -> None:
    """The job, as its engine renders it, and what it needs."""
    planned = work(job)
    engine = load(engine_name)
    record.make(api, path(engine_name), engine.helpers(planned), engine.render(planned))


def seen(api: Api, engine_name: str, name: str) -> Observed:
    """What the engine reads."""
    import msgspec

    from arena.engines.objects import Pod

    thing, pods = look(api, engine_name, name)
    engine = load(engine_name)
    decoded = msgspec.json.decode(json.dumps(thing), type=engine.thing)
    return engine.read(decoded, msgspec.json.decode(json.dumps(pods), type=list[Pod]))


def over(api: Api, engine_name: str, name: str) -> Observed:
    """The job once it has ended."""

    def look_again() -> Observed | None:
        found = seen(api, engine_name, name)
        return found if status.decide(found).state.final else None

    return wait_for(f"end of {name}", look_again, 120)


KINDS: dict[str, Any] = {
    "job": PlainJob,
    "pytorchjob": PyTorchJob,
    "tfjob": TensorFlowJob,
    "mpijob": MPIJob,
    "trainjob": PlainJob,
}


@pytest.mark.parametrize("engine_name", KINDS)
def test_a_program_that_fails_gives_its_code(node: Bed, name: str, engine_name: str) -> None:
    alice = node.api("alice")
    make(alice, engine_name, KINDS[engine_name](name=name, command=("sh", "-c", "exit 3")))
    found = over(alice, engine_name, name)
    assert status.exit_code(found, status.decide(found).state) == 3
    alice.delete(f"{path(engine_name)}/{name}")


@pytest.mark.parametrize("engine_name", ["pytorchjob", "trainjob"])
def test_what_the_operator_tells_a_process_is_what_a_seat_is_told(node: Bed, name: str, engine_name: str) -> None:
    alice = node.api("alice")
    job = PyTorchJob(name=name, command=("python3", "-c", f"{ENV}; import time; time.sleep(600)"), workers=2)
    make(alice, engine_name, job)

    def told_all() -> Observed | None:
        now = seen(alice, engine_name, name)
        whole = all(one.started and log(alice, one.pod).endswith("}\n") for one in now.replicas)
        return now if whole else None

    found = wait_for("processes that say what they were told", told_all, 100)

    for replica in found.replicas:
        told = json.loads(log(alice, replica.pod))
        master = f"{told['MASTER_ADDR']}:{told['MASTER_PORT']}"
        seat = Seat(role=replica.role, index=replica.index, rank=replica.rank or 0, world=2, master=master)
        wanted = torch_env(job, seat)
        left = ("LOCAL_RANK", "LOCAL_WORLD_SIZE")  # torchrun's, for its own processes
        assert {key: told.get(key) for key in wanted if key not in left} == {
            key: value for key, value in wanted.items() if key not in left
        }
    alice.delete(f"{path(engine_name)}/{name}")


@pytest.mark.parametrize("engine_name", ["job", "pytorchjob", "trainjob"])
def test_a_python_file_runs_several_times_per_worker(node: Bed, name: str, engine_name: str) -> None:
    alice = node.api("alice")
    script = "/usr/lib/python3.11/this.py"
    job = PlainJob(name=name, command=(script,), nproc_per_node=2)
    make(alice, engine_name, job)
    found = over(alice, engine_name, name)

    assert status.decide(found).state.name == "SUCCEEDED"
    assert found.replicas[0].nproc == 2
    assert log(alice, found.replicas[0].pod).count("The Zen of Python") == 2
    alice.delete(f"{path(engine_name)}/{name}")


@pytest.mark.parametrize("engine_name", ["job", "pytorchjob", "tfjob", "mpijob", "trainjob"])
def test_the_longest_name_is_carried_and_a_longer_one_refused(node: Bed, name: str, engine_name: str) -> None:
    alice = node.api("alice")
    kind = KINDS[engine_name]

    def named(length: int) -> Job:
        made: Job = kind(name=name.ljust(length, "x"), command=("sh", "-c", "sleep 3"), workers=2)
        return made

    engine = load(engine_name)
    room = max(length for length in range(20, 64) if not engine.problems(work(named(length))))
    longest = named(room)
    assert f"has room for {room}" in " ".join(engine.problems(work(named(room + 1))))

    make(alice, engine_name, longest)
    found = over(alice, engine_name, longest.name)
    assert status.decide(found).state.name == "SUCCEEDED"
    assert len([replica for replica in found.replicas if replica.role != "launcher"]) == 2
    alice.delete(f"{path(engine_name)}/{longest.name}")


def test_a_trainjob_ends_with_the_first_replica_that_fails(node: Bed, name: str) -> None:
    """The runtime that its operator publishes would start that replica again."""
    alice = node.api("alice")
    make(alice, "trainjob", PlainJob(name=name, command=("sh", "-c", RANK_1_FAILS), workers=2))
    found = over(alice, "trainjob", name)

    first = status.first_failure(found)
    assert status.decide(found).state.name == "FAILED"
    assert (first and first.name, status.exit_code(found, State.FAILED)) == ("worker-1", 3)
    assert {one.name: (one.attempt, one.restarts) for one in found.replicas} == {"worker-0": (1, 0), "worker-1": (1, 0)}
    assert found.earlier == ()
    alice.delete(f"{path('trainjob')}/{name}")


AGAIN: dict[str, dict[str, Any]] = {
    "OnFailure": {"restart_policy": "OnFailure"},
    "at most once": {"restart_policy": "OnFailure", "retry": 1},
    "a new pod": {"retry": 1},
}


@pytest.mark.parametrize("fields", AGAIN.values(), ids=AGAIN)
def test_a_trainjob_starts_a_replica_again_where_it_says_so(node: Bed, name: str, fields: dict[str, Any]) -> None:
    alice = node.api("alice")
    make(alice, "trainjob", PlainJob(name=name, command=("sh", "-c", "sleep 1; exit 3"), **fields))

    def again() -> bool:
        return any(one.attempt == 2 for one in seen(alice, "trainjob", name).replicas)

    wait_for("a second attempt", again, 60)
    if "retry" in fields:
        assert status.decide(over(alice, "trainjob", name)).state.name == "FAILED"
    alice.delete(f"{path('trainjob')}/{name}")


def test_a_trainjob_does_not_try_a_code_again_that_is_the_program_s_own(node: Bed, name: str) -> None:
    alice = node.api("alice")
    job = PlainJob(name=name, command=("sh", "-c", "exit 3"), restart_policy="ExitCode", retry=3)
    make(alice, "trainjob", job)
    found = over(alice, "trainjob", name)
    assert (status.exit_code(found, State.FAILED), [one.attempt for one in found.replicas]) == (3, [1])
    alice.delete(f"{path('trainjob')}/{name}")
