"""The words by which a job names things of a cluster: claims, folders, files, taints, devices, images.

Each is read in one place, so that what cannot be is refused early, by its flag, on either backend.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")

CLAIM = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
IMAGE = re.compile(r"[\w.\-/:@+]+", re.ASCII)
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
OPERATORS = ("Equal", "Exists")
_TOLERATION = re.compile(r"(?P<key>[^=:,\s]+)(?P<value>=[^:,\s]*)?(:(?P<effect>[^,\s]*))?(,(?P<operator>\S*))?")


class Mount(NamedTuple):
    """Something mounted at a path of the containers: a claim, a folder of the node, a file of this machine."""

    source: str
    path: str


def parse_image(text: str) -> str:
    """The name of an image, as far as it can be told from that of something else.

    >>> parse_image("reg.example:5000/team/train:1.2@sha256:0a")
    'reg.example:5000/team/train:1.2@sha256:0a'
    """
    if not IMAGE.fullmatch(text):
        raise ValueError(f"{text!r} is no name of an image: REGISTRY/NAME:TAG is expected")
    return text


def parse_data(text: str) -> Mount:
    """`CLAIM:/PATH`.

    >>> parse_data("mnist:/data")
    Mount(source='mnist', path='/data')
    """
    claim, colon, path = text.partition(":")
    if not colon or not path:
        raise ValueError(f"{text!r} names no path: CLAIM:/PATH is expected")
    if not CLAIM.fullmatch(claim):
        raise ValueError(f"{claim!r} is no name of a claim: CLAIM:/PATH is expected")
    return Mount(claim, _mount_path(path, text))


def parse_data_dir(text: str) -> Mount:
    """`/HOST` or `/HOST:/PATH`.

    >>> parse_data_dir("/mnt/nfs")
    Mount(source='/mnt/nfs', path='/mnt/nfs')
    """
    host, colon, path = text.partition(":")
    if not host.startswith("/"):
        raise ValueError(f"{text!r} does not begin with '/': /FOLDER or /FOLDER:/PATH is expected")
    if colon and not path:
        raise ValueError(f"{text!r} names no path: /FOLDER:/PATH is expected")
    return Mount(_plain_path(host), _mount_path(path or host, text))


def parse_config_file(text: str) -> Mount:
    """`FILE:/PATH`; a file named by its whole path may stand alone.

    >>> parse_config_file("conf/a.yaml:/etc/a.yaml")
    Mount(source='conf/a.yaml', path='/etc/a.yaml')
    """
    file, colon, path = text.rpartition(":/")
    file, path = (file, f"/{path}") if colon else (text, text)
    if not file or not path.startswith("/") or path.endswith("/"):
        raise ValueError(f"{text!r} names no path: FILE:/PATH is expected")
    return Mount(file, _mount_path(path, text))


def parse_output(text: str) -> Mount:
    """`CLAIM:/PATH`: where results are kept, a folder of a claim.

    >>> parse_output("results:/exp1")
    Mount(source='results', path='/exp1')
    """
    claim, colon, path = text.partition(":")
    if not colon or not CLAIM.fullmatch(claim) or not path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"{text!r} is no folder of a claim: CLAIM:/PATH is expected")
    return Mount(claim, posixpath.normpath(path))


def parse_toleration(text: str) -> dict[str, str]:
    """What is tolerated, as Kubernetes writes it: of `all`, `KEY`, `KEY:EFFECT` or `KEY=VALUE:EFFECT,OPERATOR`.

    >>> parse_toleration("gpu=a100:NoSchedule")
    {'key': 'gpu', 'operator': 'Equal', 'value': 'a100', 'effect': 'NoSchedule'}
    """
    if text == "all":
        return {"operator": "Exists"}
    found = _TOLERATION.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is no toleration: KEY=VALUE:EFFECT,OPERATOR or all is expected")
    key, value = found["key"], (found["value"] or "").removeprefix("=")
    operator = _one_of(found["operator"], OPERATORS, "operator") or ("Equal" if found["value"] else "Exists")
    effect = _one_of(found["effect"], EFFECTS, "effect")
    if operator == "Exists" and value:
        raise ValueError(f"{text!r}: Exists takes no value, {key}:{effect or EFFECTS[0]} is enough")
    if operator == "Equal" and found["value"] is None:
        raise ValueError(f"{text!r}: Equal needs a value, {key}=VALUE")
    words = {"key": key, "operator": operator, "value": value, "effect": effect}
    return {name: word for name, word in words.items() if word}


def parse_device(text: str) -> tuple[str, str]:
    """The resource and how many of it, of `NAME=COUNT`.

    >>> parse_device("amd.com/gpu=1")
    ('amd.com/gpu', '1')
    """
    name, equals, count = text.partition("=")
    if name == "nvidia.com/gpu":
        raise ValueError("nvidia.com/gpu is asked for by --gpus")
    if not equals or not re.fullmatch(r"[-A-Za-z0-9_.]+(/[-A-Za-z0-9_.]+)?", name):
        raise ValueError(f"{text!r} is no device: NAME=COUNT is expected, as amd.com/gpu=1")
    if not re.fullmatch(r"[1-9][0-9]{0,5}", count):
        raise ValueError(f"{text!r}: the count must be a whole number from 1")
    return name, count


def parse_name(text: str) -> str:
    """The name of an object of the cluster: a secret, a class, a queue.

    >>> parse_name("my-registry.key")
    'my-registry.key'
    """
    if not CLAIM.fullmatch(text):
        raise ValueError(f"{text!r} is no name: lower-case letters, digits, '-' and '.'")
    return text


def parse_folder(text: str) -> str:
    """A folder of the container: an absolute path, not `/`."""
    return _mount_path(text, text)


def list_problems(label: str, words: Iterable[str], parse: Callable[[str], object]) -> Iterator[str]:
    """What the parser says against each word, one line each, beginning with the flag."""
    for word in words:
        try:
            parse(word)
        except ValueError as error:
            yield f"{label}: {error}"


def parsed(words: Iterable[str], parse: Callable[[str], T]) -> list[T]:
    """The words that can be read; those that cannot are told by `list_problems`."""
    found = []
    for word in words:
        try:
            found.append(parse(word))
        except ValueError:
            continue
    return found


def mount_problems(mounts: Sequence[tuple[str, Mount]]) -> Iterator[str]:
    """What cannot be mounted together: each claim once, one thing at one path. Each mount comes with its flag."""
    claims: set[str] = set()
    paths: dict[str, str] = {}
    for label, mount in mounts:
        if label == "--data" and mount.source in claims:
            yield f"--data: the claim {mount.source!r} is given twice; a job mounts it once"
        elif mount.path in paths:
            yield f"{label}: {mount.path} is taken already, by {paths[mount.path]} {mount.source}".rstrip()
        if label == "--data":
            claims.add(mount.source)
        paths.setdefault(mount.path, label)


def device_problems(words: Iterable[str]) -> Iterator[str]:
    """What cannot be a list of devices: each is named once."""
    names = [name for name, _ in parsed(words, parse_device)]
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            yield f"--device: {name} is given twice"


def _mount_path(path: str, text: str) -> str:
    if not path.startswith("/"):
        raise ValueError(f"{text!r}: the path {path!r} does not begin with '/'")
    if ":" in path or ".." in path.split("/"):
        raise ValueError(f"{text!r}: the path {path!r} may hold neither ':' nor '..'")
    if not path.strip("/."):
        raise ValueError(f"{text!r}: nothing can be mounted over '/'")
    return _plain_path(path)


def _plain_path(path: str) -> str:
    return "/" + posixpath.normpath(path).lstrip("/")


def _one_of(word: str | None, known: Sequence[str], what: str) -> str:
    if word and word not in known:
        raise ValueError(f"{word!r} is no {what}: {', '.join(known)}")
    return word or ""
