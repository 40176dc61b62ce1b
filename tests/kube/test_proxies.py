"""HTTPS_PROXY and NO_PROXY, as Go reads them."""

import pytest

from arena.kube.proxies import proxy_for


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
