"""The names under which frameworks look for their peers, as the operators write them."""

from __future__ import annotations

from arena.job import Env, Job, Seat, is_python_file


def torch_env(job: Job, seat: Seat) -> Env:
    """What torch.distributed's `env://` reads; torchrun's names too where the program starts its own processes."""
    return _process_env(seat) if is_python_file(job.command) else {**_process_env(seat), **_torchrun_env(job, seat)}


def _process_env(seat: Seat) -> Env:
    return {
        "MASTER_ADDR": seat.master_host,
        "MASTER_PORT": seat.master_port,
        "WORLD_SIZE": str(seat.world),
        "RANK": str(seat.rank),
        "LOCAL_RANK": str(seat.local_rank),
        "LOCAL_WORLD_SIZE": str(seat.nproc),
    }


def _torchrun_env(job: Job, seat: Seat) -> Env:
    return {
        "PET_MASTER_ADDR": seat.master_host,
        "PET_MASTER_PORT": seat.master_port,
        "PET_NNODES": str(seat.world),
        "PET_NODE_RANK": str(seat.rank),
        "PET_NPROC_PER_NODE": str(job.nproc_per_node),
    }


def jax_env(seat: Seat) -> Env:
    """What the JAXJob operator writes, and the name that jax.distributed reads by itself."""
    return {
        "COORDINATOR_ADDRESS": seat.master_host,
        "COORDINATOR_PORT": seat.master_port,
        "NUM_PROCESSES": str(seat.world),
        "PROCESS_ID": str(seat.rank),
        "JAX_COORDINATOR_ADDRESS": seat.master,
        "JAX_NUM_PROCESSES": str(seat.world),
        "JAX_PROCESS_ID": str(seat.rank),
    }
