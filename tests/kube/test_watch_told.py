"""What a server says in the middle of a watch: recorded lines, from a server that says nothing else."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from arena.errors import BackendError
from arena.kube.api import Api
from arena.kube.config import Access

EXPIRED = (
    b'{"type":"ERROR","object":{"kind":"Status","status":"Failure","message":"too old","reason":"Expired","code":410}}'
)
BROKEN = b'{"type":"ERROR","object":{"kind":"Status","status":"Failure","message":"etcd is down","code":500}}'
MARK = b'{"type":"BOOKMARK","object":{"kind":"ConfigMap","metadata":{"resourceVersion":"%d"}}}'
ADDED = b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"%d"}}}'
LIST = b'{"metadata":{"resourceVersion":"50"},"items":[{"metadata":{"name":"a","resourceVersion":"9"}}]}'


class Server(ThreadingHTTPServer):
    """Each watch gets the next of its answers; the last one again and again."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[list[bytes]] = []
        self.asked: list[str] = []


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.send_response(200)
        self.end_headers()
        if "watch=true" not in self.path:
            self.wfile.write(LIST)
            return
        answers = self.server.answers
        for line in answers.pop(0) if len(answers) > 1 else answers[0]:
            self.wfile.write(line + b"\n")

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as started:
        threading.Thread(target=started.serve_forever, args=(0.05,), daemon=True).start()
        yield started
        started.shutdown()


@pytest.fixture
def api(server: Server) -> Iterator[Api]:
    with Api(Access(server=f"http://127.0.0.1:{server.server_address[1]}")) as made:
        yield made


def test_a_version_that_gets_too_old_in_the_stream(server: Server, api: Api) -> None:
    server.answers = [[ADDED % 7, EXPIRED], [ADDED % 51]]
    events = api.watch("/x", dict, version="1")
    assert [(event.type, event.version) for event in (next(events), next(events), next(events))] == [
        ("ADDED", "7"),
        ("RELISTED", "50"),
        ("ADDED", "51"),
    ]
    assert [path.partition("resourceVersion=")[2] for path in server.asked] == ["1", "", "50"]


def test_it_goes_on_from_a_bookmark(server: Server, api: Api) -> None:
    server.answers = [[MARK % 40], [ADDED % 41]]
    assert next(api.watch("/x", dict, version="1")).version == "41"
    assert [path.partition("resourceVersion=")[2] for path in server.asked] == ["1", "40"]


@pytest.mark.parametrize("line", [EXPIRED, BROKEN, None])
def test_a_server_that_has_nothing_to_say_is_not_asked_in_a_loop(server: Server, api: Api, line: bytes | None) -> None:
    server.answers = [[line] if line else []]
    stop = threading.Event()
    stopped: list[float] = []

    def watches() -> int:
        return len([path for path in server.asked if "watch" in path])

    def end() -> None:
        while watches() < 5:
            time.sleep(0.01)
        stopped.append(time.monotonic())
        stop.set()

    began = time.monotonic()
    threading.Thread(target=end, daemon=True).start()
    types = {event.type for event in api.watch("/x", dict, version="1", stop=stop)}
    assert types == ({"RELISTED"} if line == EXPIRED else set())
    assert stopped[0] - began > 2.7  # 0, 0.4, 0.8 and 1.6 seconds lay between the five
    assert time.monotonic() - stopped[0] < 2.5  # the next would have come after 3.2
    assert watches() == 5


def test_a_kind_that_does_not_fit_is_raised(server: Server, api: Api) -> None:
    server.answers = [[b"nonsense"]]
    with pytest.raises(BackendError, match="not understood"):
        next(api.watch("/x", dict, version="1"))
