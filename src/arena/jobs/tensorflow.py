"""TensorFlow: workers and the roles beside them, joined by TF_CONFIG."""

from __future__ import annotations

import json
from typing import Annotated, ClassVar

from msgspec import field
from msgspec.structs import replace

from arena.job import Job, Joined, Role, Seat, flag


class TensorFlowJob(Job, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`workers` Workers and, where their count is set, PS, Chief and Evaluator.

    The Chief decides the end (worker 0 where there is none); PS and Evaluator are ended with it.

    >>> [(r.name, r.count) for r in TensorFlowJob(command=("t.py",), workers=2, ps=Role(count=1)).roles()]
    [('ps', 1), ('worker', 2)]
    """

    type_name: ClassVar[str] = "tensorflow"
    trainer: ClassVar[str] = "tfjob"
    ports: ClassVar = "each"

    ps: Annotated[Role, flag("parameter servers", group="Roles")] = field(default_factory=Role)
    chief: Annotated[Role, flag("the chief", group="Roles")] = field(default_factory=Role)
    evaluator: Annotated[Role, flag("the evaluator", group="Roles")] = field(default_factory=Role)

    def roles(self, python: str = "python") -> list[Role]:
        (worker,) = Job.roles(self, python)
        own = {"ps": self.ps, "chief": self.chief, "worker": worker, "evaluator": self.evaluator}
        return [self._complete(name, role, worker) for name, role in own.items() if role.count]

    def _complete(self, name: str, role: Role, worker: Role) -> Role:
        ends = "all" if name in ("chief", "worker") else "never"
        if name == "worker":
            ends = "never" if self.chief.count else "first"
        return replace(role, name=name, argv=worker.argv, env=worker.env, ends=ends)

    def join(self, seat: Seat) -> Joined:
        cluster = {role: list(addresses) for role, addresses in seat.peers.items() if role != "evaluator"}
        config = {"cluster": cluster, "task": {"type": seat.role, "index": seat.index}, "environment": "cloud"}
        return Joined({"TF_CONFIG": json.dumps(config)})
