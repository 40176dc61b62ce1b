"""How a supervisor comes to life: a process of its own, detached from whoever starts it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from arena.backends.local import process, state
from arena.errors import BackendError

ROOT = str(Path(__file__).parents[3])

# The first fork makes it nobody's child, so that a long-lived notebook has nothing to reap.
START = (
    "import os, sys\n"
    "if os.fork(): os._exit(0)\n"
    "sys.path.insert(0, sys.argv[1])\n"
    "from arena.backends.local.supervisor import main\n"
    "main(sys.argv[2], int(sys.argv[3]))\n"
)


def start(run: state.Run, lock: int, env: Mapping[str, str]) -> None:
    """Start the supervisor of a run and hand it the run's lock, which stays open here too.

    The environment becomes that of the replicas. BackendError where no process can be started.
    """
    import subprocess

    env = {key: value for key, value in env.items() if key != process.REPLICA} | {process.MARK: run.run_id}
    words = [sys.executable, "-I", "-c", START, ROOT, str(run.path), str(lock)]
    log = os.open(run.path / "supervisor.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        subprocess.run(
            words,
            env=env,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[lock],
            start_new_session=True,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        raise BackendError("the job's supervisor cannot be started", why=str(error)) from error
    finally:
        os.close(log)
