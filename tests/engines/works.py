"""Jobs as the engines get them, for golden files, for strict validation and for what is recorded on a test bed."""

from typing import Any

from testbed.images import WORK

from arena.engines.base import Kind, Served, Work
from arena.job import Job, shorten

TFJOB = "TFJob.kubeflow.org"
POLICY = frozenset({"runPolicy"})
SERVED: Served = {
    "PyTorchJob.kubeflow.org": Kind("v1", POLICY | {"nprocPerNode"}),
    TFJOB: Kind("v1", POLICY),
    "MPIJob.kubeflow.org": Kind("v2beta1", POLICY),
    "TrainJob.trainer.kubeflow.org": Kind("v1alpha1"),
}


def work(job: Job, **rest: Any) -> Work:
    """A planned job of the work image, as a plan would make it."""
    values = {
        "job": job,
        "name": job.name,
        "namespace": "team-a",
        "run_id": f"{shorten(job.name, 58)}-abcd",
        "roles": tuple(job.roles("python3")),
        "image": job.image or WORK,
        "served": SERVED,
    }
    return Work(**{**values, **rest})
