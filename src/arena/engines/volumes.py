"""What is mounted into the pods of a role: data, results, files, shared memory, logs, and code fetched first."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from arena import cluster
from arena.engines import placing, upstream
from arena.engines.base import Manifest, Work, escaped
from arena.job import Job, Role
from arena.quantity import parse_bytes

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
OUTPUT = "/arena/output"
LOGS = "training-logs-volume"
LOGDIR = "/training_logs"
FETCH = "init-code"
# What fetches where no image for it is named: the git of the job's own image, by the variables of git-sync.
CLONE = r"""set -e
export GIT_TERMINAL_PROMPT=0 GIT_ASKPASS=/tmp/arena-askpass
if [ "$GIT_SYNC_USERNAME$GIT_SYNC_PASSWORD" ]; then
  echo '#!/bin/sh' >$GIT_ASKPASS; chmod 700 $GIT_ASKPASS
  echo 'case $1 in User*) echo "$GIT_SYNC_USERNAME";; *) echo "$GIT_SYNC_PASSWORD";; esac' >>$GIT_ASKPASS
fi
command -v git >/dev/null || { echo "arena: this image has no git: --sync-image names one that has" >&2; exit 1; }
cd "$GIT_SYNC_ROOT"
git clone -q ${GIT_SYNC_DEPTH:+--depth "$GIT_SYNC_DEPTH"} ${GIT_SYNC_BRANCH:+--branch "$GIT_SYNC_BRANCH"} \
  -- "$GIT_SYNC_REPO" "$GIT_SYNC_DEST"
cd "$GIT_SYNC_DEST"
[ -z "$GIT_SYNC_REV" ] || git checkout -q "$GIT_SYNC_REV"
git --no-pager log -1 --format='arena: the code is commit %H'
"""
# What is copied belongs to whoever runs the program; nothing is changed of /code itself, which is the kubelet's: who
# is not root may not. Only errors are told: they are what is left of an init container.
RSYNC = ("rsync", "-rlt", "--omit-dir-times", "--")
COPY = f"""command -v rsync >/dev/null || {{
  echo "arena: this image has no rsync: --sync-image names one that has" >&2; exit 1
}}
exec {" ".join(RSYNC)} "$1" /code
"""


class Mounted(NamedTuple):
    """One volume and where the containers have it; `mount` is empty where they do not."""

    volume: Manifest
    mount: Manifest


def mounted(work: Work, role: Role) -> Iterator[Mounted]:
    """The volumes of a role, in the order of their flags."""
    if role.data:
        yield from data(work.job)
        yield from _folders(work.job)
    yield from _config_files(work.job)
    if work.job.output:
        yield _output(work)
    if size := share_memory(work, role):
        yield _shared(size)
    if work.job.tensorboard and role.logs != "none" and not logs_in_data(work.job):
        path = logdir(work.job) if role.logs == "mount" else ""
        yield _of(LOGS, {"hostPath": host_logs(work)}, path)


def data(job: Job) -> Iterator[Mounted]:
    """The claims."""
    for number, (claim, path) in enumerate(map(cluster.parse_data, job.data)):
        name = claim if LABEL.fullmatch(claim) else f"data-{number}"
        yield _of(name, {"persistentVolumeClaim": {"claimName": claim}}, path)


def _folders(job: Job) -> Iterator[Mounted]:
    for number, (host, path) in enumerate(map(cluster.parse_data_dir, job.data_dir)):
        yield _of(f"training-data-{number}", {"hostPath": {"path": host}}, path)


def _config_files(job: Job) -> Iterator[Mounted]:
    """Each file at its own path, so that what lies beside it in the image stays."""
    for file, path in map(cluster.parse_config_file, job.config_file):
        found = _of(f"config-{config_key(file)}", {"configMap": {"name": config_name(job, file)}}, path)
        yield Mounted(found.volume, {**found.mount, "subPath": file_key(file), "readOnly": True})


def config_key(file: str) -> str:
    """The letters that stand for the folder of a file.

    >>> config_key("conf/a.json") == config_key("conf/b.json")
    True
    """
    return hashlib.md5(posixpath.dirname(file).encode(), usedforsecurity=False).hexdigest()[:15]


def config_name(job: Job, file: str) -> str:
    """The ConfigMap that holds the files of one folder."""
    return f"{job.name}-{config_key(file)}"


def file_key(file: str) -> str:
    """A file's key in its ConfigMap.

    >>> file_key("conf/my settings.json")
    'my-settings.json'
    """
    return re.sub(r"[^-._a-zA-Z0-9]", "-", posixpath.basename(file))


def _output(work: Work) -> Mounted:
    """The folder of this run in the claim: no run overwrites another's results."""
    claim, folder = cluster.parse_output(work.job.output)
    found = _of("arena-output", {"persistentVolumeClaim": {"claimName": claim}}, OUTPUT)
    return Mounted(found.volume, {**found.mount, "subPath": posixpath.join(folder, work.run_id).lstrip("/")})


