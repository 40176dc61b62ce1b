"""Why a cluster's job does not start, and what a cluster did to one that ran: rules of `why`, one cause for each.

Pure, as all of `why`: what was seen of the replicas and what the cluster said come in, a `Why` goes out. The words of
scheduler, kubelet and registry stay in it as evidence; what no rule knows is the newest event, as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from msgspec import Struct, field

from arena import runtimes
from arena.status import Observed, Replica, State
from arena.why import Why

LONG = 10.0  # seconds after which an object that nobody has touched has nobody
SHOWN = 5

IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError")
CONFIG = ("CreateContainerConfigError", "CreateContainerError")
MOUNT = ("FailedMount", "FailedAttachVolume", "FailedMapVolume")
PREEMPTED = ("Preempted", "Preempting", "PreemptionByScheduler")
NODE_LOST = (
    "NodeLost",
    "NodeShutdown",
    "Shutdown",
    "Terminated",
    "TerminationByKubelet",
    "DeletionByTaintManager",
    "DeletionByPodGC",
)
NODE_REFUSED = ("UnexpectedAdmissionError", "NodeAffinity", "TopologyAffinityError", "PreStartHookError")
NOT_THERE = {"arena-code": "the code could not be laid out", "init-code": "the code could not be fetched"}
FLAGS = {"nvidia.com/gpu": "--gpus", "cpu": "--cpu", "memory": "--memory"}


class Event(Struct, frozen=True, kw_only=True):
    """One event of the job, of its pods, or of what its operator made."""

    kind: str
    name: str
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int = 1
    at: datetime | None = None

    @property
    def warns(self) -> bool:
        """Whether something went wrong."""
        return self.type == "Warning"


class Facts(Struct, frozen=True, kw_only=True):
    """What only the cluster knows of a job: asked for by `why` and `get`, beside the job itself.

    `untouched` tells for how many seconds nobody has looked at its object, `too_large` and `mismatch` what no node has,
    `taints` those of nodes that would fit else; the last three where nodes may be read. `notes` say what was not.
    """

    kind: str = ""
    operator: str = ""
    namespace: str = ""
    untouched: float = 0.0
    events: tuple[Event, ...] = ()
    too_large: tuple[str, ...] = ()
    mismatch: str = ""
    taints: tuple[str, ...] = ()
    images: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Look(Struct, frozen=True, kw_only=True):
    """A job that waits, as the rules see it."""

    observed: Observed
    facts: Facts
    name: str
    waiting: tuple[Replica, ...]

    def of(self, *reasons: str) -> tuple[Replica, ...]:
        """The replicas that wait for one of these reasons."""
        return tuple(replica for replica in self.waiting if replica.reason in reasons)

    def events(self, *reasons: str) -> list[Event]:
        """The warnings of these reasons (all without), the newest first."""
        found = [one for one in self.facts.events if one.warns and (not reasons or one.reason in reasons)]
        return sorted(found, key=lambda one: one.at or _NEVER, reverse=True)

    def who(self, replicas: Sequence[Replica]) -> str:
        """`worker-0`, or `4 of 8 replicas`."""
        total = len(self.observed.replicas)
        if len(replicas) == 1:
            return f"{replicas[0].name} ({replicas[0].pod})" if replicas[0].pod else replicas[0].name
        return f"{len(replicas)} of {total} replicas" if len(replicas) < total else f"all {total} replicas"

    def said(self, replicas: Sequence[Replica]) -> tuple[str, ...]:
        """Each different message of these replicas, and how many others have a place already."""
        lines = {replica.message: f"{replica.name} | {replica.reason}: {replica.message}" for replica in replicas}
        placed = [replica for replica in self.observed.replicas if replica.node]
        held = sum(replica.gpus for replica in placed)
        holding = f"{len(placed)} of {len(self.observed.replicas)} replicas have a node"
        holding += f" and hold {held} GPUs" if held else ""
        return (
            *list(lines.values())[:SHOWN],
            *([holding] if placed and len(placed) < len(self.observed.replicas) else []),
        )


Rule = Callable[[Look], Why | None]
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


def blocked(observed: Observed, state: State, facts: Facts, name: str) -> Why | None:
    """Why the job does not start; None where it is only young."""
    waiting = tuple(r for r in observed.replicas if not r.started and not r.state.final)
    look = Look(observed=observed, facts=facts, name=name, waiting=waiting)
    if state is State.SUSPENDED:
        return _suspended(look)
    return next((why for rule in RULES if (why := rule(look))), None)


def taken(observed: Observed, name: str) -> tuple[Why, datetime | None] | None:
    """What the cluster did to a replica that did not fail by itself, and when; None where it did nothing."""
    lost = [r for r in observed.replicas if r.lost or r.reason in (*PREEMPTED, *NODE_LOST, "InitContainerFailed")]
    lost.sort(key=lambda r: r.ended or datetime.max.replace(tzinfo=UTC))
    for replica in lost:
        for rule in TAKEN:
            if why := rule(replica, name):
                return why, replica.ended
    return None


# --- what keeps it from starting -----------------------------------------------------------------------------


def _suspended(look: Look) -> Why:
    text = "it is suspended: it starts when its queue, or somebody, resumes it"
    return Why(cause="Suspended", text=text, evidence=_events(look.events()), next="wait until it is let go on")


def _claims(look: Look) -> Why | None:
    """A volume that is not there: the scheduler knows of claims, the kubelet of all others."""
    for replica in look.of("Unschedulable"):
        if re.search(r"persistentvolumeclaim|unbound immediate", replica.message):
            text = f"{look.who(look.of('Unschedulable'))} waits for a volume: {_scheduler(replica.message)}"
            follow = "make the claim, or name another: --data CLAIM:/path"
            return Why(cause="MissingVolume", text=text, evidence=look.said([replica]), next=follow)
    pods = {replica.pod for replica in look.waiting}
    for event in look.events(*MOUNT):
        if event.name in pods:
            what = event.message.partition(" : ")[2] or event.message
            text = f"{event.name} waits for a volume: {what}"
            return Why(cause="MissingVolume", text=text, evidence=_events([event]), next=_make(what))
    return None


def _never_fits(look: Look) -> Why | None:
    stuck = look.of("Unschedulable", "SchedulerError")
    if not stuck or not look.facts.too_large:
        return None
    words = "; ".join(look.facts.too_large)
    flags = [flag for name, flag in FLAGS.items() if f" {name} " in words] or ["of it"]
    follow = f"ask for less: {' '.join(flags)}; or wait for larger nodes"
    return Why(cause="NeverFits", text=f"no node can hold it: {words}", evidence=look.said(stuck), next=follow)


def _unschedulable(look: Look) -> Why | None:
    stuck = look.of("Unschedulable", "SchedulerError", "SchedulingGated")
    if not stuck:
        return None
    words = _scheduler(stuck[0].message)
    text = f"no node takes {look.who(stuck)}: {look.facts.mismatch or words}"
    if look.facts.taints and "taint" in words:
        text += f"; taints: {', '.join(look.facts.taints)}"
    return Why(cause="Unschedulable", text=text, evidence=look.said(stuck), next=_place(look, words))


def _place(look: Look, words: str) -> str:
    """The flag that opens a node, for the scheduler's words."""
    if not look.facts.mismatch and "taint" in words:
        taint = next(iter(look.facts.taints), "") or _taint(words)
        return (
            f"tolerate the taint: --toleration {taint}"
            if taint
            else "tolerate the taint: --toleration KEY=VALUE:EFFECT"
        )
    if look.facts.mismatch or "affinity/selector" in words:
        return "another --selector, or none: nodes may still come"
    wanted = [flag for name, flag in FLAGS.items() if f"Insufficient {name}" in words]
    return f"wait until others end (arena list -A), or ask for less: {' '.join(wanted)}" if wanted else "wait"


