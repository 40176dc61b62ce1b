"""A server that is not there: one clear line, within 15 seconds."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from arena.kube.api import Api, together
from arena.kube.config import Access
from arena.kube.errors import SilentError
from arena.kube.proxies import Proxy

from .conftest import MINUTE, keepalive

METHODS: dict[str, Callable[[Api], object]] = {
    "get": lambda api: api.get("/api"),
    "create": lambda api: api.create("/api", {}),
    "watch": lambda api: next(api.watch("/api", dict, version="0")),
}


@contextlib.contextmanager
def refusing() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    yield port


@contextlib.contextmanager
def mute() -> Iterator[int]:
    """It takes the connection and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@contextlib.contextmanager
def full() -> Iterator[int]:
    """It does not even take the connection: the packets are dropped."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, contextlib.ExitStack() as waiting:
        for _ in range(4):
            client = waiting.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(server.getsockname())
        yield server.getsockname()[1]


@contextlib.contextmanager
def hanging_up() -> Iterator[int]:
    """It takes connections and ends them at once."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    server.accept()[0].close()

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    "kind",
    [refusing, hanging_up, pytest.param(mute, marks=pytest.mark.slow), pytest.param(full, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("method", METHODS)
def test_a_dead_server(kind: object, method: str) -> None:
    with kind() as port, Api(Access(server=f"https://127.0.0.1:{port}")) as api:  # type: ignore[operator]
        began = time.monotonic()
        with pytest.raises(SilentError) as raised:
            METHODS[method](api)
        assert time.monotonic() - began < 15
    assert raised.value.what == f"no answer from https://127.0.0.1:{port}"
    assert raised.value.why
    assert "\n" not in raised.value.why
    assert raised.value.hint == "-b local runs it here"


@pytest.mark.slow
def test_a_server_that_falls_silent_after_the_handshake() -> None:
    with mute() as port, Api(Access(server=f"http://127.0.0.1:{port}")) as api:
        began = time.monotonic()
        results = together([lambda: api.get("/api")] * 3)
        assert all(isinstance(result, SilentError) for result in results)
        assert time.monotonic() - began < 15


def test_a_name_that_does_not_exist() -> None:
    with Api(Access(server="https://no-such-host.invalid")) as api, pytest.raises(SilentError) as raised:
        api.get("/api")
    assert raised.value.why


@contextlib.contextmanager
def logging() -> Iterator[str]:
    """A server, or the proxy before it, with a log that goes on: one line, then silence."""
    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.ExitStack() as kept:

        def serve() -> None:
            client = kept.enter_context(server.accept()[0])
            client.recv(65536)
            client.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nfirst\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("way", ["directly", "through a proxy"])
def test_the_peer_of_a_silent_stream_is_asked_whether_it_is_there(way: str) -> None:
    with logging() as url:
        found = Access(server=url) if way == "directly" else Access(server="http://k8s", proxy=Proxy(url))
        with Api(found) as api, api.wire.open("/log", first=5, read=None) as opened:
            pieces = opened.pieces()
            assert next(pieces) == b"first\n"
            assert keepalive(opened) == MINUTE
