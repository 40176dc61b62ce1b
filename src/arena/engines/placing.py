"""Where the pods of a role may run, and beside what: the part of a pod template that the scheduler reads."""

from __future__ import annotations

from arena import cluster
from arena.engines.base import Manifest, Work
from arena.job import Env, Role

HOSTNAME = "kubernetes.io/hostname"
JOB_NAME = "training.kubeflow.org/job-name"
REPLICA_INDEX = "training.kubeflow.org/replica-index"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
POD_GROUP = "pod-group.scheduling.sigs.k8s.io"
NEARNESS = {"worker": 60, "ps": 30}  # how much binpack wants to be near these roles


def place(work: Work, role: Role) -> Manifest:
    """The fields of a pod's spec that say where it may run and whose host it shares.

    A role's own selector takes the place of the job's.
    """
    job = work.job
    network = job.host_network or is_near(work)
    found: Manifest = {
        "nodeSelector": dict(role.selector or job.selector),
        "tolerations": [cluster.parse_toleration(text) for text in job.toleration],
        "affinity": _affinity(work, role),
        "schedulerName": job.scheduler,
        "priorityClassName": job.priority,
        "hostNetwork": network,
        "dnsPolicy": "ClusterFirstWithHostNet" if network else "",
        "hostIPC": job.host_ipc,
        "hostPID": job.host_pid,
        "imagePullSecrets": [{"name": name} for name in job.image_pull_secret],
    }
    return {key: value for key, value in found.items() if value}


def is_near(work: Work) -> bool:
    """Whether the job's GPUs are to be near each other (`--gputopology`)."""
    return bool(getattr(work.job, "gputopology", False))


def labels(work: Work) -> Env:
    """The labels by which schedulers see that pods belong together."""
    found: Env = {}
    if work.job.gang:
        found[f"{POD_GROUP}/name"] = f"{work.job.trainer}-{work.name}"
        found[f"{POD_GROUP}/min-available"] = str(_together(work))
    if is_near(work):
        found["gpu-topology"] = work.name
        found["gpu-topology-replica"] = str(work.job.workers)
    return found


def _together(work: Work) -> int:
    """How many pods start together; a launcher comes after its workers."""
    return sum(role.count for role in work.roles if role.ranked) or work.job.workers


def _affinity(work: Work, role: Role) -> Manifest:
    if role.affinity_policy == "none":
        return {}
    spread = role.affinity_policy == "spread"
    kind = "podAntiAffinity" if spread else "podAffinity"
    if role.affinity_constraint == "required":
        terms = [_near(work, role.name if spread else "")]
        return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    weights = {role.name: 100} if spread else {"": 100, **NEARNESS}
    wished = [{"weight": weight, "podAffinityTerm": _near(work, name)} for name, weight in weights.items()]
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": wished}}


def _near(work: Work, role: str) -> Manifest:
    """On the node of a pod of this job, of one role where it is named."""
    labels = {JOB_NAME: work.name, **({REPLICA_TYPE: role} if role else {})}
    return {"labelSelector": {"matchLabels": labels}, "topologyKey": HOSTNAME}
