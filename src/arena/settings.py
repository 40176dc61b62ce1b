"""Who decides what, and where it came from.

The first layer that knows a setting wins: locked site settings, flag, ARENA_* variable, `arena.yaml` of the project,
user file, namespace defaults, site file, kubeconfig, built-in. Each setting is declared once, in `SETTINGS`; everything
else (variables, files, `arena config`, what a cloned repository may not touch) follows from it.

YAML is read only when there is a file. Its words are taken as they were typed, by the declared type, never by YAML's
guess: `namespace: no` is the namespace `no` and `image: 1.10` keeps its zero.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from arena.errors import BackendError, SpecError
from arena.quantity import parse_bytes, parse_duration

Node = Any  # yaml's nodes; yaml is imported only when there is a file
Value = str | bool | int | tuple[str, ...] | None


class Setting(NamedTuple):
    """One setting: its key, variable, type, default and help, and whether a cloned repository may set it."""

    key: str
    env: str
    type: str
    default: Value
    help: str
    project_may_set: bool = False


SETTINGS = (
    Setting("backend", "ARENA_BACKEND", "local|kubernetes", None, "where jobs run", True),
    Setting("namespace", "ARENA_JOB_NAMESPACE", "text", None, "namespace of the jobs", True),
    Setting("context", "ARENA_CONTEXT", "text", None, "context of the kubeconfig"),
    Setting("kubeconfig", "KUBECONFIG", "text", None, "kubeconfig files, as kubectl takes them"),
    Setting("as", "ARENA_AS", "text", None, "user on whose behalf the cluster is asked"),
    Setting("as_group", "ARENA_AS_GROUP", "list", None, "groups of that user"),
    Setting("request_timeout", "ARENA_REQUEST_TIMEOUT", "duration", None, "how long an answer of the cluster may take"),
    Setting("image", "ARENA_IMAGE", "text", None, "image of jobs that name none", True),
    Setting("engines", "ARENA_ENGINES", "list", None, "kinds that run may make, the first one served is taken", True),
    Setting("patch", "ARENA_PATCH", "yaml", None, "YAML that is merged into every job object that is made"),
    Setting("user", "ARENA_USER", "text", None, "whose jobs these are, when the login name is not the answer"),
    Setting("state_dir", "ARENA_STATE_DIR", "path", None, "folder of local jobs and records"),
    Setting("lease_dir", "ARENA_LEASE_DIR", "path", None, "folder of the GPU locks that all users of a machine share"),
    Setting("local.enabled", "ARENA_LOCAL_ENABLED", "bool", True, "jobs may run on this machine"),
    Setting("local.max_replicas", "ARENA_LOCAL_MAX_REPLICAS", "positive", None, "replicas at once: 8 per core"),
    Setting("local.gpus", "ARENA_LOCAL_GPUS", "count", None, "GPUs to pretend, for tests"),
    Setting("local.grace", "ARENA_LOCAL_GRACE", "duration", "10s", "time between TERM and KILL", True),
    Setting("history.max_age", "ARENA_HISTORY_MAX_AGE", "duration", "90d", "older records are removed"),
    Setting("history.max_size", "ARENA_HISTORY_MAX_SIZE", "bytes", "5G", "beyond it the oldest logs are removed"),
    Setting("history.list_days", "ARENA_HISTORY_LIST_DAYS", "duration", "7d", "finished local jobs stay in list"),
    Setting("upload.max", "ARENA_UPLOAD_MAX", "bytes", "1M", "code per run that travels through ConfigMaps"),
    Setting("log.max", "ARENA_LOG_MAX", "bytes", "128M", "log kept per replica, head and tail"),
    Setting("record.code_max", "ARENA_RECORD_CODE_MAX", "bytes", "10M", "code kept with a record"),
)

# The other variables of this name that mean something; all the rest are shown as unknown.
KNOWN_ENV = {
    "ARENA_NAMESPACE": "the operators' namespace, as in Arena (Go) and its SDK; jobs: ARENA_JOB_NAMESPACE",
    "ARENA_CONFIG": "path of Arena (Go)'s config file instead of ~/.arena/config",
    "ARENA_SITE_CONFIG": "one more site file, before /etc/arena/config.yaml",
    "ARENA_COMPAT": "`go`: exit codes and raw logs of Arena (Go)",
    "ARENA_LOG_LEVEL": "read by Arena (Go)'s Python SDK",
    "ARENA_OUTPUT_DIR": "set in jobs: where results are kept",
    "ARENA_JOB_NAME": "set in jobs",
    "ARENA_RUN_ID": "set in jobs",
    "ARENA_REPLICA": "set in jobs",
    "ARENA_ATTEMPT": "set in jobs",
}

PROJECT_FILE = "arena.yaml"
MACHINE_FILE = Path("/etc/arena/config.yaml")
LAYERS = ("locked", "flag", "env", "project", "user", "namespace", "site", "kubeconfig", "built-in")

_BY_KEY = {setting.key: setting for setting in SETTINGS}
_GROUPS = {key.partition(".")[0] for key in _BY_KEY if "." in key}
_FORBIDDEN = r"(?i).*(plug.?in|proxy|proxies|token|kube.?config|context|state|lease|secret|password|exec|credential).*"
_LARGEST_FILE = 1 << 20
_DEEPEST = 8


class Entry(NamedTuple):
    """A value, and the words that say where it came from."""

    value: Value
    source: str


class Row(NamedTuple):
    """A line of `arena config show`."""

    key: str
    value: Value
    source: str


class Settings(NamedTuple):
    """All settings of one command, fixed when it starts; `overlay` and `with_layer` give new ones.

    >>> settings = Settings.load({"backend": "local"}, {"ARENA_IMAGE": "python:3.13"}, Path("/"))
    >>> settings.value("backend"), settings.source("backend"), settings.source("image")
    ('local', 'flag --backend', 'ARENA_IMAGE')
    """

    layers: tuple[Mapping[str, Entry], ...]  # one per name in LAYERS
    cwd: Path
    home: Path | None
    unknown_env: tuple[str, ...]
    upstream: Mapping[str, str]  # Arena (Go)'s config file, all its keys

    @classmethod
    def load(
        cls, flags: Mapping[str, object], env: Mapping[str, str], cwd: Path, *, machine_file: Path = MACHINE_FILE
    ) -> Settings:
        """The settings as flags, variables and files make them; everything wrong in them is told at once."""
        home, errors = home_folder(env), Errors()
        upstream_file = _upstream_file(env, home)
        upstream = _read_upstream(upstream_file, errors)
        locked, site = _read_site(env, home, machine_file, errors)
        layers: dict[str, Mapping[str, Entry]] = {
            "locked": locked,
            "flag": _given(flags, "", cwd, home, errors),
            "env": _read_env(env, cwd, home, errors),
            "project": _read_file(project_file(cwd, home), home, errors, project=True)[1],
            "user": _read_user(user_file(env), upstream_file, upstream, home, errors),
            "site": site,
            "built-in": {setting.key: Entry(setting.default, "built-in") for setting in SETTINGS},
        }
        errors.tell()
        unknown = sorted(name for name in env if name.startswith("ARENA_") and name not in _known_env())
        return cls(tuple(layers.get(name, {}) for name in LAYERS), cwd, home, tuple(unknown), upstream)

    def overlay(self, **flags: object) -> Settings:
        """These settings under more flags; `None` says nothing, `local_grace` is `local.grace`."""
        return self.with_layer("flag", "", flags)

    def with_layer(self, layer: str, source: str, values: Mapping[str, object]) -> Settings:
        """With values known only later: of the ConfigMap `arena-defaults` (layer `namespace`), of the kubeconfig."""
        errors = Errors()
        given = _given(values, source, self.cwd, self.home, errors)
        errors.tell()
        layers = tuple(
            {**old, **given} if name == layer else old for name, old in zip(LAYERS, self.layers, strict=True)
        )
        return self._replace(layers=layers)

    def value(self, key: str) -> Value:
        """The value as it was written; `seconds`, `size`, `text` … give it typed."""
        return self._entry(key).value

    def source(self, key: str) -> str:
        """Where the value came from: `flag --backend`, `ARENA_BACKEND`, `/p/arena.yaml`, `built-in`."""
        return self._entry(key).source

    def layer(self, key: str) -> str:
        """The layer the value came from, one of LAYERS."""
        return next(name for name, entries in zip(LAYERS, self.layers, strict=True) if key in entries)

    def overruled(self, layer: str) -> list[str]:
        """What was said in vain at a layer (flag, env), each with the locked site setting that wins.

        >>> settings = Settings.load({}, {"ARENA_IMAGE": "python:3.13"}, Path("/"))
        >>> settings.with_layer("locked", "/etc/arena/config.yaml (locked)", {"image": "work:1"}).overruled("env")
        ['ARENA_IMAGE has no effect: image is work:1 by /etc/arena/config.yaml (locked)']
        """
        locked, said = self.layers[0], self.layers[LAYERS.index(layer)]
        vain = [key for key in locked if key in said and said[key].value != locked[key].value]
        return [
            f"{said[key].source} has no effect: {key} is {written(locked[key].value)} by {locked[key].source}"
            for key in vain
        ]

    def text(self, key: str) -> str | None:
        """The value of a text setting."""
        value = self.value(key)
        return None if value is None else str(value)

    def path(self, key: str) -> Path | None:
        """The value of a path setting, `~` and relative names resolved."""
        value = self.text(key)
        return None if value is None else Path(value)

    def names(self, key: str) -> tuple[str, ...]:
        """The value of a list setting."""
        value = self.value(key)
        return value if isinstance(value, tuple) else ()

    def number(self, key: str) -> int | None:
        """The value of a counting setting."""
        value = self.value(key)
        return value if isinstance(value, int) else None

    def enabled(self, key: str) -> bool:
        """The value of a yes-or-no setting."""
        return self.value(key) is True

    def seconds(self, key: str) -> float:
        """The value of a duration setting."""
        return parse_duration(str(self.value(key)))

    def size(self, key: str) -> int:
        """The value of a size setting, in bytes."""
        return parse_bytes(str(self.value(key)))

    def _entry(self, key: str) -> Entry:
        return next(entries[key] for entries in self.layers if key in entries)


def config_rows(settings: Settings) -> list[Row]:
    """The lines of `arena config show`, in the order of `SETTINGS`."""
    return [Row(setting.key, settings.value(setting.key), settings.source(setting.key)) for setting in SETTINGS]


def config_json(settings: Settings) -> dict[str, dict[str, object]]:
    """`arena config show -o json`: `{key: {"value": …, "source": …}}`."""
    return {
        row.key: {"value": list(row.value) if isinstance(row.value, tuple) else row.value, "source": row.source}
        for row in config_rows(settings)
    }


def written(value: Value) -> str:
    """A value as people write it, in a variable or for `arena config set`.

    >>> written(True), written(("a", "b")), written("10s"), written(())
    ('true', 'a,b', '10s', '')
    """
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


def set_user_value(key: str, value: str, env: Mapping[str, str]) -> Path:
    """Write one value into the user's file and give its path; all other lines and comments stay as they are."""
    file, home = user_file(env), home_folder(env)
    if file is None:
        raise SpecError("there is no home folder to keep settings in", hint="HOME=… or XDG_CONFIG_HOME=…")
    setting, errors = _setting(key), Errors()
    _read_file(file, home, errors)
    errors.tell()
    parsed = errors.parse(setting, value, file.parent, home, f"arena config set {setting.key}: the value")
    errors.tell()
    if setting.type == "path":
        value = str(parsed)
    text = _edited(_read_text(file, errors) or "", setting.key, _yaml_value(value, parsed))
    _, entries = _parse_file(text, file, home, errors)
    if errors.lines or entries.get(setting.key) != Entry(parsed, str(file)):
        raise SpecError(f"{file} is written in a way that cannot be edited here", hint=f"write {setting.key} by hand")
    try:
        _write(file, text)
    except OSError as error:
        raise BackendError(f"{file} cannot be written: {error.strerror}") from error
    return file


