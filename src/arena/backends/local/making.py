"""From a job to a plan for this machine, and to what a run is made of."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from arena import declared, files, jobs, secrets
from arena.backends.base import Context, Plan
from arena.backends.local import devices, layout, recorded, state
from arena.errors import (
    ForbiddenError,
    SpecError,
    UnsupportedError,
)
from arena.job import Job, check, made_up_name, raise_all, run_letters, shorten, word_problems
from arena.settings import Settings


class Maker:
    """Plans runs for one user of this machine, and fills their folders."""

    def __init__(self, settings: Settings, env: Mapping[str, str], folder: state.StateDir, user: str) -> None:
        self.settings = settings
        self.env = env
        self.state = folder
        self.user = user

    def plan(self, job: Job, context: Context) -> Plan:
        """What `submit` would do here; refuses what this machine cannot."""
        check(job)
        if not self.settings.enabled("local.enabled"):
            raise ForbiddenError(
                "jobs may not run on this machine",
                why=f"local.enabled is false: {self.settings.source('local.enabled')}",
                hint="-b kubernetes",
            )
        job = job if job.name else replace(job, name=made_up_name(job.command, os.urandom(4)))
        run_id = f"{shorten(job.name, 58)}-{run_letters(os.urandom(4))}"
        cwd, base = self._cwd(job, context, self.state.run(run_id))
        notes = (*_place_notes(self.settings), *_field_notes(job), *_fetch_notes(context))
        roles = job.roles(context.python or "python")
        gpus = sum(role.count * role.gpus for role in roles)
        if gpus:
            self._check_gpus(gpus)
        elif devices.likely(self.settings.number("local.gpus")):
            notes = (*notes, "no GPU asked for: CUDA_VISIBLE_DEVICES is empty; -g 1 gives each worker one")
        context = replace(context, cwd=cwd)
        folder = self.state.run(run_id).attempt(1)
        step = {"kind": type(job).__name__, "backend": "local", "name": job.name, "workingDir": cwd}
        steps = ({**step, "replicas": list(_shown(job, run_id, roles, gpus, folder))},)
        return Plan(
            backend="local", job=job, name=job.name, run_id=run_id, context=context, notes=notes, steps=steps, data=base
        )

    def _cwd(self, job: Job, context: Context, run: state.Run) -> tuple[str, str]:
        """The folder the replicas start in, and the one that `working_dir` is relative to.

        It is where the user stands, or that in the copy of the code that the run gets.
        """
        if context.again:
            return recorded.folders_again(self.state.run(context.again), run, job.working_dir)
        base, folder = context.cwd or os.getcwd(), _folder(job, context)
        if not job.snapshot:
            return folder, base
        if not context.code:
            raise UnsupportedError("--snapshot needs a project folder", why="a home folder or / is never copied")
        return recorded.in_copy(run, context.code, folder), recorded.in_copy(run, context.code, base)

    def _check_gpus(self, wanted: int) -> None:
        there = devices.gpus(self.settings.number("local.gpus"))
        if not there:
            raise UnsupportedError(
                "this machine has no GPU", why=f"{wanted} wanted", hint="run it without --gpus, or with -b kubernetes"
            )
        if wanted > len(there):
            raise UnsupportedError(
                f"{wanted} GPUs are wanted, this machine has {len(there)}", hint="ask for fewer, or -b kubernetes"
            )

    def fill(self, run: state.Run, plan: Plan) -> None:
        reserve = run.path / "reserve"
        reserve.write_bytes(b"\0" * state.RESERVE)
        store = self.state.path / "blobs"
        if plan.context.again:
            recorded.lay_again(self.state.run(plan.context.again), run, store)
        elif plan.made_of.snapshot:
            recorded.freeze(Path(plan.context.code), run, store, self.settings.size("record.code_max"))
        if plan.made_of.working_dir:
            recorded.keep_base(run, plan.data)
        run.write("job.json", self._made(plan))

    def _made(self, plan: Plan) -> state.Made:
        plain, secret = secrets.split(plan.made_of.env)
        kind = type(plan.made_of)
        values = msgspec.to_builtins(replace(plan.made_of, env=plain))
        environ = state.storable(plan.context.environ or self.env)
        return state.Made(
            run_id=plan.run_id,
            name=plan.name,
            type=jobs.place(kind),
            trainer=kind.trainer,
            search=() if kind.__module__.startswith("arena.") else tuple(filter(None, sys.path)),
            job=values,
            secrets=tuple(secret),
            typed=tuple(secrets.mask_words(plan.context.typed)),
            cwd=plan.context.cwd,
            code=self._code_folder(plan),
            python=plan.context.python,
            user=self.user,
            host=state.hostname(),
            boot_id=state.boot_id(),
            created=files.now(),
            parent=plan.context.parent,
            environ={key: value for key, value in environ.items() if not key.startswith("ARENA_")},
            max_replicas=self.settings.number("local.max_replicas") or 8 * usable_cores(),
            grace=self.settings.seconds("local.grace"),
            log_limit=self.settings.size("log.max"),
            code_limit=self.settings.size("record.code_max"),
            gpus=self.settings.number("local.gpus"),
            lease_dir=self._lease_dir(),
        )

    def _code_folder(self, plan: Plan) -> str:
        copied = plan.context.again or plan.made_of.snapshot
        return str(self.state.run(plan.run_id).path / recorded.FOLDER) if copied else plan.context.code

    def _lease_dir(self) -> str:
        return self.settings.text("lease_dir") or str(Path(self.env.get("TMPDIR") or "/tmp") / "arena-leases")


def usable_cores() -> int:
    """How many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _folder(job: Job, context: Context) -> str:
    folder = Path(context.cwd or os.getcwd()) / job.working_dir
    if not folder.is_dir():
        raise SpecError(f"--working-dir: {folder} is no folder")
    raise_all(list(word_problems("--working-dir", str(folder))))
    return str(folder)


