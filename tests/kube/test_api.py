"""The verbs, on a real API server and through a proxy that fails on request."""

import base64
import gc
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from msgspec import Struct
from testbed.bed import Bed
from testbed.faults import Fault, FaultProxy

from arena.errors import AlreadyExistsError, BackendError, ForbiddenError, NotFoundError, SpecError
from arena.kube.api import Api, together
from arena.kube.config import Access, in_cluster
from arena.kube.errors import Answered, ConflictError, ExpiredError, ServerError, SilentError, UnknownOutcomeError

from .conftest import access

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

MAPS = "/api/v1/namespaces/team-a/configmaps"
Connect = Callable[..., Api]


class Named(Struct):
    name: str


class Thing(Struct):
    metadata: Named
    data: dict[str, str] | None = None


def config_map(name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": labels},
        "data": {"a": "b"},
    }


@pytest.fixture
def direct(bed: Bed, connect: Connect) -> Api:
    """Alice, with her client certificate."""
    return connect(bed.kubeconfig("alice"))


def test_an_object_from_its_making_to_its_end(direct: Api, name: str) -> None:
    made = direct.create(MAPS, config_map(name))
    path = f"{MAPS}/{name}"
    assert direct.get(path, Thing) == Thing(Named(name), {"a": "b"})
    assert direct.patch(path, {"data": {"a": None, "c": "d"}})["data"] == {"c": "d"}
    assert direct.patch(path, [{"op": "add", "path": "/data/e", "value": "f"}], how="json")["data"] == {
        "c": "d",
        "e": "f",
    }
    assert direct.patch(path, {"data": {"c": "x"}}, how="strategic")["data"] == {"c": "x", "e": "f"}
    with pytest.raises(ConflictError):
        direct.delete(path, uid="another")
    assert direct.delete(path, uid=made["metadata"]["uid"])["status"] == "Success"
    with pytest.raises(NotFoundError, match=f'configmaps "{name}" not found') as raised:
        direct.get(path)
    assert isinstance(raised.value, Answered)


def test_apply_makes_and_changes(direct: Api, name: str) -> None:
    path = f"{MAPS}/{name}"
    assert direct.patch(path, config_map(name), how="apply")["data"] == {"a": "b"}
    assert direct.patch(path, {**config_map(name), "data": {"c": "d"}}, how="apply")["data"] == {"c": "d"}
    direct.delete(path)


def test_a_dry_run_does_nothing(direct: Api, name: str) -> None:
    assert direct.create(MAPS, config_map(name), dry_run=True)["metadata"]["uid"]
    with pytest.raises(NotFoundError):
        direct.get(f"{MAPS}/{name}")
    with pytest.raises(SpecError, match='unknown field "dta"'):
        direct.create(MAPS, {**config_map(name), "dta": {}}, dry_run=True)


def test_refusals(direct: Api, bed: Bed, connect: Connect, name: str) -> None:
    direct.create(MAPS, config_map(name))
    with pytest.raises(AlreadyExistsError, match="already exists"):
        direct.create(MAPS, config_map(name))
    direct.delete(f"{MAPS}/{name}")
    with pytest.raises(SpecError, match="Invalid value"):
        direct.create(MAPS, config_map("No_Name"))
    with pytest.raises(ForbiddenError, match='cannot list resource "configmaps"'):
        direct.list("/api/v1/namespaces/team-b/configmaps", dict)
    with pytest.raises(ForbiddenError, match="the server does not know you"):
        Api(msgspec.structs.replace(access(bed.kubeconfig("alice", "token")), token="nonsense")).get("/api/v1/nodes")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "a"}]}}
    pod["spec"]["containers"][0] |= {"image": "x", "resources": {"limits": {"cpu": "99"}}}  # type: ignore[index]
    with pytest.raises(ForbiddenError, match=r"exceeded quota: team, .*limited: requests.cpu=8"):
        direct.create("/api/v1/namespaces/team-a/pods", pod, dry_run=True)


