"""What Arena (Go) puts on its jobs, so that it sees, shows and deletes those that `submit TYPE` makes here.

Its defaults are kept for these commands only; `run` has its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from arena.engines.base import MANAGED_BY, NAME_LABEL, RUN_LABEL, Manifest, Work
from arena.job import Env, Job, Role, check

MARKS = ("app", "chart", "release", "heritage", "createdBy")
OWN = (MANAGED_BY, NAME_LABEL, RUN_LABEL)
WORKING_DIR = "/root"
SHARE_MEMORY = "2Gi"
MODEL_SOURCE = "arena.kubeflow.org/model-source"
KUBE_QUEUE = "scheduling.x-k8s.io/suspend"


class Chart(NamedTuple):
    """The chart by which Arena (Go) v0.15.5 makes a type: its version, and its word for who made the job."""

    version: str
    created_by: str


CHARTS = {
    "tfjob": Chart("0.39.1", "TFJob"),
    "pytorchjob": Chart("0.5.2", "PyTorchJob"),
    "mpijob": Chart("0.28.0", "MPIJob"),
}


def is_upstream(work: Work) -> bool:
    """Whether this is a job that Arena (Go) could have made, by a command of its own."""
    return work.upstream and work.job.trainer in CHARTS


def configured(job: Job, config: Mapping[str, str]) -> Job:
    """The job with what Arena (Go)'s config file says of every job: pull secrets, and the order of TensorFlow's roles.

    >>> from arena.jobs.plain import PlainJob
    >>> configured(PlainJob(image_pull_secret=("a",)), {"imagePullSecrets": "b, a"}).image_pull_secret
    ('a', 'b')
    """
    more = [name.strip() for name in config.get("imagePullSecrets", "").split(",") if name.strip()]
    job = replace(job, image_pull_secret=tuple(dict.fromkeys([*job.image_pull_secret, *more])))
    sequence = config.get("tfjob_role_sequence", "")
    if sequence and getattr(job, "role_sequence", None) == "":
        job = check(replace(job, role_sequence=sequence))
    return job


def labels(work: Work) -> Env:
    """The labels by which Arena (Go) finds a job and its pods."""
    if not is_upstream(work):
        return {}
    name = work.job.trainer
    chart = CHARTS[name]
    return {
        "app": name,
        "chart": f"{name}-{chart.version}",
        "release": work.name,
        "heritage": "Helm",
        "createdBy": chart.created_by,
        **({"modelName": work.job.model_name} if work.job.model_name else {}),
    }


def job_annotations(work: Work) -> Env:
    """The annotations of job and pods: the GPUs it asks for, the order of roles, that a queue lets it start."""
    found: Env = {}
    if is_upstream(work):
        found["requestGPUsOfJobOwner"] = str(sum(role.count * role.gpus for role in work.roles))
    if work.job.queue:
        found[KUBE_QUEUE] = "true"
    if work.job.model_source:
        found[MODEL_SOURCE] = work.job.model_source
    if sequence := getattr(work.job, "sequence", str)():
        found["job-role-sequence"] = sequence
    if is_upstream(work) and getattr(work.job, "standalone", False):
        found["arena.kubeflow.org/disable-tf-config"] = "true"
    return found


def variables(work: Work, role: Role) -> Env:
    """The variables of Arena (Go)'s containers; without a GPU the NVIDIA runtime is told to show none."""
    if not is_upstream(work):
        return {}
    found = {"workers": str(work.job.workers), "gpus": str(work.job.gpus)}
    if not role.gpus:
        found["NVIDIA_VISIBLE_DEVICES"] = "void"
    if role.rdma and work.job.trainer == "pytorchjob":
        found["MASTER_ADDR"] = f"{work.name}-master-0"
    return found


def problems(work: Work) -> Iterator[str]:
    """Labels of the user's that would hide the job from those who look for it."""
    for key in work.labels:
        if key in OWN:
            yield f"--label {key}: arena's own mark of a job"
        elif key in MARKS and is_upstream(work):
            yield f"--label {key}: Arena (Go) finds its jobs by it"


def bookkeeping(work: Work, objects: list[str]) -> Manifest:
    """The ConfigMap by which Arena (Go) knows that there is a job, and what to delete with it."""
    name = work.job.trainer
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"{work.name}-{name}",
            "namespace": work.namespace,
            "labels": {"createdBy": "arena", MANAGED_BY: "arena", NAME_LABEL: work.name, RUN_LABEL: work.run_id},
        },
        "data": {
            name: CHARTS[name].version,
            "values": values(work.job),
            "app": "\n".join([*objects, f"{name}.kubeflow.org/{work.name}"]),
        },
    }


def values(job: Job) -> str:
    """The job as a run file, without the values of its environment."""
    from arena import runfile

    return runfile.dump(replace(job, env={}))