def _image(look: Look) -> Why | None:
    stuck = look.of(*IMAGE)
    if not stuck:
        return None
    first = stuck[0]
    pulls = [one for one in look.events("Failed") if one.name == first.pod and "pull" in one.message]
    words = next((one.message for one in pulls if "Failed to pull" in one.message), first.message)
    image = _image_name(look, first.pod, f"{first.message} {words}")
    reason, follow = _pull(first, words)
    text = f"image {image} cannot be pulled for {look.who(stuck)}: {reason}"
    return Why(cause="ImagePull", text=text, evidence=(f"{first.name} | {words}",), next=follow)


def _image_name(look: Look, pod: str, words: str) -> str:
    """The image the words are about, as it was asked for: a runtime sometimes puts its registry before it."""
    asked = look.facts.images.get(pod, "its image")
    named = re.search(r'image "([^"]+)"', words)
    return named[1] if named and not named[1].endswith(f"/{asked}") else asked


def _pull(replica: Replica, words: str) -> tuple[str, str]:
    """The kind of failure in the registry's words, and what helps."""
    if replica.reason == "InvalidImageName":
        return "that is no name of an image", "spell it as REGISTRY/NAME:TAG: --image"
    for pattern, reason, follow in _PULLS:
        if re.search(pattern, words):
            return reason, follow
    return words.rpartition(": ")[2] or replica.reason, "check --image, and whether the nodes reach its registry"


