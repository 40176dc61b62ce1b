"""A small client of the API server for the test bed's own work and for its tests: one call, one answer."""

import base64
import http.client
import json
import ssl
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

Object = dict[str, Any]
Found = TypeVar("Found")

MERGE = "application/merge-patch+json"


class ApiError(Exception):
    """The API server's refusal: its status code, its reason, its message."""

    def __init__(self, status: int, body: bytes) -> None:
        try:
            said = json.loads(body)
        except ValueError:
            said = {"message": body.decode(errors="replace")}
        self.status = status
        self.reason = str(said.get("reason", ""))
        self.message = str(said.get("message", ""))
        super().__init__(f"{status} {self.reason}: {self.message}")


class Api:
    """Speaks as the user of a kubeconfig (a client certificate or a token).

    `api.get("/api/v1/namespaces/team-a/pods")` is the list; a refusal is an `ApiError`.
    """

    def __init__(self, kubeconfig: Path) -> None:
        config = json.loads(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.server = urlsplit(cluster["server"])
        self.token = user.get("token")
        self.timeout = 30.0
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self.tls = ssl.create_default_context(cadata=authority)
        if "client-certificate" in user:
            self.tls.load_cert_chain(user["client-certificate"], user["client-key"])

    def get(self, path: str) -> Object:
        return self.call("GET", path)

    def post(self, path: str, body: Object) -> Object:
        return self.call("POST", path, body)

    def patch(self, path: str, body: Object, kind: str = MERGE) -> Object:
        return self.call("PATCH", path, body, kind)

    def delete(self, path: str) -> Object:
        return self.call("DELETE", path)

    def text(self, path: str) -> str:
        """What is at a path that answers no JSON: a log, a health check."""
        return self.raw("GET", path).decode(errors="replace")

    def call(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> Object:
        answer: Object = json.loads(self.raw(method, path, body, kind))
        return answer

    def raw(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> bytes:
        """One request on a connection of its own; threads may share the client."""
        connection = self._connect()
        try:
            return self._ask(connection, method, path, body, kind)
        finally:
            connection.close()

    def post_all(self, path: str, bodies: Sequence[Object], lanes: int = 16) -> None:
        """Create many objects, on a few connections side by side."""
        with ThreadPoolExecutor(lanes) as threads:
            shares = [bodies[lane::lanes] for lane in range(lanes)]
            list(threads.map(lambda share: self._post_each(path, share), shares))

    def _post_each(self, path: str, bodies: Sequence[Object]) -> None:
        connection = self._connect()
        for body in bodies:
            self._ask(connection, "POST", path, body, "application/json")
        connection.close()

    def _connect(self) -> http.client.HTTPSConnection:
        host, port = self.server.hostname or "", self.server.port
        return http.client.HTTPSConnection(host, port, timeout=self.timeout, context=self.tls)

    def _ask(
        self, connection: http.client.HTTPSConnection, method: str, path: str, body: Object | None, kind: str
    ) -> bytes:
        headers = {"Content-Type": kind, "Accept": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        connection.request(method, path, json.dumps(body) if body else None, headers)
        response = connection.getresponse()
        content = response.read()
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            raise ApiError(response.status, content)
        return content


def wait_for(what: str, probe: Callable[[], Found | None], seconds: float = 60, every: float = 0.1) -> Found:
    """What the probe finds at last; a probe that is refused or not answered is asked again."""
    deadline = time.monotonic() + seconds
    last = ""
    while time.monotonic() < deadline:
        try:
            found = probe()
        except (ApiError, OSError, http.client.HTTPException) as error:
            found, last = None, f" ({error})"
        if found:
            return found
        time.sleep(every)
    raise TimeoutError(f"after {seconds:.0f} s there is no {what}{last}")