def home_folder(env: Mapping[str, str]) -> Path | None:
    """The caller's home, or None where there is none: no HOME and no line in passwd."""
    named = env.get("HOME") or env.get("USERPROFILE") or _passwd_home()
    return Path(named) if named and os.path.isabs(named) else None


def login_name() -> str:
    """The login name, or `uid-1000` where there is no passwd entry."""
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        return f"uid-{os.getuid()}"


def user_file(env: Mapping[str, str]) -> Path | None:
    """The user's settings: `$XDG_CONFIG_HOME/arena/config.yaml`, else `~/.config/arena/config.yaml`."""
    named, home = env.get("XDG_CONFIG_HOME", ""), home_folder(env)
    folder = Path(named) if os.path.isabs(named) else home / ".config" if home else None
    return folder / "arena" / "config.yaml" if folder else None


def git_root(cwd: Path) -> Path | None:
    """The nearest folder with a `.git` (a folder, or a file in work trees and submodules); git itself is not asked."""
    return next((folder for folder in (cwd, *cwd.parents) if _there(folder / ".git")), None)


def project_file(cwd: Path, home: Path | None = None) -> Path | None:
    """The nearest `arena.yaml`, from here up to the git root; elsewhere never from a folder that anybody may write."""
    root = git_root(cwd)
    for folder in (cwd, *cwd.parents):
        open_to_all = _open_to_all(folder)
        file = folder / PROJECT_FILE
        if _there(file) and not (open_to_all and not _mine(file)):
            return file
        if folder in (root, home) or (root is None and open_to_all):
            return None
    return None


