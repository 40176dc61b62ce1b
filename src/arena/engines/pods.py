"""The parts of a pod template that all kinds share, and a replica read back from its pod."""

from __future__ import annotations

import contextlib
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from arena import runtimes
from arena.cluster import parse_device
from arena.engines import placing, results, upstream, volumes
from arena.engines.base import MANAGED_BY, NAME_LABEL, RUN_LABEL, Manifest, Work, escaped
from arena.engines.objects import ContainerStatus, Pod, PodSpec, Template, Terminated
from arena.engines.starter import processes
from arena.errors import ArenaError
from arena.job import Env, Role
from arena.quantity import parse_bytes
from arena.status import TAKEN_AWAY, Replica, State

GPU = "nvidia.com/gpu"
NEAR_GPU = "aliyun.com/gpu"
RDMA = "rdma/hca"
ISTIO = "sidecar.istio.io/inject"
KUEUE = "kueue.x-k8s.io/queue-name"
LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
OWN_INITS = ("arena-code", "arena-peers", volumes.FETCH)
INDEX_VARIABLE = "ARENA_INDEX"
INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"
# What the runtime writes in the program's place where the kernel would not start it; the container has code 1 then.
NEVER_STARTED = ("StartError", "ContainerCannotRun")
NOT_STARTED = r"exec [^\n]*: (no such file or directory|exec format error|permission denied)"
UNREAD = "Error on reading termination message"  # the kubelet's, where a container ended too soon
BACK_OFF = re.compile(r"(back-off \S+) restarting failed container=.*", re.DOTALL)
# $1 the folder, $2 the archive, $3 its hash. Any sh will do, with tar (and gzip) or any Python; what no program
# of the image can hash is taken as it is.
UNPACK = r"""set -e
cd "$1"; f=/arena/in/"$2"
has() { command -v "$1" >/dev/null 2>&1; }
py=; if has python3; then py=python3; elif has python; then py=python; fi
if has sha256sum; then s=$(sha256sum "$f"); s=${s%% *}
elif [ "$py" ]; then s=$("$py" -c 'import hashlib,sys;print(hashlib.sha256(open(sys.argv[1],"rb").read()).hexdigest())' "$f")
else s=$3; fi
if [ "$s" != "$3" ]; then echo "arena: the code is not what was sent: its hash is $s, not $3" >&2; exit 1; fi
case $2 in *.tgz) z=z; unzip=gzip;; *) z=; unzip=cd;; esac
if has tar && has $unzip; then tar -x${z}f "$f"
elif [ "$py" ]; then "$py" -W ignore -c 'import sys,tarfile;tarfile.open(sys.argv[1]).extractall(".")' "$f"
else echo "arena: this image has no program to unpack the code: tar and gzip, or python3" >&2; exit 1; fi
"""  # noqa: E501


def template(work: Work, role: Role, container: str, *, env: Sequence[Manifest] = ()) -> Manifest:
    """The pod template of one role: what every kind puts into its own object."""
    main = _main(work, role, container, env)
    spec: Manifest = {"restartPolicy": "Never", "containers": [main], **placing.place(work, role)}
    for found in volumes.mounted(work, role):
        volumes.add(spec, main, found)
    if work.code:
        _add_code(spec, work, main)
    if work.job.sync_mode:
        _add_fetched(spec, work, main)
    if results.keeps(work, role):
        results.keep(spec, main)
    return {"metadata": {"labels": _own_labels(work), "annotations": _own_annotations(work)}, "spec": spec}


def problems(work: Work) -> Iterator[str]:
    """What no kind can carry: labels that mark jobs, and keys and values that are no labels."""
    yield from upstream.problems(work)
    for flag, pairs in (("--label", work.labels), ("--selector", work.job.selector)):
        yield from _label_problems(flag, pairs)
    for key in work.job.annotation:
        if not LABEL_KEY.fullmatch(key):
            yield f"--annotation: {key!r} is no key of an annotation"


def _label_problems(flag: str, pairs: Mapping[str, str]) -> Iterator[str]:
    for key, value in pairs.items():
        if not LABEL_KEY.fullmatch(key):
            yield f"{flag}: {key!r} is no key of a label: letters, digits, '-', '_', '.', at most 63, or DOMAIN/KEY"
        elif not LABEL_VALUE.fullmatch(value):
            yield f"{flag} {key}: {value!r} is no value of a label: letters, digits, '-', '_', '.', at most 63"


def _own_labels(work: Work) -> Env:
    """The labels of the pods; no sidecar of Istio's keeps a finished one alive, unless the user's label asks for it."""
    return {ISTIO: "false", **pod_labels(work), **placing.labels(work)}


