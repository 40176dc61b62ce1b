"""Which proxy stands between us and a server, by HTTPS_PROXY and NO_PROXY, as Go programs read them."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from msgspec import Struct


class Proxy(Struct, frozen=True):
    """The proxy on the way to a server, and where it is named: in a variable of the environment, or in a file.

    >>> str(Proxy("http://alice:secret@squid:3128", variable="HTTPS_PROXY"))
    'the proxy http://squid:3128 (HTTPS_PROXY)'
    """

    url: str = ""
    variable: str = ""
    file: str = ""

    def __bool__(self) -> bool:
        return bool(self.url)

    def __str__(self) -> str:
        named = self.variable or (f"proxy-url in {self.file}" if self.file else "")
        return f"the proxy {self.address}" + (f" ({named})" if named else "")

    def __repr__(self) -> str:
        return f"Proxy({self.address!r})"

    @property
    def address(self) -> str:
        """Its address without the user and the password that may stand in it."""
        scheme, mark, rest = self.url.partition("://")
        return scheme + mark + rest.rpartition("@")[2] if mark else self.url.rpartition("@")[2]


def proxy_for(server: str, env: Mapping[str, str]) -> Proxy:
    """The proxy to use; one without an address where there is none.

    >>> proxy_for("https://k8s.example:6443", {"HTTPS_PROXY": "squid:3128", "NO_PROXY": ".local,10.0.0.0/8"})
    Proxy('http://squid:3128')
    """
    url = urlsplit(server)
    name = "HTTPS_PROXY" if url.scheme == "https" else "HTTP_PROXY"
    variable = _spelling(name, env)
    proxy = env.get(variable, "")
    if not proxy or is_direct(url.hostname or "", url.port, env.get(_spelling("NO_PROXY", env), "")):
        return Proxy()
    return Proxy(proxy if "://" in proxy else f"http://{proxy}", variable)


def is_direct(host: str, port: int | None, no_proxy: str) -> bool:
    """Whether this host is reached without a proxy.

    >>> is_direct("10.1.2.3", 443, "10.0.0.0/8"), is_direct("a.example", 443, "b.example")
    (True, False)
    """
    if host == "localhost" or _in_network(host, "127.0.0.0/8") or _in_network(host, "::1/128"):
        return True
    words = [word.strip().lower() for word in no_proxy.split(",")]
    return any(_matches(host.lower(), port, word) for word in words if word)


def _spelling(name: str, env: Mapping[str, str]) -> str:
    """Which of its two spellings has a value; the capital one wins."""
    return name if env.get(name) else name.lower()


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
