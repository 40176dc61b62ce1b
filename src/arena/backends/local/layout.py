"""Who sits where: from a job to the processes of one attempt, with their words and environment. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from arena import quantity
from arena.backends.local.process import MARK, REPLICA
from arena.job import Env, Job, Role, Seat
from arena.status import Replica

HOST = "127.0.0.1"


class Placed(Struct, frozen=True, kw_only=True):
    """One replica and the processes in it; `files` go into the attempt's folder."""

    replica: Replica
    programs: tuple[tuple[tuple[str, ...], Env], ...]
    files: Mapping[str, str]


def port_count(job: Job, roles: Sequence[Role]) -> int:
    """How many ports the gang needs."""
    return {"none": 0, "master": 1, "each": sum(role.count for role in roles)}[job.ports]


def replicas(roles: Sequence[Role], attempt: int = 1) -> list[Replica]:
    """All replicas of the gang in the order of their ranks, before they start."""
    found: list[Replica] = []
    rank = 0
    for role in roles:
        limit = quantity.parse_bytes(role.memory) if role.memory else None
        for index in range(role.count):
            found.append(
                Replica(
                    role=role.name,
                    index=index,
                    rank=rank if role.ranked else None,
                    attempt=attempt,
                    gpus=role.gpus,
                    nproc=role.nproc,
                    memory_limit=limit,
                )
            )
            rank += role.nproc
    return found


def place(
    job: Job, run_id: str, roles: Sequence[Role], ports: Sequence[int], gpus: Sequence[str], folder: Path, attempt: int
) -> Iterator[Placed]:
    """Every replica with its seat, its peers and its GPUs."""
    gang = replicas(roles, attempt)
    by_name = {role.name: role for role in roles}
    peers = _peers(job, gang, ports)
    world = sum(replica.nproc for replica in gang)
    devices = iter(gpus)
    for replica in gang:
        role = by_name[replica.role]
        own = [next(devices) for _ in range(role.gpus)]
        seats = [_seat(replica, local, world, peers, ports, folder) for local in range(role.nproc)]
        joined = [job.join(seat) for seat in seats]
        fixed = _fixed(job, replica, own)
        programs = tuple((role.argv, {**fixed, **join.env, **role.env, **_marks(run_id, replica)}) for join in joined)
        yield Placed(replica=replica, programs=programs, files=joined[0].files)


def _peers(job: Job, gang: Sequence[Replica], ports: Sequence[int]) -> dict[str, tuple[str, ...]]:
    if job.ports != "each":
        return {}
    found: dict[str, tuple[str, ...]] = {}
    for replica, port in zip(gang, ports, strict=True):
        found[replica.role] = (*found.get(replica.role, ()), f"{HOST}:{port}")
    return found


def _seat(
    replica: Replica,
    local: int,
    world: int,
    peers: Mapping[str, tuple[str, ...]],
    ports: Sequence[int],
    folder: Path,
) -> Seat:
    return Seat(
        role=replica.role,
        index=replica.index,
        rank=(replica.rank or 0) + local,
        world=world,
        local_rank=local,
        nproc=replica.nproc,
        master=f"{HOST}:{ports[0] if ports else 0}",
        peers=peers,
        folder=str(folder),
    )


def _fixed(job: Job, replica: Replica, gpus: Sequence[str]) -> Env:
    return {
        "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(gpus),
        "ARENA_JOB_NAME": job.name,
        "ARENA_ATTEMPT": str(replica.attempt),
        "ARENA_OUTPUT_DIR": ".",
    }


def _marks(run_id: str, replica: Replica) -> Env:
    return {MARK: run_id, REPLICA: replica.name}
