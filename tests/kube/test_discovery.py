"""What a cluster serves, asked once."""

import json
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from testbed.bed import Bed
from testbed.faults import Fault, FaultProxy

from arena.errors import BackendError
from arena.kube.api import Api
from arena.kube.discovery import Resource

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]
Connect = Callable[..., Api]

JOB = Resource("batch", "v1", "jobs", "Job", True)


def test_kinds(alice: Api) -> None:
    discovery = alice.discovery
    assert discovery.find("Job", "batch") == JOB
    assert discovery.find("Pod", "") == Resource("", "v1", "pods", "Pod", True)
    assert discovery.find("Node", "") == Resource("", "v1", "nodes", "Node", False)
    assert discovery.find("Job", "") is None
    assert discovery.warnings == []
    assert not [one for one in discovery.resources() if "/" in one.plural]


@pytest.mark.parametrize(
    ("resource", "where", "path"),
    [
        (JOB, ("a",), "/apis/batch/v1/namespaces/a/jobs"),
        (JOB, ("a", "x"), "/apis/batch/v1/namespaces/a/jobs/x"),
        (JOB, ("a", "x", "status"), "/apis/batch/v1/namespaces/a/jobs/x/status"),
        (JOB, ("",), "/apis/batch/v1/jobs"),
        (JOB, ("a", "../x?y"), "/apis/batch/v1/namespaces/a/jobs/..%2Fx%3Fy"),
        (Resource("", "v1", "nodes", "Node", False), ("a", "x"), "/api/v1/nodes/x"),
    ],
)
def test_paths(resource: Resource, where: tuple[str, ...], path: str) -> None:
    assert resource.path(*where) == path


def test_it_is_asked_for_once(proxy: FaultProxy, connect: Connect, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for _ in range(3):
        api = connect(proxy.kubeconfig("alice"), cache=cache)
        assert api.discovery.find("Job", "batch") == JOB
        assert "completions" in api.discovery.properties(JOB)
    assert len(proxy.requests(path="^/apis?$")) == 2
    assert len(proxy.requests(path="^/openapi/")) == 2
    (file,) = cache.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert connect(proxy.kubeconfig("bob"), cache=cache).discovery.find("Job", "batch") == JOB
    assert len(list(cache.iterdir())) == 2
    api.discovery.refresh()
    assert api.discovery.find("Job", "batch") == JOB
    assert len(proxy.requests(path="^/apis?$")) == 6


def test_the_cache_gets_old_and_may_be_broken(
    proxy: FaultProxy, connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig = proxy.kubeconfig("alice")
    connect(kubeconfig, cache=tmp_path).discovery.resources()
    (file,) = tmp_path.iterdir()
    for content in (b"{", json.dumps({**json.loads(file.read_text()), "at": 1.0}).encode()):
        file.write_bytes(content)
        before = len(proxy.requests(path="^/apis$"))
        assert connect(kubeconfig, cache=tmp_path).discovery.find("Job", "batch") == JOB
        assert len(proxy.requests(path="^/apis$")) == before + 1
    nowhere = tmp_path / "file"
    nowhere.write_text("")
    assert connect(kubeconfig, cache=nowhere / "below").discovery.find("Job", "batch") == JOB


def test_the_fields_of_a_kind(alice: Api) -> None:
    assert {"parallelism", "completions", "template"} <= alice.discovery.properties(JOB)
    assert "nodeSelector" in alice.discovery.properties(JOB, ("spec", "template", "spec"))
    assert "image" in alice.discovery.properties(JOB, ("spec", "template", "spec", "containers"))
    assert alice.discovery.properties(JOB, ("spec", "nonsense")) == frozenset()
    assert alice.discovery.properties(Resource("batch", "v1", "x", "Nonsense", True)) == frozenset()
    with pytest.raises(BackendError, match="publishes no schema of batch/v7"):
        alice.discovery.properties(Resource("batch", "v7", "jobs", "Job", True))


@pytest.fixture
def dead_group(bed: Bed) -> Iterator[str]:
    """A group whose own server is not there."""
    admin = bed.api()
    service = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": "v1.dead.example"},
        "spec": {"group": "dead.example", "version": "v1", "groupPriorityMinimum": 10, "versionPriority": 10}
        | {"insecureSkipTLSVerify": True, "service": {"name": "nobody", "namespace": "default"}},
    }
    admin.post("/apis/apiregistration.k8s.io/v1/apiservices", service)
    yield "dead.example"
    admin.delete("/apis/apiregistration.k8s.io/v1/apiservices/v1.dead.example")


@pytest.mark.parametrize("older", [False, True])
def test_a_group_that_is_down_is_a_warning(
    bed: Bed,
    proxy: FaultProxy,
    connect: Connect,
    tmp_path: Path,
    dead_group: str,
    older: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if older:
        monkeypatch.setattr("arena.kube.discovery.AGGREGATED", "application/json")

    def warned() -> Api | None:
        api = connect(proxy.kubeconfig("alice"), cache=tmp_path)
        return api if any("dead.example/v1" in warning for warning in api.discovery.warnings) else None

    api = bed.wait("warning", warned, 20)
    assert api.discovery.find("Job", "batch") == JOB
    assert list(tmp_path.iterdir()) == [], "what is down now may be there in a moment"


def test_an_older_server_is_asked_group_by_group(
    bed: Bed, alice: Api, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arena.kube.discovery.AGGREGATED", "application/json")
    older = connect(bed.kubeconfig("alice")).discovery.resources()
    monkeypatch.undo()
    assert sorted(older) == sorted(alice.discovery.resources())


def test_a_server_that_does_not_answer_is_an_error(proxy: FaultProxy, alice: Api) -> None:
    proxy.add(Fault(path="/apis", status=500))
    with pytest.raises(BackendError):
        alice.discovery.find("Job", "batch")
