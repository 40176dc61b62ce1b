"""What a cluster serves, where its server says less than usual; the server is a stand-in here."""

from pathlib import Path
from types import SimpleNamespace

from arena.backends.kubernetes.backend import KubernetesBackend
from arena.kube.discovery import Resource
from arena.kube.errors import UnpublishedError
from arena.settings import Settings


class SchemalessDiscovery:
    """Every kind, and no schema of any."""

    def find(self, kind: str, group: str, version: str = "") -> Resource:
        return Resource(group=group, version=version, plural=f"{kind.lower()}s", kind=kind, namespaced=True)

    def properties(self, resource: Resource) -> frozenset[str]:
        raise UnpublishedError(f"the server publishes no schema of {resource.api_version}")


def test_a_kind_without_a_schema_is_served_all_the_same() -> None:
    backend = KubernetesBackend(Settings.load({}, {"HOME": "/nonexistent"}, Path("/")), {})
    backend.__dict__["api"] = SimpleNamespace(discovery=SchemalessDiscovery())
    served = backend.served()
    assert served["PyTorchJob.kubeflow.org"].properties == frozenset()
    assert served["Job.batch"].version == "v1"
