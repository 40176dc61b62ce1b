"""HTTPS_PROXY and NO_PROXY, as Go reads them; and a real one on the way."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed.bed import Bed

from arena.errors import BackendError
from arena.kube.api import Api
from arena.kube.config import Access, find
from arena.kube.errors import ServerError, SilentError
from arena.kube.proxies import Proxy, proxy_for

from .conftest import MINUTE, Tunnel, access, keepalive

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
    assert proxy_for(server, env).url == ("" if direct else "http://squid:3128")


def test_which_variable() -> None:
    env = {"https_proxy": "squid:1", "HTTP_PROXY": "http://other:2"}
    assert proxy_for("https://a.b", env) == Proxy("http://squid:1", "https_proxy")
    assert proxy_for("http://a.b", env) == Proxy("http://other:2", "HTTP_PROXY")
    assert not proxy_for("https://a.b", {"HTTP_PROXY": "http://other:2"})


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
        assert time.monotonic() - began < 10
        with api.wire.open("/readyz", first=5, read=None) as opened:
            assert keepalive(opened) == MINUTE
    address = through.server.removeprefix("https://")
    assert tunnel.seen == [address] * 3
    direct = find(kubeconfig=kubeconfig, env={**env, "NO_PROXY": "10.0.0.0/8"}, home=None)
    assert direct
    with Api(direct) as api:
        assert api.list(MAPS, dict).version
    assert len(tunnel.seen) == 3


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
    for url, shown in (("gopher://u:secret@x", "gopher://x"), ("http://u:sec/ret@x", "http://x")):
        error = failing(Access(server="https://k8s", proxy=proxy_for("https://k8s", {"HTTPS_PROXY": url})))
        assert (type(error), error.what) == (BackendError, f"the proxy {shown} (HTTPS_PROXY) cannot be used")
        assert "sec" not in error.why.replace("[secure]", "")
        assert error.hint.startswith("if k8s is reached without a proxy, add it to NO_PROXY; ")


def test_a_proxy_that_is_not_there_is_named_without_its_password() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    error = failing(Access(server="https://k8s:6443", proxy=Proxy(f"http://u:secret@127.0.0.1:{port}", "https_proxy")))
    assert (type(error), error.what) == (SilentError, "no answer from https://k8s:6443")
    there = f"the proxy http://127.0.0.1:{port} (https_proxy)"
    assert error.why.startswith(f"{there} is not reached: ")
    assert "refused" in error.why
    assert error.hint == "if k8s is reached without a proxy, add it to NO_PROXY; -b local runs it here"


def test_a_proxy_without_a_name_is_named() -> None:
    error = failing(Access(server="https://k8s", proxy=Proxy("http://no-such-host.invalid:3128", "HTTPS_PROXY")))
    assert error.why.startswith("the proxy http://no-such-host.invalid:3128 (HTTPS_PROXY) is not reached: ")


@pytest.mark.parametrize("said", ["407 Proxy Authentication Required", "502 Bad Gateway", "504 Gateway Timeout"])
def test_what_a_proxy_answers(said: str) -> None:
    with saying(f"HTTP/1.1 {said}\r\nContent-Length: 0\r\n\r\n") as url:
        error = failing(Access(server="https://k8s", proxy=Proxy(url, "HTTPS_PROXY")))
        assert (type(error), error.why) == (SilentError, f"the proxy {url} (HTTPS_PROXY) answers {said}")


def test_a_proxy_that_says_nothing() -> None:
    with saying("") as url:
        error = failing(Access(server="https://k8s", proxy=Proxy(url, "HTTPS_PROXY"), timeout=0.3))
    assert error.why == f"through the proxy {url} (HTTPS_PROXY): connected, but nothing came"
    assert "NO_PROXY" in error.hint


@pytest.mark.parametrize("said", ["407 Proxy Authentication Required", "502 Bad Gateway"])
def test_what_a_proxy_answers_in_the_place_of_a_server_without_tls(said: str) -> None:
    with saying(f"HTTP/1.1 {said}\r\nContent-Length: 5\r\n\r\nwords") as url:
        error = failing(Access(server="http://k8s", proxy=Proxy(url, "HTTP_PROXY")))
    assert isinstance(error, ServerError)
    assert f"answers {said[:3]}, through the proxy {url} (HTTP_PROXY)" in error.why
    assert "NO_PROXY" in error.hint


def test_the_proxy_of_a_kubeconfig_is_named_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "config"
    with saying("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n") as url:
        cluster = {"server": "https://k8s", "proxy-url": url.replace("//", "//u:secret@")}
        content = {
            "clusters": [{"name": "c", "cluster": cluster}],
            "contexts": [{"name": "c", "context": {"cluster": "c"}}],
            "current-context": "c",
        }
        path.write_text(json.dumps(content))
        error = failing(access(path))
    assert error.why == f"the proxy {url} (proxy-url in {path}) answers 502 Bad Gateway"
    assert error.hint == "-b local runs it here"


def failing(found: Access) -> BackendError:
    with Api(found) as api, pytest.raises(BackendError) as raised:
        api.get("/version")
    return raised.value


@contextlib.contextmanager
def saying(answer: str) -> Iterator[str]:
    """A proxy that says this to whoever comes, and keeps them where it is nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.ExitStack() as kept:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client = kept.enter_context(server.accept()[0])
                    client.recv(65536)
                    client.sendall(answer.encode())

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
