"""PyTorch: one Master and its Workers, joined by torch.distributed."""

from __future__ import annotations

from typing import ClassVar

from msgspec.structs import replace

from arena.job import Job, Joined, Role, Seat
from arena.jobs.peers import torch_env


class PyTorchJob(Job, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Distributed PyTorch: one Master and `workers - 1` Workers.

    A `.py` file is started `nproc_per_node` times per replica with RANK and LOCAL_RANK; torchrun reads PET_*.

    >>> [(role.name, role.count) for role in PyTorchJob(command=("train.py",), workers=3).roles()]
    [('master', 1), ('worker', 2)]
    """

    type_name: ClassVar[str] = "pytorch"
    trainer: ClassVar[str] = "pytorchjob"
    one_line: ClassVar[bool] = True

    def roles(self, python: str = "python") -> list[Role]:
        (every,) = Job.roles(self, python)
        counts = {"master": 1, "worker": self.workers - 1}
        return [replace(every, name=name, count=count) for name, count in counts.items() if count]

    def join(self, seat: Seat) -> Joined:
        return Joined(torch_env(self, seat))
