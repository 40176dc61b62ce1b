"""One way to one server: TLS, the request, and when it is made once more.

What may be repeated: a request that never left (no connection), one that the server put off (429 and 503 with
Retry-After) or whose user it did not know (401, with newer credentials), and a GET whose answer broke. A write whose
answer broke is not repeated: it may have been done.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from msgspec import Struct

from arena.errors import BackendError
from arena.kube.auth import Credentials, Headers, Login
from arena.kube.config import Access
from arena.kube.errors import LOCAL, Answer, UnknownOutcomeError, read_answer, refusal, silent

if TYPE_CHECKING:
    import ssl

    import httpx2

CONNECT = 5.0  # seconds until a server that does not answer is given up
READ = 12.0  # for the next piece of an answer
WRITE = 40.0  # a webhook behind the server may take 30
PATIENCE = 30.0  # seconds of Retry-After in total
TRIES = 10
AGAIN = 4.0  # a connection that failed is tried again until then
JSON = "application/json"

Query = Mapping[str, str] | Sequence[tuple[str, str]]


class Wire:
    """One server as one user; threads may share it."""

    def __init__(self, access: Access, agent: str) -> None:
        self.access = access
        self.agent = agent
        self.credentials = Credentials(access)
        self._lock = threading.Lock()
        self._clients: dict[tuple[str | bytes, str | bytes], httpx2.Client] = {}

    def ask(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        *,
        body: bytes | None = None,
        accept: str = JSON,
        content: str = JSON,
    ) -> httpx2.Response:
        """A whole answer; what the server refuses is raised."""
        return self._ask(_Asked(method, _target(path, query), body=body, accept=accept, content=content))

    @contextlib.contextmanager
    def open(
        self, path: str, query: Query | None = None, *, read: float | None, headers: Headers | None = None
    ) -> Iterator[httpx2.Response]:
        """An answer that is read while it comes; silent for longer than `read` seconds it is cut.

        With headers it is a websocket: what it starts is not started twice.
        """
        asked = _Asked(
            "GET", _target(path, query), accept="*/*", streamed=True, read=read, headers=tuple(headers or ())
        )
        response = self._ask(asked)
        try:
            yield response
        finally:
            response.close()

    def client(self, login: Login) -> httpx2.Client:
        """The connections that this login may use: a certificate belongs to a connection."""
        with self._lock:
            found = self._clients.get((login.cert, login.key))
            if found is None:
                found = self._clients[login.cert, login.key] = _client(self.access, login)
            return found

    def close(self) -> None:
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.close()

    def _ask(self, asked: _Asked) -> httpx2.Response:
        import httpx2

        tries = _Tries(self.access, repeatable=asked.method == "GET" and not asked.headers)
        while True:
            login = self.credentials.login()
            try:
                response = self._once(asked, login)
            except httpx2.RequestError as error:
                tries.broken(error, before=isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout))
                continue
            if response.status_code < 300:
                return response
            answer = read_answer(response.status_code, response.content)
            if answer.code == 401 and tries.once("login") and self.credentials.renew(login):
                continue
            tries.put_off(answer, response.headers.get("Retry-After", ""))

    def _once(self, asked: _Asked, login: Login) -> httpx2.Response:
        import httpx2

        client = self.client(login)
        headers = [("Accept", asked.accept), ("User-Agent", self.agent), *asked.headers, *login.headers]
        headers += [("Content-Type", asked.content)] if asked.body is not None else []
        timeout = httpx2.Timeout(asked.patience, connect=CONNECT, pool=None)
        url = self.access.server + asked.target
        request = client.build_request(asked.method, url, content=asked.body, headers=headers, timeout=timeout)
        response = client.send(request, stream=True)
        if not asked.streamed or response.status_code >= 300:
            try:
                response.read()
            finally:
                response.close()
        return response


class _Asked(Struct, frozen=True):
    """One request, as often as it is made."""

    method: str
    target: str
    body: bytes | None = None
    accept: str = JSON
    content: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    streamed: bool = False
    read: float | None = None

    @property
    def patience(self) -> float | None:
        """How long the next piece of the answer may take."""
        if self.streamed:
            return self.read
        return READ if self.method == "GET" else WRITE


class _Tries:
    """Whether a request is made once more, and when."""

    def __init__(self, access: Access, *, repeatable: bool) -> None:
        self.access = access
        self.repeatable = repeatable
        self.began = time.monotonic()
        self.count = 0
        self.done: set[str] = set()

    def once(self, what: str) -> bool:
        """Whether this was not done before."""
        first = what not in self.done
        self.done.add(what)
        return first

    def broken(self, error: Exception, *, before: bool) -> None:
        """Go on after a connection that failed, or raise what it means."""
        why = _words(error)
        if before:
            self.count += 1
            if self.count >= 3 or time.monotonic() - self.began > AGAIN or "CERTIFICATE" in why:
                raise silent(self.access, why) from error
            time.sleep(0.2 * self.count)
        elif not self.repeatable:
            raise UnknownOutcomeError(
                f"the connection to {self.access.server} broke: whether the request was carried out is unknown",
                why=why,
                hint="look before you repeat it",
            ) from error
        elif _is_slow(error) or not self.once("cut"):
            raise silent(self.access, why) from error

    def put_off(self, answer: Answer, header: str) -> None:
        """Wait as long as the server asks for, or raise what it said."""
        self.count += 1
        seconds = _retry_after(answer, header)
        left = self.began + PATIENCE - time.monotonic()
        if answer.code not in (429, 503) or seconds is None or seconds > left or self.count >= TRIES:
            raise refusal(answer, self.access)
        time.sleep(max(seconds, 0.1))


def _target(path: str, query: Query | None) -> str:
    pairs = query.items() if isinstance(query, Mapping) else query or ()
    words = urlencode([(name, value) for name, value in pairs if value != ""])
    return path + ("&" if "?" in path else "?") + words if words else path


def _words(error: Exception) -> str:
    import httpx2

    if isinstance(error, httpx2.ConnectTimeout):
        return f"no connection within {CONNECT:.0f} s"
    if isinstance(error, httpx2.ReadTimeout):
        return "connected, but nothing came"
    return str(error) or type(error).__name__


def _is_slow(error: Exception) -> bool:
    import httpx2

    return isinstance(error, httpx2.TimeoutException)


def _retry_after(answer: Answer, header: str) -> float | None:
    """The seconds to wait; None where the server names none."""
    if header.strip().isdecimal():
        return float(header)
    details = answer.details
    return float(details.retry_after_seconds) if details and details.retry_after_seconds else None


def _client(access: Access, login: Login) -> httpx2.Client:
    import httpx2

    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=30)
    verify: Any = _tls(access, login) if access.server.startswith("https") else False
    try:
        transport = httpx2.HTTPTransport(
            verify=verify, trust_env=False, limits=limits, proxy=access.proxy_url or None, socket_options=_options()
        )
    except (ImportError, ValueError, httpx2.InvalidURL) as error:
        raise BackendError(f"the proxy {access.proxy_url!r} cannot be used", why=str(error), hint=LOCAL) from error
    return httpx2.Client(transport=transport, trust_env=False, headers={"Accept-Encoding": "gzip"})


def _options() -> list[tuple[int, int, int]]:
    """A peer that is gone without a word is noticed: after a minute of silence, after 10 s of unread words."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 10_000)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