class Errors:
    """What is wrong, line by line, to be told at once."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, where: str, what: str) -> None:
        """Note one error."""
        self.lines.append(f"{where}: {what}" if where else what)

    def parse(self, setting: Setting, raw: object, base: Path, home: Path | None, where: str) -> Value:
        """The value of this raw one, or None and a note."""
        try:
            return _parse(setting, raw, base, home)
        except ValueError as error:
            self.lines.append(f"{where} {error}")
            return None

    def tell(self) -> None:
        """Raise what was noted, if anything was."""
        if len(self.lines) == 1:
            raise SpecError(self.lines[0])
        if self.lines:
            raise SpecError("\n  ".join([f"{len(self.lines)} settings cannot be right:", *self.lines]))


# Values


def _parse(setting: Setting, raw: object, base: Path, home: Path | None) -> Value:
    if "|" in setting.type:
        return _choice(raw, setting.type.split("|"))
    if setting.type == "path":
        return _path(raw, base, home)
    return _PARSERS[setting.type](raw)


def _text(raw: object) -> str:
    if not isinstance(raw, str):
        raise ValueError(f"must be a text, not {_shown(raw)}")
    if not raw.strip():
        raise ValueError("must not be empty")
    if not raw.isprintable() or len(raw) > 4096:
        raise ValueError(f"must be one printable line, not {_shown(raw)}")
    return raw


def _yaml(raw: object) -> str:
    if not isinstance(raw, str):
        raise ValueError(f"must be YAML as a text (after `|`), not {_shown(raw)}")
    return raw


def _choice(raw: object, choices: list[str]) -> str:
    if raw not in choices:
        raise ValueError(f"must be {' or '.join(choices)}, not {_shown(raw)}{_nearest(str(raw), choices)}")
    return str(raw)


def _bool(raw: object) -> bool:
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    if isinstance(raw, bool):
        return raw
    if not isinstance(raw, str) or raw.lower() not in words:
        raise ValueError(f"must be true or false, not {_shown(raw)}")
    return words[raw.lower()]


def _count(raw: object, least: int = 0) -> int:
    text = str(raw) if isinstance(raw, int | str) and not isinstance(raw, bool) else ""
    if not re.fullmatch(r"0|[1-9][0-9]{0,8}", text) or int(text) < least:
        raise ValueError(f"must be a whole number from {least} to 999999999, not {_shown(raw)}")
    return int(text)


def _measure(parse: Callable[[str], float]) -> Callable[[object], str]:
    def check(raw: object) -> str:
        if not isinstance(raw, int | float | str) or isinstance(raw, bool):
            raise ValueError(f"must be a number with a unit, not {_shown(raw)}")
        try:
            parse(str(raw))
        except ValueError as error:
            raise ValueError(f"cannot be: {error}") from None
        return str(raw).strip()

    return check


def _list(raw: object) -> tuple[str, ...]:
    items = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(items, list | tuple) or not items:
        raise ValueError(f"must be a list of words, not {_shown(raw)}")
    return tuple(_text(item).strip() for item in items)


def _path(raw: object, base: Path, home: Path | None) -> str:
    text = _text(os.fspath(raw) if isinstance(raw, os.PathLike) else raw)
    if text == "~" or text.startswith("~/"):
        if home is None:
            raise ValueError(f"starts in the home folder, but there is none: {text}")
        return str(home / text[2:])
    return str(base / text)


_PARSERS: dict[str, Callable[[object], Value]] = {
    "text": _text,
    "yaml": _yaml,
    "bool": _bool,
    "count": _count,
    "positive": lambda raw: _count(raw, least=1),
    "duration": _measure(parse_duration),
    "bytes": _measure(parse_bytes),
    "list": _list,
}


def _shown(raw: object) -> str:
    kinds = {dict: "a mapping", list: "a list", type(None): "nothing"}
    text = kinds.get(type(raw)) or repr(raw)
    return text if len(text) <= 80 else text[:77] + "..."


def _nearest(word: str, words: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word.lower(), words, 1, 0.6)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _setting(name: str) -> Setting:
    """The setting of this key; `local_grace` and `local-grace` are `local.grace`."""
    plain = re.sub(r"[.-]", "_", name)
    found = _BY_KEY.get(name) or next((one for one in SETTINGS if one.key.replace(".", "_") == plain), None)
    if found is None:
        raise SpecError(f"there is no setting {name!r}{_nearest(name, [*_BY_KEY])}", hint="arena config show")
    return found


# Flags and variables


def _given(
    values: Mapping[str, object], source: str, base: Path, home: Path | None, errors: Errors
) -> dict[str, Entry]:
    given = {}
    for name, raw in values.items():
        if raw is not None:
            setting = _setting(name)
            says = source or "flag --" + re.sub(r"[._]", "-", setting.key)
            where = f"{source}: {setting.key}" if source else says
            given[setting.key] = Entry(errors.parse(setting, raw, base, home, where), says)
    return given


def _read_env(env: Mapping[str, str], cwd: Path, home: Path | None, errors: Errors) -> dict[str, Entry]:
    return {
        setting.key: Entry(errors.parse(setting, env[setting.env], cwd, home, setting.env), setting.env)
        for setting in SETTINGS
        if env.get(setting.env)
    }


def _known_env() -> set[str]:
    return {*KNOWN_ENV, *(setting.env for setting in SETTINGS)}


# Files


def _read_site(
    env: Mapping[str, str], home: Path | None, machine_file: Path, errors: Errors
) -> tuple[dict[str, Entry], dict[str, Entry]]:
    """Locked and other site settings: the nearer file wins, but nothing unlocks what the machine's own file locks."""
    named = env.get("ARENA_SITE_CONFIG", "")
    folders = [
        Path(folder) for folder in (env.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep) if os.path.isabs(folder)
    ]
    if named and not _there(Path(named)):
        errors.add("ARENA_SITE_CONFIG", f"there is no file {named}")
    files = [Path(named)] if named else []
    locked: dict[str, Entry] = {}
    site: dict[str, Entry] = {}
    for file in [*files, *(folder / "arena" / "config.yaml" for folder in folders), machine_file]:
        locks, entries = _read_file(file, home, errors, site=True)
        locked, site = {**locked, **locks}, {**entries, **site}
    return locked, site