@pytest.mark.parametrize("way", ["", "token", "exec"])
def test_ways_to_log_in(bed: Bed, connect: Connect, way: str) -> None:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    said = connect(bed.kubeconfig("alice", way)).create("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
    assert said["status"]["userInfo"]["username"] == "alice"


def test_certificates_from_data_leave_no_file(bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = access(bed.kubeconfig("alice"))
    assert isinstance(found.cert, str)
    assert isinstance(found.key, str)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    data = msgspec.structs.replace(found, cert=Path(found.cert).read_bytes(), key=Path(found.key).read_bytes())
    with Api(data) as api:
        assert api.list(MAPS, dict).items
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, ""),
        ({"insecure": True, "ca": "", "tls_server_name": ""}, ""),
        ({"tls_server_name": "kubernetes.default.svc"}, ""),
        ({"tls_server_name": "elsewhere.example"}, "elsewhere.example"),
        ({"ca": ""}, "certificate verify failed"),
        ({"ca": "/nowhere.pem"}, "No such file"),
    ],
)
def test_whom_we_trust(bed: Bed, change: dict[str, Any], says: str) -> None:
    with Api(msgspec.structs.replace(access(bed.kubeconfig("alice", "token")), **change)) as api:
        if not says:
            assert api.get("/version")["gitVersion"]
            return
        began = time.monotonic()
        with pytest.raises(BackendError) as raised:
            api.get("/version")
        assert says in raised.value.why
        assert time.monotonic() - began < 10


def test_on_behalf_of_somebody(bed: Bed, connect: Connect) -> None:
    config = json.loads(bed.kubeconfig("admin").read_text())
    config["users"][0]["user"] |= {"as": "carol", "as-groups": ["g1", "g2"], "as-user-extra": {"a/B": ["x"]}}
    path = bed.place.kubeconfig("admin", "as-carol")
    path.write_text(json.dumps(config))
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    said = connect(path).create("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)["status"]["userInfo"]
    assert (said["username"], said["groups"][:2], said["extra"]) == ("carol", ["g1", "g2"], {"a/b": ["x"]})


# Lists.


@pytest.fixture
def many(direct: Api, name: str) -> list[str]:
    names = [f"{name}-{number:02}" for number in range(23)]
    together([lambda one=one: direct.create(MAPS, config_map(one, of=name)) for one in names])  # type: ignore[misc]
    return names


def test_a_list_in_pages(proxy: FaultProxy, alice: Api, many: list[str], name: str) -> None:
    listed = alice.list(MAPS, Thing, labels=f"of={name}", limit=5)
    assert [thing.metadata.name for thing in listed.items] == many
    assert len(proxy.requests("GET", "/configmaps")) == 5
    assert int(listed.version) > 0
    assert gc.isenabled()
    assert alice.list(MAPS, Thing, fields=f"metadata.name={many[3]}").items == [Thing(Named(many[3]), {"a": "b"})]
    metas = alice.metadata(MAPS, labels=f"of={name}", limit=10)
    assert [(meta.name, meta.labels) for meta in metas.items] == [(one, {"of": name}) for one in many]
    table = alice.table(MAPS, labels=f"of={name}", limit=10)
    assert [column.name for column in table.columns] == ["Name", "Data", "Age"]
    assert [row[:2] for row in table.rows] == [[one, 1] for one in many]


def test_a_list_whose_next_page_is_gone_begins_again(proxy: FaultProxy, alice: Api, many: list[str], name: str) -> None:
    proxy.add(Fault(path="continue=", status=410, times=1))
    things = alice.list(MAPS, Thing, labels=f"of={name}", limit=10).items
    assert [thing.metadata.name for thing in things] == many
    assert [seen.status for seen in proxy.requests()] == [200, 410, 200, 200, 200]
    proxy.add(Fault(path="continue=", status=410))
    with pytest.raises(ExpiredError):
        alice.list(MAPS, Thing, labels=f"of={name}", limit=10)


def test_an_answer_that_does_not_fit_is_an_error(direct: Api) -> None:
    class Wrong(Struct):
        metadata: int

    with pytest.raises(BackendError, match="not understood"):
        direct.list(MAPS, Wrong)
    assert gc.isenabled()


def test_an_answer_as_it_is(direct: Api) -> None:
    assert direct.get("/readyz", bytes) == b"ok"
    assert list(direct.lines("/readyz", verbose="true"))[-1] == b"readyz check passed"


# When the server is in trouble.


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_it_comes_again_when_told(proxy: FaultProxy, alice: Api, status: int, method: str, name: str) -> None:
    proxy.add(Fault(method=method, status=status, retry_after=1, times=2))
    began = time.monotonic()
    if method == "GET":
        assert alice.list(MAPS, dict).items
    else:
        assert alice.create(MAPS, config_map(name))["metadata"]["name"] == name
    assert time.monotonic() - began >= 2
    assert [seen.status for seen in proxy.requests(method)][:2] == [status, status]
    assert len(proxy.requests(method)) == 3


@pytest.mark.parametrize(
    "fault", [Fault(status=429), Fault(status=503), Fault(status=500), Fault(status=429, retry_after=90)]
)
def test_it_does_not_wait_without_a_word_or_for_ever(proxy: FaultProxy, alice: Api, fault: Fault) -> None:
    proxy.add(replace(fault))
    began = time.monotonic()
    with pytest.raises(ServerError, match="the fault proxy says"):
        alice.get(MAPS)
    assert time.monotonic() - began < 10
    assert len(proxy.requests()) == 1


def test_a_cut_answer_is_asked_for_once_more(proxy: FaultProxy, alice: Api) -> None:
    proxy.add(Fault(method="GET", cut=40, times=1))
    assert alice.list(MAPS, dict).items
    assert len(proxy.requests("GET")) == 2
    proxy.add(Fault(method="GET", cut=40))
    with pytest.raises(SilentError, match=r"no answer from https://127\.0\.0\.1") as raised:
        alice.list(MAPS, dict)
    assert raised.value.hint == "-b local runs it here"
    assert len(proxy.requests("GET")) == 4


def test_a_write_whose_answer_is_cut_is_not_repeated(proxy: FaultProxy, alice: Api, direct: Api, name: str) -> None:
    proxy.add(Fault(method="POST", cut=10))
    with pytest.raises(UnknownOutcomeError, match="unknown"):
        alice.create(MAPS, config_map(name))
    assert len(proxy.requests("POST")) == 1
    assert direct.get(f"{MAPS}/{name}")["data"] == {"a": "b"}  # this time it was done


def test_a_connection_that_slept_too_long_is_replaced(proxy: FaultProxy, alice: Api, name: str) -> None:
    alice.get(MAPS)
    proxy.cut_streams()
    time.sleep(0.1)
    alice.create(MAPS, config_map(name))


def test_threads_share_a_client(alice: Api) -> None:
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda number: alice.list(MAPS, dict).version, range(40)))
    assert len(found) == 40


