"""A notebook: cells in a real IPython kernel, a process of its own with a running event loop."""

import queue
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from calm import calm
from journeys.observed import Observed, Raised

# IPython keeps its history with these; forgotten, so that a day sees what `import arena` brings in.
FORGOTTEN = ("sqlite3",)
ANSI = re.compile(r"\x1b\[[0-9;]*m")


class Kernel:
    """One kernel and the cell that was started last."""

    def __init__(self, home: Path, env: Mapping[str, str], scratch: Path) -> None:
        self.log = (scratch / "kernel.log").open("wb")
        self.manager = KernelManager(connection_file=str(scratch / "kernel.json"))
        self.manager.start_kernel(cwd=str(home), env=dict(env), stdout=self.log, stderr=self.log)
        self.client: BlockingKernelClient = self.manager.blocking_client()
        self.client.start_channels()
        self._ready()
        self.seen, self.cell, self.number, self.clock = Observed(), "", 0, 0.0

    def finish(self, limit: float) -> Observed:
        """What a cell has shown at its end, or when it was waited for in vain."""
        self.seen.unended = not self.wait(limit)
        return self.seen

    def start(self, code: str) -> None:
        """Send a cell."""
        self.seen, self.clock = Observed(), calm()
        self.cell = self.client.execute(code, store_history=True, allow_stdin=False)

    def wait(self, limit: float) -> bool:
        """Whether the cell ended in time, all its output read."""
        end = time.monotonic() + limit
        try:
            reply = self._reply(self.cell, end)
            self.seen.seconds = calm() - self.clock
            self._read_output(end)
        except queue.Empty:
            return False
        self.number = reply.get("execution_count", 0)
        self.seen.code = int(reply["status"] != "ok")
        if reply["status"] != "ok":
            self.seen.raised = Raised(reply.get("ename", reply["status"]), ANSI.sub("", reply.get("evalue", "")))
        return True

    def interrupt(self) -> None:
        """Press the notebook's stop."""
        self.clock = calm()
        self.manager.interrupt_kernel()

    def restart(self) -> None:
        """A new process, an empty namespace; jobs stay."""
        self.manager.restart_kernel()
        self._ready()

    def false(self, expression: str) -> str | None:
        """Why an expression is not true in the kernel, `_` being the value of the last cell's last expression."""
        names = f'{{**globals(), "_": Out.get({self.number})}}'
        wanted = {"held": f"bool(eval({expression!r}, {names}))", "value": f"Out.get({self.number})"}
        request = self.client.execute("", silent=True, user_expressions=wanted)
        reply = self._reply(request, time.monotonic() + 30)["user_expressions"]
        self.seen.value = shown(reply["value"])[:1000]
        return None if shown(reply["held"]) == "True" else f"{shown(reply['held'])}; _ is {self.seen.value}"

    def end(self) -> None:
        """Stop the process."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.log.close()

    def _ready(self) -> None:
        self.client.wait_for_ready(timeout=60)
        forget = f"list(map(__import__('sys').modules.pop, {FORGOTTEN}, {FORGOTTEN}))"
        self._reply(self.client.execute("", silent=True, user_expressions={"": forget}), time.monotonic() + 30)

    def _reply(self, request: str, end: float) -> dict[str, Any]:
        while True:
            message = self.client.get_shell_msg(timeout=max(0.0, end - time.monotonic()))
            if message["parent_header"].get("msg_id") == request:
                content: dict[str, Any] = message["content"]
                return content

    def _read_output(self, end: float) -> None:
        while True:
            message = self.client.get_iopub_msg(timeout=max(0.1, end - time.monotonic()))
            if message["parent_header"].get("msg_id") != self.cell:
                continue
            content = message["content"]
            if message["msg_type"] == "stream":
                self._add(content["name"], content["text"])
            elif message["msg_type"] == "execute_result":
                self.seen.value = content["data"].get("text/plain", "")
            elif message["msg_type"] == "status" and content["execution_state"] == "idle":
                return

    def _add(self, name: str, text: str) -> None:
        if name == "stdout":
            self.seen.out += text
        else:
            self.seen.err += text


def shown(answer: dict[str, Any]) -> str:
    """The text of one of the kernel's answers to an expression."""
    if answer["status"] == "ok":
        return str(answer["data"]["text/plain"])
    return f"{answer['ename']}: {answer['evalue']}"
