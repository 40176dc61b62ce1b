"""PyTorchJob of the training operator: Master is rank 0, Worker i is rank i + 1; it carries plain jobs, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec.structs import replace

from arena.engines.base import Manifest, Work
from arena.engines.kubeflow import ReplicaEngine, ReplicaJob, ReplicaSpec
from arena.job import Role, is_python_file


class PyTorchJobEngine(ReplicaEngine):
    """The engine `pytorchjob`."""

    name: ClassVar[str] = "pytorchjob"
    kind: ClassVar[str] = "PyTorchJob"
    types: ClassVar[tuple[str, ...]] = ("pytorch", "job")
    container: ClassVar[str] = "pytorch"
    controllers: ClassVar[tuple[str, ...]] = ("pytorchjob-controller",)
    specs: ClassVar[str] = "pytorchReplicaSpecs"
    order: ClassVar[tuple[str, ...]] = ("master", "worker")

    def carried(self, work: Work) -> Sequence[Role]:
        """A Master, and a Worker for every other replica, whatever the type calls them."""
        if any(role.name == "master" for role in work.roles):
            return work.roles
        (every,) = work.roles
        counts = {"master": 1, "worker": every.count - 1}
        return [replace(every, name=name, count=count) for name, count in counts.items() if count]

    def own(self, work: Work) -> Manifest:
        """How many processes torchrun starts; the operator writes `auto` over the variable where this is not set."""
        job = work.job
        ours = is_python_file(job.command) or (work.upstream and job.nproc_per_node == 1)
        return {} if ours or not self.knows(work, "nprocPerNode") else {"nprocPerNode": str(job.nproc_per_node)}

    def env(self, work: Work, role: Role) -> list[Manifest]:
        """The operator tells a node its rank; what it starts there is told here."""
        if not is_python_file(work.job.command):
            return [{"name": "PET_NPROC_PER_NODE", "value": str(work.job.nproc_per_node)}]
        return [{"name": "LOCAL_RANK", "value": "0"}, {"name": "LOCAL_WORLD_SIZE", "value": str(role.nproc)}]

    def restarts(self, work: Work, role: Role) -> str:
        """As Arena (Go) has it for its own commands: the Master never, Workers on failure."""
        if work.upstream and work.job.restart_policy == "Never":
            return "Never" if role.name == "master" else "OnFailure"
        return super().restarts(work, role)

    def is_limited(self, work: Work) -> bool:
        """As Arena (Go) has it: a Worker's OnFailure alone would start it again for ever."""
        return work.upstream

    def specs_of(self, thing: ReplicaJob) -> dict[str, ReplicaSpec]:
        return thing.spec.pytorch_replica_specs