def _place_notes(settings: Settings) -> Iterator[str]:
    """A line for each flag that says where on a cluster, or as whom."""
    for key in ("namespace", "context", "as", "as_group"):
        if settings.layer(key) == "flag":
            yield f"{settings.source(key).removeprefix('flag ')} has no effect on this machine"


def _fetch_notes(context: Context) -> Iterator[str]:
    if context.fetch:
        yield "--fetch has no effect on this machine: files lie where the program writes them"


def _field_notes(job: Job) -> Iterator[str]:
    """A line for each setting that means nothing here; UnsupportedError for one that cannot be left out."""
    for field in declared.leaves(type(job)):
        if field.local == "used" or _value(job, field.name) == field.default:
            continue
        if field.local == "refused":
            raise UnsupportedError(
                f"{field.flag} cannot be honoured on this machine", hint="leave it out, or -b kubernetes"
            )
        yield f"{field.flag} has no effect on this machine"


def _value(job: Job, name: str) -> object:
    """The value of a field, or of a role's part: `ps.cpu`."""
    return functools.reduce(getattr, name.split("."), cast("object", job))


def _shown(job: Job, run_id: str, roles: list[Any], gpus: int, folder: Path) -> Iterator[dict[str, Any]]:
    """The replicas of a dry run: names and words, and the environment they find their peers by."""
    ports = range(40_000, 40_000 + layout.port_count(job, roles))
    devices_ = [str(number) for number in range(gpus)]
    for placed in layout.place(job, run_id, roles, ports, devices_, folder, 1):
        argv, env = placed.programs[0]
        yield {
            "name": placed.replica.name,
            "rank": placed.replica.rank,
            "processes": placed.replica.nproc,
            "command": list(argv),
            "env": {k: v for k, v in secrets.split(env)[0].items() if not k.startswith("ARENA_R")},
            "secrets": sorted(secrets.split(env)[1]),
        }