def test_together_keeps_the_order(direct: Api) -> None:
    gate = threading.Barrier(3, timeout=10)

    def call(path: str) -> Any:
        gate.wait()  # all three are under way at once
        return direct.get(path)

    paths = ("/version", f"{MAPS}/nothing", "/api")
    calls = [lambda path=path: call(path) for path in paths]  # type: ignore[misc]
    first, second, third = cast(list[Any], together(calls))
    assert (first["major"], third["kind"]) == ("1", "APIVersions")
    assert isinstance(second, NotFoundError)

    def broken() -> int:
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        together([broken, broken])


# Credentials that end.


@pytest.fixture
def plugin(proxy: FaultProxy, tmp_path: Path) -> Callable[[], tuple[Path, Path]]:
    """A kubeconfig whose plug-in makes tokens of three seconds and notes when; through the proxy."""

    def make() -> tuple[Path, Path]:
        config = json.loads(proxy.bed.kubeconfig("alice", "exec").read_text())
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{proxy.port}"
        made, script = config["users"][0]["user"]["exec"], tmp_path / "login"
        words = " ".join([made["command"], *made["args"]])
        script.write_text(f"#!/bin/sh\necho x >>{tmp_path}/starts\nexec {words}\n")
        script.chmod(0o755)
        made |= {"command": str(script), "args": []}
        (tmp_path / "config").write_text(json.dumps(config))
        return tmp_path / "config", tmp_path / "starts"

    return make


