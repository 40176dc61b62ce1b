"""What follows from the one declaration of a field: its flags, its keys, and the way from plain values to a job.

Flags, run files and Python all bring plain values (`{"workers": "2", "ps": {"cpu": "500m"}}`) to `build`, so that the
same words make the same job wherever they stand. A text may stand for a number or a truth value only where it can mean
nothing else: `2` and `true`, but neither `1e3` nor `yes`. Nothing here reads files or knows a command line.
"""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec
from msgspec.structs import replace

from arena import jobs
from arena.job import Job, Local, Role, find_problems, metas, option_name, raise_all
from arena.job import types as bare_types
from arena.secrets import MASK

Shape = Literal["int", "text", "bool", "choice", "list", "mapping", "role"]

POSITIONAL = "command"  # the one field that is typed without a flag
_DIGITS = 18  # longer numbers are only told to be too large


class Field(NamedTuple):
    """One declared field, for whoever shows or reads it. The parts of a role are fields too: `ps.cpu` is `--ps-cpu`."""

    name: str
    flag: str
    shape: Shape
    help: str
    default: object = msgspec.NODEFAULT
    short: str = ""
    aliases: tuple[str, ...] = ()
    group: str = "Job"
    metavar: str = ""
    common: bool = False
    local: Local = "used"
    choices: tuple[str, ...] = ()
    ge: int | None = None
    le: int | None = None
    parts: tuple[Field, ...] = ()

    @property
    def flags(self) -> tuple[str, ...]:
        """The spellings that help shows: `-w`, `--workers`."""
        return tuple(spelling for spelling in (self.short, self.flag) if spelling)

    @property
    def label(self) -> str:
        """How messages name it."""
        return self.flag or self.name

    @property
    def several(self) -> bool:
        """Whether its flag may be given more than once."""
        return self.shape in ("list", "mapping")


class Problem(NamedTuple):
    """What is wrong with one key: `workers`, `ps.cpu`, `env.HF_TOKEN`."""

    key: str
    message: str


@cache
def fields(kind: type[Job] | str) -> tuple[Field, ...]:
    """The declared fields of a job type, in their order.

    >>> [field.flags for field in fields("mpi") if field.name in ("workers", "slots_per_worker")]
    [('-w', '--workers'), ('--slots-per-worker',)]
    """
    struct = job_class(kind)
    defaults, hints = _defaults(struct), bare_types(struct)
    return tuple(_field(name, meta, hints[name], defaults[name]) for name, meta in metas(struct).items())


def leaves(kind: type[Job] | str) -> Iterator[Field]:
    """What has a flag of its own: every field, and each part of a role in its place."""
    for field in fields(kind):
        yield from field.parts or (field,)


def job_class(kind: type[Job] | str) -> type[Job]:
    """The class of a job type, by its name or as it is."""
    return jobs.load(kind) if isinstance(kind, str) else kind


def build(kind: type[Job] | str, values: Mapping[str, object]) -> Job:
    """The checked job of these values, or SpecError with everything that is wrong.

    >>> build("job", {"command": ["train.py"], "workers": "2"}).workers
    2
    """
    job, problems = examine(kind, values)
    raise_all([f"{label_of(kind, key)}: {message}" for key, message in problems])
    assert job is not None
    return job


def examine(kind: type[Job] | str, values: Mapping[str, object]) -> tuple[Job | None, list[Problem]]:
    """The job, where one can be made at all, and all that is wrong with it."""
    problems: list[Problem] = []
    typed: dict[str, Any] = {}
    for key, raw in values.items():
        try:
            typed.update(_read(kind, key, raw))
        except _Wrong as wrong:
            problems += wrong.problems
    told = {key.partition(".")[0] for key, _ in problems}
    missing = [field.name for field in fields(kind) if field.default is msgspec.NODEFAULT and field.name not in typed]
    problems += [Problem(name, "must be given") for name in missing if name not in told]
    if missing:
        return None, problems
    job = job_class(kind)(**typed)
    found = [_problem_of(kind, text) for text in find_problems(job)]
    return job, problems + [problem for problem in found if problem.key.partition(".")[0] not in told]


