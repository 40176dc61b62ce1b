"""Credentials: files that change, and programs that make them."""

import json
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from arena.errors import ArenaError, BackendError, ForbiddenError
from arena.kube.auth import Credentials
from arena.kube.config import Access, ExecPlugin, Impersonate

V1 = "client.authentication.k8s.io/v1"


def plugin(tmp_path: Path, body: str, **more: object) -> ExecPlugin:
    """A program that notes each start, knows `n` and `info`, and prints what `status` is at its end."""
    script = tmp_path / "login.py"
    head = f"""
        import json, os, sys, time, datetime
        open({str(tmp_path / "starts")!r}, "a").write("x")
        n = len(open({str(tmp_path / "starts")!r}).read())
        info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
        version, status = info["apiVersion"], {{"token": f"t{{n}}"}}
        def until(seconds):
            then = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
            return then.isoformat().replace("+00:00", "Z")
    """
    tail = 'print(json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status}))'
    script.write_text("\n".join([textwrap.dedent(head), textwrap.dedent(body), tail]))
    given = {"api_version": V1, "command": sys.executable, "args": (str(script),), "interactive": "Never", **more}
    return ExecPlugin(**given)  # type: ignore[arg-type]


def starts(tmp_path: Path) -> int:
    return len((tmp_path / "starts").read_text()) if (tmp_path / "starts").exists() else 0


def credentials(made: ExecPlugin) -> Credentials:
    return Credentials(Access(server="https://k8s", user="u", exec=made))


def bearer(of: Credentials) -> str:
    return dict(of.login().headers)["Authorization"]


@pytest.mark.parametrize("version", [V1, "client.authentication.k8s.io/v1beta1"])
def test_a_token_without_an_end_is_kept_until_it_is_refused(tmp_path: Path, version: str) -> None:
    of = credentials(plugin(tmp_path, "", api_version=version))
    assert [bearer(of), bearer(of)] == ["Bearer t1", "Bearer t1"]
    used = of.login()
    assert of.renew(used)
    assert bearer(of) == "Bearer t2"
    assert of.renew(used)  # somebody else was refused with the same old token
    assert bearer(of) == "Bearer t2"
    assert starts(tmp_path) == 2


def test_a_token_is_made_anew_before_its_end(tmp_path: Path) -> None:
    of = credentials(plugin(tmp_path, "status['expirationTimestamp'] = until(2)"))
    assert bearer(of) == "Bearer t1"
    deadline = time.monotonic() + 2
    while (used := bearer(of)) == "Bearer t1":
        assert time.monotonic() < deadline, "it was used after its end"
        time.sleep(0.05)
    assert used == "Bearer t2"


def test_threads_share_one_start(tmp_path: Path) -> None:
    of = credentials(plugin(tmp_path, "time.sleep(0.3)"))
    threads = [threading.Thread(target=of.login) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert starts(tmp_path) == 1


def test_it_is_told_of_the_cluster(tmp_path: Path) -> None:
    of = credentials(
        plugin(tmp_path, "status['token'] = info['spec']['cluster']['server']", cluster={"server": "https://k"})
    )
    assert bearer(of) == "Bearer https://k"
    (tmp_path / "starts").unlink()
    of = credentials(plugin(tmp_path, "status['token'] = str(info['spec'])"))
    assert bearer(of) == "Bearer {'interactive': False}"


def test_a_certificate_is_shown_instead(tmp_path: Path) -> None:
    of = credentials(plugin(tmp_path, "status = {'clientCertificateData': 'CERT', 'clientKeyData': 'KEY'}"))
    login = of.login()
    assert (login.cert, login.key, login.headers) == (b"CERT", b"KEY", ())


@pytest.mark.parametrize(
    ("body", "more", "kind", "says"),
    [
        ("sys.exit('session expired: log in')", {}, ForbiddenError, "session expired: log in"),
        ("print('no json')", {}, BackendError, "wrote no credential"),
        ("status = {}", {}, BackendError, "neither a token nor a certificate"),
        ("version = 'client.authentication.k8s.io/v1beta1'", {}, BackendError, "it speaks"),
        ("", {"api_version": "client.authentication.k8s.io/v1alpha1"}, BackendError, "speaks .*v1alpha1"),
        ("", {"command": "no-such-login", "install_hint": "pip install login"}, BackendError, "Try: pip install login"),
        ("", {"interactive": "Always"}, ForbiddenError, "there is no terminal"),
    ],
)
def test_what_goes_wrong(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    body: str,
    more: dict[str, object],
    kind: type[ArenaError],
    says: str,
) -> None:
    with open("/dev/null") as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        with pytest.raises(kind) as raised:
            credentials(plugin(tmp_path, body, **more)).login()
    assert type(raised.value) is kind
    import re

    assert re.search(says, str(raised.value))


def test_a_token_file_is_read_as_it_is_now(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    of = Credentials(Access(server="https://k8s", token="old", token_file=str(file)))
    used = of.login()
    assert bearer(of) == "Bearer one"
    assert not of.renew(used)
    file.write_text("two")
    assert of.renew(used)
    assert bearer(of) == "Bearer two"
    file.unlink()
    assert bearer(of) == "Bearer old"


def test_a_password() -> None:
    assert bearer(Credentials(Access(server="https://k", username="a", password="b"))) == "Basic YTpi"


def test_on_whose_behalf() -> None:
    acted = Impersonate("eve", ("g1", "g2"), "7", {"acme.org/Role": ("x",)})
    assert Credentials(Access(server="https://k", impersonate=acted)).login().headers == (
        ("Impersonate-User", "eve"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "g1"),
        ("Impersonate-Group", "g2"),
        ("Impersonate-Extra-acme.org%2FRole", "x"),
    )


def test_the_info_is_json(tmp_path: Path) -> None:
    of = credentials(plugin(tmp_path, "status['token'] = json.dumps(info)"))
    assert json.loads(bearer(of).removeprefix("Bearer "))["kind"] == "ExecCredential"
