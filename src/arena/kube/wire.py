"""One way to one server: the request, and when it is made once more.

What may be repeated: a request that never left (no connection), one that the server put off (429 and 503 with
Retry-After) or whose user it did not know (401, with newer credentials), and a GET whose answer broke. A write whose
answer broke is not repeated: it may have been done.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from msgspec import Struct, structs

from arena.errors import BackendError
from arena.kube import alive, forks
from arena.kube.auth import Credentials, Headers, Login
from arena.kube.config import Access
from arena.kube.errors import (
    LOCAL,
    Answer,
    CutError,
    UnknownOutcomeError,
    read_answer,
    refusal,
    silent,
    strange,
    through,
    way_out,
)
from arena.kube.stops import Guard, Stopped, Stops
from arena.kube.tls import tls_context

if TYPE_CHECKING:
    import httpx2

CONNECT = 5.0  # seconds until a server that does not answer is given up
READ = 12.0  # for the next piece of an answer
WRITE = 40.0  # a webhook behind the server may take 30
PATIENCE = 30.0  # seconds of Retry-After in total
TRIES = 10
EXACT = timedelta(seconds=5)  # clocks that differ less are taken for the same
AGAIN = 4.0  # a connection that failed is tried again until then
JSON = "application/json"
NO_URL = "http://[USER:PASSWORD@]HOST:PORT is expected; in a password / is written %2F, and @ %40"

Query = Mapping[str, str] | Sequence[tuple[str, str]]


class Wire:
    """One server as one user; threads may share it."""

    def __init__(self, access: Access, agent: str) -> None:
        self.access = access
        self.agent = agent
        self.credentials = Credentials(access)
        self.stops = Stops()
        self._clock: tuple[str, float] | None = None
        self._lock = forks.Lock()
        self._clients: dict[_Kind, httpx2.Client] = {}
        self._parents: list[object] = []
        forks.renew(self)

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
        patience = self.access.timeout or (READ if method == "GET" else WRITE)
        return self._ask(_Asked(method, _target(path, query), body, accept, content, patience=patience))

    @contextlib.contextmanager
    def open(
        self,
        path: str,
        query: Query | None = None,
        *,
        first: float | None,
        read: float | None,
        stop: threading.Event | None = None,
        headers: Headers = (),
    ) -> Iterator[Open]:
        """An answer that is read while it comes: its head within `first` seconds, each piece within `read`.

        With headers it is a websocket: what it starts is not started twice. `Stopped` is raised when `stop` is set.
        """
        asked = _Asked("GET", _target(path, query), accept="*/*", patience=first, headers=tuple(headers))
        with self.stops.guard(stop) as guard:
            response = self._ask(asked, guard)
            response.request.extensions["timeout"]["read"] = read
            try:
                yield Open(response, guard, self.access)
            finally:
                response.close()

    def after_fork(self) -> None:
        """A child has connections of its own: its parent's stay as they are, for the parent to go on with."""
        self._parents += [self._clients, self.stops]
        self._clients, self.stops = {}, Stops()

    def ahead(self) -> timedelta:
        """By how much the server's clock is ahead of this machine's; answers tell it in whole seconds."""
        from email.utils import parsedate_to_datetime

        if self._clock is None:
            return timedelta()
        said, at = self._clock
        try:
            found = parsedate_to_datetime(said) - datetime.fromtimestamp(at, UTC)
        except (TypeError, ValueError):
            return timedelta()
        return found if abs(found) > EXACT else timedelta()

    def close(self) -> None:
        """End all streams and connections, for good."""
        self.stops.all()
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.close()

    def _ask(self, asked: _Asked, guard: Guard | None = None) -> httpx2.Response:
        import httpx2

        tries = _Tries(self.access, guard, repeatable=asked.method == "GET" and not asked.headers)
        while True:
            login = self.credentials.login()
            try:
                response = self._once(asked, login, guard)
            except httpx2.RequestError as error:
                tries.broken(error)
                continue
            if date := response.headers.get("Date"):
                self._clock = date, time.time()
            if response.status_code < 300:
                return _not_a_page(response, self.access)
            answer = read_answer(response.status_code, response.content)
            if asked.headers:  # what refuses a websocket may be a kubelet, in plain words
                answer = structs.replace(answer, kind="Status")
            if answer.code == 401 and tries.once("login") and self.credentials.renew(login):
                continue
            tries.put_off(answer, response.headers.get("Retry-After", ""))

    def _once(self, asked: _Asked, login: Login, guard: Guard | None) -> httpx2.Response:
        import httpx2

        client = self._client(_Kind(login.cert, login.key, guard is not None))
        headers = [("Accept", asked.accept), ("User-Agent", self.agent), *asked.headers, *login.headers]
        headers += [("Content-Type", asked.content)] if asked.body is not None else []
        request = client.build_request(
            asked.method,
            self.access.server + asked.target,
            content=asked.body,
            headers=headers,
            timeout=httpx2.Timeout(asked.patience, connect=CONNECT, pool=None),
            extensions={"trace": guard.trace} if guard else None,
        )
        response = client.send(request, stream=True)
        if guard is None or response.status_code >= 300:
            try:
                response.read()
            finally:
                response.close()
        return response

    def _client(self, kind: _Kind) -> httpx2.Client:
        """The connections for this certificate. A stream has its own: `Guard.trace` hears of new ones only."""
        with self._lock:
            if self.stops.closed.is_set():
                raise BackendError(f"the connection to {self.access.server} was closed")
            if kind not in self._clients:
                self._clients = {old: client for old, client in self._clients.items() if old[:2] == kind[:2]}
                self._clients[kind] = _make_client(self.access, kind)
            return self._clients[kind]


