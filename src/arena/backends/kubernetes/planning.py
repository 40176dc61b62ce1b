"""From a job to the objects that make it run on a cluster: pure once the cluster's words are at hand."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct, structs

from arena import engines, images, secrets
from arena.backends.base import Context, Plan
from arena.backends.kubernetes.templates import templated
from arena.backends.kubernetes.travel import Parcel
from arena.engines import companions, patching, pods, shapes, upstream
from arena.engines.base import PART_LABEL, RUN_ANNOTATION, Engine, Manifest, Served, Work
from arena.engines.served import TODAY
from arena.errors import SpecError, UnsupportedError
from arena.job import Job, Role, check, made_up_name, raise_all, run_letters, shorten
from arena.settings import Settings

LARGEST_ANNOTATION = 100_000
SECRET_KEY = re.compile(r"[-._a-zA-Z0-9]+")
NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

# The kinds that carry a type when nobody set `engines`: the first one that is served.
USUAL = {
    "job": ("job",),
    "pytorch": ("pytorchjob", "trainjob"),
    "tensorflow": ("tfjob",),
    "mpi": ("mpijob",),
    "jax": ("job",),
}


class Made(Struct, frozen=True, kw_only=True):
    """What a plan became: the engine and its objects, helpers first.

    `defaults` are those of the namespace that it was made with, None where it was made with none; `hidden` are the
    variables that a Secret carries; `flags` tells that flags of arena made it, `queued` that a queue lets it begin.
    """

    engine: Engine
    namespace: str
    helpers: tuple[Manifest, ...]
    thing: Manifest
    defaults: Mapping[str, str] | None = None
    hidden: tuple[str, ...] = ()
    flags: bool = True
    queued: bool = False

    @property
    def templated(self) -> list[Manifest]:
        """The objects whose templates the pods are made of, the job's first."""
        return templated(self.thing, self.helpers)


def make_plan(
    job: Job,
    context: Context,
    settings: Settings,
    served: Served,
    namespace: str,
    user: str,
    parcel: Parcel | None = None,
) -> Plan:
    """What a submit would send, all of it; raises for what cannot be."""
    job = upstream.configured(check(job), settings.upstream)
    job = job if job.name else structs.replace(job, name=made_up_name(job.command, os.urandom(4)))
    parcel = parcel or Parcel(working_dir=job.working_dir)
    engine = choose(job, settings, served)
    image, from_ = images.choose(job, settings, parcel.script)
    work = _work(job, context, settings, engine, parcel, user)
    work = structs.replace(work, namespace=namespace, image=image, served=served)
    unfetchable = _unfetchable(work)
    raise_all(
        list(dict.fromkeys([*_misplaced(work), *companions.problems(work), *engine.problems(work), *unfetchable]))
    )
    made = Made(
        engine=engine,
        namespace=namespace,
        helpers=_helpers(work, engine, parcel, context),
        thing=changed(usual(engine.render(work), settings), context),
        hidden=work.secret_env,
        queued=bool(job.queue_name or job.queue),
    )
    return Plan(
        backend="kubernetes",
        job=job,
        name=job.name,
        run_id=work.run_id,
        context=context,
        facts=(f"namespace {namespace}", f"engine {engine.name}", f"image {image} ({from_})", *parcel.facts),
        notes=(*parcel.notes, *companions.notes(work)),
        steps=(*made.helpers, made.thing),
        data=made,
    )


def _work(job: Job, context: Context, settings: Settings, engine: Engine, parcel: Parcel, user: str) -> Work:
    """What is decided of a job before it can be rendered, but for where it goes."""
    run_id = f"{shorten(job.name, 58)}-{_letters(job, context)}"
    return Work(
        job=job,
        name=job.name,
        namespace="",
        run_id=run_id,
        roles=tuple(_in_pods(role, parcel.renamed, settings) for role in job.roles("python3")),
        image="",
        labels=dict(job.label),
        annotations={**job.annotation, RUN_ANNOTATION: remembered(job, context, user, engine.name)},
        secret=f"{run_id}-env",
        secret_env=tuple(name for name in secrets.split(job.env)[1] if name not in job.plain_env),
        code=parcel.code,
        working_dir=parcel.working_dir,
        keep_failed=job.keep_failed,
        fetch=bool(context.fetch),
        upstream=context.creates == "type" and job.type_name != "job",
    )


def _helpers(work: Work, engine: Engine, parcel: Parcel, context: Context) -> tuple[Manifest, ...]:
    files = companions.read_files(work.job.config_file, context.cwd, context.environ.get("HOME", ""))
    return (
        *_secret(work),
        *parcel.manifests,
        *engine.helpers(work),
        *companions.companions(work, engine.name, files),
    )


def _misplaced(work: Work) -> Iterator[str]:
    """What a container cannot have: variables of some names, and a folder relative to code that does not travel."""
    if work.working_dir and not work.code and not work.working_dir.startswith("/"):
        yield (
            f"--working-dir: {work.working_dir!r} is a folder of the project, and no code travels:"
            " give a path of the image, as /work"
        )
    for name in work.job.env:
        if not (name.isascii() and name.isprintable()):
            yield f"--env: {name!r}: in a container only printable ASCII characters can name a variable"
        elif name in work.secret_env and not SECRET_KEY.fullmatch(name):
            yield f"--env: {name!r} looks secret, and the key of a Secret has only letters, digits, '-', '_' and '.'"


