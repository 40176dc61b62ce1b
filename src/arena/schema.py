"""JSON Schema of run files, for editors and checks before anything runs; it follows from the declarations.

It is as wide as the reader where YAML's guess does not matter (`cpu: 2` is the text `2`) and says what a file should
hold, so that a number written as text is read but not praised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from arena import jobs
from arena.declared import POSITIONAL, Field, fields, job_class
from arena.job import MAX_NAME, NAME, Job, Role

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, object]

# YAML makes numbers and truth values of words; the reader takes them as they were typed.
_WORD: Schema = {"type": ["string", "number", "boolean"]}
_TEXT: Schema = {"type": ["string", "number"]}


def schema(kind: type[Job] | str | None = None) -> Schema:
    """The schema of one job type's run files, or of all.

    >>> schema("mpi")["properties"]["slots_per_worker"]["maximum"]
    1024
    """
    if kind is not None:
        return {"$schema": DIALECT, **_of_type(kind)}
    names = jobs.usable()
    return {
        "$schema": DIALECT,
        "title": "arena run file",
        "type": "object",
        "properties": {"type": {"enum": [*names, *jobs.ALIASES], "default": "job"}},
        "allOf": [_if_type(name) for name in names],
        "$defs": {name: _of_type(name) for name in names},
    }


def _if_type(name: str) -> Schema:
    """The rules of one type, for files that name it; `job` is also the type of a file that names none."""
    named: Schema = {"properties": {"type": {"enum": _spellings(name)}}}
    condition = named if name == "job" else {**named, "required": ["type"]}
    return {"if": condition, "then": {"$ref": f"#/$defs/{name}"}}


def _spellings(name: str) -> list[str]:
    return [name, *(alias for alias, meant in jobs.ALIASES.items() if meant == name)]


def _of_type(kind: type[Job] | str) -> Schema:
    struct = job_class(kind)
    name = jobs.ALIASES.get(kind, kind) if isinstance(kind, str) else struct.type_name
    required = [field.name for field in fields(kind) if field.default is msgspec.NODEFAULT]
    return {
        "title": f"run file of type {name}",
        "description": (struct.__doc__ or "").split("\n")[0],
        "type": "object",
        "properties": {"type": {"enum": _spellings(name)}, **_properties(fields(kind)), "masked": _MASKED},
        "required": ([] if name == "job" else ["type"]) + [POSITIONAL, *required],
        "additionalProperties": False,
    }


_MASKED: Schema = {
    "description": "fields in which *** stands for a value that must be given anew",
    "type": "array",
    "items": {"type": "string"},
}


def _properties(declared: tuple[Field, ...]) -> Mapping[str, Schema]:
    return {field.name.rpartition(".")[2]: _property(field) for field in declared}


def _property(field: Field) -> Schema:
    found: Schema = {"description": field.help, **_SHAPES[field.shape](field)}
    default = _default(field)
    return found if default is None else {**found, "default": default}


def _default(field: Field) -> object:
    """The default where it says something: neither nothing at all nor a role."""
    empty = field.default in ("", (), {}) or isinstance(field.default, Role)
    if empty or field.default is msgspec.NODEFAULT:
        return None
    return list(field.default) if isinstance(field.default, tuple) else field.default


def _int(field: Field) -> Schema:
    bounds = {"minimum": field.ge, "maximum": field.le}
    return {"type": "integer", **{name: bound for name, bound in bounds.items() if bound is not None}}


def _text(field: Field) -> Schema:
    if field.name == "name":
        return {"type": ["string", "boolean"], "maxLength": MAX_NAME, "pattern": f"^({NAME.pattern})?$"}
    return _TEXT


def _list(field: Field) -> Schema:
    least: Schema = {"minItems": 1} if field.name == POSITIONAL else {}
    return {"anyOf": [_WORD, {"type": "array", "items": _WORD, **least}]}


def _role(field: Field) -> Schema:
    counts = [_int(part) for part in field.parts if part.name.endswith(".count")]
    parts: Schema = {"type": "object", "properties": _properties(field.parts), "additionalProperties": False}
    return {"anyOf": [*counts, parts]}


_SHAPES: dict[str, Callable[[Field], Schema]] = {
    "int": _int,
    "text": _text,
    "bool": lambda _: {"type": "boolean"},
    "choice": lambda field: {"enum": list(field.choices)},
    "list": _list,
    "mapping": lambda _: {"type": "object", "additionalProperties": _WORD},
    "role": _role,
}
