"""The names under which frameworks look for their peers, as the operators write them."""

from __future__ import annotations

from arena.job import Env, Seat


def torch_env(seat: Seat) -> Env:
    """What torch.distributed's `env://` and torchrun read: one process of the gang, and its elastic launcher."""
    nodes = seat.world // seat.nproc
    return {
        "MASTER_ADDR": seat.master_host,
        "MASTER_PORT": seat.master_port,
        "WORLD_SIZE": str(seat.world),
        "RANK": str(seat.rank),
        "LOCAL_RANK": str(seat.local_rank),
        "LOCAL_WORLD_SIZE": str(seat.nproc),
        "PET_MASTER_ADDR": seat.master_host,
        "PET_MASTER_PORT": seat.master_port,
        "PET_NNODES": str(nodes),
        "PET_NODE_RANK": str(seat.rank // seat.nproc),
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