def usual(thing: Manifest, settings: Settings) -> Manifest:
    """The job object after the patch that the site or the namespace makes to every job."""
    text = settings.text("patch")
    if not text:
        return thing
    return patching.apply_patch(thing, patching.read_patch(text, f"patch ({settings.source('patch')})"))


def changed(thing: Manifest, context: Context) -> Manifest:
    """The job object after `--patch`, then each `--set`."""
    found = patched(thing, context)
    for key in ("name", "namespace"):
        if found["metadata"].get(key) != thing["metadata"][key]:
            raise SpecError(f"metadata.{key} cannot be patched", hint=f"--{key}")
    pods.alike(found)
    return found


def patched(thing: Manifest, context: Context) -> Manifest:
    """An object, a rendered or somebody's own, after `--patch`, then each `--set`: of the same kind, and readable."""
    found = patching.apply_patch(thing, context.patch)
    for path, value in context.sets:
        found = patching.set_path(found, path, value)
    shapes.check_shape(found)
    for key in ("apiVersion", "kind"):
        if found.get(key) != thing[key]:
            raise SpecError(f"{key} cannot be patched", hint="arena submit -f FILE sends an object as it stands")
    return found


def assumed() -> Served:
    """What a dry run that asks nobody takes for served: the kinds of today's operators."""
    return TODAY


def choose(job: Job, settings: Settings, served: Served) -> Engine:
    """The engine that carries a job: the first of `engines`, else of the usual ones, that is served."""
    wanted = settings.names("engines")
    able = [name for name in wanted if job.type_name in engines.load(name).types]
    names = able or USUAL.get(job.type_name, ("job",))
    found = [engines.load(name) for name in names]
    for engine in found:
        if f"{engine.kind}.{engine.group}" in served:
            _check_version(engine, served)
            return engine
    first = found[0]
    raise UnsupportedError(
        f"this cluster serves no {first.kind} ({first.group})",
        why=f"{first.operator} is not installed",
        hint="arena run makes a Job, which every cluster has; or ask for the operator",
    )


def _check_version(engine: Engine, served: Served) -> None:
    version = served[f"{engine.kind}.{engine.group}"].version
    if version != engine.version:
        raise UnsupportedError(
            f"this cluster serves {engine.kind} {version}; arena makes {engine.version}",
            why=f"{version} is of another age of its operator, or of another operator with a kind of that name",
            hint=f"ask for {engine.operator} with {engine.kind} {engine.version}; arena run makes a Job",
        )


def remembered(job: Job, context: Context, user: str, engine: str) -> str:
    """What the object cannot hold, for its annotation: the job as typed, without values of its environment."""
    from arena import declared

    plain = declared.to_plain(structs.replace(job, env={}))
    words = {
        "user": user,
        "engine": engine,
        "type": job.type_name,
        "job": plain,
        "env": sorted(job.env),
        "typed": secrets.mask_words(context.typed),
        "parent": context.parent,
        "fetch": context.fetch,
        "patch": secrets.mask_object(context.patch),
        "sets": secrets.mask_sets(context.sets),
    }
    text = json.dumps({key: value for key, value in words.items() if value}, separators=(",", ":"))
    if len(text) > LARGEST_ANNOTATION:
        text = json.dumps({"user": user, "engine": engine, "type": job.type_name}, separators=(",", ":"))
    return text


def namespace_of(settings: Settings, access: Any) -> str:
    """The namespace of a command: as set, else the context's."""
    named = settings.text("namespace") or (access.namespace if access else "") or "default"
    if not NAMESPACE.fullmatch(named):
        why = "it has lower-case letters, digits and '-', at most 63, and '-' neither first nor last"
        raise SpecError(f"{named!r} is no name of a namespace", why=why, hint="-n NAMESPACE")
    return named


def _letters(job: Job, context: Context) -> str:
    """Four letters that tell runs apart: by chance, or the same each time for a dry run."""
    if not context.dry:
        return run_letters(os.urandom(4))
    return run_letters(hashlib.sha256(msgspec.json.encode(job)).digest()[:4])


def _unfetchable(work: Work) -> Iterator[str]:
    if work.fetch and work.job.type_name == "mpi":
        yield "--fetch: rank 0 of an MPI job runs beside its worker's own program: --output CLAIM:/path keeps files"


def _in_pods(role: Role, renamed: Mapping[str, str], settings: Settings) -> Role:
    """The role with the paths of this machine as the pods have them, and no image of its own where one is locked."""
    argv = tuple(renamed.get(word, word) for word in role.argv)
    return structs.replace(role, argv=argv, image="" if images.is_locked(settings) else role.image)


def _secret(work: Work) -> Iterator[Manifest]:
    """The Secret for the values that look secret: the job holds references only."""
    if not work.secret_env:
        return
    values = {name: work.job.env[name] for name in work.secret_env}
    metadata = helper_metadata(work, work.secret, "env")
    yield {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "stringData": values}


def helper_metadata(work: Work, name: str, part: str) -> Manifest:
    """The metadata of an object that a job needs beside it."""
    metadata = pods.metadata(work, name)
    metadata["labels"] = {**metadata["labels"], PART_LABEL: part}
    return metadata