def _own_annotations(work: Work) -> Env:
    return {ISTIO: work.labels.get(ISTIO, "false"), **work.job.annotation, **upstream.job_annotations(work)}


def pod_labels(work: Work) -> Env:
    """The labels of every pod."""
    mine = {MANAGED_BY: "arena", NAME_LABEL: work.name, RUN_LABEL: work.run_id}
    return {**work.labels, **upstream.labels(work), **mine}


def metadata(work: Work, name: str = "") -> Manifest:
    """The metadata of the job object, or of a helper of another name."""
    found: Manifest = {"name": name or work.name, "namespace": work.namespace, "labels": pod_labels(work)}
    if name:
        return found
    if work.job.queue_name:
        found["labels"][KUEUE] = work.job.queue_name
    if annotations := {**work.annotations, **upstream.job_annotations(work)}:
        found["annotations"] = annotations
    return found


def variables(work: Work, env: Mapping[str, str]) -> list[Manifest]:
    """A user's environment as a container's, secret values by reference."""
    hidden = set(work.secret_env)
    return [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": work.secret, "key": name}}}
        if name in hidden
        else {"name": name, "value": escaped(value)}
        for name, value in env.items()
    ]


def _main(work: Work, role: Role, container: str, env: Sequence[Manifest]) -> Manifest:
    own = [
        {"name": "PYTHONUNBUFFERED", "value": "1"},
        {"name": "ARENA_JOB_NAME", "value": work.name},
        {"name": "ARENA_RUN_ID", "value": work.run_id},
    ]
    found: Manifest = {
        "name": container,
        "image": role.image or work.image,
        "command": [escaped(word) for word in role.argv],
        "env": [*own, *_set_here(work, role), *env, *variables(work, role.env)],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if policy := work.job.image_pull_policy or ("Always" if upstream.is_upstream(work) else ""):
        found["imagePullPolicy"] = policy
    if folder := working_dir(work):
        found["workingDir"] = folder
    if resources := _resources(work, role):
        found["resources"] = resources
    if role.rdma:
        found["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}
    return found


def _set_here(work: Work, role: Role) -> list[Manifest]:
    """Variables that flags set; a user's own of the same name wins."""
    found = upstream.variables(work, role)
    if work.job.output:
        found["ARENA_OUTPUT_DIR"] = volumes.OUTPUT
    return [{"name": name, "value": value} for name, value in found.items() if name not in role.env]


def working_dir(work: Work) -> str:
    """Where the program starts: in the code that travelled, above the code that is fetched, or where the user said."""
    if work.code:
        return posixpath.join(work.code.folder, work.working_dir).rstrip("/")
    fixed = upstream.is_upstream(work) or work.job.sync_mode
    return work.working_dir or (upstream.WORKING_DIR if fixed else "")


def _resources(work: Work, role: Role) -> Manifest:
    """What a container asks for, and its limits: the same, but where the limit was given apart."""
    gpu = NEAR_GPU if placing.is_near(work) else GPU
    devices = {gpu: str(role.gpus or ""), RDMA: "1" if role.rdma else "", **dict(map(parse_device, role.device))}
    requests = {"cpu": role.cpu, "memory": role.memory, **devices}
    limits = {**requests, "cpu": role.cpu_limit or role.cpu, "memory": role.memory_limit or role.memory}
    found = {
        kind: {name: amount for name, amount in amounts.items() if amount}
        for kind, amounts in (("requests", requests), ("limits", limits))
    }
    return {kind: amounts for kind, amounts in found.items() if amounts}


def _add_fetched(spec: Manifest, work: Work, main: Manifest) -> None:
    """The init container that fetches the code, before all others."""
    found = volumes.fetching(work, variables(work, work.job.env), main["image"])
    assert found
    mounted, init = found
    volumes.add(spec, main, mounted)
    if _is_ours(init):
        _take_over(init, main)
    elif resources := _without_devices(main.get("resources", {})):
        init["resources"] = resources
    spec["initContainers"] = [init, *spec.get("initContainers", [])]


def _add_code(spec: Manifest, work: Work, main: Manifest) -> None:
    """The init container that lays the code into a folder of the pod's own, and its two volumes."""
    assert work.code
    words = [work.code.folder, work.code.key, work.code.sha256]
    mount = {"name": "arena-code", "mountPath": work.code.folder}
    init = own_init("arena-code", main, UNPACK, *words)
    init["volumeMounts"] = [mount, {"name": "arena-code-in", "mountPath": "/arena/in", "readOnly": True}]
    spec["initContainers"] = [init, *spec.get("initContainers", [])]
    spec.setdefault("volumes", []).extend(
        (
            {"name": "arena-code", "emptyDir": {}},
            {"name": "arena-code-in", "configMap": {"name": work.code.config_map}},
        )
    )
    main.setdefault("volumeMounts", []).append(mount)


def own_init(name: str, main: Manifest, script: str, *words: str) -> Manifest:
    """An init container of ours: a shell script in the program's own image, as the program's container is set up."""
    found: Manifest = {
        "name": name,
        "image": main["image"],
        "command": ["sh", "-c", escaped(script), "sh", *words],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    _take_over(found, main)
    return found


def alike(node: Any) -> None:
    """Give our init containers, anywhere in an object, what a patch has set for the program's own container."""
    if isinstance(node, list):
        for one in node:
            alike(one)
    elif isinstance(node, dict):
        for one in node.values():
            alike(one)
        for init in node.get("initContainers") or ():
            if _is_ours(init) and node.get("containers"):
                _take_over(init, node["containers"][0])


def _is_ours(init: Manifest) -> bool:
    """Whether it runs a script of ours in the program's image; with `--sync-image` it runs what that image has."""
    return init.get("name") in OWN_INITS and init.get("command", [])[:2] == ["sh", "-c"]


def _take_over(init: Manifest, main: Manifest) -> None:
    for key in ("image", "imagePullPolicy", "securityContext"):
        if key in main and (key == "image" or key not in init):
            init[key] = main[key]
    if resources := _without_devices(main.get("resources", {})):
        init["resources"] = resources


def _without_devices(resources: Manifest) -> Manifest:
    """What the init container asks for: as much as the main one, as quotas demand limits, but no GPU."""
    plain = {key: {name: v for name, v in amounts.items() if "/" not in name} for key, amounts in resources.items()}
    return {key: amounts for key, amounts in plain.items() if amounts}


# --- reading -------------------------------------------------------------------------------------------------


def replicas(pod: Pod, role: str, index: int, rank: int | None, container: str) -> list[Replica]:
    """A pod's replica as it is now, last, and before it the ends of its earlier starts that are still known."""
    status = _status_of(pod, container)
    name, node = pod.metadata.name, pod.spec.node_name
    base = Replica(role=role, index=index, rank=rank, pod=name, node=node, **_told(pod.spec))
    now = _now(base, pod, status)
    before = status.last_state.terminated if status else None
    if before is None or not before.has_run or now.attempt == 1:
        return [now]
    return [_changed(_ended(base, before, now.attempt - 1), restarts=now.attempt - 2), now]


def planned(template: Template, role: str, index: int, rank: int | None) -> Replica:
    """A replica of which there is no pod: what its template says."""
    return Replica(role=role, index=index, rank=rank, **_told(template.spec))


def _told(spec: PodSpec) -> dict[str, Any]:
    """What the pod's spec or template tells of its replica."""
    limits = spec.containers[0].resources.limits if spec.containers else {}
    nproc = max((processes(results.kept(one.command)) for one in spec.containers), default=1)
    return {"gpus": gpus_of(spec), "memory_limit": _bytes(limits.get("memory")), "nproc": nproc}


def _bytes(amount: str | int | None) -> int | None:
    with contextlib.suppress(ValueError, ArenaError):
        return parse_bytes(str(amount)) if amount else None
    return None


def gpus_of(spec: PodSpec) -> int:
    """How many GPUs a pod asks for."""
    return sum(_gpus(c.resources.limits or c.resources.requests) for c in spec.containers)


def _gpus(amounts: Mapping[str, str | int]) -> int:
    found = [str(amount) for name, amount in amounts.items() if name.endswith("/gpu") or "nvidia.com/mig-" in name]
    return sum(int(amount) for amount in found if amount.isdecimal())


def _status_of(pod: Pod, container: str) -> ContainerStatus | None:
    found = pod.status.container_statuses
    return next((status for status in found if status.name == container), found[0] if found else None)


def _now(one: Replica, pod: Pod, status: ContainerStatus | None) -> Replica:
    restarts = status.restart_count if status else 0
    attempt = restarts + (2 if status and status.is_between_starts else 1)
    base = _changed(one, attempt=attempt, restarts=restarts)
    end = status.state.terminated if status else None
    if end and not (end.is_unseen and pod.status.phase == "Failed"):
        over = _ended(base, end, attempt)
        return _changed(over, ended_by_us=True, **_taken_away(pod)) if _is_ended_by_us(pod, end) else over
    if pod.status.phase == "Failed":  # evicted, its node is gone, an init container failed: the program has no end
        return _without_end(base, pod)
    if status and status.state.running and not pod.metadata.deletion_timestamp:
        return _changed(base, state=State.RUNNING, started=status.state.running.started_at)
    if status and status.state.running:
        leaving = _changed(base, state=State.RUNNING, reason="Terminating", started=status.state.running.started_at)
        return _changed(leaving, **_taken_away(pod))
    reason, message = waiting(pod, status)
    return _changed(base, reason=reason, message=message)


def _without_end(base: Replica, pod: Pod) -> Replica:
    ended = next((c.last_transition_time for c in pod.status.conditions if c.type == "Ready"), None)
    reason, message = pod.status.reason, pod.status.message
    if not reason:
        reason, message = waiting(pod, None)
    return _changed(base, state=State.FAILED, reason=reason or "Failed", message=message, ended=ended, lost=True)


def _taken_away(pod: Pod) -> dict[str, str]:
    """Who takes the pod away, and in which words; nothing where somebody just deleted it."""
    found = (one for one in pod.status.conditions if one.type == "DisruptionTarget" and one.status == "True")
    return next(({"reason": one.reason, "message": one.message} for one in found if one.reason in TAKEN_AWAY), {})


def _is_ended_by_us(pod: Pod, end: Terminated) -> bool:
    """Whether a container ended because its pod was being deleted: no failure of its own.

    Stamps are whole seconds: an end in that of the deletion counts as brought about, as pods that had ended before
    are left alone by the controllers.
    """
    until = pod.metadata.deletion_timestamp
    if until is None or end.finished_at is None:
        return False
    asked = until - timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0)
    return end.finished_at >= asked


def still_running(pod: Pod, container: str) -> list[str]:
    """The other containers that run on after the program's own has ended."""
    found = pod.status.container_statuses
    if not any(status.name == container and status.state.terminated for status in found):
        return []
    return [status.name for status in found if status.name != container and status.state.running]


def _ended(base: Replica, end: Terminated, attempt: int) -> Replica:
    if end.is_unseen:
        found = {"reason": end.reason, "message": end.message}
        return _changed(base, attempt=attempt, state=State.FAILED, lost=True, **found)
    code, reason = _code(end)
    started = end.started_at if end.started_at and end.started_at.year > 1970 else None
    return _changed(
        base,
        attempt=attempt,
        state=State.SUCCEEDED if code == 0 else State.FAILED,
        exit_code=code,
        reason=reason,
        message="" if end.message.startswith(UNREAD) else end.message.rstrip("\n"),
        started=started or end.finished_at,
        ended=end.finished_at,
        oom_kills=1 if end.reason == "OOMKilled" else 0,
    )


def _code(end: Terminated) -> tuple[int, str]:
    """The exit code as a shell would give it: a container that could not start has 128, only its message tells why."""
    if end.exit_code == 1 and re.fullmatch(NOT_STARTED, end.message.strip()):
        return (127 if "no such file" in end.message else 126), "StartError"
    if end.reason not in NEVER_STARTED:
        return end.exit_code, "" if end.reason in ("Completed", "Error") and end.exit_code == 0 else end.reason
    missing = re.search(r"no such file or directory|not found", end.message)
    return (127 if missing else 126), end.reason


def waiting(pod: Pod, status: ContainerStatus | None) -> tuple[str, str]:
    """Why a pod has not started: reason and message of the scheduler, an init container, or its own container."""
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.reason, condition.message
    for init in pod.status.init_container_statuses:
        if (end := _last_end(init)) and end.exit_code:
            return "InitContainerFailed", _init_ended(init.name, end)
        if init.state.waiting and init.state.waiting.reason != "PodInitializing":
            return init.state.waiting.reason, init.state.waiting.message
    if status and status.state.waiting:
        reason, message = status.state.waiting.reason, status.state.waiting.message
        plain = runtimes.plain(message) if reason == "RunContainerError" else message
        return reason, BACK_OFF.sub(r"\1 before it is started again", plain)
    return "", ""


def _last_end(init: ContainerStatus) -> Terminated | None:
    """How an init container ended: now, or before it waits to be started again."""
    return init.last_state.terminated if init.is_between_starts else init.state.terminated


def _init_ended(name: str, end: Terminated) -> str:
    if end.reason in NEVER_STARTED:
        return f"{name} could not start: {runtimes.plain(end.message)}"
    return f"{name} ended with code {end.exit_code}: {end.message}".rstrip(": \n")


def _changed(replica: Replica, **values: Any) -> Replica:
    from msgspec.structs import replace

    return replace(replica, **values)
