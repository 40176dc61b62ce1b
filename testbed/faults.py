"""A proxy before the API server that fails on request: what clients must survive, made to happen when a test says so.

    with FaultProxy(bed) as proxy:
        proxy.add(Fault(method="POST", status=429, retry_after=1, times=2))
        api = Api(proxy.kubeconfig("alice"))

It speaks TLS with the API server's own certificate and hands tokens on; a client certificate ends at it, so its
kubeconfigs carry tokens.
"""

import contextlib
import http.client
import json
import re
import socket
import ssl
import struct
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from testbed.bed import Bed
from testbed.layout import API_PORT

REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "AlreadyExists",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}
WRITES = ("POST", "PUT", "PATCH", "DELETE")
ASKS = re.compile(r"[?&]dryRun=|^/apis/auth(entication|orization)\.k8s\.io/")  # sent as writes, but nothing is kept
HOP_BY_HOP = ("connection", "keep-alive", "transfer-encoding", "content-length", "accept-encoding")


@dataclass
class Fault:
    """What goes wrong with the requests that match, so many times.

    `delay` waits first; `status` answers instead of the server; `cut` ends the connection after so many bytes of the
    answer's body.
    """

    method: str = ""
    path: str = ""
    times: int = 1_000_000
    delay: float = 0.0
    status: int = 0
    retry_after: int | None = None
    reason: str = ""
    cut: int | None = None

    def matches(self, method: str, path: str) -> bool:
        """Whether it is due for this request.

        >>> Fault(method="POST", path="/pods").matches("POST", "/api/v1/namespaces/a/pods?dryRun=All")
        True
        """
        return (
            self.times > 0
            and re.fullmatch(self.method or ".*", method) is not None
            and bool(re.search(self.path, path))
        )

    def body(self) -> bytes:
        """The API server's own form of a refusal."""
        reason = self.reason or REASONS.get(self.status, "Unknown")
        said: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        said |= {"message": f"the fault proxy says {reason}", "reason": reason, "code": self.status}
        if self.retry_after is not None:
            said["details"] = {"retryAfterSeconds": self.retry_after}
        return json.dumps(said).encode()


class Request(NamedTuple):
    """One request as the proxy saw it; status 0: never answered."""

    method: str
    path: str
    status: int


@dataclass
class Plan:
    """What is to go wrong, and what was seen; the connections' threads share it."""

    faults: list[Fault] = field(default_factory=list)
    hidden: set[str] = field(default_factory=set)
    writes_left: int | None = None
    deliver: bool = False
    seen: list[Request] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    over: threading.Event = field(default_factory=threading.Event)

    def fault(self, method: str, path: str) -> Fault:
        """The first fault that is due, used up by one; else one that does nothing."""
        with self.lock:
            for fault in self.faults:
                if fault.matches(method, path):
                    fault.times -= 1
                    return fault
        return Fault()

    def silent(self, method: str, path: str) -> bool:
        """Whether this request is not answered: the writes that are allowed have been made."""
        with self.lock:
            if self.writes_left is None:
                return False
            if self.writes_left > 0:
                self.writes_left -= is_write(method, path)
                return False
            return True

    def note(self, method: str, path: str, status: int) -> None:
        with self.lock:
            self.seen.append(Request(method, path, status))


