"""How to reach one server as one user: the kubeconfig, read and merged as kubectl does, or a pod's own account."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field

from arena.errors import ArenaError, BackendError
from arena.kube.errors import LOCAL
from arena.kube.proxies import Proxy, proxy_for

ANOTHER = "repair it (kubectl config view shows it), or name another: --kubeconfig FILE, --context NAME"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
T = TypeVar("T")


class Impersonate(Struct, frozen=True):
    """On whose behalf requests are made."""

    user: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class ExecPlugin(Struct, frozen=True, kw_only=True):
    """A program that makes credentials; `env` is all of its environment, `cluster` what it may know of the server."""

    api_version: str
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    install_hint: str = ""
    interactive: str = "IfAvailable"
    cluster: Mapping[str, Any] | None = None


class Access(Struct, frozen=True, kw_only=True):
    """How to reach one server as one user; `ca`, `cert` and `key` are a path (str) or what is in a file (bytes).

    `timeout` is how many seconds an answer may take; 0 leaves it to arena.
    """

    server: str
    context: str = ""
    cluster: str = ""
    user: str = ""
    namespace: str = "default"
    ca: str | bytes = ""
    cert: str | bytes = ""
    key: str | bytes = ""
    insecure: bool = False
    tls_server_name: str = ""
    token: str = ""
    token_file: str = ""
    username: str = ""
    password: str = ""
    exec: ExecPlugin | None = None
    proxy: Proxy = Proxy()
    impersonate: Impersonate = Impersonate()
    timeout: float = 0.0
    source: str = ""

    @property
    def asker(self) -> str:
        """Who asks which server, as a name of a file: what is remembered of its answers is one user's."""
        from hashlib import sha256

        who = [self.server, self.user, self.impersonate.user, *self.impersonate.groups]
        return sha256("\0".join(who).encode()).hexdigest()[:24]

    def __repr__(self) -> str:
        """Who and where, and no secret."""
        return f"Access({self.user!r} at {self.server!r})"


def find(*, kubeconfig: str = "", context: str = "", env: Mapping[str, str], home: Path | None) -> Access | None:
    """The access that a kubeconfig (a path, or a list of them as in KUBECONFIG) gives; None where there is none."""
    found = _merged(kubeconfig, home)
    wanted = context or found.current
    if not wanted:
        return None
    if wanted not in found.contexts:
        raise _unknown_context(wanted, found, asked=bool(context))
    return _access(found, wanted, env)


def current_context(
    *,
    kubeconfig: str = "",
    context: str = "",
    env: Mapping[str, str] | None = None,  # noqa: ARG001  the same arguments as find
    home: Path | None,
) -> str:
    """The name of the context that `find` would take; empty where there is none."""
    return context or _merged(kubeconfig, home).current


def contexts(*, kubeconfig: str = "", home: Path | None) -> list[str]:
    """The names of all contexts."""
    return sorted(_merged(kubeconfig, home).contexts)


def in_cluster(env: Mapping[str, str], folder: Path = ACCOUNT) -> Access | None:
    """The access of a pod's own account; None outside of a cluster."""
    host, port = env.get("KUBERNETES_SERVICE_HOST"), env.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (folder / "token").is_file():
        return None
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    namespace = (folder / "namespace").read_text().strip() if (folder / "namespace").is_file() else ""
    return Access(
        server=server,
        context="in-cluster",
        user="the pod's service account",
        namespace=namespace or "default",
        ca=str(folder / "ca.crt"),
        token_file=str(folder / "token"),
        proxy=proxy_for(server, env),
        source=str(folder),
    )


