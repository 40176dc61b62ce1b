"""Real frameworks on every backend: MPI, JAX, PyTorch, and TF_CONFIG without TensorFlow."""

import json
import re
from pathlib import Path

import pytest

from arena import Role
from backends.place import LocalPlace, texts

pytestmark = pytest.mark.exception("the big frameworks of the tests are installed on this machine")

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
FRAMEWORKS = ROOT / ".frameworks" / "bin"

SUM = """
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
print(f"rank {world.rank} of {world.size}: {total}\\n", end="", flush=True)
"""


def test_tf_config_lets_every_role_find_the_others(place: LocalPlace) -> None:
    roles = {name: Role(count=1) for name in ("ps", "chief", "evaluator")}
    job = place.run(str(EXAMPLES / "tf_config.py"), type="tensorflow", workers=2, **roles)
    seen = job.wait(check=True, timeout=150)
    assert [r.name for r in seen.observed.replicas] == ["ps-0", "chief-0", "worker-0", "worker-1", "evaluator-0"]
    lines = texts(job.logs())
    assert {line for line in lines if line.startswith("ps-0 got")} == {
        "ps-0 got 1 from chief-0", "ps-0 got 3 from worker-0", "ps-0 got 4 from worker-1",
    }  # fmt: skip
    assert "chief-0 sent 1, the sum is 8" in lines
    config = json.loads(next(x for x in lines if x.startswith("worker-1 TF_CONFIG")).partition("TF_CONFIG ")[2])
    assert config["task"] == {"type": "worker", "index": 1}
    addresses = [address for role in config["cluster"].values() for address in role]
    assert {role: len(found) for role, found in config["cluster"].items()} == {"ps": 1, "chief": 1, "worker": 2}
    assert len(set(addresses)) == 4


def test_worker_0_ends_a_tensorflow_job_without_a_chief(place: LocalPlace) -> None:
    line = 'case $TF_CONFIG in *\'"type": "worker", "index": 0\'*) exit 0;; esac; exec sleep 60'
    job = place.run(["sh", "-c", line], type="tensorflow", workers=2, ps=Role(count=1))
    seen = job.wait(check=True, timeout=150)
    assert [(r.name, r.ended_by_us) for r in seen.observed.replicas] == [
        ("ps-0", True), ("worker-0", False), ("worker-1", True),
    ]  # fmt: skip


def test_mpiexec_starts_the_ranks_of_a_python_file(place: LocalPlace) -> None:
    (place.cwd / "sum.py").write_text(SUM)
    job = place.run("sum.py", type="mpi", workers=2, slots_per_worker=2)
    seen = job.wait(check=True, timeout=150)
    assert sorted(texts(job.logs())) == [f"rank {rank} of 4: 10" for rank in range(4)]
    assert [r.name for r in seen.observed.replicas] == ["launcher-0"]


def test_an_mpiexec_of_the_user_finds_the_hostfile(place: LocalPlace) -> None:
    (place.cwd / "sum.py").write_text(SUM)
    job = place.run(["mpiexec", "-n", "3", "python", "sum.py"], type="mpi", workers=3)
    job.wait(check=True, timeout=150)
    assert sorted(texts(job.logs())) == [f"rank {rank} of 3: 6" for rank in range(3)]


def test_the_hostfile_has_a_line_per_worker(place: LocalPlace) -> None:
    job = place.run(["sh", "-c", "cat $HYDRA_HOST_FILE"], type="mpi", workers=2, slots_per_worker=3)
    job.wait(check=True)
    assert texts(job.logs()) == ["127.0.0.1:3"] * 2


def test_a_failing_rank_ends_mpi_with_its_code(place: LocalPlace) -> None:
    (place.cwd / "fail.py").write_text("from mpi4py import MPI\nMPI.COMM_WORLD.rank == 1 and MPI.COMM_WORLD.Abort(7)\n")
    assert place.run("fail.py", type="mpi", workers=2).wait(timeout=150).exit_code == 7


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["jax", "job"])
def test_jax_trains_on_two_processes(place: LocalPlace, kind: str) -> None:
    """Some seconds: JAX compiles in both processes."""
    job = place.run(str(EXAMPLES / "digits" / "train_jax.py"), type=kind, workers=2, args=["--epochs", "1"])
    job.wait(check=True, timeout=150)
    told = [re.findall(r"^rank (\d) of 2 epoch 1 loss ([\d.]+)", line) for line in texts(job.logs())]
    (first, second) = sorted(found[0] for found in told if found)
    assert (first[0], second[0]) == ("0", "1")
    assert first[1] == second[1]
    assert (place.cwd / "digits-model.npz").exists()


@pytest.mark.slow
@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("program", "fields", "world"),
    [
        (["python"], {"type": "pytorch", "workers": 2}, 2),
        (["python"], {"workers": 2}, 2),
        (["torchrun"], {"type": "pytorch", "workers": 2, "nproc_per_node": 2}, 4),
        (["torchrun"], {"workers": 1, "nproc_per_node": 2}, 2),
    ],
)
def test_pytorch_trains_data_parallel(
    place: LocalPlace, program: list[str], fields: dict[str, object], world: int
) -> None:
    """Up to a minute on two cores: PyTorch is loaded by up to six processes."""
    words = [str(FRAMEWORKS / program[0]), str(EXAMPLES / "ddp.py"), "--steps", "10"]
    job = place.run(words, **fields)
    job.wait(check=True, timeout=150)
    models = [re.findall(rf"rank (\d) of {world} model (.*)", line) for line in texts(job.logs())]
    found = sorted(model[0] for model in models if model)
    assert [rank for rank, _ in found] == [str(rank) for rank in range(world)]
    assert len({model for _, model in found}) == 1


@pytest.mark.slow
@pytest.mark.frameworks
def test_a_python_file_is_started_once_per_process_for_pytorch(place: LocalPlace) -> None:
    """Some seconds: PyTorch is loaded by two processes."""
    client = place.client(VIRTUAL_ENV=str(FRAMEWORKS.parent))
    job = client.run(str(EXAMPLES / "ddp.py"), args=["--steps", "10"], type="pytorch", nproc_per_node=2)
    job.wait(check=True, timeout=150)
    assert sum("model y" in text for text in texts(job.logs())) == 2
