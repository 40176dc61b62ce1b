"""A job whose supervisor cannot begin ends, with the reason; nothing waits for ever."""

import json
import os
import shutil
import signal
from pathlib import Path

import psutil

import arena
from arena.status import State


def test_a_type_that_cannot_be_loaded_any_more(job_env: dict[str, str]) -> None:
    client = arena.Client(backend="local", env=job_env)
    job = client.run(["true"], name="gone", selector={"zone": "none"})
    folder = Path(job_env["ARENA_STATE_DIR"]) / "runs" / job.run_id
    next(seen for seen in job.watch() if seen.reason == "Unschedulable")
    _kill_supervisor(job.run_id)
    made = json.loads((folder / "job.json").read_text())
    (folder / "job.json").write_text(json.dumps({**made, "type": "no_such_module:Job"}))
    seen = job.wait(timeout=50)
    assert (seen.state, seen.reason, seen.exit_code) == (State.FAILED, "SupervisorFailed", None)
    assert "no_such_module" in seen.status.message


def test_a_supervisor_that_cannot_go_on(job_env: dict[str, str]) -> None:
    client = arena.Client(backend="local", env=job_env)
    client.run(["true"]).wait(timeout=50)
    (queue,) = Path(job_env["ARENA_STATE_DIR"]).glob("hosts/*/queue")
    shutil.rmtree(queue)
    queue.touch()
    seen = client.run(["true"]).wait(timeout=50)
    assert (seen.state, seen.reason, seen.cause) == (State.FAILED, "SupervisorFailed", "SupervisorFailed")
    assert seen.why.startswith("arena itself could not carry the job on: ")


def _kill_supervisor(run_id: str) -> None:
    for process in psutil.process_iter():
        try:
            if process.environ().get("ARENA_RUN_ID") == run_id:
                os.kill(process.pid, signal.SIGKILL)
        except (psutil.Error, ProcessLookupError):
            continue