_PULLS = (
    (r"(?i)unauthorized|authentication required|denied|forbidden|403", "no access", "--image-pull-secret SECRET"),
    (r"(?i)toomanyrequests|rate limit|429", "the registry limits how often", "wait, or a mirror of it: --image"),
    (r"(?i)no match for platform|exec format", "it is not built for the nodes' CPU", "an image for their CPU: --image"),
    (r"(?i)not found|manifest unknown|does not exist", "there is no such image or tag", "check its spelling: --image"),
    (r"(?i)refused|no such host|timeout|timed out|unreachable", "its registry does not answer", "--image, the network"),
    (r"(?i)never pull|not present", "it is not on the node, and may not be pulled", "--image-pull-policy IfNotPresent"),
)  # fmt: skip


def _root(look: Look) -> Why | None:
    stuck = [replica for replica in look.of(*CONFIG) if "runAsNonRoot" in replica.message]
    if not stuck:
        return None
    text = f"{look.who(stuck)} cannot be started as root: {stuck[0].message.partition(' (')[0]}"
    follow = "an image whose USER is a number (--image), or --set PATH.securityContext.runAsUser=1000"
    return Why(cause="RunsAsRoot", text=text, evidence=look.said(stuck), next=follow)


def _config(look: Look) -> Why | None:
    stuck = look.of(*CONFIG)
    if not stuck:
        return None
    words = stuck[0].message
    text = f"{look.who(stuck)} cannot be started: {words}"
    return Why(cause="MissingConfig", text=text, evidence=look.said(stuck), next=_make(words))


def _make(words: str) -> str:
    """What is to be made, for words such as `secret "x" not found` and `couldn't find key k in Secret ns/x`."""
    absent = re.search(r'(secret|configmap|persistentvolumeclaim) "([^"]+)" not found', words, re.IGNORECASE)
    key = re.search(r"couldn't find key (\S+) in (Secret|ConfigMap) (\S+)", words)
    if key:
        return f"put the key {key[1]} into {key[2]} {key[3]}, or name another"
    return f"make the {absent[1]} {absent[2]!r}, or name another; it goes on by itself" if absent else "see the event"


def _init(look: Look) -> Why | None:
    """Pods that are given up count too: the operator of MPIJobs waits on for workers that have failed."""
    stuck = [replica for replica in look.observed.replicas if replica.reason == "InitContainerFailed"]
    return _init_failed(stuck[0], look.name) if stuck else None


def _init_failed(replica: Replica, name: str) -> Why:
    head, _, words = replica.message.partition(": ")
    container = head.partition(" ")[0]
    what = NOT_THERE.get(container, f"init container {container} failed")
    lines = [line for line in words.splitlines() if line.strip()]
    return Why(
        cause="InitContainer",
        text=f"{what} for {replica.name}: {_telling(lines) or head}",
        evidence=(head, *(f"{container} | {line}" for line in lines[-SHOWN:])),
        next=_after_init(replica, name, container),
    )


def _telling(lines: list[str]) -> str:
    """The line that says what was wrong: that of rsync, ssh or git, which close with others; else the last."""
    return next((line for line in lines if re.match(r"(rsync|ssh|fatal): |@ERROR", line)), lines[-1] if lines else "")


def _after_init(replica: Replica, name: str, container: str) -> str:
    if container == "init-code":
        return f"mend what --sync-source or --sync-image names, then arena rerun {name}"
    if container in NOT_THERE or not replica.pod:
        return f"arena rerun {name}"
    return f"kubectl logs {replica.pod} -c {container}"


