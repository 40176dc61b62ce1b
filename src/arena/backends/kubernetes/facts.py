"""What the cluster knows of a job beside its object and pods: events, and the nodes where a pod finds none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from msgspec import field

from arena.backends.kubernetes import fitting
from arena.backends.kubernetes.fitting import Asked, Node
from arena.engines.objects import Meta, Part, Pod
from arena.errors import ArenaError
from arena.waits import Event, Facts

if TYPE_CHECKING:
    from arena.backends.kubernetes.reading import Found
    from arena.kube.api import Api

EVENTS = "/api/v1/namespaces/{}/events"


class Series(Part, frozen=True):
    """How often an event came again."""

    count: int = 0
    last_observed_time: datetime | None = None


class Raised(Part, frozen=True):
    """An event as the server has it."""

    metadata: Meta = Meta()
    involved_object: Mapping[str, Any] = field(default_factory=dict)
    type: str | None = ""
    reason: str | None = ""
    message: str | None = ""
    count: int | None = 1
    event_time: datetime | None = None
    last_timestamp: datetime | None = None
    series: Series | None = None


def gather(api: Api, found: Found) -> Facts:
    """What the cluster knows of a job; what may not be read is a note."""
    from arena.kube.api import together

    metadata = found.thing.metadata
    stuck = [pod for pod in found.pods if _is_stuck(pod)]
    calls: list[Callable[[], Any]] = [lambda: api.list(EVENTS.format(metadata.namespace), Raised).items]
    calls += [lambda: api.list("/api/v1/nodes", Node).items] if stuck else []
    answers: list[Any] = [*together(calls), []]
    raised, nodes = answers[:2]
    notes = ["pods may not be read"] if found.blind else []
    notes += [f"{what} may not be read" for what, answer in (("events", raised), ("nodes", nodes)) if _failed(answer)]
    return Facts(
        kind=found.engine.kind,
        operator=found.engine.operator,
        namespace=metadata.namespace,
        untouched=_untouched(found),
        events=() if _failed(raised) else tuple(_events(found, raised)),
        notes=tuple(notes),
        images={pod.metadata.name: one.image for pod in found.pods for one in pod.spec.containers[:1]},
        **({} if _failed(nodes) else _about_nodes(stuck, nodes)),
    )


def _failed(answer: object) -> bool:
    return isinstance(answer, ArenaError)


def _is_stuck(pod: Pod) -> bool:
    return any(one.type == "PodScheduled" and one.status == "False" for one in pod.status.conditions)


def _untouched(found: Found) -> float:
    """For how many seconds nobody has written a status or made a pod; 0 where somebody has."""
    thing = found.thing
    created: datetime | None = thing.metadata.creation_timestamp
    if found.pods or created is None or thing.status != type(thing.status)():
        return 0.0
    return max(0.0, (datetime.now(UTC) - created).total_seconds())


def _events(found: Found, raised: Sequence[Raised]) -> Iterator[Event]:
    """Those of the job, its pods, and of what carries its name further; the oldest first."""
    metadata = found.thing.metadata
    uids = {metadata.uid, *(pod.metadata.uid for pod in found.pods)}
    for one in sorted(raised, key=lambda one: _at(one) or datetime.min.replace(tzinfo=UTC)):
        about = one.involved_object
        name, kind = str(about.get("name", "")), str(about.get("kind", ""))
        same = name.startswith(f"{metadata.name}-") and kind != found.engine.kind and _since(one, found)
        if about.get("uid") in uids or same:
            yield Event(
                kind=kind,
                name=name,
                type=one.type or "",
                reason=one.reason or "",
                message=one.message or "",
                count=(one.series.count if one.series else one.count) or 1,
                at=_at(one),
            )


def _at(one: Raised) -> datetime | None:
    again = one.series.last_observed_time if one.series else None
    return again or one.last_timestamp or one.event_time or one.metadata.creation_timestamp


def _since(one: Raised, found: Found) -> bool:
    """Whether it is not about an earlier job of the same name, nor about another job's pods."""
    created, at = found.thing.metadata.creation_timestamp, _at(one)
    owned = str(one.involved_object.get("kind")) != "Pod" or not found.pods
    return bool(created and at and at >= created and owned)


def _about_nodes(stuck: Sequence[Pod], nodes: Sequence[Node]) -> dict[str, Any]:
    if not stuck or not nodes:
        return {}
    asked = [_asked(pod) for pod in stuck]
    mismatch = next((line for one in asked if (line := fitting.not_matching(one, nodes))), "")
    large = tuple(dict.fromkeys(line for one in asked for line in fitting.too_large(one, nodes)))
    return {"too_large": large, "mismatch": mismatch, "taints": _taints(asked[0], nodes)}


def _asked(pod: Pod) -> Asked:
    containers = [
        {"resources": {"requests": one.resources.requests, "limits": one.resources.limits}}
        for one in pod.spec.containers
    ]
    return fitting.asked_by({"spec": {"containers": containers, "nodeSelector": pod.spec.node_selector}})


def _taints(asked: Asked, nodes: Sequence[Node]) -> tuple[str, ...]:
    """The taints of nodes that would be large enough and have the labels."""
    fit = [node for node in nodes if not fitting.too_large(asked, [node]) and not fitting.not_matching(asked, [node])]
    found = [f"{one['key']}={one.get('value', '')}:{one['effect']}" for node in fit for one in node.spec.taints]
    return tuple(dict.fromkeys(taint for taint in found if not taint.endswith(":PreferNoSchedule")))
