"""How the code of a job gets to a cluster: packed here, carried by a ConfigMap, laid out in each pod before it starts.

The ConfigMap is named by what it holds, so that an unchanged folder is stored once, whoever runs it how often.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, structs

from arena import code, images
from arena.backends.base import Context
from arena.engines.base import Code, Manifest
from arena.job import Job
from arena.settings import Settings

PART = "code"
SIZE_ANNOTATION = "arena.kubeflow.org/size"


class Parcel(Struct, frozen=True, kw_only=True):
    """What travels with a job, and what is to be said about it; without `code` the program is in the image.

    `renamed` are words that are paths of this machine, as the pods have them; `script` is the text of what is started.
    """

    code: Code | None = None
    working_dir: str = ""
    manifests: tuple[Manifest, ...] = ()
    notes: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    renamed: Mapping[str, str] = {}
    script: str | None = None


class Recorded(Struct, frozen=True):
    """The code of an earlier run: what it was, where its contents are, and the folder in it that the run began in."""

    captured: code.Capture
    store: Path
    base: str = ""


def pack(
    job: Job, context: Context, settings: Settings, *, namespace: str = "", recorded: Recorded | None = None
) -> Parcel | None:
    """What a job brings along, its own folder or recorded code; None where its type never brings any."""
    if recorded:
        from arena.backends.kubernetes.packing import recorded_parcel

        return recorded_parcel(job, recorded, settings, namespace)
    if not brings_code(job, context):
        return None
    if job.sync_mode:  # the code comes from elsewhere
        return Parcel(working_dir=job.working_dir, notes=tuple(lost(job, context.fetch)), script="")
    script = images.read_script(job.command, Path(context.cwd, job.working_dir))
    if not settings.size("upload.max"):
        return Parcel(working_dir=job.working_dir, facts=("no code travels (upload.max is 0)",), script=script)
    from arena.backends.kubernetes.packing import parcel_here

    return structs.replace(parcel_here(job, context, settings, namespace), script=script)


def brings_code(job: Job, context: Context) -> bool:
    """Whether a job made this way brings its folder: what `run` makes does, Arena (Go)'s `submit TYPE` never did."""
    return context.creates == "run" or job.type_name == "job"


def standing(context: Context, recorded: Recorded) -> Context:
    """The context that is remembered of a rerun: it stands in the code where the earlier run began."""
    project = context.code or context.cwd
    return structs.replace(context, code=project, cwd=os.path.normpath(os.path.join(project, recorded.base)))


def lost(job: Job, fetch: Sequence[str] = ()) -> Iterator[str]:
    """The warning of who keeps no results."""
    if not (job.data or job.output or fetch):
        yield "files written in the pods are lost when they go: --output CLAIM:/path, --fetch PATH, arena cp"
