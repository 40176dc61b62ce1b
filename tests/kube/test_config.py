"""Kubeconfigs, read and merged as kubectl does."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from testbed.programs import program

from arena.errors import BackendError
from arena.kube import config
from arena.kube.config import Access, Impersonate, find

ONE: dict[str, Any] = {
    "current-context": "a",
    "clusters": [{"name": "c", "cluster": {"server": "https://one:6443", "certificate-authority": "ca.pem"}}],
    "users": [{"name": "u", "user": {"client-certificate": "u.pem", "client-key": "keys/u.key", "token": "t1"}}],
    "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u", "namespace": "team-a"}}],
}
TWO: dict[str, Any] = {
    "current-context": "b",
    "clusters": [
        {"name": "c", "cluster": {"server": "https://other:6443", "tls-server-name": "x"}},
        {"name": "d", "cluster": {"server": "https://two:6443", "insecure-skip-tls-verify": True}},
    ],
    "users": [{"name": "u", "user": {"username": "bob", "password": "p"}}, {"name": "v", "user": {"tokenFile": "tok"}}],
    "contexts": [
        {"name": "a", "context": {"cluster": "d", "user": "v"}},
        {"name": "b", "context": {"cluster": "d", "user": "v"}},
        {"name": "crossed", "context": {"cluster": "c", "user": "v", "namespace": "team-b"}},
    ],
}


def write(folder: Path, said: dict[str, Any], name: str = "config") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(yaml.safe_dump(said))
    return path


def one(path: object, context: str = "", env: dict[str, str] | None = None) -> Access:
    found = find(kubeconfig=str(path), context=context, env=env or {}, home=None)
    assert found
    return found


def test_paths_are_relative_to_the_file_that_names_them(tmp_path: Path) -> None:
    found = one(write(tmp_path / "x", ONE))
    assert (found.ca, found.cert, found.key) == tuple(
        str(tmp_path / "x" / f) for f in ("ca.pem", "u.pem", "keys/u.key")
    )
    assert (found.server, found.namespace, found.context, found.token) == ("https://one:6443", "team-a", "a", "t1")


def test_the_first_file_wins_per_name(tmp_path: Path) -> None:
    files = [write(tmp_path / "1", ONE), tmp_path / "missing", write(tmp_path / "2", TWO)]
    both = os.pathsep.join(["", *map(str, files)])
    assert one(both).server == "https://one:6443"
    assert one(both).username == ""
    crossed = one(both, "crossed")
    assert (crossed.ca, crossed.token_file) == (str(tmp_path / "1" / "ca.pem"), str(tmp_path / "2" / "tok"))
    assert config.contexts(kubeconfig=both, home=None) == ["a", "b", "crossed"]
    assert config.current_context(kubeconfig=both, home=None) == "a"


def test_no_kubeconfig_is_none_but_a_named_one_must_be_there(tmp_path: Path) -> None:
    assert find(env={}, home=tmp_path) is None
    assert find(env={}, home=None) is None
    assert find(kubeconfig=f"{tmp_path}/x{os.pathsep}{tmp_path}/y", env={}, home=None) is None
    with pytest.raises(BackendError, match=r"there is no kubeconfig '.*nowhere'") as raised:
        find(kubeconfig=str(tmp_path / "nowhere"), env={}, home=None)
    assert raised.value.hint == "-b local runs it here"


def test_the_home_folders_is_the_last_resort(tmp_path: Path) -> None:
    write(tmp_path / ".kube", ONE)
    assert config.current_context(home=tmp_path) == "a"
    other = write(tmp_path, TWO, "other")
    assert config.current_context(kubeconfig=str(other), home=tmp_path) == "b"


def test_no_current_context_is_no_access(tmp_path: Path) -> None:
    path = write(tmp_path, {**ONE, "current-context": ""})
    assert find(kubeconfig=str(path), env={}, home=None) is None
    assert one(path, "a").server == "https://one:6443"


@pytest.mark.parametrize(
    ("change", "context", "says"),
    [
        ({}, "nope", "there is no context 'nope'"),
        ({"current-context": "gone"}, "", "the current context 'gone' does not exist"),
        ({"clusters": None}, "", "context 'a' names no server"),
        ({"users": []}, "", "names the user 'u', who is not described"),
        ({"users": [{"name": "u", "user": {"auth-provider": {"name": "gcp"}}}]}, "", "auth-provider"),
        ({"users": [{"name": "u", "user": {"token": 17}}]}, "", "cannot be read"),
        ({"users": [{"name": "u", "user": {"client-key-data": "%"}}]}, "", "is not base64"),
    ],
)
def test_what_is_wrong_is_one_clear_error(tmp_path: Path, change: dict[str, Any], context: str, says: str) -> None:
    path = write(tmp_path, {**ONE, **change})
    with pytest.raises(BackendError, match=says) as raised:
        find(kubeconfig=str(path), context=context, env={}, home=None)
    assert "\n" not in raised.value.what + raised.value.why


def test_known_contexts_are_named(tmp_path: Path) -> None:
    with pytest.raises(BackendError) as raised:
        find(kubeconfig=str(write(tmp_path, TWO)), context="nope", env={}, home=None)
    assert raised.value.why.endswith("has: a, b, crossed")


def test_inline_data_wins_over_files(tmp_path: Path) -> None:
    pem = b"-----BEGIN-----\n"
    said = {"clusters": [{"name": "c", "cluster": {"server": "one:1", "certificate-authority": "x"}}]}
    said["clusters"][0]["cluster"]["certificate-authority-data"] = base64.b64encode(pem).decode()  # type: ignore[index]
    found = one(write(tmp_path, {**ONE, **said}))
    assert (found.ca, found.server) == (pem, "http://one:1")


def test_a_plug_in_gets_the_environment_and_its_own(tmp_path: Path) -> None:
    said = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./bin/login", "args": None}
    said |= {"env": [{"name": "A", "value": "2"}], "provideClusterInfo": True, "interactiveMode": "Never"}  # type: ignore[dict-item]
    (tmp_path / "ca.pem").write_text("CA")
    plugin = one(
        write(tmp_path, {**ONE, "users": [{"name": "u", "user": {"exec": said}}]}), env={"A": "1", "B": "3"}
    ).exec
    assert plugin
    assert plugin.env == {"A": "2", "B": "3"}
    assert plugin.command == str(tmp_path / "bin/login")
    assert plugin.cluster == {"server": "https://one:6443", "certificate-authority-data": "Q0E="}


def test_impersonation(tmp_path: Path) -> None:
    said = {"as": "eve", "as-uid": "7", "as-groups": ["g"], "as-user-extra": {"scopes": ["x", "y"]}}
    acted = one(write(tmp_path, {**ONE, "users": [{"name": "u", "user": said}]})).impersonate
    assert (acted.user, acted.uid, acted.groups, acted.extra) == ("eve", "7", ("g",), {"scopes": ("x", "y")})


def test_a_secret_is_not_shown(tmp_path: Path) -> None:
    assert repr(one(write(tmp_path, ONE))) == "Access('u' at 'https://one:6443')"


@pytest.mark.parametrize(
    ("env", "server"),
    [
        ({}, None),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "https://10.0.0.1:443"),
        ({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}, "https://[fd00::1]:6443"),
    ],
)
def test_in_a_pod(tmp_path: Path, env: dict[str, str], server: str | None) -> None:
    (tmp_path / "token").write_text("secret")
    (tmp_path / "namespace").write_text("team-b")
    found = config.in_cluster(env, tmp_path)
    assert (found.server if found else None) == server
    if found:
        assert (found.namespace, found.token_file) == ("team-b", str(tmp_path / "token"))
    assert config.in_cluster(env, tmp_path / "nothing") is None


def test_nothing_heavy_is_imported() -> None:
    code = "import sys, arena.kube.config; print([m for m in ('ssl', 'yaml', 'httpx2', 'asyncio') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


@pytest.mark.cluster
@pytest.mark.parametrize("context", ["", "a", "b", "crossed"])
@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0,), (1,)])
def test_kubectl_reads_the_same(tmp_path: Path, context: str, order: tuple[int, ...]) -> None:
    files = [write(tmp_path / str(number), (ONE, TWO)[number]) for number in order]
    for folder in (tmp_path / str(number) for number in order):
        (folder / "keys").mkdir()
        for name in ("ca.pem", "u.pem", "tok", "keys/u.key"):
            (folder / name).write_text(f"{folder} {name}")
    kubeconfig = os.pathsep.join([*map(str, files), str(tmp_path / "missing")])
    words = ["config", "view", "--minify", "--flatten", "-o", "json", *(["--context", context] if context else [])]
    env = {"KUBECONFIG": kubeconfig, "HOME": "/"}
    done = subprocess.run([program("kubectl"), *words], env=env, capture_output=True, text=True)
    if done.returncode:
        assert "cannot locate context" in done.stderr
        with pytest.raises(BackendError):
            find(kubeconfig=kubeconfig, context=context, env={}, home=None)
        return
    said = json.loads(done.stdout)
    cluster, user = said["clusters"][0]["cluster"], said["users"][0]["user"]
    found = one(kubeconfig, context)
    assert (found.server, content(found.ca)) == (cluster["server"], cluster.get("certificate-authority-data", ""))
    assert found.tls_server_name == cluster.get("tls-server-name", "")
    assert found.insecure == cluster.get("insecure-skip-tls-verify", False)
    assert (content(found.cert), content(found.key)) == tuple(
        user.get(f"client-{name}-data", "") for name in ("certificate", "key")
    )
    assert (found.token, found.username) == (user.get("token", ""), user.get("username", ""))
    assert Path(found.token_file).name == user.get("tokenFile", "")  # kubectl shows it as it is written
    assert found.namespace == said["contexts"][0]["context"].get("namespace", "default")


def content(pem: str | bytes) -> str:
    """As it stands in a kubeconfig that needs no other file."""
    return base64.b64encode(Path(pem).read_bytes() if isinstance(pem, str) else pem).decode() if pem else ""


def test_what_is_remembered_is_one_asker_s() -> None:
    groups = [Impersonate(), Impersonate(user="ann"), Impersonate(user="ann", groups=("dev",))]
    assert len({Access(server="https://k", impersonate=acted).asker for acted in groups}) == 3
