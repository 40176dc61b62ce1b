"""Pods that a namespace of the pod security level `restricted` takes: without privileges, and not as root."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from arena.backends.base import Plan
from arena.engines.base import Manifest

POD = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
CONTAINER = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
NOTE = "namespace {!r} takes restricted pods only: these have no privileges and do not run as root"


def can_restrict(plan: Plan, level: str) -> bool:
    """Whether the pods of a plan of ours can be what a namespace of this level takes, and are not yet."""
    return level == "restricted" and plan.job is not None and restrict(plan).steps != plan.steps


def restrict(plan: Plan) -> Plan:
    """The plan with pods that `restricted` takes; what was set is kept, and judged by the server."""
    helpers = tuple(map(_restricted, plan.data.helpers))
    made = structs.replace(plan.data, thing=_restricted(plan.data.thing), helpers=helpers)
    return structs.replace(plan, data=made, steps=(*made.helpers, made.thing))


def _restricted(node: Any) -> Any:
    """An object with all the pod templates below it restricted."""
    if isinstance(node, list):
        return [_restricted(one) for one in node]
    if not isinstance(node, Mapping):
        return node
    if "containers" in (node.get("spec") or {}):
        return {**node, "spec": restricted(node["spec"])}
    return {key: _restricted(value) for key, value in node.items()}


def restricted(spec: Manifest) -> Manifest:
    """What a pod is made of, restricted.

    >>> found = restricted({"containers": [{"name": "c", "securityContext": {"runAsUser": 7}}]})
    >>> found["securityContext"]["runAsNonRoot"], found["containers"][0]["securityContext"]["runAsUser"]
    (True, 7)
    """
    kinds = [kind for kind in ("initContainers", "containers") if kind in spec]
    containers: Manifest = {kind: [_with(CONTAINER, one) for one in spec[kind]] for kind in kinds}
    return {**_with(POD, spec), **containers}


def _with(usual: Mapping[str, Any], one: Mapping[str, Any]) -> Manifest:
    return {**one, "securityContext": {**usual, **(one.get("securityContext") or {})}}
