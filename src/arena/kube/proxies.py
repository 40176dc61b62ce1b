"""Which proxy stands between us and a server, by HTTPS_PROXY and NO_PROXY, as Go programs read them."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit


def proxy_for(server: str, env: Mapping[str, str]) -> str:
    """The address of the proxy to use; empty where there is none.

    >>> proxy_for("https://k8s.example:6443", {"HTTPS_PROXY": "squid:3128", "NO_PROXY": ".local,10.0.0.0/8"})
    'http://squid:3128'
    """
    url = urlsplit(server)
    name = "HTTPS_PROXY" if url.scheme == "https" else "HTTP_PROXY"
    proxy = _value(name, env)
    if not proxy or is_direct(url.hostname or "", url.port, _value("NO_PROXY", env)):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def is_direct(host: str, port: int | None, no_proxy: str) -> bool:
    """Whether this host is reached without a proxy.

    >>> is_direct("10.1.2.3", 443, "10.0.0.0/8"), is_direct("a.example", 443, "b.example")
    (True, False)
    """
    if host == "localhost" or _in_network(host, "127.0.0.0/8") or _in_network(host, "::1/128"):
        return True
    words = [word.strip().lower() for word in no_proxy.split(",")]
    return any(_matches(host.lower(), port, word) for word in words if word)


def _value(name: str, env: Mapping[str, str]) -> str:
    return env.get(name) or env.get(name.lower()) or ""


def _matches(host: str, port: int | None, word: str) -> bool:
    if word == "*":
        return True
    if _in_network(host, word):
        return True
    name, colon, wanted = word.rpartition(":")
    if colon and wanted.isdecimal() and name.count(":") == 0:
        return str(port or 443) == wanted and _matches(host, port, name)
    suffix = word.removeprefix("*")
    return host.endswith(suffix) if suffix.startswith(".") else host == suffix or host.endswith(f".{suffix}")


def _in_network(host: str, word: str) -> bool:
    from ipaddress import ip_address, ip_network

    try:
        return ip_address(host) in ip_network(word.strip("[]"), strict=False)
    except ValueError:
        return False
