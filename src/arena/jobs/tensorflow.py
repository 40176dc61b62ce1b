"""TensorFlow: workers and the roles beside them, joined by TF_CONFIG."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal

from msgspec import field
from msgspec.structs import replace

from arena import quantity
from arena.job import Ends, Job, Joined, Logs, Role, Seat, flag, metas, option_name, quantity_problem

LIMITS = ("cpu", "cpu_limit", "memory", "memory_limit")
PLACE = ("image", "port", "selector", "affinity_policy", "affinity_constraint")
OLD = {
    "ps": {"cpu": ("psCpu",), "memory": ("psMemory",), "image": ("psImage",), "port": ("psPort",)},
    "worker": {
        "cpu": ("workerCpu",),
        "memory": ("workerMemory",),
        "image": ("workerImage", "work-image"),
        "port": ("workerPort",),
    },
    "chief": {"cpu": ("ChiefCpu",), "memory": ("ChiefMemory",), "port": ("chiefPort",)},
    "evaluator": {"cpu": ("evaluatorCpu",), "memory": ("evaluatorMemory",)},
}
FIRST_PORT = 20_000
ROLES = {"w": "Worker", "p": "PS", "c": "Chief", "e": "Evaluator"}


class TensorFlowJob(Job, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`workers` Workers and, where their count is set, PS, Chief and Evaluator.

    The Chief decides the end (worker 0 where there is none); PS and Evaluator are ended with it. One worker alone is
    the Chief.

    >>> [(r.name, r.count) for r in TensorFlowJob(command=("t.py",), workers=2, ps=Role(count=1)).roles()]
    [('ps', 1), ('worker', 2)]
    """

    type_name: ClassVar[str] = "tensorflow"
    trainer: ClassVar[str] = "tfjob"
    ports: ClassVar = "each"
    one_line: ClassVar = True

    ps: Annotated[Role, flag("parameter servers", group="PS", part_aliases=OLD["ps"])] = field(default_factory=Role)
    worker: Annotated[
        Role, flag("what only the workers have", group="Worker", parts=(*LIMITS, *PLACE), part_aliases=OLD["worker"])
    ] = field(default_factory=Role)
    chief: Annotated[
        Role, flag("the chief", group="Chief", parts=("count", *LIMITS, "port", "selector"), part_aliases=OLD["chief"])
    ] = field(default_factory=Role)
    evaluator: Annotated[
        Role,
        flag("the evaluator", group="Evaluator", parts=("count", *LIMITS, "selector"), part_aliases=OLD["evaluator"]),
    ] = field(default_factory=Role)
    success_policy: Annotated[
        Literal["", "ChiefWorker", "AllWorkers"],
        flag("when the job has succeeded: with its chief (or worker 0), or with all workers", group="Life"),
    ] = ""
    starting_timeout: Annotated[
        str,
        flag("end the job when it has not started after so long", group="Life", metavar="DURATION", local="refused"),
    ] = ""
    role_sequence: Annotated[
        str, flag("order in which roles start, as Worker,PS", group="Life", metavar="ROLES", local="noted")
    ] = ""

    @property
    def standalone(self) -> bool:
        """Whether one process is all there is: it is the Chief then, and finds nobody in TF_CONFIG."""
        return self.workers == 1 and not (self.ps.count or self.chief.count or self.evaluator.count)

    def roles(self, python: str = "python") -> list[Role]:
        (every,) = Job.roles(self, python)
        worker = self._complete("worker", replace(self.worker, count=self.workers, gpus=self.gpus), every)
        if self.standalone:
            return _with_ports([replace(worker, name="chief", ends="all", logs="mount")])
        own = {"ps": self.ps, "chief": self.chief, "worker": worker, "evaluator": self.evaluator}
        return _with_ports([self._complete(name, role, every) for name, role in own.items() if role.count])

    def named_image(self) -> tuple[str, str] | None:
        """`--worker-image` does for all where there is no `--image`."""
        own = (self.worker.image, "--worker-image") if self.worker.image else None
        return Job.named_image(self) or own

    def _complete(self, name: str, role: Role, every: Role) -> Role:
        """The role with what all have; a PS has GPUs, CPUs and memory of its own only."""
        if name != "ps":
            shared = {"gpus": every.gpus, "cpu": role.cpu or every.cpu, "memory": role.memory or every.memory}
            role = replace(role, **shared, image=role.image or self.worker.image)
        return replace(
            role,
            name=name,
            argv=every.argv,
            env=every.env,
            ends=self._ends(name),
            device=every.device,
            rdma=every.rdma and name != "evaluator",
            logs=self._logs(name),
        )

    def _ends(self, name: str) -> Ends:
        if name == "chief":
            return "all"
        if name != "worker" or self.chief.count:
            return "never"
        return "all" if self.success_policy == "AllWorkers" else "first"

    def _logs(self, name: str) -> Logs:
        if name == "ps":
            return "none"
        return "mount" if name == ("chief" if self.chief.count else "worker") else "volume"

    def join(self, seat: Seat) -> Joined:
        cluster = {role: list(addresses) for role, addresses in seat.peers.items() if role != "evaluator"}
        config = {"cluster": cluster, "task": {"type": seat.role, "index": seat.index}, "environment": "cloud"}
        return Joined({"TF_CONFIG": json.dumps(config)})

    def sequence(self) -> str:
        """The order in which roles start, in full: `w,p` is `Worker,PS`."""
        return ",".join(_role_named(word) or word for word in self.role_sequence.split(",") if self.role_sequence)

    def problems(self) -> Iterable[str]:
        yield from Job.problems(self)
        if self.starting_timeout:
            yield from quantity_problem("--starting-timeout", self.starting_timeout, quantity.parse_duration)
        for word in self.role_sequence.split(",") if self.role_sequence else ():
            if not _role_named(word):
                yield f"--role-sequence: {word!r} is no role: {', '.join(ROLES.values())}, or their first letters"
        for name in ("chief", "evaluator"):
            yield from _single_problems(name, getattr(self, name))
        for name in ("ps", "worker", "chief", "evaluator"):
            yield from _part_problems(type(self), name, getattr(self, name))


def _with_ports(roles: list[Role]) -> list[Role]:
    """The roles, each with a port of its own, so that two may share the network of a node."""
    free = itertools.count(FIRST_PORT)
    names = [name for name in ("worker", "chief", "ps") for role in roles if role.name == name and not role.port]
    ports: dict[str, int] = {name: next(free) for name in names}
    return [replace(role, port=role.port or ports.get(role.name, 0)) for role in roles]


def _role_named(word: str) -> str:
    return next((name for letter, name in ROLES.items() if word.strip().lower() in (letter, name.lower())), "")


def _single_problems(name: str, role: Role) -> Iterable[str]:
    if role.count > 1:
        yield f"--{name}: there is one or none, not {role.count}"


def _part_problems(kind: type[Job], name: str, role: Role) -> Iterable[str]:
    """Settings that this role has no place for (from Python all of `Role` can be given), and one that needs another."""
    if role.affinity_constraint != "preferred" and role.affinity_policy == "none":
        yield f"--{name}-affinity-constraint: needs --{name}-affinity-policy"
    parts = (metas(kind)[name].extra or {})["parts"]
    for part in metas(Role):
        if parts and part not in parts and getattr(role, part) != getattr(Role(), part):
            yield f"{option_name(name)}: {part} cannot be set for it; known: {', '.join(parts)}"
