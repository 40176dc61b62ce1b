"""Programs in running containers and ports of pods: several streams on one websocket, a byte before each message."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import socket
import threading
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from arena import runtimes
from arena.errors import ArenaError, BackendError, UnsupportedError
from arena.kube import forks
from arena.kube.errors import CutError, read_answer, refusal
from arena.kube.stops import Stopped
from arena.kube.wire import WRITE, Open

if TYPE_CHECKING:
    from arena.kube.api import Api

STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
PIECE = 32 * 1024
EOT = b"\x04"  # a terminal's stdin is not closed: what its program still writes would be lost
TICK = 0.2
# The codes of a shell for a program that does not start, by what the runtime says of it.
NOT_STARTED = {
    127: ("executable file not found", "no such file or directory"),
    126: ("permission denied", "is a directory", "exec format error"),
}


class Channels:
    """A websocket to the server; one thread reads, any thread writes."""

    def __init__(self, opened: Open) -> None:
        from wsproto.connection import Connection, ConnectionType

        self.protocol = opened.response.headers.get("Sec-WebSocket-Protocol", "")
        self._opened = opened
        self._stream = opened.response.extensions["network_stream"]
        self._lock = forks.Lock()
        self._socket = Connection(ConnectionType.CLIENT)

    def send(self, channel: int, data: bytes) -> None:
        """Write to a channel."""
        from wsproto.events import BytesMessage

        self._write(BytesMessage(data=bytes([channel]) + data))

    def end(self, channel: int) -> None:
        """Say that nothing more comes on a channel; before v5 there is no word for it."""
        if self.protocol == V5:
            self.send(CLOSE, bytes([channel]))

    def messages(self) -> Iterator[tuple[int, bytes]]:
        """What comes, by channel, until the server closes; a connection that breaks is a `CutError`."""
        from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage

        channel: int | None = None
        while True:
            self._socket.receive_data(self._read())
            for event in self._socket.events():
                if isinstance(event, BytesMessage | TextMessage):
                    data = event.data.encode() if isinstance(event.data, str) else bytes(event.data)
                    if channel is None and data:
                        channel, data = data[0], data[1:]
                    if channel is not None:
                        yield channel, data
                    channel = None if event.message_finished else channel
                elif isinstance(event, Ping):
                    self._write(event.response())
                elif isinstance(event, CloseConnection):
                    with contextlib.suppress(CutError, Stopped):
                        self._write(event.response())
                    return

    def close(self) -> None:
        """Tell the server that this is the end."""
        from wsproto.events import CloseConnection

        self._write(CloseConnection(code=1000))

    def _read(self) -> bytes:
        import httpcore2

        try:
            data: bytes = self._stream.read(65536, timeout=None)
        except (httpcore2.NetworkError, httpcore2.TimeoutException, OSError, ValueError) as error:
            raise self._opened.broken(error) from error
        if not data:
            raise self._opened.broken()
        return data

    def _write(self, event: Any) -> None:
        import httpcore2
        from wsproto.utilities import LocalProtocolError

        try:
            with self._lock:
                self._stream.write(self._socket.send(event))
        except (httpcore2.NetworkError, httpcore2.TimeoutException, LocalProtocolError, OSError, ValueError) as error:
            raise self._opened.broken(error) from error


@contextlib.contextmanager
def channels(api: Api, path: str, query: Sequence[tuple[str, str]], protocols: Sequence[str]) -> Iterator[Channels]:
    """An open websocket at a path."""
    headers = [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", base64.b64encode(os.urandom(16)).decode()),
        ("Sec-WebSocket-Protocol", ", ".join(protocols)),
    ]
    try:
        with api.wire.open(path, query, first=WRITE, read=None, headers=headers) as opened:
            if opened.response.status_code != 101:
                raise UnsupportedError(f"{api.access.server}, or a proxy before it, does not speak websockets")
            yield Channels(opened)
    except Stopped as stopped:
        raise CutError(f"the connection to {api.access.server} was closed") from stopped


def execute(
    api: Api,
    path: str,
    words: Sequence[str],
    *,
    container: str,
    stdin: BinaryIO | None,
    stdout: BinaryIO,
    stderr: BinaryIO,
    tty: bool,
) -> int:
    """The exit code of a program in a container; 127 where there is none of that name, 126 where it may not start."""
    flags = {"stdin": stdin is not None, "stdout": True, "stderr": not tty, "tty": tty}
    query = [("command", word) for word in words] + [("container", container)] * bool(container)
    query += [(name, "true") for name, on in flags.items() if on]
    targets = {STDOUT: stdout, STDERR: stderr}
    said, done = b"", threading.Event()
    with channels(api, path, query, (V5, V4)) as opened:
        if stdin is not None or tty:
            threading.Thread(target=_feed, args=(opened, stdin, tty, done), daemon=True).start()
        try:
            for channel, data in opened.messages():
                if channel == ERROR:
                    said += data
                elif channel in targets and data:
                    targets[channel].write(data)
                    targets[channel].flush()
        except CutError:
            if not said:
                raise
        finally:
            done.set()
    return _exit_code(api, said, stderr)


def _feed(opened: Channels, stdin: BinaryIO | None, tty: bool, done: threading.Event) -> None:
    """Send what is typed, and the terminal's size when it changes, until the program has ended."""
    size: tuple[int, int] | None = None
    with contextlib.suppress(CutError, Stopped):
        while not done.is_set():
            if tty and size != (size := _size()) and size:
                opened.send(RESIZE, json.dumps({"Width": size[0], "Height": size[1]}).encode())
            if stdin is None:
                done.wait(TICK)
            elif _is_ready(stdin):
                piece = getattr(stdin, "read1", stdin.read)(PIECE)
                if not piece:
                    return opened.send(STDIN, EOT) if tty else opened.end(STDIN)
                opened.send(STDIN, piece)


