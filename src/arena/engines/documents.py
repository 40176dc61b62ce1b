"""YAML of Kubernetes objects: read as the API server's clients read it, written so that none of them can misread it.

Readers differ: what one takes for text (`1e3`, `y`, `2026-01-31`) is a number, a truth or a date to another.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from arena.errors import SpecError

_AMBIGUOUS = re.compile(
    r"(?i)~?|null|y|n|yes|no|on|off|true|false|[-+]?\.?(inf|nan)|[-+]?0[xob][0-9a-f_]+"
    r"|[-+]?[0-9._:,]*[0-9._](e[-+]?[0-9]+)?|[0-9]+-[0-9-]+([t ][0-9:.z+ -]*)?|=|<<"
)
_ODD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff]")  # breaks and controls that only quotes keep
_NULL = re.compile(r"~|null|Null|NULL|")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE|yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF")
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*|0[0-7]+|0x[0-9a-fA-F]+)")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


def read_documents(text: str, where: str) -> list[Any]:
    """The documents in a text, empty ones left out; SpecError where it is no YAML.

    >>> read_documents("at: 2026-01-31\\nn: 1e3\\n---\\nb: on", "x.yaml")
    [{'at': '2026-01-31', 'n': 1000.0}, {'b': True}]
    """
    import yaml

    try:
        return [found for found in yaml.load_all(text, _loader()) if found is not None]
    except (yaml.YAMLError, ValueError) as error:
        raise SpecError(f"{where} is not YAML: {' '.join(str(error).split())}") from error


def dump_documents(documents: Iterable[Mapping[str, Any]]) -> str:
    """One stream of YAML documents.

    >>> print(dump_documents([{"a": "1e3"}, {"b": "y"}]), end="")
    a: '1e3'
    ---
    b: 'y'
    """
    import yaml

    dumped = [yaml.dump(one, Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=1 << 20) for one in documents]
    return "---\n".join(dumped)


@functools.cache
def _loader() -> Any:
    """A safe loader that knows null, truths and numbers as Go's readers do, and no dates."""
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            """A mapping whose keys stand once each: the last of two would win without a word."""
            first: dict[str, Any] = {}
            for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"):
                if (before := first.setdefault(key.value, key)) is not key:
                    place = f"line {key.start_mark.line + 1}, column {key.start_mark.column + 1}"
                    line = before.start_mark.line + 1
                    raise ValueError(f"{place}: the key {key.value!r} stands twice, first in line {line}")
            return super().construct_mapping(node, deep=deep)

    kinds = (("null", _NULL), ("bool", _BOOL), ("int", _INT), ("float", _FLOAT), ("merge", re.compile("<<")))
    for tag, pattern in kinds:
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"(?:{pattern.pattern})$"), None)
    return Loader


@functools.cache
def _dumper() -> Any:
    import yaml

    class Dumper(yaml.SafeDumper):
        """No aliases, and quotes round every text that some reader takes for something else."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: Any, value: str) -> Any:
        style = "'" if _AMBIGUOUS.fullmatch(value) else '"' if _ODD.search(value) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    return Dumper