def _read_user(
    file: Path | None, upstream_file: Path | None, upstream: Mapping[str, str], home: Path | None, errors: Errors
) -> dict[str, Entry]:
    older = {"namespace": Entry(upstream["namespace"], str(upstream_file))} if upstream.get("namespace") else {}
    return {**older, **_read_file(file, home, errors)[1]}


def _upstream_file(env: Mapping[str, str], home: Path | None) -> Path | None:
    if env.get("ARENA_CONFIG"):
        return Path(env["ARENA_CONFIG"])
    return home / ".arena" / "config" if home else None


def _read_upstream(file: Path | None, errors: Errors) -> dict[str, str]:
    """Arena (Go)'s lines `key=value`; what is no such line is skipped, as it does."""
    lines = ((_read_text(file, errors) if file else None) or "").splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line and not line.lstrip().startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs if value.strip().isprintable()}


def _read_file(
    file: Path | None, home: Path | None, errors: Errors, *, project: bool = False, site: bool = False
) -> tuple[dict[str, Entry], dict[str, Entry]]:
    """The locked and the other entries of a YAML file; nothing if there is no file."""
    text = _read_text(file, errors) if file else None
    return ({}, {}) if file is None or not text else _parse_file(text, file, home, errors, project=project, site=site)


def _parse_file(
    text: str, file: Path, home: Path | None, errors: Errors, *, project: bool = False, site: bool = False
) -> tuple[dict[str, Entry], dict[str, Entry]]:
    pairs: dict[str, tuple[int, Node]] = {}
    for key, key_node, node in _pairs(text, file, errors, site=site):
        if key in pairs:
            errors.add(f"{file}:{_line(key_node)}", f"{key!r} is set twice, first in line {pairs[key][0]}")
        pairs.setdefault(key, (_line(key_node), node))
    locked: dict[str, Entry] = {}
    entries: dict[str, Entry] = {}
    for key, (line, node) in pairs.items():
        name = key.removeprefix("locked ")
        if project and not _BY_KEY[name].project_may_set:
            errors.add(
                f"{file}:{line}", f"{name!r} cannot be set by a project, only by you (arena config set) or the site"
            )
            continue
        value = errors.parse(_BY_KEY[name], _raw(node), file.parent, home, f"{file}:{line}: {name}")
        target, says = (locked, f"{file} (locked)") if key != name else (entries, str(file))
        target[name] = Entry(value, says)
    return locked, entries


