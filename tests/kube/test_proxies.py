"""HTTPS_PROXY and NO_PROXY, as Go reads them; and a real one on the way."""

import json
import threading
import time

import pytest
from testbed.bed import Bed

from arena.errors import BackendError
from arena.kube.api import Api
from arena.kube.config import Access, find
from arena.kube.proxies import proxy_for

from .conftest import Tunnel, access

MAPS = "/api/v1/namespaces/team-a/configmaps"


@pytest.mark.parametrize(
    ("server", "no_proxy", "direct"),
    [
        ("https://k8s.example.org:6443", "", False),
        ("https://k8s.example.org:6443", "*", True),
        ("https://k8s.example.org:6443", "example.org", True),
        ("https://k8s.example.org:6443", ".example.org", True),
        ("https://k8s.example.org:6443", "*.example.org", True),
        ("https://K8S.example.org:6443", "k8s.EXAMPLE.org", True),
        ("https://example.org:6443", ".example.org", False),
        ("https://k8s-example.org:6443", "example.org", False),
        ("https://k8s.example.org:6443", "k8s.example.org:6443", True),
        ("https://k8s.example.org:6443", "k8s.example.org:443", False),
        ("https://10.96.0.1", "10.0.0.0/8", True),
        ("https://10.96.0.1", "10.96.0.1", True),
        ("https://11.96.0.1", "10.0.0.0/8, 192.168.0.0/16", False),
        ("https://[fd00::1]:6443", "fd00::/8", True),
        ("https://127.0.0.1:6443", "", True),
        ("https://localhost:6443", "", True),
    ],
)
def test_who_is_reached_directly(server: str, no_proxy: str, direct: bool) -> None:
    env = {"HTTPS_PROXY": "http://squid:3128", "NO_PROXY": no_proxy}
    assert proxy_for(server, env) == ("" if direct else "http://squid:3128")


def test_which_variable() -> None:
    env = {"https_proxy": "squid:1", "HTTP_PROXY": "http://other:2"}
    assert proxy_for("https://a.b", env) == "http://squid:1"
    assert proxy_for("http://a.b", env) == "http://other:2"
    assert proxy_for("https://a.b", {"HTTP_PROXY": "http://other:2"}) == ""


@pytest.mark.cluster
def test_all_goes_through_the_proxy(bed: Bed, tunnel: Tunnel) -> None:
    kubeconfig = str(bed.kubeconfig("alice"))
    env = {"HTTPS_PROXY": tunnel.url}
    through = find(kubeconfig=kubeconfig, env=env, home=None)
    assert through
    stop = threading.Event()
    with Api(through) as api:
        version = api.list(MAPS, dict).version
        assert len(tunnel.seen) == 1
        threading.Timer(0.5, stop.set).start()
        began = time.monotonic()
        assert list(api.watch(MAPS, dict, version=version, labels="no=one", stop=stop)) == []
        assert time.monotonic() - began < 2
    address = through.server.removeprefix("https://")
    assert tunnel.seen == [address, address]
    direct = find(kubeconfig=kubeconfig, env={**env, "NO_PROXY": "10.0.0.0/8"}, home=None)
    assert direct
    with Api(direct) as api:
        assert api.list(MAPS, dict).version
    assert len(tunnel.seen) == 2


@pytest.mark.cluster
def test_the_kubeconfig_may_name_a_proxy(bed: Bed, tunnel: Tunnel) -> None:
    config = json.loads(bed.kubeconfig("alice").read_text())
    config["clusters"][0]["cluster"] |= {"proxy-url": tunnel.url, "tls-server-name": "kubernetes.default.svc"}
    path = bed.place.kubeconfig("alice", "proxied")
    path.write_text(json.dumps(config))
    with Api(access(path)) as api:
        assert api.list(MAPS, dict).version
    assert len(tunnel.seen) == 1
    config["clusters"][0]["cluster"] |= {"tls-server-name": "elsewhere"}
    path.write_text(json.dumps(config))
    with Api(access(path)) as api, pytest.raises(BackendError, match="is not trusted"):
        api.get("/version")


def test_a_proxy_that_cannot_be_used_is_named() -> None:
    found = Api(access_with("gopher://x"))
    with pytest.raises(BackendError, match="the proxy 'gopher://x' cannot be used"):
        found.get("/version")


def access_with(proxy: str) -> Access:
    return Access(server="https://k8s", proxy_url=proxy)
