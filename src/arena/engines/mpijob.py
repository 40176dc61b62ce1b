"""MPIJob v2beta1 of the mpi-operator: a Launcher whose mpirun reaches the Workers by ssh.

Objects of the older versions are read, not made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec.structs import replace

from arena.engines.base import Manifest, Work
from arena.engines.gang import Asked
from arena.engines.kubeflow import ReplicaEngine, ReplicaJob, ReplicaSpec
from arena.job import Role
from arena.jobs.mpi import MPIJob

SSH = "/root/.ssh"
SSHD = ("/usr/sbin/sshd", "-De")
# Until sshd answers, and no longer: each look is two lines in its log.
ANSWERS = {"tcpSocket": {"port": 22}, "periodSeconds": 1, "failureThreshold": 3600}


class MPIJobEngine(ReplicaEngine):
    """The engine `mpijob`."""

    name: ClassVar[str] = "mpijob"
    kind: ClassVar[str] = "MPIJob"
    version: ClassVar[str] = "v2beta1"
    operator: ClassVar[str] = "the mpi-operator"
    types: ClassVar[tuple[str, ...]] = ("mpi",)
    container: ClassVar[str] = "mpi"
    controllers: ClassVar[tuple[str, ...]] = ("mpi-operator", "mpijob-controller")
    specs: ClassVar[str] = "mpiReplicaSpecs"
    order: ClassVar[tuple[str, ...]] = ("launcher", "worker")
    unranked: ClassVar[tuple[str, ...]] = ("launcher", "worker")
    forgets: ClassVar[bool] = False  # the launcher's Job looks
    limited: ClassVar[bool] = True

    def child(self, work: Work, role: Role) -> str:
        """Workers' host names, and a launcher's pod, which a Job makes: its name is a label's value."""
        return f"{work.name}-{role.name}" + (f"-{role.count - 1}" if role.name == "worker" else "")

    def carried(self, work: Work) -> Sequence[Role]:
        """The Launcher, and the hosts its ranks run on; GPUs are the hosts'."""
        (launcher,) = work.roles
        hosts = work.job.hosts() or replace(launcher, count=work.job.workers)
        return (replace(launcher, gpus=0), replace(hosts, name="worker", argv=SSHD))

    def names(self, work: Work) -> Sequence[Role]:
        return self.carried(work)

    def own(self, work: Work) -> Manifest:
        slots = work.job.slots_per_worker if isinstance(work.job, MPIJob) else 1
        return {
            "slotsPerWorker": slots * work.job.nproc_per_node,
            "sshAuthMountPath": SSH,
            "launcherCreationPolicy": "WaitForWorkersReady",
        }

    def clean(self, work: Work) -> str:
        """Workers wait for ever, so they go at the end; Arena (Go) has all pods removed."""
        return "All" if work.upstream else "Running"

    def replica_spec(self, work: Work, role: Role) -> Manifest:
        found = super().replica_spec(work, role)
        main = found["template"]["spec"]["containers"][0]
        if role.name == "worker":
            main["startupProbe"] = ANSWERS
        return found

    def restarts(self, work: Work, role: Role) -> str:
        return "OnFailure" if super().restarts(work, role) in ("OnFailure", "Always") else "Never"

    def counted(self, work: Work) -> int:
        return 1  # the limit is that of the launcher's Job

    def specs_of(self, thing: ReplicaJob) -> dict[str, ReplicaSpec]:
        return thing.spec.mpi_replica_specs

    def asked(self, thing: ReplicaJob) -> list[Asked]:
        """The roles; the first version has its workers in the spec itself."""
        spec = thing.spec
        if spec.mpi_replica_specs or spec.replicas is None:
            return super().asked(thing)
        return [Asked("launcher", 1, ranked=False), Asked("worker", max(0, spec.replicas), spec.template, ranked=False)]