def _pairs(text: str, file: Path, errors: Errors, *, site: bool = False) -> Iterator[tuple[str, Node, Node]]:
    """Key, its place and value of every setting; those below `locked:` as `locked KEY`."""
    top = _compose(text, file, errors)
    if top is None or (top.id == "scalar" and not top.value):
        return
    if top.id != "mapping":
        errors.add(f"{file}:{_line(top)}", "must be a mapping of settings")
        return
    for key_node, node in top.value:
        if site and key_node.value == "locked" and node.id == "mapping":
            locked = (pair for inner, value in node.value for pair in _flat(inner, value, "", file, errors))
            yield from ((f"locked {key}", inner, value) for key, inner, value in locked)
        elif site and key_node.value == "locked":
            errors.add(f"{file}:{_line(key_node)}", "'locked' needs the settings that it locks below it")
        else:
            yield from _flat(key_node, node, "", file, errors)


def _flat(key_node: Node, node: Node, prefix: str, file: Path, errors: Errors) -> Iterator[tuple[str, Node, Node]]:
    name = prefix + key_node.value if isinstance(key_node.value, str) else ""
    where = f"{file}:{_line(key_node)}"
    if name in _BY_KEY:
        yield name, key_node, node
    elif name in _GROUPS and node.id == "mapping":
        for inner, value in node.value:
            yield from _flat(inner, value, f"{name}.", file, errors)
    elif name in _GROUPS:
        errors.add(where, f"{name!r} needs its settings below it, such as {_members(name)}")
    elif file.name == PROJECT_FILE and re.fullmatch(_FORBIDDEN, name):
        errors.add(where, f"{name!r} cannot be set by a project, only by you (arena config set) or the site")
    else:
        errors.add(where, f"there is no setting {name!r}{_nearest(name, [*_BY_KEY, *_GROUPS])}")


