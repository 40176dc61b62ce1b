"""Run files: a job as YAML that people keep beside their code, and that `export` writes.

    type: pytorch
    workers: 2
    command: [train.py, --lr, "0.1"]

A run file is read by the declared types and never by YAML's guess: `name: no` is the name `no`, `cpu: 1.10` keeps its
zero. Whatever could mean two things, or fill the memory, is refused, all of it at once and with its line. The key
`masked` names fields in which `***` stands for a value; such a file is read only when they are given otherwise.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from arena import declared, jobs
from arena.declared import Problem
from arena.errors import ArenaError, BackendError, NotFoundError, SpecError
from arena.job import Job, raise_all
from arena.secrets import mask, mask_text, mask_words

Node = Any  # yaml's nodes and events; yaml is imported only when there is a file

DEFAULT_TYPE = "job"
STDIN = "-"
LARGEST = 1 << 20
DEEPEST = 8

# What some reader of YAML (1.1 or 1.2) takes for something else than text.
_MISREAD = re.compile(
    r"(?i)~|null|y|n|yes|no|on|off|true|false|[-+]?\.?(inf|nan)|0[xob][0-9a-f_]+"
    r"|[-+]?[0-9._:,]*[0-9._](e[-+]?[0-9]+)?|[0-9]+-[0-9-]+([t ][0-9:.z+ -]*)?|=|<<"
)
_SURROGATES = re.compile(r"(?i)(?<!\\)((?:\\\\)*)\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})")
_BLOCK = re.compile(r"[^\s#].*\n.*", re.DOTALL)


class RunFile(NamedTuple):
    """What a run file says: its type, its plain values, and the line of every key."""

    type: str
    values: dict[str, object]
    lines: Mapping[str, int]
    file: str = ""
    problems: tuple[Problem, ...] = ()
    masked: tuple[str, ...] = ()

    def job(self, given: Mapping[str, object] | None = None) -> Job:
        """The checked job, under the values given elsewhere (flags); every error of the file at once."""
        given = given or {}
        job, problems = declared.examine(self.type, declared.merged(self.type, self.values, given))
        hidden = [Problem(key, "holds masked values (***); give it anew") for key in self.masked if key not in given]
        found = sorted([*self.problems, *hidden, *problems], key=lambda problem: self._line(problem.key))
        raise_all([self._told(problem, given) for problem in found])
        assert job is not None
        return job

    def _told(self, problem: Problem, given: Mapping[str, object]) -> str:
        key, message = problem
        if key.partition(".")[0] in given and not self._is_below(key, given):
            return f"{declared.label_of(self.type, key)}: {message}"
        line = self._line(key)
        return f"{self.file}:{line}: {key}: {message}" if line else f"{self.file}: {key}: {message}"

    def _is_below(self, key: str, given: Mapping[str, object]) -> bool:
        """Whether a part of a pair or role stands in the file only."""
        name, _, part = key.partition(".")
        upper = given[name]
        return key in self.lines and isinstance(upper, Mapping) and part not in upper

    def _line(self, key: str) -> int:
        return self.lines.get(key) or self.lines.get(key.partition(".")[0], 0)


def load(path: str | os.PathLike[str], given: Mapping[str, object] | None = None) -> Job:
    """The checked job of a run file (`-`: of stdin), under the values given elsewhere."""
    return read(read_text(path), os.fspath(path)).job(given)


def read(text: str, file_name: str) -> RunFile:
    """What the text of a run file says; SpecError where it is no YAML, or YAML that nobody can read safely.

    >>> read("type: mpi\\nname: no\\ncommand: train.py", "job.yaml")[:2]
    ('mpi', {'name': 'no', 'command': 'train.py'})
    """
    file_name = label(file_name)
    reading = _Reading(file_name)
    values = reading.values(_compose(text, file_name))
    _refuse_manifest(values, file_name)
    masked = values.pop("masked", None)
    kind = values.pop("type", DEFAULT_TYPE)
    return RunFile(
        type=_known_type(kind, f"{file_name}:{reading.lines.get('type', 1)}"),
        values=values,
        lines=reading.lines,
        file=file_name,
        problems=tuple(reading.problems),
        masked=tuple(str(name) for name in masked) if isinstance(masked, list) else (str(masked),) if masked else (),
    )


def dump(job: Job, masked: bool = True) -> str:
    """The run file of a job; what looks secret is `***` in it, unless `masked` is False.

    >>> from arena.jobs.plain import PlainJob
    >>> print(dump(PlainJob(command=("train.py",), name="no", workers=2, env={"HF_TOKEN": "x1"})), end="")
    type: job
    name: "no"
    command: train.py
    workers: 2
    env:
      HF_TOKEN: '***'
    """
    import yaml

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
        """Lists of words on one line, scripts as blocks, quotes wherever a reader could guess."""

    Dumper.add_representer(str, _represent_text)
    Dumper.add_representer(list, _represent_list)
    plain = declared.to_plain(job)
    if masked:
        plain = _masked(plain)
    if isinstance(words := plain.get("command"), list) and len(words) == 1:
        plain["command"] = words[0]
    text: str = yaml.dump(plain, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=1 << 30)
    return text


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a file (`-`: of stdin), at most 1 MiB of UTF-8; each way it cannot be had is an error of its own."""
    name = label(path)
    try:
        data = _stdin() if os.fspath(path) == STDIN else _start_of(path)
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {name}", why=f"looked for in {Path.cwd()}") from None
    except (OSError, ValueError) as error:
        raise BackendError(f"{name} cannot be read: {getattr(error, 'strerror', error)}") from error
    if len(data) > LARGEST:
        raise SpecError(f"{name} is larger than 1 MiB: that is no run file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise SpecError(f"{name}:{line}: is not UTF-8 (byte 0x{data[error.start]:02x})") from None


def label(path: str | os.PathLike[str]) -> str:
    """What errors call a file: `stdin` where it is `-`.

    >>> label("job.yaml"), label("-")
    ('job.yaml', 'stdin')
    """
    name = os.fspath(path)
    return "stdin" if name == STDIN else name


@functools.cache
def _stdin() -> bytes:
    """What stdin gives, once: whoever asks again (for the type, then for the job) gets the same."""
    return _start_of(0)


def _start_of(file: str | os.PathLike[str] | int) -> bytes:
    with open(file, "rb", closefd=file != 0) as stream:
        return stream.read(LARGEST + 1)


# Reading


class _Reading:
    """The values of one document, with the lines of its keys and what is wrong with them."""

    def __init__(self, file_name: str) -> None:
        self.file_name = file_name
        self.lines: dict[str, int] = {}
        self.problems: list[Problem] = []

    def values(self, top: Node) -> dict[str, object]:
        """The plain values of the whole document."""
        if top is None or (top.id == "scalar" and not top.value):
            return {}
        if top.id != "mapping":
            raise SpecError(f"{self.file_name}:{_line(top)}: a run file is a mapping, as in: command: train.py")
        return self._mapping(top, "")

    def _value(self, node: Node, key: str) -> object:
        if node.id == "mapping":
            return self._mapping(node, f"{key}.")
        if node.id == "sequence":
            return [self._value(item, f"{key}.{number}") for number, item in enumerate(node.value, 1)]
        return None if not node.style and node.value in ("", "~", "null", "Null", "NULL") else node.value

    def _mapping(self, node: Node, prefix: str) -> dict[str, object]:
        values: dict[str, object] = {}
        for key_node, value in node.value:
            if key_node.id != "scalar":
                raise SpecError(f"{self.file_name}:{_line(key_node)}: a key is one word, not a list or mapping")
            key = prefix + key_node.value
            if key_node.value in values:
                again = f"is set again in line {_line(key_node)}"
                self.problems.append(Problem(key, again))
            else:
                self.lines[key] = _line(key_node)
                values[key_node.value] = self._value(value, key)
        return values


def _compose(text: str, file_name: str) -> Node:
    """The one document's nodes. Aliases (a few lines of them can fill the memory) are refused before any is made."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = _json_escapes(text)
    try:
        for line, odd in _odd_events(yaml.parse(text, loader)):
            raise SpecError(f"{file_name}:{line}: {odd}")
        return yaml.compose(text, loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{file_name}:{mark.line + 1}" if mark else file_name
        said = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error).splitlines()[0]
        raise SpecError(f"{where}: is not YAML: {said}") from None
    except UnicodeEncodeError:
        raise SpecError(f"{file_name} is not UTF-8") from None


def _odd_events(events: Iterator[Node]) -> Iterator[tuple[int, str]]:
    depth = documents = 0
    for event in events:
        name = type(event).__name__
        depth += name.endswith("StartEvent") - name.endswith("EndEvent")
        documents += name == "DocumentStartEvent"
        odd = "one file is one job: a second document begins here" if documents > 1 else _odd(event, depth)
        if odd:
            yield int(event.start_mark.line) + 1, odd


def _odd(event: Node, depth: int) -> str:
    if depth > DEEPEST + 2:  # the stream and the document count too
        return f"is nested deeper than {DEEPEST} levels"
    if getattr(event, "anchor", None):
        return "anchors and aliases (&, *) are not possible; a word that begins so is written in quotes"
    if getattr(event, "tag", None):
        return f"tags are not possible: {event.tag}; a word that begins with ! is written in quotes"
    return ""


def _json_escapes(text: str) -> str:
    """JSON writes what lies beyond 16 bits as two escapes, which YAML does not know."""
    if not text.lstrip().startswith("{"):
        return text
    return _SURROGATES.sub(_joined, text)


def _joined(found: re.Match[str]) -> str:
    high, low = int(found[2], 16), int(found[3], 16)
    return f"{found[1]}\\U{0x10000 + ((high & 0x3FF) << 10) + (low & 0x3FF):08x}"


def _refuse_manifest(values: Mapping[str, object], file_name: str) -> None:
    if "apiVersion" in values and "kind" in values:
        raise SpecError(
            f"{file_name} is a Kubernetes object ({values['kind']}), not a run file",
            hint="a run file is written by: arena export NAME",
        )


def _known_type(kind: object, where: str) -> str:
    if not isinstance(kind, str):
        raise SpecError(f"{where}: type: must be the name of a job type", why=f"known: {', '.join(jobs.names())}")
    try:
        jobs.load(kind)
    except ArenaError as error:
        raise SpecError(f"{where}: type: {error.what}", why=error.why, hint=error.hint) from None
    return kind


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1


# Writing


def _masked(plain: dict[str, object]) -> dict[str, object]:
    """The values without secrets; fields in which text was masked are named, for a `***` there could be anybody's."""
    safe = {key: _masked_value(key, value) for key, value in plain.items()}
    named = [key for key, value in safe.items() if value != plain[key] and not isinstance(value, dict)]
    return {**safe, "masked": named} if named else safe


def _masked_value(key: str, value: object) -> object:
    if key == declared.POSITIONAL and isinstance(value, list):
        return mask_words(value)
    if isinstance(value, dict):
        return mask(value) if all(isinstance(one, str) for one in value.values()) else value
    if isinstance(value, list):
        return [mask_text(word) for word in value]
    return mask_text(value) if isinstance(value, str) else value


def _represent_text(dumper: Any, text: str) -> Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=_style(text))


def _style(text: str) -> str | None:
    """A block for scripts that it keeps as they are, quotes for what could be misread, else whatever fits."""
    lines = text.split("\n")
    if _MISREAD.fullmatch(text):
        return '"'
    if any(not line.replace("\t", " ").isprintable() for line in lines):
        return '"'
    if len(lines) > 1:
        return "|" if _BLOCK.fullmatch(text) and all(line == line.rstrip() for line in lines) else '"'
    return None


def _represent_list(dumper: Any, items: list[object]) -> Node:
    """Words on one line, as people write them; scripts need lines of their own."""
    several = any(isinstance(item, str) and "\n" in item for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=not several)
