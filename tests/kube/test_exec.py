"""Programs in containers, their logs and their ports, on a real kubelet."""

import io
import json
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from testbed.bed import Bed
from testbed.faults import Fault, FaultProxy

from arena.errors import ForbiddenError, NotFoundError, SpecError
from arena.kube import channels
from arena.kube.api import Api
from arena.kube.errors import CutError, UnknownOutcomeError

from .conftest import Tunnel, access

pytestmark = [pytest.mark.kubelet, pytest.mark.timeout(120)]

PODS = "/api/v1/namespaces/team-a/pods"
PROGRAM = """
echo first; printf "\\342\\202\\254 second\\n\\nlast without an end"
cd /etc; exec python3 -u -m http.server 8080 >/dev/null 2>&1
"""
Connect = Callable[..., Api]


@pytest.fixture(scope="module")
def pod(node: Bed) -> Iterator[str]:
    """The path of a pod that has said something and serves a folder."""
    container = {"name": "main", "image": "localhost/arena-work:1", "command": ["sh", "-c", PROGRAM]}
    spec = {"containers": [container, {**container, "name": "quiet", "command": ["sleep", "600"]}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "kube-exec"}, "spec": spec}
    spec["terminationGracePeriodSeconds"] = 0  # type: ignore[assignment]
    with Api(access(node.kubeconfig("alice"))) as api:
        api.create(PODS, body)
        path = f"{PODS}/kube-exec"
        node.wait("running pod", lambda: api.get(path)["status"]["phase"] == "Running")
        node.wait("log", lambda: list(api.lines(f"{path}/log", container="main")))
        yield path
        api.delete(path)


@pytest.fixture
def api(node: Bed, connect: Connect) -> Api:
    return connect(node.kubeconfig("alice"))


