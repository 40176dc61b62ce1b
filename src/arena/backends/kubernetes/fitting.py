"""What pods ask for, beside what a quota leaves and what nodes have: plain sums, no requests.

Amounts are plain numbers by the names of Kubernetes (`cpu`, `memory`, `nvidia.com/gpu`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from arena.engines.objects import Meta, Part
from arena.quantity import format_bytes, parse_quantity

Amounts = Mapping[str, float]
BYTES = ("memory", "ephemeral-storage", "storage")


class NodeSpec(Part, frozen=True):
    """`spec` of a node."""

    unschedulable: bool = False
    taints: list[dict[str, Any]] = field(default_factory=list)


class NodeStatus(Part, frozen=True):
    """`status` of a node."""

    allocatable: dict[str, str | int] = field(default_factory=dict)


class Node(Part, frozen=True):
    """A node."""

    metadata: Meta = Meta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class QuotaSpec(Part, frozen=True):
    """`spec` of a ResourceQuota; one with scopes counts only some pods."""

    scopes: list[str] = field(default_factory=list)
    scope_selector: dict[str, Any] | None = None


class QuotaStatus(Part, frozen=True):
    """`status` of a ResourceQuota."""

    hard: dict[str, str | int] = field(default_factory=dict)
    used: dict[str, str | int] = field(default_factory=dict)


class Quota(Part, frozen=True):
    """A ResourceQuota."""

    metadata: Meta = Meta()
    spec: QuotaSpec = QuotaSpec()
    status: QuotaStatus = QuotaStatus()


class Asked(Struct, frozen=True):
    """What one pod of a role asks for, how many of them there are, and the labels and taints it looks for."""

    count: int
    requests: Mapping[str, float]
    limits: Mapping[str, float] = {}
    selector: Mapping[str, str] = {}

    @property
    def needs(self) -> Mapping[str, float]:
        """What a node must have: a device stands among the limits alone."""
        return {**{name: amount for name, amount in self.limits.items() if "/" in name}, **self.requests}


class Excess(Struct, frozen=True):
    """A quota that all pods together go over."""

    quota: str
    name: str
    asked: float
    used: float
    hard: float


def asked_by(pod: Mapping[str, Any], count: int = 1) -> Asked:
    """What a pod asks for, init containers included: the largest of them, or all others together.

    >>> asked_by({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]}}, 2)
    Asked(count=2, requests={'cpu': 0.5}, limits={}, selector={})
    """
    spec = pod["spec"]
    selector = dict(spec.get("nodeSelector") or {})
    return Asked(count, _effective(spec, "requests"), _effective(spec, "limits"), selector)


def over_quota(quotas: Iterable[Quota], pods: Sequence[Asked]) -> Iterator[Excess]:
    """The limits that all these pods together go over, beside what is used already."""
    total = _total(pods)
    for quota in quotas:
        if quota.spec.scopes or quota.spec.scope_selector:
            continue
        for name, hard in quota.status.hard.items():
            asked, limit = total.get(name, 0.0), amount(hard)
            used = amount(quota.status.used.get(name, 0))
            if asked and asked + used > limit:
                yield Excess(quota.metadata.name, name, asked, used, limit)


def too_large(pod: Asked, nodes: Sequence[Node]) -> list[str]:
    """What no node has enough of for one such pod: `12 nvidia.com/gpu are asked for, the largest node has 8`."""
    found = []
    for name, needed in sorted(pod.needs.items()):
        largest = max((amount(node.status.allocatable.get(name, 0)) for node in nodes), default=0.0)
        if nodes and needed > largest:
            verb = "is" if needed == 1 or name in BYTES else "are"
            has = shown(name, largest) if largest else "none"
            found.append(f"{shown(name, needed)} {name} {verb} asked for, the largest node has {has}")
    return found


def not_matching(pod: Asked, nodes: Sequence[Node]) -> str:
    """`0 of 3 nodes have zone=x`, or nothing where some node has the labels."""
    if not pod.selector or not nodes or any(_has(node, pod.selector) for node in nodes):
        return ""
    words = ",".join(f"{key}={value}" for key, value in pod.selector.items())
    return f"0 of {len(nodes)} nodes have {words}"


def shown(name: str, number: float) -> str:
    """An amount for people.

    >>> shown("memory", 2147483648.0), shown("cpu", 0.5), shown("nvidia.com/gpu", 8.0)
    ('2Gi', '0.5', '8')
    """
    return format_bytes(int(number)) if name.rpartition(".")[2] in BYTES else f"{number:.10g}"


def amount(quantity: str | int) -> float:
    """The number of a quantity; 0 for what is none."""
    try:
        return parse_quantity(str(quantity))
    except ValueError:
        return 0.0


def _effective(spec: Mapping[str, Any], kind: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for container in spec.get("containers") or ():
        for name, quantity in _resources(container, kind).items():
            found[name] = found.get(name, 0.0) + amount(quantity)
    for container in spec.get("initContainers") or ():
        for name, quantity in _resources(container, kind).items():
            found[name] = max(found.get(name, 0.0), amount(quantity))
    return found


def _resources(container: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return (container.get("resources") or {}).get(kind) or {}


def _total(pods: Sequence[Asked]) -> dict[str, float]:
    """The sum over all pods, under the names that quotas have for it."""
    count = float(sum(pod.count for pod in pods))
    found = {"pods": count, "count/pods": count}
    for pod in pods:
        for name, number in pod.needs.items():
            for key in (f"requests.{name}", name):
                found[key] = found.get(key, 0.0) + number * pod.count
        for name, number in pod.limits.items():
            found[f"limits.{name}"] = found.get(f"limits.{name}", 0.0) + number * pod.count
    return found


def _has(node: Node, selector: Mapping[str, str]) -> bool:
    return all(node.metadata.labels.get(key) == value for key, value in selector.items())
