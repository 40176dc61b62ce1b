"""Several processes in one replica: real ones, started by the text that travels in a container's command."""

import os
import signal
import subprocess
import sys
import time

import pytest

from arena.engines.starter import started
from arena.job import Role

RANKS = {"RANK": "1", "WORLD_SIZE": "3"}


def start(program: str) -> "subprocess.Popen[str]":
    role = started(Role(argv=(sys.executable, "-uc", program), nproc=2))
    return subprocess.Popen(role.argv, env={**os.environ, **RANKS}, stdout=subprocess.PIPE, text=True)


def test_each_process_is_told_its_rank_among_all() -> None:
    program = "import os, sys; sys.stdout.write('{RANK} {LOCAL_RANK} {WORLD_SIZE},'.format(**os.environ))"
    said, _ = start(program).communicate(timeout=30)
    assert sorted(said.split(",")) == ["", "2 0 6", "3 1 6"]


@pytest.mark.parametrize(("end", "code"), [("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", 137)])
def test_the_first_that_fails_ends_the_others_and_is_the_code(end: str, code: int) -> None:
    program = f"import os, sys, time; {end} if os.environ['LOCAL_RANK'] == '1' else time.sleep(60)"
    process = start(program)
    assert process.wait(timeout=30) == code


def test_a_signal_reaches_every_process() -> None:
    program = (
        "import os, signal, sys, time; signal.signal(15, lambda *_: sys.exit(5)); os.write(1, b'+'); time.sleep(60)"
    )
    process = start(program)
    assert process.stdout
    assert process.stdout.read(2) == "++"
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 5


def test_one_that_does_not_hear_is_killed() -> None:
    program = "import os, signal, sys, time; signal.signal(15, signal.SIG_IGN); time.sleep(1)"
    program += "; sys.exit(4) if os.environ['LOCAL_RANK'] == '1' else time.sleep(60)"
    begin = time.monotonic()
    assert start(program).wait(timeout=40) == 4
    assert 9 < time.monotonic() - begin < 30
