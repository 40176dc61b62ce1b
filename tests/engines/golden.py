"""What each engine makes of each type, reviewed as a diff.

`PYTHONPATH=tests:. python -m engines.golden` writes the files anew.
"""

from pathlib import Path
from typing import Any

import yaml

from arena.engines import load
from arena.engines.base import Code, Kind, Work
from arena.job import Role
from arena.jobs.jax import JAXJob
from arena.jobs.mpi import MPIJob
from arena.jobs.plain import PlainJob
from arena.jobs.pytorch import PyTorchJob
from arena.jobs.tensorflow import TensorFlowJob
from engines.works import TFJOB, work

FOLDER = Path(__file__).parent / "golden"
FILE = ("train.py", "--lr", "0.1")
TORCHRUN = ("torchrun", "train.py")
CODE = Code(config_map="mnist-abcd-code", sha256="0" * 64)
GPUS: dict[str, Any] = {"gpus": 1, "memory": "4Gi", "cpu": "2"}
LIFE: dict[str, Any] = {"running_timeout": "2h", "ttl_after_finished": "10m", "retry": 3}
OLD = {TFJOB: Kind("v1", frozenset({"cleanPodPolicy", "tfReplicaSpecs"}))}


def case(engine: str, work: Work) -> tuple[str, Work]:
    return engine, work


CASES = {
    "job-plain": case("job", work(PlainJob(name="mnist", command=FILE, workers=2, **GPUS))),
    "job-alone": case("job", work(PlainJob(name="mnist", command=("echo $HOME",), running_timeout="2h"))),
    "job-pytorch-nproc": case("job", work(PyTorchJob(name="mnist", command=FILE, workers=2, nproc_per_node=4))),
    "job-jax": case("job", work(JAXJob(name="mnist", command=FILE, workers=2))),
    "job-keep-failed": case("job", work(PlainJob(name="mnist", command=FILE, workers=2, keep_failed=True))),
    "pytorchjob": case("pytorchjob", work(PyTorchJob(name="mnist", command=FILE, workers=3, **GPUS))),
    "pytorchjob-plain": case("pytorchjob", work(PlainJob(name="mnist", command=FILE, workers=2), code=CODE)),
    "pytorchjob-alone-torchrun": case(
        "pytorchjob", work(PyTorchJob(name="mnist", command=TORCHRUN, nproc_per_node=8, gpus=8))
    ),
    "pytorchjob-nproc": case("pytorchjob", work(PyTorchJob(name="mnist", command=FILE, nproc_per_node=2, workers=2))),
    "pytorchjob-life": case("pytorchjob", work(PyTorchJob(name="mnist", command=FILE, **LIFE))),
    "pytorchjob-upstream": case("pytorchjob", work(PyTorchJob(name="mnist", command=FILE, workers=2), upstream=True)),
    "tfjob": case("tfjob", work(TensorFlowJob(name="mnist", command=FILE, workers=2, ps=Role(count=1, cpu="2")))),
    "tfjob-chief-upstream": case(
        "tfjob",
        work(
            TensorFlowJob(name="mnist", command=FILE, workers=2, chief=Role(count=1), evaluator=Role(count=1)),
            upstream=True,
        ),
    ),
    "tfjob-first-generation": case("tfjob", work(TensorFlowJob(name="mnist", command=FILE, **LIFE), served=OLD)),
    "mpijob": case("mpijob", work(MPIJob(name="mnist", command=FILE, workers=2, slots_per_worker=2, **GPUS))),
    "mpijob-upstream": case(
        "mpijob", work(MPIJob(name="mnist", command=("mpirun hostname",), workers=2, **LIFE), upstream=True)
    ),
    "trainjob": case("trainjob", work(PyTorchJob(name="mnist", command=FILE, workers=2, **GPUS))),
    "trainjob-plain-code": case(
        "trainjob",
        work(
            PlainJob(name="mnist", command=FILE, workers=2, nproc_per_node=2, selector={"pool": "a"}),
            code=CODE,
            working_dir="src",
        ),
    ),
    "trainjob-on-failure": case(
        "trainjob", work(PlainJob(name="mnist", command=FILE, workers=2, restart_policy="OnFailure"))
    ),
    "trainjob-exit-code": case(
        "trainjob", work(PlainJob(name="mnist", command=FILE, workers=2, restart_policy="ExitCode", retry=3))
    ),
    "trainjob-keep-failed": case("trainjob", work(PlainJob(name="mnist", command=FILE, workers=2), keep_failed=True)),
    "trainjob-life": case(
        "trainjob",
        work(
            PyTorchJob(
                name="mnist",
                command=TORCHRUN,
                nproc_per_node=8,
                env={"MASTER_PORT": "29400"},
                annotation={"team": "vision"},
                image_pull_policy="Always",
                running_timeout="2h",
                gpus=8,
                rdma=True,
                sync_mode="git",
                sync_source="https://git.example.com/mnist.git",
            ),
        ),
    ),
}


def rendered(name: str) -> str:
    """The objects of a case, as the golden file has them: helpers, then the job."""
    engine, planned = CASES[name]
    found = load(engine)
    return yaml.safe_dump_all([*found.helpers(planned), found.render(planned)], sort_keys=False, width=120)


def main() -> None:
    """Write every file, and remove those that no case has."""
    for old in FOLDER.glob("*.yaml"):
        old.unlink()
    for name in CASES:
        (FOLDER / f"{name}.yaml").write_text(rendered(name))


if __name__ == "__main__":
    main()
