"""The text of a day as steps: pure, no step is carried out here.

>>> [step] = parse("```journey\\n$ true\\n  exit 0\\n```")
>>> step.kind, step.text, step.expectations[0].text
('run', 'true', 'exit 0')
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

StepKind = Literal["run", "tty", "background", "key", "signal", "cell"]
Stream = Literal["out", "err"]


@dataclass(frozen=True, slots=True)
class Exit:
    """`exit 130 or 0`"""

    codes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Match:
    """`out /re/`, and with `wanted` false `out! /re/`"""

    stream: Stream
    pattern: re.Pattern[str]
    wanted: bool


@dataclass(frozen=True, slots=True)
class Empty:
    """`out empty`"""

    stream: Stream


@dataclass(frozen=True, slots=True)
class Count:
    """`lines err /re/ 2-4`"""

    stream: Stream
    pattern: re.Pattern[str]
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Json:
    """`json E` over stdout, `errjson E` over the last line of stderr"""

    stream: Stream
    expression: str


@dataclass(frozen=True, slots=True)
class Time:
    """`time < 2s`"""

    seconds: float


@dataclass(frozen=True, slots=True)
class Ok:
    """`ok cmd`"""

    command: str


@dataclass(frozen=True, slots=True)
class NoProcess:
    """`none /re/`"""

    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Value:
    """`val E`"""

    expression: str


@dataclass(frozen=True, slots=True)
class Raises:
    """`raises NAME /re/`"""

    name: str
    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Save:
    """`save X /re(..)re/`"""

    variable: str
    pattern: re.Pattern[str]


What = Exit | Match | Empty | Count | Json | Time | Ok | NoProcess | Value | Raises | Save


@dataclass(frozen=True, slots=True)
class Expectation:
    """What must hold, as written and as understood."""

    text: str
    line: int
    what: What


@dataclass(frozen=True, slots=True)
class Step:
    """One line to carry out and what must hold after it; `who` is empty for the day's own person."""

    kind: StepKind
    who: str
    text: str
    expectations: tuple[Expectation, ...]
    line: int
    source: str


class NotationError(ValueError):
    """A line that is neither step nor expectation."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(f"line {line}: not understood: {text!r}")


STEPS: dict[str, tuple[StepKind, str]] = {
    "$": ("run", ""),
    "tty$": ("tty", ""),
    "bob$": ("run", "bob"),
    "admin$": ("run", "admin"),
    "&": ("background", ""),
    "key$": ("key", ""),
    "sig$": ("signal", ""),
    "py>": ("cell", ""),
}


def parse(text: str) -> list[Step]:
    """The steps of all journey blocks of a day, with the line each stands on."""
    steps: list[Step] = []
    for number, line in journey_lines(text):
        if line.startswith(" "):
            steps[-1:] = [with_expectation(steps, number, line)]
        elif line.strip() and not line.startswith("#"):
            steps.append(parse_step(number, line))
    return steps


def journey_lines(text: str) -> Iterator[tuple[int, str]]:
    """Each line inside a journey block with its number in the file."""
    inside = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("```"):
            inside = line == "```journey"
        elif inside:
            yield number, line


def parse_step(number: int, line: str) -> Step:
    """One step without its expectations."""
    word, _, text = line.partition(" ")
    if word not in STEPS or not text.strip():
        raise NotationError(number, line)
    kind, who = STEPS[word]
    return Step(kind, who, text.strip(), (), number, line.strip())


def with_expectation(steps: list[Step], number: int, line: str) -> Step:
    """The last step with one expectation more."""
    if not steps:
        raise NotationError(number, line)
    last = steps[-1]
    more = parse_expectation(number, line.strip())
    return Step(last.kind, last.who, last.text, (*last.expectations, more), last.line, last.source)


def parse_expectation(number: int, text: str) -> Expectation:
    """What one indented line demands."""
    for pattern, make in EXPECTATIONS:
        if found := re.fullmatch(pattern, text):
            return Expectation(text, number, make(found))
    raise NotationError(number, text)


def _exit(found: re.Match[str]) -> What:
    return Exit(tuple(int(code) for code in found[1].split(" or ")))


def _match(found: re.Match[str]) -> What:
    return Match(_stream(found[1]), re.compile(found[3]), wanted=not found[2])


def _count(found: re.Match[str]) -> What:
    return Count(_stream(found[1]), re.compile(found[2]), int(found[3]), int(found[4] or found[3]))


def _json(found: re.Match[str]) -> What:
    return Json("err" if found[1] else "out", found[2])


def _stream(word: str) -> Stream:
    return "out" if word == "out" else "err"


EXPECTATIONS: tuple[tuple[str, Callable[[re.Match[str]], What]], ...] = (
    (r"exit (\d+(?: or \d+)*)", _exit),
    (r"(out|err)(!?) /(.*)/", _match),
    (r"(out|err) empty", lambda found: Empty(_stream(found[1]))),
    (r"lines (out|err) /(.*)/ (\d+)(?:-(\d+))?", _count),
    (r"(err)?json (.+)", _json),
    (r"time < (\d+(?:\.\d+)?)s", lambda found: Time(float(found[1]))),
    (r"ok (.+)", lambda found: Ok(found[1])),
    (r"none /(.*)/", lambda found: NoProcess(re.compile(found[1]))),
    (r"val (.+)", lambda found: Value(found[1])),
    (r"raises (\w+) /(.*)/", lambda found: Raises(found[1], re.compile(found[2]))),
    (r"save (\w+) /(.*)/", lambda found: Save(found[1], re.compile(found[2]))),
)