class _Cluster(Struct, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    extensions: list[dict[str, Any]] | None = None
    source: Path = field(default=Path(), name="-source")


class _Exec(Struct, rename="camel"):
    api_version: str = ""
    command: str = ""
    args: list[str] | None = None
    env: list[dict[str, str]] | None = None
    install_hint: str | None = ""
    interactive_mode: str | None = ""
    provide_cluster_info: bool | None = False


class _User(Struct, rename="kebab"):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    as_: str = field(default="", name="as")
    as_uid: str = ""
    as_groups: list[str] | None = None
    as_user_extra: dict[str, list[str]] | None = None
    exec: _Exec | None = None
    auth_provider: dict[str, Any] | None = None
    source: Path = field(default=Path(), name="-source")


class _Context(Struct):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(Struct):
    name: str
    cluster: _Cluster | None = None


class _NamedUser(Struct):
    name: str
    user: _User | None = None


class _NamedContext(Struct):
    name: str
    context: _Context | None = None


class _File(Struct, rename="kebab"):
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None
    current_context: str | None = ""


class _Merged(Struct):
    clusters: dict[str, _Cluster] = field(default_factory=dict)
    users: dict[str, _User] = field(default_factory=dict)
    contexts: dict[str, _Context] = field(default_factory=dict)
    current: str = ""
    files: list[Path] = field(default_factory=list)


def _merged(kubeconfig: str, home: Path | None) -> _Merged:
    merged = _Merged()
    for path in _paths(kubeconfig, home):
        _add(merged, path, _read(path))
    return merged


def _paths(kubeconfig: str, home: Path | None) -> list[Path]:
    """The files that are there; the one that was named alone must be."""
    named = [Path(word) for word in kubeconfig.split(os.pathsep) if word]
    if len(named) == 1 and not named[0].exists():
        raise BackendError(f"there is no kubeconfig {str(named[0])!r}", hint=LOCAL)
    usual = [home / ".kube" / "config"] if home else []
    return [path for path in named or usual if path.exists()]


def _read(path: Path) -> _File:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        said = yaml.load(path.read_bytes(), loader)  # noqa: S506  a safe loader, the quick one where it is there
        return msgspec.convert(said or {}, _File)
    except (OSError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise BackendError(
            f"the kubeconfig {str(path)!r} cannot be read", why=" ".join(str(error).split()), hint=ANOTHER
        ) from error


def _add(merged: _Merged, path: Path, file: _File) -> None:
    """What this file adds: a name that is there already keeps its first meaning."""
    merged.files.append(path)
    for cluster in file.clusters or ():
        merged.clusters.setdefault(cluster.name, _from(cluster.cluster or _Cluster(), path))
    for user in file.users or ():
        merged.users.setdefault(user.name, _from(user.user or _User(), path))
    for context in file.contexts or ():
        merged.contexts.setdefault(context.name, context.context or _Context())
    merged.current = merged.current or file.current_context or ""


def _from(entry: T, path: Path) -> T:
    entry.source = path.absolute()  # type: ignore[attr-defined]
    return entry


def _unknown_context(wanted: str, found: _Merged, *, asked: bool) -> ArenaError:
    known = ", ".join(sorted(found.contexts)) or "none"
    files = ", ".join(map(str, found.files)) or "no kubeconfig"
    what = f"there is no context {wanted!r}" if asked else f"the current context {wanted!r} does not exist"
    return BackendError(what, why=f"{files} has: {known}", hint="--context NAME, or kubectl config use-context NAME")


def _access(found: _Merged, context: str, env: Mapping[str, str]) -> Access:
    chosen = found.contexts[context]
    cluster = found.clusters.get(chosen.cluster)
    if cluster is None or not cluster.server:
        why = f"cluster {chosen.cluster!r} is not described"
        raise BackendError(f"context {context!r} names no server", why=why, hint=ANOTHER)
    user = found.users.get(chosen.user, _User()) if chosen.user else _User()
    if chosen.user and chosen.user not in found.users:
        known = ", ".join(sorted(found.users)) or "nobody"
        what = f"context {context!r} names the user {chosen.user!r}, who is not described"
        raise BackendError(what, why=f"described: {known}", hint=ANOTHER)
    if user.auth_provider and not (user.token or user.exec):
        raise BackendError(
            f"user {chosen.user!r} logs in with an auth-provider, which kubectl 1.26 removed",
            hint="use the exec plug-in of your cloud",
        )
    server = _address(cluster.server, context)
    return Access(
        server=server,
        context=context,
        cluster=chosen.cluster,
        user=chosen.user,
        namespace=chosen.namespace or "default",
        ca=_pem(cluster.certificate_authority_data, cluster.certificate_authority, cluster.source),
        cert=_pem(user.client_certificate_data, user.client_certificate, user.source),
        key=_pem(user.client_key_data, user.client_key, user.source),
        insecure=cluster.insecure_skip_tls_verify,
        tls_server_name=cluster.tls_server_name,
        token=_sendable(user.token, chosen.user),
        token_file=_beside(user.token_file, user.source),
        username=user.username,
        password=user.password,
        exec=_plugin(user, cluster, env),
        proxy=_proxy(cluster, server, env),
        impersonate=_impersonate(user),
        source=str(user.source if chosen.user else cluster.source),
    )


def _proxy(cluster: _Cluster, server: str, env: Mapping[str, str]) -> Proxy:
    if cluster.proxy_url:
        return Proxy(cluster.proxy_url, file=str(cluster.source))
    return proxy_for(server, env)


def _address(server: str, context: str) -> str:
    """The server's URL, which may have a path; BackendError for what is none."""
    url = server if "://" in server else f"http://{server}"
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or any(one.isspace() for one in url):
        what = f"context {context!r} names a server that is no address: {server!r}"
        raise BackendError(what, why="http://HOST:PORT or https://HOST:PORT is expected", hint=ANOTHER)
    return url.rstrip("/")


def _sendable(token: str, user: str) -> str:
    """A token that can stand in a request: ASCII, without line ends."""
    if token.isascii() and token.isprintable():
        return token
    raise BackendError(f"the token of user {user!r} has characters that no token has", hint=ANOTHER)


def _pem(data: str, file: str, source: Path) -> str | bytes:
    if not data:
        return _beside(file, source)
    try:
        return base64.b64decode("".join(data.split()), validate=True)
    except ValueError as error:
        what = f"the certificate data in {str(source)!r} is not base64"
        raise BackendError(what, why=str(error), hint=ANOTHER) from error


def _beside(file: str, source: Path) -> str:
    """A path as the file that names it means it."""
    return str(source.parent / file) if file else ""


def _impersonate(user: _User) -> Impersonate:
    extra = {name: tuple(values) for name, values in (user.as_user_extra or {}).items()}
    return Impersonate(user.as_, tuple(user.as_groups or ()), user.as_uid, extra)


def _plugin(user: _User, cluster: _Cluster, env: Mapping[str, str]) -> ExecPlugin | None:
    if user.exec is None:
        return None
    said = user.exec
    if not said.command:
        raise BackendError(f"the credential plug-in in {str(user.source)!r} has no command", hint=ANOTHER)
    own = {entry.get("name", ""): entry.get("value", "") for entry in said.env or ()}
    return ExecPlugin(
        api_version=said.api_version,
        command=_beside(said.command, user.source) if os.sep in said.command else said.command,
        args=tuple(said.args or ()),
        env={**env, **own},
        install_hint=said.install_hint or "",
        interactive=said.interactive_mode or "IfAvailable",
        cluster=_cluster_info(cluster) if said.provide_cluster_info else None,
    )


def _cluster_info(cluster: _Cluster) -> dict[str, Any]:
    """What KUBERNETES_EXEC_INFO tells of the server."""
    ca = _pem(cluster.certificate_authority_data, cluster.certificate_authority, cluster.source)
    data = ca if isinstance(ca, bytes) else (Path(ca).read_bytes() if ca else b"")
    config = [one.get("extension") for one in cluster.extensions or () if one.get("name") == EXEC_EXTENSION]
    info = {
        "server": cluster.server,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": base64.b64encode(data).decode(),
        "proxy-url": cluster.proxy_url,
        "config": config[0] if config else None,
    }
    return {name: value for name, value in info.items() if value}


EXEC_EXTENSION = "client.authentication.k8s.io/exec"
