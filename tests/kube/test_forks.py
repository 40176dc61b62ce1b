"""A process that forks while other threads of it hold locks: the child goes on."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from arena.kube import forks
from arena.kube.api import Api
from arena.kube.auth import Credentials
from arena.kube.config import Access, ExecPlugin

PATIENCE = 15  # seconds for a child

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="other system: has no fork"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of newer Pythons: this process has threads
]


class Server(ThreadingHTTPServer):
    """A server that knows one kind, and gives its first answer only when it may."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.asked, self.may_answer, self.first = threading.Event(), threading.Event(), True
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Answer(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        waits, self.server.first = self.server.first, False
        if waits:
            self.server.asked.set()
            self.server.may_answer.wait(PATIENCE)
        version = {"version": "v1", "resources": [{"resource": "jobs", "responseKind": {"kind": "Job"}}]}
        items = [{"metadata": {"name": "batch"}, "versions": [version]}]
        body = json.dumps({"kind": "APIGroupDiscoveryList", "items": items}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as started:
        yield started
        started.shutdown()


def child(act: Callable[[], bool]) -> int:
    """The exit code of a child that does this: 0 where it gives true, below 0 where it hangs."""
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(PATIENCE)
        code = 1
        try:
            code = 0 if act() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def beside(act: Callable[[], object]) -> threading.Thread:
    """A thread that does this meanwhile."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread


def test_a_lock_is_free_in_a_child_and_held_in_its_parent() -> None:
    lock, held, over = forks.Lock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            over.wait(PATIENCE)

    def is_free() -> bool:
        with lock, lock:
            return child(lambda: True) == 0  # a child of the child

    holder = beside(hold)
    held.wait()
    assert child(is_free) == 0
    waiter = beside(lock.__enter__)
    waiter.join(0.1)
    assert waiter.is_alive()
    over.set()
    for thread in (holder, waiter):
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_while_another_thread_logs_in(tmp_path: Path) -> None:
    script, begun, may_end = (tmp_path / name for name in ("login.sh", "begun", "go"))
    version = "client.authentication.k8s.io/v1"
    said = {"apiVersion": version, "status": {"token": "t"}}
    script.write_text(f"echo >> {begun}\nuntil [ -e {may_end} ]; do sleep 0.02; done\necho '{json.dumps(said)}'\n")
    plugin = ExecPlugin(api_version=version, command="sh", args=(str(script),), interactive="Never",
                        env={"PATH": os.environ["PATH"]})  # fmt: skip
    credentials = Credentials(Access(server="http://127.0.0.1:1", exec=plugin))
    other = beside(credentials.login)
    while not begun.exists():
        threading.Event().wait(0.02)

    def log_in() -> bool:
        may_end.touch()
        return bool(credentials.login().headers)

    assert child(log_in) == 0
    other.join(PATIENCE)
    assert (other.is_alive(), len(begun.read_text())) == (False, 2)


def test_while_another_thread_asks_what_is_served(server: Server) -> None:
    api = Api(Access(server=f"http://127.0.0.1:{server.server_address[1]}"), cache=None)
    other = beside(api.discovery.resources)
    server.asked.wait(PATIENCE)
    assert child(lambda: api.discovery.find("Job", "batch") is not None) == 0
    server.may_answer.set()
    other.join(PATIENCE)
    assert api.discovery.find("Job", "batch")
    api.close()


def test_while_another_thread_makes_a_connection(server: Server) -> None:
    server.may_answer.set()
    api = Api(Access(server=f"http://127.0.0.1:{server.server_address[1]}"), cache=None)
    with api.wire._lock, api.wire.stops._lock:
        ended: list[int] = []
        other = beside(lambda: ended.append(child(lambda: bool(api.discovery.resources()))))
        other.join(2 * PATIENCE)
    assert ended == [0]
    assert api.discovery.resources()
    api.close()


def test_importing_starts_no_thread_and_needs_no_fork() -> None:
    program = (
        "import os, threading\n"
        "for name in ('fork', 'forkpty', 'register_at_fork'): delattr(os, name)\n"
        "import arena, arena.kube.api, arena.backends.kubernetes.watching, arena.backends.kubernetes.logs\n"
        "print(threading.active_count())"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "1\n"), ended.stderr