def _members(group: str) -> str:
    return ", ".join(key.partition(".")[2] for key in _BY_KEY if key.startswith(f"{group}."))


def _raw(node: Node) -> object:
    """The value as it was typed: text, or a list of texts; a mapping or nothing is left for the type to refuse."""
    if node.id == "scalar":
        plain_nothing = not node.style and node.value in ("", "~", "null", "Null", "NULL")
        return None if plain_nothing else node.value
    return [_raw(item) for item in node.value] if node.id == "sequence" else {}


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1


def _compose(text: str, file: Path, errors: Errors) -> Node | None:
    """The file's nodes; aliases (a few lines of which can fill the memory) and tags are refused before any is made."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        depth = 0
        event: Any
        for event in yaml.parse(text, loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            odd = _odd_event(event, depth)
            if odd:
                errors.add(f"{file}:{event.start_mark.line + 1}", odd)
                return None
        return yaml.compose(text, loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{file}:{mark.line + 1}" if mark else str(file)
        errors.add(where, f"is not YAML: {getattr(error, 'problem', None) or str(error).splitlines()[0]}")
        return None


def _odd_event(event: Any, depth: int) -> str:
    if depth > _DEEPEST:
        return f"is nested deeper than {_DEEPEST} levels"
    if getattr(event, "anchor", None):
        return "anchors and aliases (&, *) are not allowed"
    return f"tags are not allowed: {event.tag}" if getattr(event, "tag", None) else ""


def _read_text(file: Path, errors: Errors) -> str | None:
    """The file's text; None when there is none, or none that this user may know of."""
    try:
        with open(file, "rb") as stream:
            data = stream.read(_LARGEST_FILE + 1)
        if len(data) > _LARGEST_FILE:
            errors.add(str(file), "is larger than 1 MiB")
            return None
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        errors.add(f"{file}:{line}", f"is not UTF-8 (byte 0x{data[error.start]:02x})")
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        if _there(file):
            errors.add(str(file), f"cannot be read: {error.strerror}")
    return None