def share_memory(work: Work, role: Role) -> str:
    """The size of /dev/shm: as asked, else 2Gi, for `run` never above half of the memory; none near other GPUs."""
    asked = work.job.share_memory
    if (asked and not parse_bytes(asked)) or placing.is_near(work):
        return ""
    if asked or upstream.is_upstream(work) or not role.memory:
        return asked or upstream.SHARE_MEMORY
    half = parse_bytes(role.memory_limit or role.memory) // 2
    return upstream.SHARE_MEMORY if half >= parse_bytes(upstream.SHARE_MEMORY) else str(half)


def _shared(size: str) -> Mounted:
    return _of("dshm", {"emptyDir": {"medium": "Memory", "sizeLimit": size}}, "/dev/shm")


def logdir(job: Job) -> str:
    """The folder of TensorBoard's event files."""
    return job.logdir or LOGDIR


def logs_in_data(job: Job) -> bool:
    """Whether the event files lie in a claim that is mounted anyway."""
    folders = [mount.path for mount in map(cluster.parse_data, job.data)]
    return any(posixpath.commonpath([folder, logdir(job)]) == folder for folder in folders)


def host_logs(work: Work) -> Manifest:
    """The folder of the node that keeps the event files of a run."""
    number = int(hashlib.sha256(work.run_id.encode()).hexdigest(), 16) % 10**9
    return {"path": f"/arena_logs/training{number:09}", "type": "DirectoryOrCreate"}


def fetching(work: Work, env: list[Manifest], image: str) -> tuple[Mounted, Manifest] | None:
    """The volume for code that is fetched first, and the init container that fetches it: in the job's own image."""
    job = work.job
    if not job.sync_mode:
        return None
    folder = posixpath.join(work.working_dir or upstream.WORKING_DIR, "code")
    init: Manifest = {
        "name": FETCH,
        "image": job.sync_image or image,
        "env": env,
        "volumeMounts": [{"name": "code-sync", "mountPath": "/code"}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    init |= _cloning(job, env) if job.sync_mode == "git" else _copying(job)
    return _of("code-sync", {"emptyDir": {}}, folder), init


def _cloning(job: Job, env: list[Manifest]) -> Manifest:
    git = {
        "GIT_SYNC_REPO": escaped(job.sync_source),
        "GIT_SYNC_DEST": escaped(repository_name(job.sync_source)),
        "GIT_SYNC_ROOT": "/code",
        "GIT_SYNC_ONE_TIME": "true",
    }
    given = {one["name"] for one in env}
    found: Manifest = {"env": [*env, *({"name": k, "value": v} for k, v in git.items() if k not in given)]}
    return found if job.sync_image else {**found, "command": ["sh", "-c", CLONE]}


def _copying(job: Job) -> Manifest:
    source = escaped(job.sync_source)
    return {"command": [*RSYNC, source, "/code"] if job.sync_image else ["sh", "-c", COPY, "sh", source]}


def repository_name(source: str) -> str:
    """The folder that `git clone` would make.

    >>> [repository_name(s) for s in ("https://h/u/u.github.io.git", "https://h/u/r/", "git@h:u/r.git")]
    ['u.github.io', 'r', 'r']
    """
    return re.split(r"[/:]", source.rstrip("/").removesuffix(".git").rstrip("/"))[-1]


def add(spec: Manifest, main: Manifest, found: Mounted) -> None:
    """Put a volume into a pod's spec, and its mount, if it has one, into a container."""
    spec.setdefault("volumes", []).append(found.volume)
    if found.mount:
        main.setdefault("volumeMounts", []).append(found.mount)


def _of(name: str, source: Mapping[str, object], path: str) -> Mounted:
    return Mounted({"name": name, **source}, {"name": name, "mountPath": path} if path else {})
