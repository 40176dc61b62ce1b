"""What an object says of the pods that will be made of it, before any is: pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from arena.engines.base import Manifest

PATCHES = "runtimePatches"  # parts of templates that a TrainJob does not have itself


def templated(thing: Manifest, helpers: Sequence[Manifest]) -> list[Manifest]:
    """The objects that pods of a job are made of: its own, and of its helpers those that it refers to by kind and name.

    >>> runtime = {"kind": "TrainingRuntime", "metadata": {"name": "a-7k3f"}}
    >>> thing = {"spec": {"runtimeRef": {"kind": "TrainingRuntime", "name": "a-7k3f"}}}
    >>> templated(thing, [runtime, {"kind": "Service", "metadata": {"name": "a"}}]) == [thing, runtime]
    True
    """
    referred = set(_references(thing.get("spec")))
    return [thing, *(one for one in helpers if (one["kind"], one["metadata"].get("name")) in referred)]


def _references(node: Any) -> Iterator[tuple[str, str]]:
    if isinstance(node, list):
        for one in node:
            yield from _references(one)
    elif isinstance(node, Mapping):
        if isinstance(node.get("kind"), str) and isinstance(node.get("name"), str):
            yield node["kind"], node["name"]
        for one in node.values():
            yield from _references(one)


def pods_of(node: Any, name: str, namespace: str) -> Iterator[Manifest]:
    """One pod of each template below: quota, limits, security and webhooks answer to it."""
    for number, template in enumerate(templates(node)):
        metadata = {**template.get("metadata", {}), "name": f"{name}-ask-{number}"[:253], "namespace": namespace}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def templates(node: Any) -> Iterator[Manifest]:
    """Every pod template below: a mapping `template` whose spec has containers."""
    return (template for template, _ in counted(node))


def counted(node: Any, times: int = 1) -> Iterator[tuple[Manifest, int]]:
    """Every pod template below, and how many pods are made of it."""
    if isinstance(node, Mapping):
        if "template" in node:
            times *= int(node.get("replicas", node.get("parallelism", 1)))
        for key, value in node.items():
            if key == PATCHES:
                continue
            if key == "template" and isinstance(value, Mapping) and "containers" in (value.get("spec") or {}):
                yield dict(value), times
            else:
                yield from counted(value, times)
    elif isinstance(node, list):
        for value in node:
            yield from counted(value, times)


def named_by(node: Any, helpers: Sequence[Manifest]) -> set[tuple[str, str]]:
    """The claims and secrets that pods of this job wait for, but for those the submit makes itself."""
    own = {helper["metadata"]["name"] for helper in helpers}
    found = {pair for template in templates(node) for pair in _named(template["spec"])}
    return {(kind, name) for kind, name in found if name not in own}


def _named(spec: Manifest) -> Iterator[tuple[str, str]]:
    for volume in spec.get("volumes", []):
        if claim := volume.get("persistentVolumeClaim"):
            yield "PersistentVolumeClaim", claim["claimName"]
        if (secret := volume.get("secret")) and not secret.get("optional"):
            yield "Secret", secret["secretName"]
        if (config := volume.get("configMap")) and not config.get("optional"):
            yield "ConfigMap", config["name"]
    for secret in spec.get("imagePullSecrets", []):
        yield "Secret", secret["name"]
