"""What runtimes say of programs they cannot start: recorded words -> those of one machine."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from arena import runtimes, status, why
from arena.engines import load
from arena.engines.objects import Pod
from arena.status import Observed, Replica, State
from arena.waits import Event, Facts

RECORDED = Path(__file__).parent / "engines" / "recorded"
RUNC = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
    "unable to start container process: "
)
WORDS = {
    RUNC + 'exec: "nosuch": executable file not found in $PATH: unknown': "nosuch: not found",
    RUNC + 'error during container init: exec: "nosuch": executable file not found in $PATH': "nosuch: not found",
    RUNC + 'exec: "say \\"hi\\"": executable file not found in $PATH: unknown': 'say "hi": not found',
    RUNC + 'exec: "a: b": stat a: b: no such file or directory: unknown': "a: b: not found",
    RUNC + 'exec: "./data.csv": permission denied: unknown': "./data.csv: permission denied",
    RUNC + 'exec: "/": is a directory: unknown': "/: is a folder",
    RUNC + "exec /lost: exec format error: unknown": "/lost: exec format error",
    RUNC + "a word of tomorrow: unknown": "a word of tomorrow",
    "container create failed: executable file `nosuch` not found in $PATH: No such file or directory\n": (
        "nosuch: not found"
    ),
    "exec ./lost: no such file or directory\n": "./lost or its interpreter: not found",
    "nosuch: not found": "nosuch: not found",
    "two\nlines": "two\nlines",
    "": "",
}


@pytest.mark.parametrize("said", WORDS)
def test_a_runtimes_words_are_told_as_one_machine_tells_them(said: str) -> None:
    assert runtimes.plain(said) == WORDS[said]


@pytest.mark.parametrize(
    ("scene", "engine", "text"),
    [
        ("job-no-program", "job", "worker-0 (rank 0) could not start, code 127: /not/there: not found"),
        ("job-not-executable", "job", "worker-0 (rank 0) could not start, code 126: /etc/passwd: permission denied"),
        ("pytorch-no-program", "pytorchjob", "master-0 (rank 0) could not start, code 127: /not/there: not found"),
    ],
)
def test_people_read_a_sentence_and_the_runtimes_own_words_are_evidence(scene: str, engine: str, text: str) -> None:
    found = read(engine, json.loads((RECORDED / f"{scene}.json").read_text()))
    told = why.explain(found, status.decide(found).state)
    assert told is not None
    assert told.text == text
    assert "unable to start container process" in told.evidence[0]


def read(name: str, recorded: dict[str, Any]) -> Observed:
    engine = load(name)
    thing = msgspec.json.decode(json.dumps(recorded["thing"]), type=engine.thing)
    return engine.read(thing, msgspec.json.decode(json.dumps(recorded["pods"]), type=list[Pod]))


def test_a_program_that_is_missing_again_and_again() -> None:
    at, long = datetime(2026, 1, 1, tzinfo=UTC), RUNC + 'exec: "nosuch": executable file not found in $PATH: unknown'
    end = Replica(role="worker", index=0, state=State.FAILED, exit_code=127, reason="StartError", message=long)
    end = msgspec.structs.replace(end, started=at, ended=at, attempt=2)
    now = Replica(
        role="worker", index=0, attempt=3, reason="RunContainerError", message="nosuch: not found", restarts=1
    )
    found = Observed(word="Running", created=at, attempt=3, replicas=(now,), earlier=(end,), in_place=True)
    told = why.explain(found, State.RUNNING, facts=Facts())
    assert told is not None
    assert told.text.endswith("could not start, code 127: nosuch: not found; it was started 2 times, and will be again")


def test_an_event_says_it_in_the_same_words() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    now = Replica(role="worker", index=0, pod="x-0")
    found = Observed(word="Running", created=at, replicas=(now,))
    long = f'Error: {RUNC}exec: "nosuch": executable file not found in $PATH: unknown'
    event = Event(kind="Pod", name="x-0", type="Warning", reason="Failed", message=long, at=at)
    told = why.explain(found, State.PENDING, facts=Facts(events=(event,)))
    assert told is not None
    assert (told.text, told.evidence) == ("Failed: nosuch: not found", (f"Pod x-0 | Failed: {long}",))
