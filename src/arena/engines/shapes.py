"""What a patched object must still be for arena to read it; all else of it the server judges.

A patch may put anything anywhere. Claims, counts and requests are read from the object before the server has seen it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from arena.errors import SpecError

HINT = "see --set and --patch, or the site's patch"
COUNTS = ("replicas", "parallelism")
Amounts = dict[str, str | int | float]


class _Shape(Struct, frozen=True, rename="camel"):
    """A part of an object; keys that are not declared may be anything."""


class _Resources(_Shape, frozen=True):
    requests: Amounts = {}
    limits: Amounts = {}


class _Container(_Shape, frozen=True):
    name: str = ""
    resources: _Resources = _Resources()


class _Claim(_Shape, frozen=True):
    claim_name: str


class _Secret(_Shape, frozen=True):
    secret_name: str


class _Named(_Shape, frozen=True):
    name: str


class _Volume(_Shape, frozen=True):
    persistent_volume_claim: _Claim | None = None
    secret: _Secret | None = None
    config_map: _Named | None = None


class _Spec(_Shape, frozen=True):
    containers: list[_Container] = []
    init_containers: list[_Container] = []
    volumes: list[_Volume] = []
    image_pull_secrets: list[_Named] = []
    node_selector: dict[str, str] = {}


class _Meta(_Shape, frozen=True):
    labels: dict[str, Any] = {}
    annotations: dict[str, Any] = {}


class _Template(_Shape, frozen=True):
    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()


class _Object(_Shape, frozen=True):
    metadata: _Meta
    spec: dict[str, Any] = {}


def check_shape(thing: Mapping[str, Any], file: str = "") -> None:
    """Raise SpecError with the first place of an object (of a file, else a patched one) that cannot be as it is."""
    wrong = next(iter([*_wrong(thing, _Object, ""), *_below(thing, "")]), "")
    if wrong:
        kind = thing.get("kind", "object")
        what, hint = (f"{file}: the {kind}", "") if file else (f"a patch spoils the {kind}", HINT)
        raise SpecError(f"{what}: {wrong}", hint=hint)


def _below(node: Any, path: str) -> Iterator[str]:
    """What is wrong with the templates anywhere below, and with how many pods are made of them."""
    if isinstance(node, list):
        for number, one in enumerate(node):
            yield from _below(one, f"{path}[{number}]")
    if not isinstance(node, Mapping):
        return
    for key in COUNTS if "template" in node else ():
        yield from _wrong(node.get(key, 1), int, f"{path}.{key}")
    for key, value in node.items():
        if key == "template" and isinstance(value, Mapping) and isinstance(value.get("spec"), Mapping):
            kind = _Template if "containers" in value["spec"] else dict
            yield from _wrong(value, kind, f"{path}.{key}")
        yield from _below(value, f"{path}.{key}")


def _wrong(value: Any, kind: Any, path: str) -> Iterator[str]:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        said, _, at = str(error).partition(" - at `$")
        place = (path + at.rstrip("`")).lstrip(".")
        yield f"{place}: {said[:1].lower()}{said[1:].replace('`', '')}"
