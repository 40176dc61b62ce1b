"""What changes a rendered object: a patch of the site or of `--patch`, a path of `--set`. One merge for all of them.

Mappings merge key by key, null removes a key. Lists whose items have names merge by name (an item without its like is
added), all other lists are replaced. Nothing here knows a kind: what is no field of it, the server refuses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from arena.engines.documents import read_documents
from arena.errors import SpecError

Manifest = dict[str, Any]


def apply_patch(manifest: Mapping[str, Any], patch: Mapping[str, Any]) -> Manifest:
    """The object with the patch merged in; neither is changed.

    >>> apply_patch({"a": 1, "b": [{"name": "x", "n": 1}]}, {"a": None, "b": [{"name": "x", "m": 2}]})
    {'b': [{'name': 'x', 'n': 1, 'm': 2}]}
    """
    merged = dict(manifest)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged


def set_path(manifest: Mapping[str, Any], path: str, value: Any) -> Manifest:
    """The object with a value at a path of keys, names and numbers; null removes it. SpecError for what is not there.

    >>> set_path({"spec": {"containers": [{"name": "main"}]}}, "spec.containers.main.image", "i:1")
    {'spec': {'containers': [{'name': 'main', 'image': 'i:1'}]}}
    """
    changed: Manifest = _set(manifest, split_path(path), value, path)
    return changed


def split_path(path: str) -> list[str]:
    r"""The steps of a path: parted by dots, `\\.` is a dot of a key, brackets take a number or a quoted key.

    >>> split_path(r'metadata.labels.a\.b/c'), split_path('spec.x[0]["d.e"]')
    (['metadata', 'labels', 'a.b/c'], ['spec', 'x', '0', 'd.e'])
    """
    steps: list[str] = []
    rest = path
    while rest:
        match = re.match(r"""\.?(?:\[(?:"([^"]+)"|'([^']+)'|([^\]"']+))\]|((?:\\.|[^.\[\\])+))""", rest)
        if match is None or (not steps and rest.startswith(".")):
            raise SpecError(f"--set: {path!r} is no path", hint="as spec.template.spec.priorityClassName=high")
        steps.append(re.sub(r"\\(.)", r"\1", next(part for part in match.groups() if part is not None)))
        rest = rest[match.end() :]
    return steps


def read_setting(text: str) -> tuple[str, Any]:
    """Path and value of `--set PATH=VALUE`; the value is read as YAML.

    >>> read_setting("spec.suspend=true")
    ('spec.suspend', True)
    """
    path, equals, said = text.partition("=")
    if not equals or not path:
        raise SpecError(f"--set: {text!r} is not PATH=VALUE", hint="as spec.template.spec.priorityClassName=high")
    split_path(path)
    return path, _value(said, f"--set {path}")


def read_patch(text: str, file: str) -> Manifest:
    """The patch in a file: one YAML mapping. SpecError for anything else."""
    found = _value(text, file)
    if not isinstance(found, dict):
        raise SpecError(f"{file}: a patch is a mapping, as metadata: {{labels: {{team: vision}}}}")
    return found


def _value(text: str, where: str) -> Any:
    found = read_documents(text, where)
    if len(found) > 1:
        raise SpecError(f"{where}: {len(found)} documents; it takes one")
    return found[0] if found else None


def _merged(old: Any, new: Any) -> Any:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return apply_patch(old, new)
    if isinstance(new, Mapping):
        return apply_patch({}, new)
    if _named(old) and _named(new):
        return _by_name(old, new)
    return new


def _named(items: Any) -> bool:
    """Whether these are items that have names."""
    return isinstance(items, list) and bool(items) and all(isinstance(one, Mapping) and "name" in one for one in items)


def _by_name(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> list[Any]:
    patches = {one["name"]: one for one in new}
    there = {one["name"] for one in old}
    changed = [apply_patch(one, patches.get(one["name"], {})) for one in old]
    return [*changed, *(apply_patch({}, one) for one in new if one["name"] not in there)]


def _set(node: Any, steps: Sequence[str], value: Any, path: str) -> Any:
    if not steps:
        return value
    if isinstance(node, list):
        return _set_item(node, steps, value, path)
    if node is not None and not isinstance(node, Mapping):
        raise SpecError(f"--set {path}: {steps[0]!r} is below {node!r}, which has no parts")
    changed = {**(node or {})}
    if len(steps) == 1 and value is None:
        changed.pop(steps[0], None)
    else:
        changed[steps[0]] = _set(changed.get(steps[0]), steps[1:], value, path)
    return changed


def _set_item(items: list[Any], steps: Sequence[str], value: Any, path: str) -> list[Any]:
    place = _place(items, steps[0], path)
    if len(steps) == 1 and value is None:
        return [*items[:place], *items[place + 1 :]]
    return [*items[:place], _set(items[place], steps[1:], value, path), *items[place + 1 :]]


def _place(items: list[Any], step: str, path: str) -> int:
    """Where in a list the item of this name or number is."""
    names = [one.get("name") if isinstance(one, Mapping) else None for one in items]
    if step in names:
        return names.index(step)
    if step.isdigit() and int(step) < len(items):
        return int(step)
    known = ", ".join(str(name) for name in names if name) or f"{len(items)} items, counted from 0"
    raise SpecError(f"--set {path}: there is no item {step!r}", why=f"there is: {known}")