def test_short_tokens_are_renewed_in_the_middle(plugin: Callable[[], tuple[Path, Path]], connect: Connect) -> None:
    kubeconfig, starts = plugin()
    api, began = connect(kubeconfig), time.monotonic()
    while not starts.exists() or starts.read_text().count("x") < 4:
        api.get(MAPS)
        assert time.monotonic() - began < 60
        time.sleep(0.2)
    assert time.monotonic() - began > 3 * 1.7  # a token's end is told in whole seconds, and a tenth is left


def test_a_refused_token_is_made_anew_once(
    proxy: FaultProxy, plugin: Callable[[], tuple[Path, Path]], connect: Connect, name: str
) -> None:
    kubeconfig, starts = plugin()
    api = connect(kubeconfig)
    proxy.add(Fault(method="POST", status=401, times=1))
    api.create(MAPS, config_map(name))
    assert starts.read_text().count("x") == 2
    proxy.add(Fault(status=401))
    with pytest.raises(ForbiddenError, match="does not know you"):
        api.get(MAPS)
    assert len(proxy.requests("GET")) == 2


def test_a_watch_outlives_its_token(
    proxy: FaultProxy, plugin: Callable[[], tuple[Path, Path]], connect: Connect, direct: Api, name: str
) -> None:
    kubeconfig, starts = plugin()
    api = connect(kubeconfig)
    events = api.watch(MAPS, Thing, version=direct.list(MAPS, dict).version, fields=f"metadata.name={name}")
    direct.create(MAPS, config_map(name))
    assert next(events).type == "ADDED"
    time.sleep(3.1)
    proxy.add(Fault(path="watch", status=401, times=1))
    proxy.cut_streams()
    direct.patch(f"{MAPS}/{name}", {"data": {"n": "1"}})
    assert next(events).type == "MODIFIED"
    assert starts.read_text().count("x") >= 2
    proxy.add(Fault(path="watch", status=401))
    proxy.cut_streams()
    with pytest.raises(ForbiddenError):
        next(events)


def test_a_token_file_that_changes(bed: Bed, tmp_path: Path) -> None:
    good = access(bed.kubeconfig("alice", "token"))
    file = tmp_path / "token"
    file.write_text("nonsense")
    with Api(msgspec.structs.replace(good, token="", token_file=str(file))) as api:
        with pytest.raises(ForbiddenError):
            api.get(MAPS)
        file.write_text(good.token)
        assert api.get(MAPS)["kind"] == "ConfigMapList"


def test_a_pods_own_account(bed: Bed, tmp_path: Path) -> None:
    account = access(bed.kubeconfig("ci"))
    assert isinstance(account.ca, bytes)
    for name, content in (("ca.crt", account.ca), ("token", account.token.encode()), ("namespace", b"team-a")):
        (tmp_path / name).write_bytes(content)
    host, _, port = account.server.removeprefix("https://").rpartition(":")
    found = in_cluster({"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}, tmp_path)
    assert found
    with Api(found) as api:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        said = api.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
        assert said["status"]["userInfo"]["username"] == "system:serviceaccount:team-a:ci"
        assert api.namespace == "team-a"


def test_two_clusters_in_one_process(bed: Bed, connect: Connect) -> None:
    with Bed.start(kubelet=False) as other:
        uids = [
            connect(one.kubeconfig()).get("/api/v1/namespaces/kube-system")["metadata"]["uid"]
            for one in (bed, other, bed)
        ]
    assert uids[0] == uids[2] != uids[1]


def test_what_goes_over_the_wire(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    import httpx2

    seen: list[httpx2.Request] = []
    send = httpx2.Client.send

    def noted(self: httpx2.Client, request: httpx2.Request, **more: Any) -> httpx2.Response:
        seen.append(request)
        return send(self, request, **more)

    monkeypatch.setattr(httpx2.Client, "send", noted)
    found: Access = access(proxy.kubeconfig("alice"))
    with (
        Api(msgspec.structs.replace(found, token="", username="a", password="b"), agent="arena/9") as api,
        pytest.raises(ForbiddenError),
    ):
        api.get(MAPS)
    headers = seen[0].headers
    assert (headers["user-agent"], headers["accept-encoding"]) == ("arena/9", "gzip")
    assert headers["authorization"] == "Basic " + base64.b64encode(b"a:b").decode()