class Open:
    """An answer that is being read."""

    def __init__(self, response: httpx2.Response, guard: Guard, access: Access) -> None:
        self.response = response
        self.guard = guard
        self.access = access

    def pieces(self) -> Iterator[bytes]:
        """What comes, as it comes; a connection that breaks is a `CutError`."""
        import httpx2

        try:
            yield from self.response.iter_bytes()
        except httpx2.RequestError as error:
            raise self.broken(error) from error
        if self.guard.stopped:
            raise Stopped

    def broken(self, error: Exception | None = None) -> Exception:
        """What a connection that ended means."""
        if self.guard.stopped:
            return Stopped()
        why = _words(error, self.access) if error else f"it ended too early{through(self.access)}"
        return CutError(f"the connection to {self.access.server} was cut", why=why)


class _Kind(NamedTuple):
    """What connections are made for: a certificate, and whether they carry streams."""

    cert: str | bytes
    key: str | bytes
    streams: bool


class _Asked(Struct, frozen=True):
    """One request, as often as it is made."""

    method: str
    target: str
    body: bytes | None = None
    accept: str = JSON
    content: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    patience: float | None = READ


class _Tries:
    """Whether a request is made once more, and when."""

    def __init__(self, access: Access, guard: Guard | None, *, repeatable: bool) -> None:
        self.access = access
        self.guard = guard
        self.repeatable = repeatable
        self.began = time.monotonic()
        self.count = 0
        self.done: set[str] = set()

    def once(self, what: str) -> bool:
        """Whether this was not done before."""
        first = what not in self.done
        self.done.add(what)
        return first

    def broken(self, error: Exception) -> None:
        """Go on after a connection that failed, or raise what it means."""
        import httpx2

        self._heed_stop()
        why = _words(error, self.access)
        if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.ProxyError):
            self.count += 1
            if "CERTIFICATE_VERIFY_FAILED" in why:
                raise BackendError(f"the certificate of {self.access.server} is not trusted", why=why) from error
            if self.count >= 3 or time.monotonic() - self.began > AGAIN:
                raise silent(self.access, why) from error
            self._wait(0.2 * self.count)
        elif not self.repeatable:
            raise UnknownOutcomeError(
                f"the connection to {self.access.server} broke: whether the request was carried out is unknown",
                why=why,
                hint="look before you repeat it",
            ) from error
        elif isinstance(error, httpx2.TimeoutException) or not self.once("cut"):
            raise silent(self.access, why) from error

    def put_off(self, answer: Answer, header: str) -> None:
        """Wait as long as the server asks for, or raise what it said."""
        self._heed_stop()
        self.count += 1
        seconds = _retry_after(answer, header)
        left = self.began + PATIENCE - time.monotonic()
        if answer.code not in (429, 503) or seconds is None or seconds > left or self.count >= TRIES:
            raise refusal(answer, self.access)
        self._wait(max(seconds, 0.1))

    def _wait(self, seconds: float) -> None:
        if self.guard:
            self.guard.wait(seconds)
            self._heed_stop()
        else:
            time.sleep(seconds)

    def _heed_stop(self) -> None:
        if self.guard and self.guard.stopped:
            raise Stopped


