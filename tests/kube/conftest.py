"""Proxies before the test bed, one of which fails on request, and clients that go through them."""

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from testbed.bed import Bed
from testbed.faults import FaultProxy

from arena.kube.api import Api
from arena.kube.config import Access, find
from arena.kube.wire import Open


def access(kubeconfig: Path) -> Access:
    """What a kubeconfig says."""
    found = find(kubeconfig=str(kubeconfig), env=os.environ, home=None)
    assert found
    return found


@pytest.fixture
def proxy(bed: Bed) -> Iterator[FaultProxy]:
    with FaultProxy(bed) as started:
        yield started


@pytest.fixture
def connect() -> Iterator[Callable[..., Api]]:
    """Clients that are closed at the end."""
    made: list[Api] = []

    def connect(kubeconfig: Path, **more: object) -> Api:
        made.append(Api(access(kubeconfig), **more))  # type: ignore[arg-type]
        return made[-1]

    yield connect
    for api in made:
        api.close()


@pytest.fixture
def alice(proxy: FaultProxy, connect: Callable[..., Api]) -> Api:
    """Alice, through the proxy."""
    return connect(proxy.kubeconfig("alice"))


class Tunnel(ThreadingHTTPServer):
    """What stands between a company and the world: it knows CONNECT, and notes where people go."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Connect)
        self.seen: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Connect(BaseHTTPRequestHandler):
    server: Tunnel

    def do_CONNECT(self) -> None:
        self.server.seen.append(self.path)
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((host, int(port))) as there:
            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            threading.Thread(target=_pump, args=(there, self.connection), daemon=True).start()
            _pump(self.connection, there)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def tunnel() -> Iterator[Tunnel]:
    with Tunnel() as started:
        threading.Thread(target=started.serve_forever, args=(0.05,), daemon=True).start()
        yield started
        started.shutdown()


KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 60_000}
MINUTE = {"SO_KEEPALIVE": 1} | {name: value for name, value in KEEPALIVE.items() if hasattr(socket, name)}


def keepalive(opened: Open) -> dict[str, int]:
    """When the kernel gives up the peer of an open answer; `MINUTE` is what is wanted."""
    found: socket.socket = opened.response.extensions["network_stream"].get_extra_info("socket")
    said = {"SO_KEEPALIVE": int(found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0)}
    for name in MINUTE.keys() - said:
        said[name] = found.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
    return said