def to_plain(job: Job) -> dict[str, object]:
    """The job as plain values, `type` first, then whatever differs from its default; `build` makes it again.

    >>> to_plain(build("job", {"command": "train.py", "workers": 2}))
    {'type': 'job', 'command': ['train.py'], 'workers': 2}
    """
    plain = {field.name: _plain(field, getattr(job, field.name)) for field in fields(type(job)) if _is_set(field, job)}
    return {"type": job.type_name, **plain}


def merged(kind: type[Job] | str, below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    """Values of two layers, a file and the flags: the upper wins, pairs and roles key by key, lists as a whole.

    >>> merged("job", {"env": {"A": "1", "B": "2"}, "workers": 4}, {"env": {"B": "3"}})
    {'env': {'A': '1', 'B': '3'}, 'workers': 4}
    """
    shapes = {field.name: field.shape for field in fields(kind)}
    together = {**below, **above}
    for key in {*below} & {*above}:
        if shapes.get(key) == "mapping":
            together[key] = _merge_pairs(below[key], above[key])
        if shapes.get(key) == "role":
            together[key] = _merge_roles(below[key], above[key])
    return together


def label_of(kind: type[Job] | str, key: str) -> str:
    """The flag that a key is known by: `ps.cpu` -> `--ps-cpu`, `env.A` -> `--env A`; other keys as they are."""
    flags = {field.name: field.label for field in (*fields(kind), *leaves(kind))}
    name, _, rest = key.partition(".")
    return flags.get(key) or (f"{flags[name]} {rest}".rstrip() if name in flags else key)


def near(word: str, known: Iterable[str]) -> str:
    """`did you mean …?`, or nothing when no known word is like it."""
    found = difflib.get_close_matches(word, list(known), 1, 0.6)
    return f"did you mean {found[0]!r}?" if found else ""


# Pairs


def parse_pairs(words: Iterable[str], flag: str, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The pairs `KEY=VALUE`, split at the first `=`; a KEY alone takes its value from `environ`, if that is given.

    >>> parse_pairs(["A=b,c=d", "HOME"], "--env", {"HOME": "/root"})
    {'A': 'b,c=d', 'HOME': '/root'}
    """
    pairs: dict[str, str] = {}
    problems = []
    for word in words:
        key, equals, value = word.partition("=")
        if key and equals:
            pairs[key] = value
        elif key and environ is not None and key in environ:
            pairs[key] = environ[key]
        else:
            problems.append(f"{flag}: {_pair_problem(word, key, environ)}")
    raise_all(problems)
    return pairs


def read_env_file(text: str, file_name: str = "env file") -> dict[str, str]:
    """The variables of a file: lines `KEY=VALUE`, maybe after `export`; `#` begins a line of comment.

    Blanks around a value are dropped, and one pair of quotes around all of it.

    >>> read_env_file("# mine\\nexport A=b=c\\nB=' d '")
    {'A': 'b=c', 'B': ' d '}
    """
    pairs: dict[str, str] = {}
    problems = []
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        words = line.strip()
        if words and not words.startswith("#"):
            try:
                pairs.update([_env_line(words)])
            except ValueError as error:
                problems.append(f"{file_name}:{number}: {error}")
    raise_all(problems)
    return pairs


def _pair_problem(word: str, key: str, environ: Mapping[str, str] | None) -> str:
    if not key:
        return f"{word!r} has no key: KEY=VALUE is expected"
    if environ is None:
        return f"{word!r} has no value: {word}=VALUE is expected"
    return f"{word!r} has no value, and there is no such variable here: {word}=VALUE is expected"


def _env_line(line: str) -> tuple[str, str]:
    key, equals, value = re.sub(r"^export\s+", "", line).partition("=")
    if not equals:
        raise ValueError(f"{_shown(line)} is not KEY=VALUE")
    if not re.fullmatch(r"[^\s'\"]+", key):
        raise ValueError(f"{_shown(key)} is no name of a variable")
    return key, _unquoted(value.strip())


def _unquoted(value: str) -> str:
    """Without the quotes around it; where they could mean two things the value is not shown, it may be a secret."""
    quote = value[:1]
    if quote not in ("'", '"') or not quote:
        return value
    inner = value[1:-1]
    if len(value) < 2 or value[-1] != quote:
        raise ValueError(f"the value begins with {quote} and does not end with it on this line")
    if quote in inner:
        raise ValueError(f"the value in {quote}…{quote} holds {quote} itself: take the other quotes, or none")
    return inner


# Declarations


def _defaults(struct: type[msgspec.Struct]) -> dict[str, object]:
    return {
        info.name: info.default_factory() if info.default_factory is not msgspec.NODEFAULT else info.default
        for info in msgspec.structs.fields(struct)
    }


def _field(name: str, meta: msgspec.Meta, hint: Any, default: object, flag: str = "") -> Field:
    extra = meta.extra or {}
    shape, choices = _shape(name, hint)
    if (meta.ge, meta.le) != (None, None) and hint is not int:
        raise TypeError(f"{name}: ge and le bound a plain int, without None")
    flag = flag or ("" if name == POSITIONAL else option_name(name))
    return Field(
        name=name,
        flag=flag,
        shape=shape,
        help=meta.description or "",
        default=default,
        short=f"-{extra['short']}" if extra["short"] else "",
        aliases=tuple(f"--{alias}" for alias in extra["aliases"]),
        group=extra["group"],
        metavar=extra["metavar"] or _metavar(shape),
        common=extra["common"],
        local=extra["local"],
        choices=choices,
        ge=_whole(meta.ge),
        le=_whole(meta.le),
        parts=tuple(_parts(name, flag, extra, default)) if isinstance(default, Role) else (),
    )


def _parts(name: str, flag: str, extra: Mapping[str, Any], role: Role) -> Iterator[Field]:
    hints = bare_types(Role)
    for part, meta in metas(Role).items():
        if extra["parts"] and part not in extra["parts"]:
            continue
        spelling = flag if part == "count" else f"{flag}{option_name(part)[1:]}"
        field = _field(part, meta, hints[part], getattr(role, part), spelling)
        words = field.help.replace("this role", name).replace("per replica", f"per {name} replica")
        old = tuple(f"--{alias}" for alias in extra["part_aliases"].get(part, ()))
        yield field._replace(name=f"{name}.{part}", help=words, group=extra["group"], aliases=old)


def _shape(name: str, hint: Any) -> tuple[Shape, tuple[str, ...]]:
    hint = _without_none(hint)
    origin = get_origin(hint) or hint
    if origin is Literal:
        return "choice", tuple(filter(None, get_args(hint)))
    shapes: dict[object, Shape] = {bool: "bool", int: "int", str: "text", tuple: "list", dict: "mapping", Role: "role"}
    if origin not in shapes:
        raise TypeError(f"{name}: a field is bool, int, str, a Literal, tuple[str, ...], dict[str, str] or Role")
    return shapes[origin], ()


def _without_none(hint: Any) -> Any:
    if get_origin(hint) not in (Union, types.UnionType):
        return hint
    (bare,) = (one for one in get_args(hint) if one is not type(None))
    return bare


def _metavar(shape: Shape) -> str:
    return {"int": "N", "role": "N", "bool": "", "mapping": "KEY=VALUE"}.get(shape, "VALUE")


def _whole(bound: float | None) -> int | None:
    return None if bound is None else int(bound)


# Plain values to typed ones


class _Wrong(Exception):
    """One or more things that cannot be."""

    def __init__(self, *problems: Problem) -> None:
        self.problems = list(problems)


def _read(kind: type[Job] | str, key: str, raw: object) -> dict[str, object]:
    if key == "type":
        return _read_type(kind, raw)
    field = next((field for field in fields(kind) if field.name == key), None)
    if field is None:
        raise _Wrong(Problem(key, _unknown(kind, key)))
    return {key: _typed(field, raw)}


def _read_type(kind: type[Job] | str, raw: object) -> dict[str, object]:
    name = kind if isinstance(kind, str) else kind.type_name
    if raw not in (name, job_class(kind).type_name) and jobs.ALIASES.get(str(raw)) != job_class(kind).type_name:
        raise _Wrong(Problem("type", f"is {_shown(raw)} here, but the job is of type {name!r}"))
    return {}


def _unknown(kind: type[Job] | str, key: str) -> str:
    """An unknown key, with what was probably meant: another spelling, a part of a role, a near word."""
    names = [field.name for field in fields(kind)]
    meant = {alias.lstrip("-"): field.name for field in leaves(kind) for alias in field.aliases}
    meant |= {field.flag.lstrip("-"): field.name for field in leaves(kind)}
    plain = key.lstrip("-").replace("_", "-")
    found = meant.get(plain, "")
    role, _, part = found.partition(".")
    if part:
        return f"there is no such key; write {role}: {{{part}: …}}"
    advice = f"did you mean {found!r}?" if found else near(key.replace("-", "_"), ["type", *names])
    return "there is no such key" + (f"; {advice}" if advice else f"; known: {', '.join(names)}")


def _typed(field: Field, raw: object) -> object:
    if raw is None:
        raise _Wrong(Problem(field.name, "has no value (the word itself is written in quotes)"))
    try:
        return _READERS[field.shape](field, raw)
    except ValueError as error:
        raise _Wrong(Problem(field.name, str(error))) from None


def _int(field: Field, raw: object) -> int:
    text = str(raw) if isinstance(raw, int | str) and not isinstance(raw, bool) and _is_short(raw) else ""
    if not re.fullmatch(rf"0|-?[1-9][0-9]{{0,{_DIGITS}}}", text) or not _is_within(field, int(text)):
        raise ValueError(f"must be {_range(field)}, not {_shown(raw)}")
    return int(text)


def _is_short(raw: int | str) -> bool:
    return len(raw) <= _DIGITS if isinstance(raw, str) else abs(raw) < 10**_DIGITS


def _is_within(field: Field, number: int) -> bool:
    return (field.ge is None or number >= field.ge) and (field.le is None or number <= field.le)


def _range(field: Field) -> str:
    bounds = [f"from {field.ge}" if field.ge is not None else "", f"to {field.le}" if field.le is not None else ""]
    return " ".join(["a whole number", *filter(None, bounds)])


def _bool(raw: object) -> bool:
    words = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
    if isinstance(raw, bool):
        return raw
    if not isinstance(raw, str) or raw not in words:
        raise ValueError(f"must be true or false, not {_shown(raw)}")
    return words[raw]


def _text(raw: object) -> str:
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        raise ValueError(f"must be a text, not {_shown(raw)}")
    return raw if isinstance(raw, str) else str(raw)


def _choice(field: Field, raw: object) -> str:
    if raw not in field.choices:
        advice = near(str(raw), field.choices) if isinstance(raw, str) else ""
        raise ValueError(f"must be one of {', '.join(field.choices)}, not {_shown(raw)}" + (advice and f": {advice}"))
    return str(raw)


def _list(raw: object) -> tuple[str, ...]:
    items = raw if isinstance(raw, list | tuple) else (raw,)
    if isinstance(raw, Mapping):
        raise ValueError(f"must be a list of words, not {_shown(raw)}")
    return tuple(_element(item, f"word {number}: ") for number, item in enumerate(items, 1))


def _element(item: object, where: str) -> str:
    if item is None:
        raise ValueError(f"{where}has no value (the word itself is written in quotes)")
    if isinstance(item, bool) or not isinstance(item, str | int | float):
        raise ValueError(f"{where}must be a text, not {_shown(item)}")
    return str(item)


def _mapping(field: Field, raw: object) -> dict[str, str]:
    if not isinstance(raw, Mapping):
        raise ValueError(f"must be pairs of key and value, not {_shown(raw)}")
    pairs, problems = {}, []
    for key, value in raw.items():
        try:
            pairs[_element(key, "the key ")] = _unmasked(field, key, _element(value, ""))
        except ValueError as error:
            problems.append(Problem(f"{field.name}.{key}", str(error)))
    if problems:
        raise _Wrong(*problems)
    return pairs


def _unmasked(field: Field, key: object, value: str) -> str:
    if value == MASK:
        raise ValueError(f"the value is masked ({MASK}); give it: {field.flag} {key}=VALUE")
    return value


def _role(field: Field, raw: object) -> Role:
    """A number is the role's count; a mapping sets its parts, and the field's default the others."""
    if isinstance(raw, Role):
        return raw
    values = raw if isinstance(raw, Mapping) else {"count": raw}
    known = {part.name.partition(".")[2]: part for part in field.parts}
    if "count" not in known and not isinstance(raw, Mapping):
        raise ValueError(f"must be pairs of key and value, as {{cpu: 2}}, not {_shown(raw)}; how many: {field.name}s")
    parts, problems = {}, []
    for key, value in values.items():
        try:
            parts[key] = _typed(known[key], value) if key in known else _no_part(field, key, [*known])
        except _Wrong as wrong:
            problems += wrong.problems
    if problems:
        raise _Wrong(*problems)
    assert isinstance(field.default, Role)
    return replace(field.default, **parts)


def _no_part(field: Field, key: str, known: list[str]) -> object:
    advice = near(str(key), known) or f"known: {', '.join(known)}"
    raise _Wrong(Problem(f"{field.name}.{key}", f"there is no such key; {advice}"))


_READERS: dict[Shape, Callable[[Field, Any], object]] = {
    "int": _int,
    "text": lambda _, raw: _text(raw),
    "bool": lambda _, raw: _bool(raw),
    "choice": _choice,
    "list": lambda _, raw: _list(raw),
    "mapping": _mapping,
    "role": _role,
}


def _shown(raw: object) -> str:
    kinds = {list: "a list", tuple: "a list", dict: "a mapping", type(None): "nothing"}
    if isinstance(raw, int) and not isinstance(raw, bool) and not _is_short(raw):
        return "a number that large"
    text = kinds.get(type(raw)) or repr(raw)
    return text if len(text) <= 80 else text[:77] + "..."


def _problem_of(kind: type[Job] | str, text: str) -> Problem:
    """A line of `find_problems`, told by its key: `--env A: …` is `env.A`."""
    label, _, message = text.partition(": ")
    flag, _, rest = label.partition(" ")
    keys = {field.label: field.name for field in (*leaves(kind), *fields(kind))}
    name = keys.get(flag) or keys.get(option_name(flag)) or flag
    return Problem(f"{name}.{rest}" if rest else name, message)


# Typed values to plain ones


def _is_set(field: Field, job: Job) -> bool:
    return bool(getattr(job, field.name) != field.default)


def _plain(field: Field, value: Any) -> object:
    if isinstance(value, Role):
        return _plain_role(field, value)
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def _plain_role(field: Field, role: Role) -> object:
    values = {part.name.partition(".")[2]: part for part in field.parts}
    parts = {name: getattr(role, name) for name, part in values.items() if getattr(role, name) != part.default}
    return parts["count"] if [*parts] == ["count"] else parts


def _merge_pairs(below: object, above: object) -> object:
    """One mapping; what is none is left for `build` to refuse."""
    if not isinstance(below, Mapping):
        return below
    return {**below, **above} if isinstance(above, Mapping) else above


def _merge_roles(below: object, above: object) -> object:
    """One mapping of parts; a role's count may stand alone. A `Role` or what cannot be one wins as a whole."""
    layers = [layer if isinstance(layer, Mapping) else {"count": layer} for layer in (below, above)]
    whole = isinstance(above, Role | list) or isinstance(below, Role | list)
    return above if whole else {**layers[0], **layers[1]}