def _not_a_page(response: httpx2.Response, access: Access) -> httpx2.Response:
    """The answer, unless it is a page for people: nothing of an API server's is HTML."""
    if "html" not in response.headers.get("Content-Type", ""):
        return response
    response.read()
    response.close()
    raise strange(read_answer(response.status_code, response.content), access)


def _target(path: str, query: Query | None) -> str:
    pairs = query.items() if isinstance(query, Mapping) else query or ()
    words = urlencode([(name, value) for name, value in pairs if value != ""])
    return path + ("&" if "?" in path else "?") + words if words else path


def _words(error: Exception, access: Access) -> str:
    """What went wrong with a connection, and whose part a proxy on the way had in it."""
    import httpx2

    said = _said(error)
    if not access.proxy:
        return said
    if isinstance(error, httpx2.ProxyError):
        return f"{access.proxy} answers {said}"
    if _is_unreachable(error):
        return f"{access.proxy} is not reached: {said}"
    return f"through {access.proxy}: {said}"


def _said(error: Exception) -> str:
    import httpx2

    if isinstance(error, httpx2.ConnectTimeout):
        return f"no connection within {CONNECT:.0f} s"
    if isinstance(error, httpx2.ReadTimeout):
        return "connected, but nothing came"
    return str(error) or type(error).__name__


def _is_unreachable(error: BaseException | None) -> bool:
    """Whether there was nobody at the address that was called: no name, no way, no one who listens."""
    nobody = (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH)
    while error is not None:
        if isinstance(error, socket.gaierror) or (isinstance(error, OSError) and error.errno in nobody):
            return True
        error = error.__cause__ or error.__context__
    return False


def _retry_after(answer: Answer, header: str) -> float | None:
    """The seconds to wait; None where the server names none."""
    if header.strip().isdecimal():
        return float(header)
    details = answer.details
    return float(details.retry_after_seconds) if details and details.retry_after_seconds else None


def _make_client(access: Access, kind: _Kind) -> httpx2.Client:
    import httpx2

    limits = httpx2.Limits(
        max_connections=None, max_keepalive_connections=0 if kind.streams else 32, keepalive_expiry=30
    )
    verify: Any = tls_context(access, kind.cert, kind.key) if access.server.startswith("https") else False
    try:
        transport = httpx2.HTTPTransport(
            verify=verify,
            trust_env=False,
            limits=limits,
            proxy=access.proxy.url or None,
            socket_options=alive.options(),
        )
    except httpx2.InvalidURL as error:  # its words may have a piece of a password
        raise BackendError(f"{access.proxy} cannot be used", why=NO_URL, hint=way_out(access, LOCAL)) from error
    except (ImportError, ValueError) as error:
        raise BackendError(f"{access.proxy} cannot be used", why=str(error), hint=way_out(access, LOCAL)) from error
    return httpx2.Client(transport=transport, trust_env=False, headers={"Accept-Encoding": "gzip"})