class Ear(io.BytesIO):
    """Takes what a program writes, and does something when it has begun to write."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self.act = act

    def write(self, data: Any, /) -> int:
        threading.Thread(target=self.act).start()
        return super().write(data)


def sleep(api: Api, pod: str, begun: Callable[[], object]) -> None:
    """Run a program that sleeps once it has said that it is there."""
    words = ["sh", "-c", "echo up; sleep 30"]
    api.exec(f"{pod}/exec", words, container="main", stdout=Ear(begun), stderr=io.BytesIO())


def run(api: Api, pod: str, *words: str, given: bytes | None = None, tty: bool = False) -> tuple[int, bytes, bytes]:
    """The code, the output and the errors of a program in the pod."""
    out, errors = io.BytesIO(), io.BytesIO()
    stdin = None if given is None else io.BytesIO(given)
    code = api.exec(f"{pod}/exec", words, container="main", stdin=stdin, stdout=out, stderr=errors, tty=tty)
    return code, out.getvalue(), errors.getvalue()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["true"], 0),
        (["false"], 1),
        (["sh", "-c", "exit 42"], 42),
        (["sh", "-c", "kill -9 $$"], 137),
        (["no-such-program"], 127),
        (["/no/such/program"], 127),
        (["/etc/passwd"], 126),
        (["/etc"], 126),
    ],
)
@pytest.mark.parametrize("protocol", [channels.V5, channels.V4])
def test_exit_codes(
    api: Api, pod: str, words: list[str], code: int, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "V5", protocol)  # with V4 alone the server must take that
    assert run(api, pod, *words)[0] == code


@pytest.mark.parametrize(
    ("program", "said"),
    [("no-such-program", "not found"), ("/no/such/program", "not found"), ("/etc/passwd", "permission denied")],
)
def test_why_a_program_does_not_start_is_said(api: Api, pod: str, program: str, said: str) -> None:
    assert run(api, pod, program)[1:] == (b"", f"{program}: {said}\n".encode())


def test_output_and_errors_are_apart(api: Api, pod: str) -> None:
    assert run(api, pod, "sh", "-c", "echo out; echo err >&2; exit 3") == (3, b"out\n", b"err\n")


def test_what_is_given_arrives_and_ends(api: Api, pod: str) -> None:
    given = bytes(range(256)) * 8000
    code, out, errors = run(api, pod, "cat", given=given)
    assert (code, out == given, errors) == (0, True, b"")


def test_much_output(api: Api, pod: str) -> None:
    code, out, _ = run(api, pod, "head", "-c", "5000000", "/dev/zero")
    assert (code, out == bytes(5_000_000)) == (0, True)


def test_a_terminal(api: Api, pod: str) -> None:
    code, out, errors = run(
        api, pod, "sh", "-c", "test -t 0 && read line && echo got $line; exit 5", given=b"word\n", tty=True
    )
    assert (code, errors) == (5, b"")
    assert b"got word\r\n" in out


def test_who_may_not(node: Bed, connect: Connect, api: Api, pod: str) -> None:
    with pytest.raises(ForbiddenError):
        run(connect(node.kubeconfig("carol")), pod, "true")
    with pytest.raises(NotFoundError):
        run(api, f"{pod}-not", "true")
    with pytest.raises(SpecError, match="container nobody is not valid"):
        api.exec(f"{pod}/exec", ["true"], container="nobody", stdout=io.BytesIO(), stderr=io.BytesIO())


def test_a_cut_connection_is_an_error_and_nothing_is_run_twice(node: Bed, connect: Connect, pod: str) -> None:
    with FaultProxy(node) as proxy:
        api = connect(proxy.kubeconfig("alice"))
        with pytest.raises(CutError, match="was cut"):
            sleep(api, pod, proxy.cut_streams)
        proxy.silence(after_writes=0)

        def cut() -> None:
            node.wait("request without an answer", lambda: [one for one in proxy.requests() if one.status == 0])
            proxy.cut_streams()

        threading.Thread(target=cut).start()
        with pytest.raises(UnknownOutcomeError):
            run(api, pod, "true")
        assert len(proxy.requests(path="/exec")) == 2
        proxy.clear()
        proxy.add(Fault(path="/exec", status=429, retry_after=1, times=1))
        assert run(api, pod, "true")[0] == 0


def test_a_closed_client_ends_a_program(api: Api, pod: str) -> None:
    began = time.monotonic()
    with pytest.raises(CutError, match="was closed"):
        sleep(api, pod, api.close)
    assert time.monotonic() - began < 20


def test_logs(api: Api, pod: str) -> None:
    lines = [b"first", "€ second".encode(), b"", b"last without an end"]
    assert list(api.lines(f"{pod}/log", container="main")) == lines
    assert list(api.lines(f"{pod}/log", container="main", tailLines="1")) == lines[-1:]
    assert api.get(f"{pod}/log", bytes, container="main") == b"\n".join(lines)
    with pytest.raises(SpecError, match="container nobody is not valid"):
        list(api.lines(f"{pod}/log", container="nobody"))


@pytest.mark.parametrize("container", ["main", "quiet"])
def test_a_log_that_is_followed_ends_when_told(api: Api, pod: str, container: str) -> None:
    stop = threading.Event()
    lines = api.lines(f"{pod}/log", stop=stop, container=container, follow="true")
    if container == "main":
        assert next(lines) == b"first"
    threading.Timer(1, stop.set).start()
    began = time.monotonic()
    deque(lines, maxlen=0)
    assert 0.9 <= time.monotonic() - began < 20


def test_ports(api: Api, pod: str) -> None:
    with api.forward(f"{pod}/portforward", 8080) as forward:
        url = f"http://127.0.0.1:{forward.port}/hostname"
        found = [urllib.request.urlopen(url, timeout=10).read() for _ in range(3)]
        assert found == [b"kube-exec\n"] * 3
    with pytest.raises(OSError):
        urllib.request.urlopen(url, timeout=2)


def test_a_port_nobody_listens_on(api: Api, pod: str) -> None:
    with api.forward(f"{pod}/portforward", 9) as forward:
        with pytest.raises(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{forward.port}", timeout=10)
        assert forward.error
        assert "port 9 of the pod cannot be reached" in forward.error.what


def test_websockets_go_through_the_proxy(node: Bed, tunnel: Tunnel, connect: Connect, pod: str) -> None:
    config = json.loads(node.kubeconfig("alice").read_text())
    config["clusters"][0]["cluster"]["proxy-url"] = tunnel.url
    path: Path = node.place.kubeconfig("alice", "proxied")
    path.write_text(json.dumps(config))
    assert run(connect(path), pod, "echo", "hi") == (0, b"hi\n", b"")
    assert len(tunnel.seen) == 1
