"""Where objects are made: what every cluster serves is known, the rest is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arena.engines.base import Engine, Manifest
from arena.errors import UnsupportedError

if TYPE_CHECKING:
    from arena.kube.api import Api

BUILT_IN = {
    ("v1", "ConfigMap"): "/api/v1/namespaces/{}/configmaps",
    ("v1", "Secret"): "/api/v1/namespaces/{}/secrets",
    ("v1", "Service"): "/api/v1/namespaces/{}/services",
    ("v1", "Pod"): "/api/v1/namespaces/{}/pods",
    ("v1", "PersistentVolumeClaim"): "/api/v1/namespaces/{}/persistentvolumeclaims",
    ("apps/v1", "Deployment"): "/apis/apps/v1/namespaces/{}/deployments",
}


class Paths:
    """The paths of one namespace, for a job of one kind and what it needs."""

    def __init__(self, api: Api, namespace: str, engine: Engine) -> None:
        self.api = api
        self.namespace = namespace
        self.engine = engine

    def of(self, manifest: Manifest) -> str:
        """Where objects of this kind are made."""
        return self.to(manifest["apiVersion"], manifest["kind"])

    def at(self, manifest: Manifest) -> str:
        """Where this very object is."""
        return f"{self.of(manifest)}/{manifest['metadata']['name']}"

    def to(self, version: str, kind: str) -> str:
        """Where objects of this kind are made; UnsupportedError where it is not served."""
        if known := BUILT_IN.get((version, kind)):
            return known.format(self.namespace)
        if resource := self.api.discovery.serving(version, kind):
            return resource.path(self.namespace)
        missing = f"{self.engine.operator} is not installed" if kind == self.engine.kind else ""
        raise UnsupportedError(f"this cluster serves no {kind} of {version}", why=missing, hint="arena doctor")
