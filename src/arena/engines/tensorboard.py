"""A TensorBoard beside a job: a Deployment on the node of its leading replica, and a Service."""

from __future__ import annotations

from arena import cluster
from arena.engines import placing, pods, upstream, volumes
from arena.engines.base import Manifest, Work
from arena.job import Env

IMAGE = "registry.cn-zhangjiakou.aliyuncs.com/acs/tensorflow:1.12.0-devel"
PORT = 6006
FOLDER = "/output/training_logs"


def pair(work: Work) -> list[Manifest]:
    """The Service and the Deployment; Arena (Go) finds the Service by the labels `release` and `role`."""
    port = {"name": "tensorboard", "port": PORT, "targetPort": PORT}
    service = {"type": "NodePort", "ports": [port], "selector": _selector(work)}
    deployment = {"replicas": 1, "selector": {"matchLabels": _selector(work)}, "template": _template(work)}
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(work), "spec": service},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": _metadata(work), "spec": deployment},
    ]


def _metadata(work: Work) -> Manifest:
    found = pods.metadata(work, f"{work.name}-tensorboard")
    found["labels"] = _labels(work)
    return found


def _labels(work: Work) -> Env:
    return {**pods.pod_labels(work), **_selector(work)}


def _selector(work: Work) -> Env:
    """What its pod has and the job's have not; `app` differs, so that nobody takes it for a replica."""
    return {"app": "tensorboard", "release": work.name, "role": "tensorboard"}


def _template(work: Work) -> Manifest:
    main: Manifest = {
        "name": "tensorboard",
        "image": work.job.tensorboard_image or IMAGE,
        "command": ["tensorboard"],
        "args": ["--logdir", FOLDER, "--host", "0.0.0.0"],
        "ports": [{"name": "http", "containerPort": PORT}],
    }
    spec: Manifest = {"containers": [main]}
    if policy := work.job.image_pull_policy or ("Always" if upstream.is_upstream(work) else ""):
        main["imagePullPolicy"] = policy
    if volumes.logs_in_data(work.job):
        main["args"][1] = volumes.logdir(work.job)
        for found in volumes.data(work.job):
            volumes.add(spec, main, found)
    else:
        _beside(spec, main, work)
    spec |= {key: value for key, value in placing.place(work, work.roles[0]).items() if key in SHARED}
    labels = {pods.ISTIO: "false", **work.labels, **upstream.labels(work), **_selector(work)}
    return {"metadata": {"labels": labels}, "spec": spec}


SHARED = ("tolerations", "priorityClassName", "imagePullSecrets", "nodeSelector")


def _beside(spec: Manifest, main: Manifest, work: Work) -> None:
    """The logs lie on the node of the replica that writes them: TensorBoard must run there."""
    volume = {"name": volumes.LOGS, "hostPath": volumes.host_logs(work)}
    volumes.add(spec, main, volumes.Mounted(volume, {"name": volumes.LOGS, "mountPath": FOLDER}))
    labels = {placing.JOB_NAME: work.name, placing.REPLICA_TYPE: _writer(work), placing.REPLICA_INDEX: "0"}
    near = {"labelSelector": {"matchLabels": labels}, "topologyKey": placing.HOSTNAME}
    spec["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}


def _writer(work: Work) -> str:
    """The role that writes the logs: of an MPI job the first worker, where rank 0 runs."""
    return next((role.name for role in work.roles if role.logs == "mount" and role.ranked), "worker")


def problems(work: Work) -> list[str]:
    """Folders in which nothing would be found."""
    if not work.job.tensorboard:
        named = [name for name in ("logdir", "tensorboard_image") if getattr(work.job, name)]
        return [] if upstream.is_upstream(work) else [f"--{n.replace('_', '-')}: needs --tensorboard" for n in named]
    return [
        f"--logdir: {mount.path} lies in it, and is mounted by --data"
        for mount in map(cluster.parse_data, work.job.data)
        if mount.path.startswith(volumes.logdir(work.job) + "/")
    ]