class FaultProxy:
    """Stands before the API server of a test bed, on a port of the host's loopback."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.plan = Plan()
        pair = bed.place.certificates
        upstream = ssl.create_default_context(cafile=str(pair / "ca.crt"))
        self.server = _Server(bed.place.address, upstream, self.plan)
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(pair / "apiserver.crt", pair / "apiserver.key")
        self.server.serving = serving
        self.port = self.server.server_address[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.plan.over.set()
        self.server.shutdown()
        self.cut_streams()
        self.server.server_close()

    def kubeconfig(self, user: str) -> Path:
        """A kubeconfig of this user, with a token, that goes through the proxy."""
        with_token = self.bed.place.kubeconfig(user, "token")
        config = json.loads((with_token if with_token.exists() else self.bed.kubeconfig(user)).read_text())
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{self.port}"
        path = self.bed.place.kubeconfig(user, f"proxy-{self.port}")
        path.write_text(json.dumps(config))
        return path

    def add(self, fault: Fault) -> None:
        """From now on this goes wrong; earlier faults come first."""
        with self.plan.lock:
            self.plan.faults.append(fault)

    def clear(self) -> None:
        """From now on nothing goes wrong."""
        with self.plan.lock:
            self.plan.faults.clear()
            self.plan.hidden.clear()
            self.plan.writes_left = None

    def silence(self, *, after_writes: int, deliver: bool = False) -> None:
        """Answer this many writes, then no request any more; with `deliver` the server still gets them."""
        with self.plan.lock:
            self.plan.writes_left, self.plan.deliver = after_writes, deliver

    def hide(self, *kinds: str) -> None:
        """Discovery no longer names these kinds; what is asked for by its path is answered."""
        self.plan.hidden.update(kinds)

    def cut_streams(self) -> None:
        """End every connection at once, in the middle of what it carries."""
        for connection in list(self.server.connections):
            _reset(connection)

    def requests(self, method: str = "", path: str = "") -> list[Request]:
        """The requests that matched so far."""
        asked = Fault(method=method, path=path)
        with self.plan.lock:
            return [seen for seen in self.plan.seen if asked.matches(seen.method, seen.path)]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: str, upstream: ssl.SSLContext, plan: Plan) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.address = address
        self.upstream = upstream
        self.plan = plan
        self.serving: ssl.SSLContext | None = None
        self.connections: set[socket.socket] = set()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """The handshake is made by the connection's own thread: a slow client holds nobody up."""
        assert self.serving is not None
        try:
            wrapped = self.serving.wrap_socket(request, server_side=True)
        except OSError:
            return
        self.connections.add(wrapped)
        try:
            super().finish_request(wrapped, client_address)
        finally:
            self.connections.discard(wrapped)
            with contextlib.suppress(OSError):
                wrapped.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks is what this proxy is for."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def handle_one(self) -> None:
        plan = self.server.plan
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = plan.fault(self.command, self.path)
        time.sleep(fault.delay)
        if plan.silent(self.command, self.path):
            self._say_nothing(body)
        elif fault.status:
            self._answer(fault)
        elif self.headers.get("Upgrade"):
            self._upgrade()
        else:
            self._forward(body, fault)

    def log_message(self, format: str, *args: Any) -> None:
        """The proxy prints nothing; what it saw is asked with `requests`."""

    def _say_nothing(self, body: bytes) -> None:
        self.server.plan.note(self.command, self.path, 0)
        if self.server.plan.deliver:
            with contextlib.suppress(OSError, http.client.HTTPException):
                self._ask(body)[1].read()
        self.server.plan.over.wait()
        self.close_connection = True

    def _answer(self, fault: Fault) -> None:
        self.server.plan.note(self.command, self.path, fault.status)
        headers = {"Content-Type": "application/json"}
        if fault.retry_after is not None:
            headers["Retry-After"] = str(fault.retry_after)
        self._send(fault.status, headers, fault.body())

    def _forward(self, body: bytes, fault: Fault) -> None:
        connection, response = self._ask(body)
        self.server.plan.note(self.command, self.path, response.status)
        headers = {name: value for name, value in response.getheaders() if name.lower() not in HOP_BY_HOP}
        try:
            if self._is_discovery() or (response.length is not None and fault.cut is None):
                self._send(response.status, headers, self._without_hidden(response.read()))
            else:
                self._stream(response, headers, fault.cut)
        finally:
            connection.close()

    def _ask(self, body: bytes) -> tuple[http.client.HTTPSConnection, http.client.HTTPResponse]:
        connection = http.client.HTTPSConnection(self.server.address, API_PORT, context=self.server.upstream)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
        connection.request(self.command, self.path, body or None, headers)
        return connection, connection.getresponse()

    def _send(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _stream(self, response: http.client.HTTPResponse, headers: dict[str, str], cut: int | None) -> None:
        self.send_response_only(response.status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        sent = 0
        while piece := response.read1(65536):
            if cut is not None and sent + len(piece) >= cut:
                self._chunk(piece[: cut - sent])
                self.close_connection = True
                return _reset(self.connection)
            self._chunk(piece)
            sent += len(piece)
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, piece: bytes) -> None:
        if piece:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))

    def _is_discovery(self) -> bool:
        path = self.path.partition("?")[0].strip("/").split("/")
        return self.command == "GET" and bool(self.server.plan.hidden) and _is_discovery_path(path)

    def _without_hidden(self, content: bytes) -> bytes:
        if not self._is_discovery():
            return content
        return json.dumps(without_kinds(json.loads(content), self.server.plan.hidden)).encode()

    def _upgrade(self) -> None:
        """An exec, a port-forward: bytes both ways until one side is through."""
        self.server.plan.note(self.command, self.path, 101)
        self.close_connection = True
        plain = socket.create_connection((self.server.address, API_PORT))
        with self.server.upstream.wrap_socket(plain, server_hostname=self.server.address) as upstream:
            upstream.sendall(f"{self.requestline}\r\n{self.headers.as_string()}".encode())
            back = threading.Thread(target=_pump, args=(upstream, self.connection), daemon=True)
            back.start()
            _pump(self.connection, upstream)
            back.join()


for _method in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"):
    setattr(_Handler, f"do_{_method}", _Handler.handle_one)


def is_write(method: str, path: str) -> bool:
    """Whether a request changes something in the cluster; a dry run and a question about rights do not.

    >>> is_write("POST", "/api/v1/namespaces/a/pods?dryRun=All"), is_write("POST", "/api/v1/namespaces/a/pods")
    (False, True)
    """
    return method in WRITES and not ASKS.search(path)


def without_kinds(said: dict[str, Any], kinds: set[str]) -> dict[str, Any]:
    """A discovery document, plain or aggregated, without some kinds.

    >>> without_kinds({"resources": [{"kind": "TFJob"}, {"kind": "Pod"}]}, {"TFJob"})
    {'resources': [{'kind': 'Pod'}]}
    """
    found = dict(said)
    if "resources" in found:
        found["resources"] = [one for one in found["resources"] if _kind(one) not in kinds]
    for name in ("items", "versions"):
        if name in found:
            found[name] = [without_kinds(one, kinds) for one in found[name]]
    return found


def _kind(resource: dict[str, Any]) -> str:
    return str(resource.get("kind") or resource.get("responseKind", {}).get("kind", ""))


def _is_discovery_path(path: list[str]) -> bool:
    return (path[0] == "api" and len(path) <= 2) or (path[0] == "apis" and len(path) <= 3)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


def _reset(connection: socket.socket) -> None:
    """End a connection without a good-bye."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
