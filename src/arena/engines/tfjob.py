"""TFJob of the training operator, which tells each replica its peers in TF_CONFIG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from arena.engines.base import Manifest, Work
from arena.engines.kubeflow import ReplicaEngine, ReplicaJob, ReplicaSpec
from arena.errors import UnsupportedError
from arena.job import Role
from arena.quantity import whole_seconds

PORT = "tfjob-port"  # the name by which the operator finds a role's port


class TFJobEngine(ReplicaEngine):
    """The engine `tfjob`."""

    name: ClassVar[str] = "tfjob"
    kind: ClassVar[str] = "TFJob"
    types: ClassVar[tuple[str, ...]] = ("tensorflow",)
    container: ClassVar[str] = "tensorflow"
    controllers: ClassVar[tuple[str, ...]] = ("tfjob-controller",)
    specs: ClassVar[str] = "tfReplicaSpecs"
    order: ClassVar[tuple[str, ...]] = ("ps", "chief", "master", "worker", "evaluator")

    def problems(self, work: Work) -> Sequence[str]:
        if getattr(work.job, "starting_timeout", "") and self.knows(work, "runPolicy"):
            raise UnsupportedError(
                "--starting-timeout: a TFJob of today has no such limit",
                why="only the first generation of TFJob ends a job that does not start",
                hint="--start-timeout with run or submit --wait: this command fails when it does not start in time",
            )
        return super().problems(work)

    def spelled(self, role: Role) -> str:
        return "PS" if role.name == "ps" else role.name.capitalize()

    def own(self, work: Work) -> Manifest:
        success = getattr(work.job, "success_policy", "")
        return {"successPolicy": "AllWorkers"} if success == "AllWorkers" else {}

    def policy(self, work: Work) -> Manifest:
        """With the limit for starting, which only the first generation has."""
        found = super().policy(work)
        limit = getattr(work.job, "starting_timeout", "")
        if limit and "runPolicy" not in found:
            found["startingDeadlineSeconds"] = whole_seconds(limit)
        return found

    def replica_spec(self, work: Work, role: Role) -> Manifest:
        found = super().replica_spec(work, role)
        if role.port:
            main = found["template"]["spec"]["containers"][0]
            main["ports"] = [{"name": PORT, "containerPort": role.port}]
        return found

    def restarts(self, work: Work, role: Role) -> str:
        """As Arena (Go) has it for its own commands: Workers beside a Chief on failure, all others never."""
        if work.upstream and work.job.restart_policy == "Never":
            chief = any(other.name == "chief" for other in work.roles)
            return "OnFailure" if chief and role.name == "worker" else "Never"
        return super().restarts(work, role)

    def specs_of(self, thing: ReplicaJob) -> dict[str, ReplicaSpec]:
        return thing.spec.tf_replica_specs
