"""Who one is: tokens, token files, passwords, and the programs that make credentials (exec plug-ins)."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import msgspec
from msgspec import Struct

from arena.errors import BackendError, ForbiddenError
from arena.kube import forks
from arena.kube.config import Access, ExecPlugin

Headers = Sequence[tuple[str, str]]

VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
EARLY = timedelta(seconds=10)  # before its end a credential is made anew; a tenth of its life where that is shorter


class Login(Struct, frozen=True):
    """What one request carries; `turn` tells an older one from a newer one."""

    headers: tuple[tuple[str, str], ...] = ()
    cert: str | bytes = ""
    key: str | bytes = ""
    turn: int = 0


class Credentials:
    """The credentials of one access, made when they are needed and kept until they expire; threads may share them."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._lock = forks.Lock()
        self._made: _Made | None = None
        self._until: datetime | None = None
        self._turn = 0

    def login(self) -> Login:
        """What the next request is to carry."""
        access, acted = self.access, _impersonation(self.access)
        if basic := _fixed(access):
            return Login((("Authorization", basic), *acted), access.cert, access.key)
        if access.exec is None:
            return Login(tuple(acted), access.cert, access.key)
        with self._lock:
            made = self._current(access.exec)
            bearer = [("Authorization", f"Bearer {made.token}")] if made.token else []
            cert, key = made.certificate or (access.cert, access.key)
            return Login((*bearer, *acted), cert, key, self._turn)

    def renew(self, used: Login) -> bool:
        """Whether another login may be better than this one, which the server refused."""
        if self.access.exec is None or _fixed(self.access):
            return bool(self.access.token_file) and self.login() != used
        with self._lock:
            if self._turn == used.turn:
                self._made = None
        return True

    def _current(self, plugin: ExecPlugin) -> _Made:
        now = datetime.now(UTC)
        if self._made is None or (self._until is not None and now >= self._until):
            self._made = _run(plugin)
            self._turn += 1
            ends = self._made.expiration_timestamp
            self._until = ends - min(EARLY, (ends - now) / 10) if ends else None
        return self._made


class _Made(Struct, rename="camel"):
    """The status of an ExecCredential."""

    token: str | None = ""
    expiration_timestamp: datetime | None = None
    client_certificate_data: str | None = ""
    client_key_data: str | None = ""

    @property
    def certificate(self) -> tuple[bytes, bytes] | None:
        if not self.client_certificate_data:
            return None
        return self.client_certificate_data.encode(), (self.client_key_data or "").encode()


class _ExecCredential(Struct, rename="camel"):
    api_version: str = ""
    status: _Made | None = None


def _fixed(access: Access) -> str:
    """The Authorization that needs no program."""
    if access.token_file:
        return f"Bearer {_read_token(access)}"
    if access.token:
        return f"Bearer {access.token}"
    if access.username:
        return "Basic " + base64.b64encode(f"{access.username}:{access.password}".encode()).decode()
    return ""


def _read_token(access: Access) -> str:
    """The token as it is now: whoever writes the file replaces it before it expires."""
    try:
        return Path(access.token_file).read_text().strip()
    except OSError as error:
        if access.token:
            return access.token
        raise BackendError(f"the token of user {access.user!r} cannot be read", why=str(error)) from error


def _impersonation(access: Access) -> Headers:
    acted = access.impersonate
    headers = [("Impersonate-User", acted.user)] if acted.user else []
    headers += [("Impersonate-Uid", acted.uid)] if acted.uid else []
    headers += [("Impersonate-Group", group) for group in acted.groups]
    for name, values in acted.extra.items():
        headers += [(f"Impersonate-Extra-{quote(name, safe='')}", value) for value in values]
    return headers


def _run(plugin: ExecPlugin) -> _Made:
    """What the program answers."""
    if plugin.api_version not in VERSIONS:
        raise BackendError(
            f"the credential plug-in {plugin.command!r} speaks {plugin.api_version or 'no version'}",
            why=f"known are {' and '.join(VERSIONS)}",
            hint=plugin.install_hint.strip() or "a newer plug-in, and its newer entry in the kubeconfig",
        )
    interactive = _is_interactive(plugin)
    spec = {"interactive": interactive, **({"cluster": plugin.cluster} if plugin.cluster else {})}
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    env = {**plugin.env, "KUBERNETES_EXEC_INFO": json.dumps(info)}
    return _read_credential(plugin, _output(plugin, env, interactive))


def _is_interactive(plugin: ExecPlugin) -> bool:
    """Whether it may ask its user."""
    terminal = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
    if plugin.interactive == "Always" and not terminal:
        raise ForbiddenError(f"the credential plug-in {plugin.command!r} must ask you, and there is no terminal")
    return terminal and plugin.interactive != "Never"


def _output(plugin: ExecPlugin, env: dict[str, str], interactive: bool) -> bytes:
    """What the program writes; a terminal it may use sees its messages at once."""
    import subprocess

    try:
        done = subprocess.run(
            [_program(plugin), *plugin.args],
            env=env,
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if interactive else subprocess.PIPE,
            check=False,
        )
    except OSError as error:
        raise _missing(plugin, error.strerror or str(error)) from error
    if done.returncode:
        said = (done.stderr or b"").decode(errors="replace").strip()
        what = f"the credential plug-in {plugin.command!r} ended with exit code {done.returncode}"
        raise ForbiddenError(what, why=said, hint="log in with it again, then repeat the command")
    return done.stdout


def _program(plugin: ExecPlugin) -> str:
    """The program's path, found by the PATH it is to have."""
    from shutil import which

    found = which(plugin.command, path=plugin.env.get("PATH", os.defpath))
    if found is None:
        raise _missing(plugin, "no such program")
    return found


def _missing(plugin: ExecPlugin, why: str) -> BackendError:
    what = f"the credential plug-in {plugin.command!r} cannot be started"
    return BackendError(what, why=why, hint=plugin.install_hint.strip() or f"install {plugin.command!r}")


def _read_credential(plugin: ExecPlugin, output: bytes) -> _Made:
    what = f"the credential plug-in {plugin.command!r} wrote no credential"
    try:
        said = msgspec.json.decode(output, type=_ExecCredential)
    except msgspec.DecodeError as error:
        raise BackendError(what, why=str(error)) from error
    if said.api_version != plugin.api_version:
        raise BackendError(what, why=f"it speaks {said.api_version!r}, the kubeconfig {plugin.api_version!r}")
    if said.status is None or not (said.status.token or said.status.client_certificate_data):
        raise BackendError(what, why="its status has neither a token nor a certificate")
    return said.status