def _there(path: Path) -> bool:
    try:
        os.stat(path)
    except (OSError, ValueError):
        return False
    return True


def _open_to_all(folder: Path) -> bool:
    try:
        return os.name == "posix" and bool(os.stat(folder).st_mode & 0o002)
    except OSError:
        return False


def _mine(file: Path) -> bool:
    return os.name != "posix" or os.lstat(file).st_uid == os.geteuid()


def _passwd_home() -> str:
    try:
        import pwd

        return pwd.getpwuid(os.geteuid()).pw_dir
    except (ImportError, KeyError):
        return ""


# Writing


def _yaml_value(text: str, parsed: Value) -> str:
    """The value as YAML, quoted wherever a reader of YAML could take it for something else."""
    import json

    if isinstance(parsed, tuple):
        return json.dumps(parsed, ensure_ascii=False)
    if isinstance(parsed, bool | int):
        return str(parsed).lower()
    plain = re.fullmatch(r"[A-Za-z0-9/][A-Za-z0-9_./@-]*(?::[A-Za-z0-9_./@-]+)*", text)
    guessed = re.fullmatch(r"(?i)true|false|yes|no|on|off|y|n|null|[0-9.:_xoe+-]+", text)
    return text if plain and not guessed else json.dumps(text, ensure_ascii=False)


def _edited(text: str, key: str, value: str) -> str:
    """The text with this key's value replaced, or with one more line."""
    pairs = [nodes for name, *nodes in _pairs(text, Path("-"), Errors()) if name == key]
    if not pairs:
        return text + ("" if not text or text.endswith("\n") else "\n") + f"{key}: {value}\n"
    key_node, node = pairs[0]
    start, end = node.start_mark.index, node.end_mark.index
    old = text[start:end]
    if "\n" not in old.rstrip() and start != end:
        return text[:start] + value + old[len(old.rstrip()) :] + text[end:]
    colon = text.index(
        ":", key_node.end_mark.index
    )  # nothing, or several lines: what follows them, comments too, stays
    kept = re.search(r"(?:\n[ \t]*(?:#[^\n]*)?)*\Z", old)
    return text[:colon] + f": {value}" + (kept.group() if kept else "") + text[end:]


def _write(file: Path, text: str) -> None:
    """By rename, so that no reader sees half a file; a link (dotfiles) stays one."""
    import tempfile

    target = Path(os.path.realpath(file))
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".config-")  # 0600
    try:
        with open(handle, "wb") as stream:
            stream.write(text.encode())
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