def _refused(look: Look) -> Why | None:
    """Pods that the server did not take: said in events of the job, or of what its operator made, only."""
    if all(replica.pod for replica in look.observed.replicas) and look.observed.replicas:
        return None
    found = [one for one in look.events() if one.reason.startswith("FailedCreate")]
    if not found:
        return None
    words = found[0].message
    if quota := re.search(r"exceeded quota: (\S+), requested: (\S+), used: (\S+), limited: (\S+)", words):
        name, asked, used, hard = quota.groups()
        text = f"quota {name!r} leaves no room: {asked} asked, {used} used, {hard} allowed".replace("requests.", "")
        follow = "wait until others end, or ask for less: --gpus, --cpu, --memory, --workers"
        return Why(cause="Quota", text=text, evidence=_events(found[:1]), next=follow)
    text = f"its pods are refused: {re.sub(r'^Error creating: |^pods .*? is forbidden: ', '', words)}"
    return Why(cause="PodsRefused", text=text, evidence=_events(found[:1]), next="change what the message names")


def _no_controller(look: Look) -> Why | None:
    facts = look.facts
    if facts.untouched < LONG:
        return None
    text = f"no controller has looked at {facts.kind} {look.name!r} for {facts.untouched:.0f} s"
    text += f": is {facts.operator} running, and does it watch namespace {facts.namespace!r}?"
    return Why(cause="NoController", text=text, next="arena doctor; ask an administrator")


def _raw(look: Look) -> Why | None:
    """Nothing is known, but somebody warned: the newest event as it is."""
    own = {replica.pod for replica in look.waiting} | {look.name}
    found = [one for one in look.events() if one.name in own]
    if not found:
        return None
    said = runtimes.plain(found[0].message) if found[0].reason == "Failed" else found[0].message
    return Why(cause=None, text=f"{found[0].reason}: {said}", evidence=_events(found[:SHOWN]), next="")


RULES: tuple[Rule, ...] = (
    _init, _image, _root, _config, _claims, _never_fits, _unschedulable, _refused, _no_controller, _raw,
)  # fmt: skip


# --- what ended it -------------------------------------------------------------------------------------------


def _evicted(replica: Replica, name: str) -> Why | None:
    if replica.reason != "Evicted":
        return None
    text = f"{replica.name} was evicted from node {replica.node}: {replica.message}".rstrip(": ")
    follow = f"ask for what it uses (--memory), then arena rerun {name}"
    return Why(cause="Evicted", text=text, next=follow)


def _preempted(replica: Replica, name: str) -> Why | None:
    if replica.reason not in PREEMPTED:
        return None
    text = f"{replica.name} had to make room for a pod of higher priority: {replica.message}".rstrip(": ")
    return Why(cause="Preempted", text=text, next=f"a higher --priority, or arena rerun {name}")


def _node_lost(replica: Replica, name: str) -> Why | None:
    if replica.reason not in NODE_LOST:
        return None
    text = f"node {replica.node} of {replica.name} was lost ({replica.reason}): {replica.message}".rstrip(": ")
    return Why(cause="NodeLost", text=text, next=f"arena rerun {name}")


def _node_refused(replica: Replica, name: str) -> Why | None:
    if not (replica.reason in NODE_REFUSED or replica.reason.startswith("OutOf")):
        return None
    text = f"node {replica.node} did not take {replica.name} ({replica.reason}): {replica.message}".rstrip(": ")
    return Why(cause="NodeRefused", text=text, next=f"arena rerun {name}")


def _init_ended(replica: Replica, name: str) -> Why | None:
    return _init_failed(replica, name) if replica.reason == "InitContainerFailed" else None


TAKEN: tuple[Callable[[Replica, str], Why | None], ...] = (
    _evicted, _preempted, _node_lost, _node_refused, _init_ended,
)  # fmt: skip


# --- words ---------------------------------------------------------------------------------------------------


def _scheduler(message: str) -> str:
    """The scheduler's words without what it says of preemption, taints as people write them."""
    words = re.sub(r"(?:\. )?preemption: .*", "", message, flags=re.DOTALL)
    words = re.sub(r"\. no new claims to deallocate,?|\. not found$", "", words).rstrip(" .,")
    return re.sub(r"\{(\S+?): ?(\S*?)\}", lambda m: f"{m[1]}={m[2]}" if m[2] else m[1], words)


def _taint(words: str) -> str:
    match = re.search(r"taint(?:\(s\))? (\S+?=?\S*)(?:,|$)", words)
    return match[1] if match and "=" in match[1] else ""


def _events(events: Sequence[Event]) -> tuple[str, ...]:
    return tuple(f"{one.kind} {one.name} | {one.reason}: {one.message}" for one in events[:SHOWN])
