"""The proxy that fails on request: each fault as a client sees it."""

import http.client
import json
import ssl
import threading
import time
from collections.abc import Iterator

import pytest
from testbed.api import Api, ApiError, wait_for
from testbed.bed import Bed
from testbed.faults import Fault, FaultProxy

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

MAPS = "/api/v1/namespaces/team-a/configmaps"


@pytest.fixture
def proxy(bed: Bed) -> Iterator[FaultProxy]:
    with FaultProxy(bed) as started:
        yield started


@pytest.fixture
def alice(proxy: FaultProxy) -> Api:
    return Api(proxy.kubeconfig("alice"))


def config_map(name: str) -> dict[str, object]:
    return {"metadata": {"name": name}, "data": {"a": "b"}}


def test_without_a_fault_all_goes_through(proxy: FaultProxy, alice: Api, name: str) -> None:
    alice.post(MAPS, config_map(name))
    assert alice.get(f"{MAPS}/{name}")["data"] == {"a": "b"}
    alice.delete(f"{MAPS}/{name}")
    assert [(seen.method, seen.status) for seen in proxy.requests()] == [("POST", 201), ("GET", 200), ("DELETE", 200)]
    assert len(proxy.requests("POST", "/configmaps$")) == 1


@pytest.mark.parametrize("status", [401, 403, 409, 410, 429, 500, 503])
def test_it_answers_in_the_servers_place(proxy: FaultProxy, alice: Api, status: int) -> None:
    proxy.add(Fault(method="GET", path="/configmaps", status=status, times=1))
    with pytest.raises(ApiError) as refused:
        alice.get(MAPS)
    assert refused.value.status == status
    assert alice.get(MAPS)["kind"] == "ConfigMapList"


def test_a_client_is_told_when_to_come_again(proxy: FaultProxy, alice: Api) -> None:
    proxy.add(Fault(status=429, retry_after=7))
    connection = http.client.HTTPSConnection("127.0.0.1", proxy.port, context=alice.tls)
    connection.request("GET", MAPS)
    assert connection.getresponse().getheader("Retry-After") == "7"


def test_it_delays(proxy: FaultProxy, alice: Api) -> None:
    proxy.add(Fault(delay=0.5, times=1))
    start = time.monotonic()
    alice.get(MAPS)
    assert time.monotonic() - start >= 0.5


def test_it_cuts_an_answer_in_the_middle(proxy: FaultProxy, alice: Api) -> None:
    proxy.add(Fault(cut=40, times=1))
    with pytest.raises((OSError, http.client.HTTPException, ssl.SSLError)):
        alice.get(MAPS)
    assert alice.get(MAPS)["kind"] == "ConfigMapList"


def test_it_cuts_a_watch_when_told(proxy: FaultProxy, alice: Api, name: str) -> None:
    ended: list[BaseException] = []

    def watch() -> None:
        try:
            alice.raw("GET", f"{MAPS}?watch=true&timeoutSeconds=60")
        except (OSError, http.client.HTTPException) as error:
            ended.append(error)

    watcher = threading.Thread(target=watch)
    watcher.start()
    wait_for("watch", lambda: proxy.requests(path="watch=true"))
    proxy.cut_streams()
    watcher.join(10)
    assert ended


def test_a_watch_streams_through(proxy: FaultProxy, alice: Api, name: str) -> None:
    connection = http.client.HTTPSConnection("127.0.0.1", proxy.port, context=alice.tls, timeout=10)
    connection.request("GET", f"{MAPS}?watch=true", headers={"Authorization": f"Bearer {alice.token}"})
    response = connection.getresponse()
    alice.post(MAPS, config_map(name))
    names = []
    while name not in names:
        names.append(json.loads(response.readline())["object"]["metadata"]["name"])
    alice.delete(f"{MAPS}/{name}")


@pytest.mark.parametrize("deliver", [False, True])
def test_it_stops_to_answer_after_so_many_writes(proxy: FaultProxy, bed: Bed, name: str, deliver: bool) -> None:
    alice = Api(proxy.kubeconfig("alice"))
    proxy.silence(after_writes=1, deliver=deliver)
    alice.get(MAPS)
    alice.post(MAPS, config_map(name))
    alice.timeout = 1
    with pytest.raises(TimeoutError):
        alice.post(MAPS, config_map(f"{name}-2"))
    with pytest.raises(TimeoutError):
        alice.get(MAPS)
    made = {one["metadata"]["name"] for one in bed.api("alice").get(MAPS)["items"]}
    assert {name, f"{name}-2"} & made == ({name, f"{name}-2"} if deliver else {name})
    assert [seen.status for seen in proxy.requests("POST")] == [201, 0]


AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@pytest.mark.parametrize(("path", "accept"), [("/apis/batch/v1", "application/json"), ("/apis", AGGREGATED)])
def test_it_hides_kinds_from_discovery(proxy: FaultProxy, alice: Api, path: str, accept: str) -> None:
    def said() -> str:
        connection = http.client.HTTPSConnection("127.0.0.1", proxy.port, context=alice.tls)
        connection.request("GET", path, headers={"Accept": accept, "Authorization": f"Bearer {alice.token}"})
        return connection.getresponse().read().decode()

    assert '"CronJob"' in said()
    proxy.hide("CronJob")
    assert '"CronJob"' not in said()
    assert '"Job"' in said()


def test_kubectl_works_through_it(proxy: FaultProxy, bed: Bed) -> None:
    proxy.kubeconfig("alice")
    assert "No resources found" in bed.kubectl("get", "pods", user=f"alice-proxy-{proxy.port}", check=False)
