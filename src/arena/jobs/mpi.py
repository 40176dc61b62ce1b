"""MPI: a Launcher whose mpiexec starts the ranks on the hosts of a hostfile."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec.structs import replace

from arena.job import Job, Joined, Role, Seat, flag, is_python_file


class MPIJob(Job, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A Launcher and `workers` hosts with `slots_per_worker` ranks each.

    A `.py` file is started by mpiexec on every rank; any other command is the launcher's own, and its mpirun or
    mpiexec finds the hosts by HYDRA_HOST_FILE (MPICH, Intel MPI) or OMPI_MCA_orte_default_hostfile (Open MPI). On
    one machine all hosts are this machine, so that only the Launcher is a process of its own.

    >>> MPIJob(command=("train.py",), workers=2).roles()[0].argv
    ('mpiexec', '-n', '2', 'python', 'train.py')
    """

    type_name: ClassVar[str] = "mpi"
    trainer: ClassVar[str] = "mpijob"
    ports: ClassVar = "none"
    one_line: ClassVar = True

    slots_per_worker: Annotated[int, flag("ranks per worker", group="MPI", ge=1, le=1024)] = 1
    gputopology: Annotated[bool, flag("GPUs that are near each other", group="MPI", local="noted")] = False
    mounts_on_launcher: Annotated[bool, flag("the launcher has the data too", group="MPI")] = False

    @property
    def ranks(self) -> int:
        """How many ranks MPI starts."""
        return self.workers * self.slots_per_worker * self.nproc_per_node

    @property
    def processes(self) -> int:
        return 1

    def argv(self, python: str = "python") -> tuple[str, ...]:
        words = Job.argv(self, python)
        return ("mpiexec", "-n", str(self.ranks), *words) if is_python_file(self.command) else words

    def roles(self, python: str = "python") -> list[Role]:
        (launcher,) = Job.roles(self, python)
        gpus = self.gpus * self.workers
        own = {"device": (), "rdma": False, "data": self.mounts_on_launcher}
        return [replace(launcher, name="launcher", count=1, gpus=gpus, ranked=False, **own)]

    def hosts(self) -> Role:
        """What a cluster adds: the hosts of the ranks, which have the devices and the data."""
        (every,) = Job.roles(self)
        return replace(every, argv=(), ranked=False, nproc=1)

    def join(self, seat: Seat) -> Joined:
        hostfile = f"{seat.folder}/hostfile"
        host = seat.master_host
        slots = self.slots_per_worker * self.nproc_per_node
        lines = [f"{host}:{slots}"] * self.workers
        return Joined(
            {
                "HYDRA_HOST_FILE": hostfile,
                "HYDRA_LAUNCHER": "fork",
                "I_MPI_HYDRA_HOST_FILE": hostfile,
                "OMPI_MCA_orte_default_hostfile": hostfile,
            },
            {"hostfile": "".join(f"{line}\n" for line in lines)},
        )