def _tls(access: Access, login: Login) -> ssl.SSLContext:
    """Whom we trust, and the certificate we show."""
    import ssl

    import httpx2

    try:
        if access.insecure:
            context = httpx2.create_ssl_context(verify=False)
        elif access.ca:
            context = _trusting(access.ca)
        else:
            context = httpx2.create_ssl_context()
        if login.cert:
            _load_pair(context, login.cert, login.key)
    except (OSError, ssl.SSLError) as error:
        raise BackendError(
            f"the certificates of {access.source or 'this access'} cannot be used", why=str(error)
        ) from error
    if access.tls_server_name:
        _rename(context, access.tls_server_name)
    return context


def _trusting(ca: str | bytes) -> ssl.SSLContext:
    import ssl

    pem = ca.decode() if isinstance(ca, bytes) else Path(ca).read_text()
    context = ssl.create_default_context(cadata=pem)
    # From 3.13 on Python wants more of a CA than Go does, and than many clusters' own have.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _load_pair(context: ssl.SSLContext, cert: str | bytes, key: str | bytes) -> None:
    with contextlib.ExitStack() as files:
        context.load_cert_chain(files.enter_context(_as_file(cert)), files.enter_context(_as_file(key)) or None)


@contextlib.contextmanager
def _as_file(pem: str | bytes) -> Iterator[str]:
    """A path, for as long as OpenSSL reads it; what was in memory lies in a file of one's own meanwhile."""
    if isinstance(pem, str):
        yield pem
        return
    handle, path = tempfile.mkstemp()
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(pem)
        yield path
    finally:
        os.unlink(path)


def _rename(context: ssl.SSLContext, name: str) -> None:
    """Ask for, and check, another name than the one that is dialled; also behind a proxy."""
    wrap_socket, wrap_bio = context.wrap_socket, context.wrap_bio
    setattr(context, "wrap_socket", lambda sock, **kw: wrap_socket(sock, **{**kw, "server_hostname": name}))  # noqa: B010
    setattr(  # noqa: B010
        context, "wrap_bio", lambda inc, out, **kw: wrap_bio(inc, out, **{**kw, "server_hostname": name})
    )
