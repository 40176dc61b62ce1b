"""What Arena (Go)'s flags change in its objects, in a notation, and whether ours change so, too.

`+ TFJob spec.tfReplicaSpecs.{PS,Worker}.template.spec.volumes[dshm] = {…}`: a sign, a kind, a path, a value.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

MISSING = object()
ANYTHING = "{…}"
PART = re.compile(r'"([^"]+)"|\[([^\]]+)\]|([^.\[\]"]+)')

Objects = Mapping[str, Any]  # by kind


class Effect(NamedTuple):
    """One change: added (+), changed (~), removed (-); the value is text as it was noted."""

    sign: str
    kind: str
    path: tuple[str, ...]
    value: str = ""

    def __str__(self) -> str:
        return f"{self.sign} {self.kind} {'.'.join(self.path)}" + (f" = {self.value}" if self.value else "")


def parse(text: str) -> list[Effect]:
    """The effects of a line, one for each choice of its braces; nothing for words that are none.

    >>> [str(one) for one in parse('~ TFJob spec.{A,B}.x[y] = 3')]
    ['~ TFJob spec.A.x.[y] = 3', '~ TFJob spec.B.x.[y] = 3']
    """
    found = re.fullmatch(r"([-+~]) (\w+)(?: ([^=].*?))?(?: = (.*))?", text, re.DOTALL)
    if not found:
        return []
    sign, kind, path, value = found.groups()
    return [Effect(sign, kind, one, value or "") for one in _paths(path or "")]


def _paths(text: str) -> Iterator[tuple[str, ...]]:
    """The paths that a text with braces stands for."""
    pieces = re.split(r"(\{[^}]*\})", text)
    choices = [piece[1:-1].split(",") if piece.startswith("{") else [piece] for piece in pieces]
    for chosen in itertools.product(*choices):
        yield tuple(_part(found) for found in PART.finditer("".join(chosen)))


def _part(found: re.Match[str]) -> str:
    quoted, item, plain = found.groups()
    return f"[{item}]" if item else quoted or plain


def look(objects: Objects, effect: Effect) -> Any:
    """What stands at the effect's path, or MISSING."""
    here: Any = objects.get(effect.kind, MISSING)
    for part in effect.path:
        here = _step(here, part)
    return here


def _step(here: Any, part: str) -> Any:
    if isinstance(here, list) and part.startswith("["):
        return next((one for number, one in enumerate(here) if part[1:-1] in _names(one, number)), MISSING)
    return here.get(part, MISSING) if isinstance(here, dict) else MISSING


def _names(item: Any, number: int) -> tuple[str, ...]:
    """The words by which an item of a list is known."""
    if not isinstance(item, dict):
        return (str(number),)
    return tuple(str(item[key]) for key in ("mountPath", "name") if key in item) or (str(number),)


def says(effect: Effect, given: str, found: Any) -> bool:
    """Whether the value found is the one noted; `<value>` is what was given, or what stands after its `=`."""
    if effect.value in ("", ANYTHING):
        return found is not MISSING
    if effect.value == "<value>":
        return _text(found) in (given, given.partition("=")[2], given.lower())
    if effect.value.startswith("{"):
        return bool(_plain(found) == json.loads(effect.value))
    return _text(found) == effect.value


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _plain(value: Any) -> Any:
    """The value as the notation writes it: lists by the names of their items."""
    if isinstance(value, list):
        return {f"[{_names(one, number)[0]}]": _plain(one) for number, one in enumerate(value)}
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return value


def holds(effect: Effect, given: str, before: Objects, after: Objects) -> bool:
    """Whether the flag did what the effect says, from the objects without to those with it."""
    old, new = look(before, effect), look(after, effect)
    if effect.sign == "-":
        return old is not MISSING and new is MISSING
    fresh = old is MISSING if effect.sign == "+" else old is not MISSING and old != new
    return fresh and says(effect, given, new)
