"""Any program, any number of times: `arena run`, `arena submit job`.

A plain script with two workers finds its peers by the names torch and JAX use.
"""

from __future__ import annotations

from typing import ClassVar

from arena.job import Job, Joined, Seat
from arena.jobs.peers import jax_env, torch_env


class PlainJob(Job, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A program in `workers` replicas, each with the peers' names of torch.distributed and jax.distributed.

    >>> [role.count for role in PlainJob(command=("train.py",), workers=2).roles()]
    [2]
    """

    type_name: ClassVar[str] = "job"
    trainer: ClassVar[str] = "job"

    def join(self, seat: Seat) -> Joined:
        return Joined({**torch_env(self, seat), **jax_env(seat)})
