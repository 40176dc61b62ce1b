"""What a step showed, and whether that is what was demanded: no I/O.

Each check answers None, or one line that says what was seen instead.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from journeys.notation import Count, Empty, Exit, Expectation, Json, Match, Raises, Step, Stream, Time

SECRETS = ("secret1", "secret2", "KEYKEY")
OURS = re.compile(r'File "[^"]*/arena/(?!code/)')
TRACEBACK = "Traceback (most recent call last)"
MESSAGE = re.compile(r"(Error|Warning|  Why|  Try): ")
# These print the program's own lines on stdout, which may look like anything.
SHOWS_PROGRAM = re.compile(r"\barena\b.* (run|logs|exec|attach|submit .*--wait)\b")
REDIRECTED = re.compile(r"[|>;]|&&")


@dataclass(frozen=True, slots=True)
class Raised:
    """The exception of a cell: its class's name, and its text."""

    name: str
    text: str


@dataclass(slots=True)
class Observed:
    """The end of a step, or where it stands; `code` is None while it runs, `unended` when it was waited for in vain."""

    out: str = ""
    err: str = ""
    code: int | None = None
    seconds: float = 0.0
    raised: Raised | None = None
    held_open: bool = False
    unended: bool = False
    value: str = ""


def check(expectation: Expectation, seen: Observed) -> str | None:
    """Why a demand on output, code or time does not hold; None when it does."""
    return CHECKS[type(expectation.what)](expectation.what, seen)


def implied(step: Step, seen: Observed) -> Iterator[str]:
    """What holds for every step without being written, where it does not."""
    yield from (f"a traceback on {name}" for name, text in streams(seen) if is_traceback(step, name, text))
    yield from (f"{secret!r} on {name}" for name, text in streams(seen) for secret in SECRETS if secret in text)
    if seen.held_open:
        yield "the command ended, but a process it left holds its stdout or stderr open"
    if step.kind in ("run", "background"):
        yield from not_data(step.text, seen)


def is_traceback(step: Step, stream: Stream, text: str) -> bool:
    """Whether a text has a traceback that is not the program's own, shown where its output is shown."""
    programs = stream == "out" and SHOWS_PROGRAM.search(step.text) is not None
    return TRACEBACK in text and (not programs or OURS.search(text) is not None)


def streams(seen: Observed) -> tuple[tuple[Stream, str], tuple[Stream, str]]:
    """Both outputs with their names."""
    return ("out", seen.out), ("err", seen.err)


def not_data(command: str, seen: Observed) -> Iterator[str]:
    """Messages of arena's on stdout, and what is no JSON where JSON was asked for."""
    if not SHOWS_PROGRAM.search(command):
        yield from (f"a message on stdout: {line}" for line in lines(seen.out) if MESSAGE.match(line))
    if "-o json" in command and not REDIRECTED.search(command) and seen.code is not None and not is_json(seen.out):
        yield "stdout is not JSON"


def is_json(text: str) -> bool:
    """Whether a text is empty, one JSON value, or one value a line."""
    return not text or loads(text) or all(loads(line) for line in lines(text))


def loads(text: str) -> bool:
    """Whether a text is one JSON value."""
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def lines(text: str) -> list[str]:
    r"""The lines of an output; `\r` is kept, the end of the last line makes no line."""
    return text.removesuffix("\n").split("\n") if text else []


def text_of(seen: Observed, stream: Stream) -> str:
    """One of the two outputs."""
    return seen.out if stream == "out" else seen.err


def _exit(what: Exit, seen: Observed) -> str | None:
    return None if seen.code in what.codes else f"exit {'(still running)' if seen.code is None else seen.code}"


def _match(what: Match, seen: Observed) -> str | None:
    hits = [line for line in lines(text_of(seen, what.stream)) if what.pattern.search(line)]
    if bool(hits) is what.wanted:
        return None
    return f"a line matches: {hits[0]!r}" if hits else "no line matches"


def _empty(what: Empty, seen: Observed) -> str | None:
    return f"{len(text_of(seen, what.stream))} characters" if text_of(seen, what.stream) else None


def _count(what: Count, seen: Observed) -> str | None:
    hits = sum(bool(what.pattern.search(line)) for line in lines(text_of(seen, what.stream)))
    return None if what.least <= hits <= what.most else f"{hits} lines"


def _json(what: Json, seen: Observed) -> str | None:
    name, text = ("j", seen.out) if what.stream == "out" else ("e", (lines(seen.err) or [""])[-1])
    try:
        value = json.loads(text)
    except ValueError as error:
        return f"{what.stream} is not JSON: {error}"
    return false_over(what.expression, {name: value})


def false_over(expression: str, names: dict[str, Any]) -> str | None:
    """Why an expression of the day is not true over these names; an exception of its own is an answer too."""
    try:
        held = eval(expression, names)
    except Exception as error:  # noqa: BLE001 - a missing key is the observation
        return f"{type(error).__name__}: {error}"
    return None if held else "false"


def _time(what: Time, seen: Observed) -> str | None:
    return None if seen.seconds < what.seconds else f"{seen.seconds:.2f} s"


def _raises(what: Raises, seen: Observed) -> str | None:
    if seen.raised is None:
        return "nothing was raised"
    if seen.raised.name == what.name and what.pattern.search(seen.raised.text):
        return None
    return f"{seen.raised.name}: {seen.raised.text}"


CHECKS: dict[type, Callable[[Any, Observed], str | None]] = {
    Exit: _exit,
    Match: _match,
    Empty: _empty,
    Count: _count,
    Json: _json,
    Time: _time,
    Raises: _raises,
}
