"""Tokens that live three seconds: the exec credential plug-in that makes them and the webhook that knows them.

This file is also run by itself, as the plug-in of a kubeconfig, and imports nothing of the package:

    python tokens.py mint KEYFILE USER [SECONDS]      prints an ExecCredential
    python tokens.py serve KEYFILE PORT               answers TokenReviews
"""

import hashlib
import hmac
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

LIFE = 3.0  # seconds


def mint(key: bytes, user: str, now: float, life: float = LIFE) -> str:
    """A token that says who and until when, with a seal.

    >>> read(b"k", mint(b"k", "alice", 100.0), 102.0), read(b"k", mint(b"k", "alice", 100.0), 104.0)
    ('alice', None)
    """
    words = f"{user}.{now + life:.3f}"
    return f"{words}.{_seal(key, words)}"


def read(key: bytes, token: str, now: float) -> str | None:
    """The user of a token, None if it is forged or over."""
    words, _, seal = token.rpartition(".")
    user, _, until = words.partition(".")
    if not hmac.compare_digest(seal, _seal(key, words)) or float(until) < now:
        return None
    return user


def _seal(key: bytes, words: str) -> str:
    return hmac.new(key, words.encode(), hashlib.sha256).hexdigest()


def credential(key: bytes, user: str, now: float, life: float = LIFE) -> dict[str, Any]:
    """What an exec plug-in prints."""
    until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now + life))
    status = {"token": mint(key, user, now, life), "expirationTimestamp": until}
    return {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}


def review(key: bytes, asked: dict[str, Any], now: float) -> dict[str, Any]:
    """The answer to a TokenReview."""
    user = read(key, asked["spec"]["token"], now)
    status: dict[str, Any] = {"authenticated": user is not None}
    if user:
        status["user"] = {"username": user, "uid": user}
    return {"apiVersion": asked["apiVersion"], "kind": "TokenReview", "status": status}


def serve(key: bytes, port: int) -> None:
    """Answer the API server until the end of the test bed."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps(review(key, asked, time.time())).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


def main(words: list[str]) -> None:
    """Run as the plug-in or as the webhook."""
    what, keyfile, argument, *rest = words
    key = Path(keyfile).read_bytes()
    if what == "serve":
        serve(key, int(argument))
    life = float(rest[0]) if rest else LIFE
    sys.stdout.write(json.dumps(credential(key, argument, time.time(), life)))


if __name__ == "__main__":
    main(sys.argv[1:])
