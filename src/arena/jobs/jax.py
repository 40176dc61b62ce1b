"""JAX: workers that meet at a coordinator."""

from __future__ import annotations

from typing import ClassVar

from arena.job import Job, Joined, Seat
from arena.jobs.peers import jax_env


class JAXJob(Job, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`workers` processes for jax.distributed; worker 0 is the coordinator.

    >>> JAXJob(command=("train.py",), workers=4).roles()[0].count
    4
    """

    type_name: ClassVar[str] = "jax"
    trainer: ClassVar[str] = "jaxjob"

    def join(self, seat: Seat) -> Joined:
        return Joined(jax_env(seat))