def _is_ready(stdin: BinaryIO) -> bool:
    """Whether something can be read now; what is no file is read at once."""
    try:
        return bool(select.select([stdin], [], [], TICK)[0])
    except (OSError, ValueError, TypeError):
        return True


def _size() -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        columns, lines = os.get_terminal_size()
        return columns, lines
    return None


def _exit_code(api: Api, said: bytes, stderr: BinaryIO) -> int:
    """The code in the server's last word; that a program could not start is said as a shell says it."""
    if not said:
        raise CutError("the program's end was not told", why=f"{api.access.server} closed the connection without it")
    answer = read_answer(500, said)
    if json.loads(said).get("status") == "Success":
        return 0
    causes = (answer.details.causes or ()) if answer.details else ()
    for cause in causes:
        if cause.reason == "ExitCode" and cause.message.isdecimal():
            return int(cause.message)
    message = answer.message or ""
    code = next((code for code, words in NOT_STARTED.items() if any(word in message for word in words)), None)
    if code is None:
        raise refusal(answer, api.access)
    stderr.write(f"{runtimes.plain(message)}\n".encode())
    stderr.flush()
    return code


class Forward:
    """A port of this machine that leads to a port of a pod, until it is closed; `port` is ours."""

    def __init__(self, api: Api, path: str, port: int, local: int = 0) -> None:
        self._api, self._path, self._target = api, path, port
        self._server = socket.create_server(("127.0.0.1", local))
        self._open: set[socket.socket] = set()
        self.port: int = self._server.getsockname()[1]
        self.error: ArenaError | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End it, and the connections through it."""
        for ours in (self._server, *self._open):
            _hang_up(ours)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._carry, args=(self._server.accept()[0],), daemon=True).start()

    def _carry(self, ours: socket.socket) -> None:
        """One connection: what comes here goes there, and back."""
        self._open.add(ours)
        try:
            with channels(self._api, self._path, [("ports", str(self._target))], (V4,)) as opened:
                threading.Thread(target=_send_all, args=(ours, opened), daemon=True).start()
                self._receive(ours, opened)
        except OSError:
            return
        except ArenaError as error:
            self.error = error
        finally:
            _hang_up(ours)
            self._open.discard(ours)

    def _receive(self, ours: socket.socket, opened: Channels) -> None:
        greeted: set[int] = set()  # the first message of each channel is the port's number
        for channel, data in opened.messages():
            if channel not in greeted:
                greeted.add(channel)
            elif channel == 0:
                ours.sendall(data)
            elif data:
                raise BackendError(
                    f"port {self._target} of the pod cannot be reached", why=data.decode(errors="replace")
                )


def _hang_up(ours: socket.socket) -> None:
    """Close a socket also for the thread that reads from it."""
    with contextlib.suppress(OSError):
        ours.shutdown(socket.SHUT_RDWR)
    ours.close()


def _send_all(ours: socket.socket, opened: Channels) -> None:
    with contextlib.suppress(CutError, Stopped, OSError):
        while piece := ours.recv(PIECE):
            opened.send(0, piece)
        opened.close()
