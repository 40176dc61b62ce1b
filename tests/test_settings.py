"""Which layer decides, and what is said when a file is wrong: real files, a home and a machine of our own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.errors import BackendError, SpecError
from arena.settings import (
    LAYERS,
    SETTINGS,
    Setting,
    Settings,
    config_json,
    config_rows,
    git_root,
    home_folder,
    project_file,
    set_user_value,
    user_file,
    written,
)


class Machine:
    """A home, a project in a git repository and a machine-wide file, all below one folder."""

    def __init__(self, root: Path) -> None:
        self.home, self.project, self.etc = root / "home", root / "project", root / "etc" / "config.yaml"
        for folder in (self.home, self.project / ".git", self.project / "src", self.etc.parent):
            folder.mkdir(parents=True)
        self.env = {"HOME": str(self.home), "XDG_CONFIG_DIRS": str(root / "none")}
        self.user = self.home / ".config/arena/config.yaml"

    def write(self, file: Path, text: str | bytes) -> Path:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    def load(self, flags: Mapping[str, object] | None = None, cwd: str = "", **env: str) -> Settings:
        return Settings.load(flags or {}, {**self.env, **env}, self.project / cwd, machine_file=self.etc)

    def errors(self, text: str | bytes, file: str = "project/arena.yaml") -> str:
        self.write(self.home.parent / file, text)
        with pytest.raises(SpecError) as caught:
            self.load()
        return str(caught.value)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


# Order


def test_each_layer_wins_over_the_next(machine: Machine) -> None:
    machine.write(machine.etc, "image: site\nlocked: {}\n")
    machine.write(machine.user, "image: user\n")
    machine.write(machine.project / "arena.yaml", "image: project\n")
    settings = machine.load({"image": "flag"}, ARENA_IMAGE="variable")
    seen = []
    for depth in range(1, len(LAYERS)):
        layers = tuple({} if index < depth else layer for index, layer in enumerate(settings.layers))
        shown = settings._replace(layers=layers).with_layer("namespace", "ConfigMap t/arena-defaults", {"image": "map"})
        seen.append((shown.value("image"), shown.source("image"), shown.layer("image")))
    assert list(dict.fromkeys(seen)) == [
        ("flag", "flag --image", "flag"),
        ("variable", "ARENA_IMAGE", "env"),
        ("project", str(machine.project / "arena.yaml"), "project"),
        ("user", str(machine.user), "user"),
        ("map", "ConfigMap t/arena-defaults", "namespace"),
    ]
    machine.write(machine.etc, "image: site\nlocked: {image: fixed}\n")
    settings = machine.load({"image": "flag"}, ARENA_IMAGE="variable")
    assert settings.value("image") == "fixed"
    assert settings.source("image") == f"{machine.etc} (locked)"
    for layer, source in (("flag", "flag --image"), ("env", "ARENA_IMAGE")):
        assert settings.overruled(layer) == [f"{source} has no effect: image is fixed by {machine.etc} (locked)"]
    assert machine.load({"image": "fixed"}).overruled("flag") == []


def test_site_file_and_built_in(machine: Machine) -> None:
    machine.write(machine.etc, "local:\n  max_replicas: 4\n  enabled: no\nhistory.max_age: 30d\n")
    settings = machine.load()
    assert settings.number("local.max_replicas") == 4
    assert not settings.enabled("local.enabled")
    assert settings.seconds("history.max_age") == 30 * 86400
    assert settings.source("history.max_age") == str(machine.etc)
    assert settings.seconds("local.grace") == 10
    assert settings.size("log.max") == 128_000_000
    assert settings.source("log.max") == "built-in"
    assert settings.value("backend") is None


def test_locked_holds_settings(machine: Machine) -> None:
    text = machine.errors("image: x\nlocked: [image]\n", "etc/config.yaml")
    assert text == f"{machine.etc}:2: 'locked' needs the settings that it locks below it"


def test_nothing_unlocks_what_the_machine_locks(machine: Machine, tmp_path: Path) -> None:
    machine.write(machine.etc, "image: etc\nlocked:\n  local:\n    max_replicas: 2\n")
    own = machine.write(tmp_path / "own.yaml", "image: own\nlocked: {local.max_replicas: 99}\n")
    settings = machine.load(ARENA_SITE_CONFIG=str(own))
    assert settings.value("local.max_replicas") == 2
    assert settings.value("image") == "own"


def test_a_site_file_that_was_named_must_be_there(machine: Machine) -> None:
    with pytest.raises(SpecError, match="ARENA_SITE_CONFIG: there is no file /nonexistent"):
        machine.load(ARENA_SITE_CONFIG="/nonexistent")


def test_folders_of_xdg_config_dirs_are_site_files(machine: Machine, tmp_path: Path) -> None:
    file = machine.write(tmp_path / "xdg/arena/config.yaml", "backend: local\n")
    settings = machine.load(XDG_CONFIG_DIRS=f"relative:{tmp_path / 'xdg'}")
    assert (settings.value("backend"), settings.source("backend")) == ("local", str(file))


def test_upstreams_file_belongs_to_the_user_layer(machine: Machine) -> None:
    text = "# mine\nnamespace = team-a\n\nprometheus_address=http://p:9090/?a=b\nnonsense\n"
    file = machine.write(machine.home / ".arena/config", text)
    settings = machine.load(ARENA_NAMESPACE="arena-system")
    assert (settings.value("namespace"), settings.source("namespace")) == ("team-a", str(file))
    assert settings.upstream["prometheus_address"] == "http://p:9090/?a=b"
    machine.write(machine.user, "namespace: mine\n")
    assert machine.load().value("namespace") == "mine"
    other = machine.write(machine.home / "other", "namespace=team-b\n")
    machine.user.unlink()
    assert machine.load(ARENA_CONFIG=str(other)).source("namespace") == str(other)
    assert machine.load(ARENA_CONFIG="/nonexistent").value("namespace") is None


def test_the_operators_namespace_is_not_ours(machine: Machine) -> None:
    settings = machine.load(ARENA_NAMESPACE="arena-system", ARENA_BACKENDS="x", ARENA_JOB_NAMESPACE="t", ARENA_IMAGE="")
    assert settings.value("namespace") == "t"
    assert settings.unknown_env == ("ARENA_BACKENDS",)
    assert settings.source("image") == "built-in"


def test_overlay_gives_new_settings(machine: Machine) -> None:
    settings = machine.load({"backend": "kubernetes", "namespace": None})
    over = settings.overlay(backend="local", local_grace="3s", image=None)
    assert (over.value("backend"), over.seconds("local.grace")) == ("local", 3)
    assert over.source("local.grace") == "flag --local-grace"
    assert settings.value("backend") == "kubernetes"
    with pytest.raises(SpecError, match=r"no setting 'backends' \(did you mean 'backend'"):
        settings.overlay(backends="local")


@pytest.mark.parametrize(
    ("flags", "env", "message"),
    [
        ({"backend": "locla"}, {}, "flag --backend must be local or kubernetes, not 'locla' (did you mean 'local'?)"),
        ({}, {"ARENA_LOCAL_MAX_REPLICAS": "0"}, "ARENA_LOCAL_MAX_REPLICAS must be a whole number from 1"),
        ({}, {"ARENA_LOCAL_GPUS": "-1"}, "ARENA_LOCAL_GPUS must be a whole number from 0"),
        ({}, {"ARENA_LOCAL_GPUS": "9" * 50}, "ARENA_LOCAL_GPUS must be"),
        ({"local.grace": "-5s"}, {}, "flag --local-grace cannot be: '-5s' is not a duration"),
        ({"log.max": "1GGi"}, {}, "flag --log-max cannot be: '1GGi' has no known unit"),
        ({"image": "a\nb"}, {}, "flag --image must be one printable line"),
        ({"image": "\udcff"}, {}, "flag --image must be one printable line"),
        ({"namespace": 3}, {}, "flag --namespace must be a text, not 3"),
        ({"local.enabled": "maybe"}, {}, "flag --local-enabled must be true or false"),
        ({"local.max_replicas": True}, {}, "flag --local-max-replicas must be a whole number"),
    ],
)
def test_wrong_flags_and_variables(
    machine: Machine, flags: dict[str, object], env: dict[str, str], message: str
) -> None:
    with pytest.raises(SpecError) as caught:
        machine.load(flags, **env)
    assert message in str(caught.value)


def test_all_errors_at_once(machine: Machine) -> None:
    text = machine.errors("image: [a]\nimagee: x\nbackend: slurm\nlocal:\n  grace: soon\n")
    for line, words in [(1, "image must be a text, not a list"), (2, "did you mean 'image'"), (3, "backend must be")]:
        assert f"{machine.project}/arena.yaml:{line}: " in text
        assert words in text
    assert "arena.yaml:5: local.grace cannot be: 'soon' is not a duration" in text
    assert text.startswith("4 settings cannot be right:")


# The project's file is code that somebody else wrote


FORBIDDEN = ["kubeconfig: k", "context: prod", "state_dir: /x", "lease_dir: /x", "user: root", "local.gpus: 4"]
FORBIDDEN += ["plugins: [x]", "proxy: http://x", "http_proxy: x", "token_file: x", "log: {max: 1T}", "upload.max: 1G"]


@pytest.mark.parametrize("line", FORBIDDEN)
def test_what_a_project_cannot_set(machine: Machine, line: str) -> None:
    key = "log.max" if line.startswith("log") else line.partition(":")[0]
    text = machine.errors(f"image: x\n{line}\n")
    assert text.startswith(f"{machine.project}/arena.yaml:2: {key!r} cannot be set by a project")


def test_a_project_locks_nothing(machine: Machine) -> None:
    assert "there is no setting 'locked'" in machine.errors("locked: {image: x}\n")


def test_the_project_file_is_looked_for_up_to_the_git_root(machine: Machine) -> None:
    deep = machine.project / "src/a/b"
    deep.mkdir(parents=True)
    above = machine.write(machine.project.parent / "arena.yaml", "image: above\n")
    assert machine.load(cwd="src/a/b").value("image") is None
    root = machine.write(machine.project / "arena.yaml", "image: root\n")
    assert project_file(deep) == root
    near = machine.write(machine.project / "src/arena.yaml", "image: near\n")
    assert machine.load(cwd="src/a/b").source("image") == str(near)
    assert project_file(machine.project.parent) == above
    assert git_root(deep) == machine.project
    (machine.project / ".git").rmdir()
    machine.write(machine.project / ".git", "gitdir: elsewhere\n")  # a work tree
    assert git_root(deep) == machine.project


def test_nobody_plants_a_project_file_in_a_folder_open_to_all(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    (shared / "mine/deep").mkdir(parents=True)
    shared.chmod(0o1777)
    (tmp_path / "arena.yaml").touch()
    planted = shared / "arena.yaml"
    planted.touch()
    assert project_file(shared / "mine/deep") == planted
    if os.geteuid() == 0:
        os.chown(planted, 12345, 12345)
        assert project_file(shared / "mine/deep") is None
        assert project_file(shared) is None


# YAML


@pytest.mark.parametrize(
    "word", ["no", "on", "0644", "1e3", "1.10", "true", "2024-01-01", "0x1F", "12:30:45", "=", "1_000"]
)
def test_words_are_taken_as_typed(machine: Machine, word: str) -> None:
    machine.write(machine.user, f"namespace: {word}\n")
    assert machine.load().value("namespace") == word


@pytest.mark.parametrize("word", ["0644", "1e3", "0x10", "1_000", "1.0", "yes", "-1", "99999999999999999999", "'four'"])
def test_a_number_is_written_as_one(machine: Machine, word: str) -> None:
    text = machine.errors(f"local:\n  max_replicas: {word}\n", "etc/config.yaml")
    assert text.startswith(f"{machine.etc}:2: local.max_replicas must be a whole number from 1 to 999999999, not ")


@pytest.mark.parametrize("word", ["", "~", "null"])
def test_nothing_is_no_value(machine: Machine, word: str) -> None:
    assert machine.errors(f"image: {word}\n").endswith("arena.yaml:1: image must be a text, not nothing")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &a [x]\nb: *a\n", ":1: anchors and aliases"),
        ("a: &a [x]\n" + "".join(f"b{n}: &b{n} [*a, *a]\n" for n in range(40)), ":1: anchors and aliases"),
        ("image: !!python/object/apply:os.system [id]\n", ":1: tags are not allowed"),
        ("image: x\nimage: y\n", ":2: 'image' is set twice, first in line 1"),
        ("local: {grace: 1s}\nlocal.grace: 2s\n", ":2: 'local.grace' is set twice"),
        ("local: 5\n", ":1: 'local' needs its settings below it, such as enabled"),
        ("image: 'x\n", ":2: is not YAML"),
        ("image: x\n\tnamespace: y\n", ": is not YAML"),
        ("- image\n", ":1: must be a mapping of settings"),
        ("just text", ":1: must be a mapping of settings"),
        ("image: a\n---\nimage: b\n", ":2: is not YAML"),
        ("image: " + "[" * 50, ":1: is nested deeper than"),
        ("image: " + "[" * 5000, ":1: is not YAML: exceeded maximum nesting depth"),
        (b"image: x\nnamespace: \xff\n", ":2: is not UTF-8 (byte 0xff)"),
        ("image: \x00\n", "is not YAML"),
        ("? [a, b]\n: x\n", ":1: there is no setting ''"),
        ("<<: {image: x}\n", ":1: there is no setting '<<'"),
        ("Image: x\n", "did you mean 'image'"),
        ("engines: {a: b}\n", "engines must be a list of words, not a mapping"),
        ("engines: []\n", "engines must be a list of words"),
        ("x: " + "y" * (1 << 20), "larger than 1 MiB"),
    ],
)
def test_odd_files_are_refused_with_the_line(machine: Machine, text: str | bytes, message: str) -> None:
    assert message in machine.errors(text)


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "\ufeffimage: x\n", "image: x\r\nnamespace: y\r\n"])
def test_files_that_are_fine(machine: Machine, text: str) -> None:
    machine.write(machine.project / "arena.yaml", text)
    assert machine.load().value("image") == ("x" if "image" in text else None)


def test_lists_and_paths(machine: Machine, tmp_path: Path) -> None:
    machine.write(machine.project / "arena.yaml", "engines: [job, pytorchjob]\n")
    machine.write(machine.user, "state_dir: state\nlease_dir: ~/leases\n")
    settings = machine.load()
    assert settings.names("engines") == ("job", "pytorchjob")
    assert settings.path("state_dir") == machine.user.parent / "state"
    assert settings.path("lease_dir") == machine.home / "leases"
    assert machine.load(ARENA_ENGINES="a, b").names("engines") == ("a", "b")
    assert machine.load(ARENA_STATE_DIR="s").path("state_dir") == machine.project / "s"
    assert machine.load({"state_dir": tmp_path}).path("state_dir") == tmp_path


@given(st.binary(max_size=300))
def test_any_file_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    machine = Machine(tmp_path_factory.mktemp("any"))
    machine.write(machine.user, data)
    try:
        said = str(machine.load().source("image"))
    except SpecError as error:
        said = str(error)
    assert said == "built-in" or str(machine.user) in said


def test_the_pure_loader_reads_the_same(machine: Machine) -> None:
    machine.write(machine.user, "# é 漢\nimage: 1.10 # x\nlocal:\n  grace: 3s\n")
    code = """
import sys, yaml
from pathlib import Path
del yaml.CSafeLoader
from arena.settings import Settings, set_user_value
env = {"HOME": sys.argv[1]}
set_user_value("local.grace", "4s", env)
settings = Settings.load({}, env, Path("/"))
print(settings.value("image"), settings.value("local.grace"))
"""
    shown = subprocess.run([sys.executable, "-c", code, str(machine.home)], capture_output=True, text=True, check=True)
    assert shown.stdout == "1.10 4s\n"


# No home, no rights


def test_without_a_home_there_is_no_user_file(tmp_path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from arena.errors import SpecError
from arena.settings import Settings, home_folder, set_user_value, user_file
if os.geteuid() == 0:
    os.setuid(54321)
assert home_folder({}) is None, home_folder({})
assert user_file({"HOME": ""}) is None
assert Settings.load({}, {"HOME": "relative"}, Path("/")).home is None
assert Settings.load({}, {"HOME": "/root", "XDG_CONFIG_HOME": "/root/x"}, Path("/")).value("backend") is None
try:
    set_user_value("backend", "local", {})
except SpecError as error:
    print(error.what)
"""
    if os.geteuid() != 0:
        pytest.skip("needs another uid: run as root")
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    assert shown.stdout == "there is no home folder to keep settings in\n"


def test_where_the_home_is() -> None:
    assert home_folder({"HOME": "/h"}) == Path("/h")
    assert user_file({"HOME": "/h"}) == Path("/h/.config/arena/config.yaml")
    assert user_file({"HOME": "/h", "XDG_CONFIG_HOME": "/x"}) == Path("/x/arena/config.yaml")
    assert user_file({"HOME": "/h", "XDG_CONFIG_HOME": "x"}) == Path("/h/.config/arena/config.yaml")


def test_a_file_that_cannot_be_read_is_said(machine: Machine) -> None:
    machine.user.mkdir(parents=True)
    with pytest.raises(SpecError, match=r"config.yaml: cannot be read: Is a directory"):
        machine.load()


# Shown and set


def test_rows_and_json(machine: Machine) -> None:
    settings = machine.load({"backend": "local"}, ARENA_ENGINES="a,b")
    assert [row.key for row in config_rows(settings)] == [setting.key for setting in SETTINGS]
    shown = config_json(settings)
    assert shown["backend"] == {"value": "local", "source": "flag --backend"}
    assert shown["engines"] == {"value": ["a", "b"], "source": "ARENA_ENGINES"}


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.key)
def test_what_is_shown_can_be_set(setting: Setting, machine: Machine) -> None:
    words = {"bool": "false", "list": "a,b", "count": "2", "positive": "2", "bytes": "1G", "duration": "1m"}
    word = words.get(setting.type, setting.type.partition("|")[0])
    shown = written(machine.load({}, **{setting.env: word}).value(setting.key))
    assert shown.endswith(word)
    set_user_value(setting.key, shown, machine.env)
    assert written(machine.load().value(setting.key)) == shown


def test_set_keeps_all_else(machine: Machine) -> None:
    text = (
        "# mine é 漢\nbackend: local   # here\n\nlocal:  # limits\n  grace: '5s' # short\n  enabled: yes\n"
        "engines:\n- a\n- b\n# end\n"
    )
    machine.write(machine.user, text)
    assert set_user_value("backend", "kubernetes", machine.env) == machine.user
    set_user_value("local.grace", "1m", machine.env)
    set_user_value("engines", "job,trainjob", machine.env)
    set_user_value("image", "1.10", machine.env)
    assert machine.user.read_text() == (
        "# mine é 漢\nbackend: kubernetes   # here\n\nlocal:  # limits\n  grace: 1m # short\n  enabled: yes\n"
        'engines: ["job", "trainjob"]\n# end\nimage: "1.10"\n'
    )
    assert machine.user.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in machine.user.parent.iterdir()] == ["config.yaml"]


WAYS = ["", "\n\n", "image: old", "image: old\n", "{image: old, backend: local}\n", "'image': \"old\"\n"]
WAYS += ["image: >-\n  a\n  b\nbackend: local\n", "image: 'a\n  b'\n# c\n", "image : a # b: c", "--- # x\nimage: a\n"]
WAYS += ["image: |-\n  a\n\n# kept: x\n\nbackend: local\n"]


@pytest.mark.parametrize("before", WAYS)
@pytest.mark.parametrize(
    "value", ["new", "a: b", "#x", "no", "null", "it's", '"', "ghcr.io/a/b:1@sha256:12", "é漢😀", "{}"]
)
def test_set_over_any_way_of_writing(machine: Machine, before: str, value: str) -> None:
    machine.write(machine.user, before)
    set_user_value("image", value, machine.env)
    settings = machine.load()
    assert settings.value("image") == value
    assert settings.value("backend") == ("local" if "backend" in before else None)
    assert machine.user.read_text().count("#") - value.count("#") == before.count("#")


@given(st.text(min_size=1, max_size=30).filter(lambda text: text.isprintable() and bool(text.strip())))
def test_any_printable_text_can_be_set(tmp_path_factory: pytest.TempPathFactory, value: str) -> None:
    machine = Machine(tmp_path_factory.mktemp("set"))
    machine.write(machine.user, "image: old # é\n")
    set_user_value("image", value, machine.env)
    assert machine.load().value("image") == value


def test_set_refuses_what_load_would(machine: Machine) -> None:
    for key, value, words in [
        ("backend", "slurm", "arena config set backend: the value must be local or kubernetes"),
        ("backnd", "local", "did you mean 'backend'"),
        ("local.grace", "soon", "is not a duration"),
        ("image", "", "must not be empty"),
    ]:
        with pytest.raises(SpecError, match=words):
            set_user_value(key, value, machine.env)
    assert not machine.user.exists()
    machine.write(machine.user, "backend: [\n")
    with pytest.raises(SpecError, match="is not YAML"):
        set_user_value("image", "x", machine.env)
    machine.write(machine.user, "{backend: local}\n")
    with pytest.raises(SpecError, match="cannot be edited here"):
        set_user_value("image", "x", machine.env)
    assert machine.user.read_text() == "{backend: local}\n"


def test_set_follows_a_link_and_says_what_cannot_be_written(machine: Machine) -> None:
    real = machine.write(machine.home / "dotfiles/arena.yaml", "image: old\n")
    machine.user.parent.mkdir(parents=True)
    machine.user.symlink_to(real)
    set_user_value("image", "new", machine.env)
    assert machine.user.is_symlink()
    assert real.read_text() == "image: new\n"
    with pytest.raises(BackendError, match="cannot be written"):
        set_user_value("image", "new", {"HOME": "/proc/self"})


def test_import_is_cheap_and_reads_no_yaml() -> None:
    code = """
import __future__, sys, re, typing, pathlib
before = set(sys.modules)
import arena.settings
from pathlib import Path
arena.settings.Settings.load({"backend": "local"}, {"HOME": "/nonexistent"}, Path("/"))
print(sorted(name for name in set(sys.modules) - before if not name.startswith("arena")))
"""
    shown = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, env=pure_env()
    )
    assert shown.stdout.strip() in ("[]", "['pwd']")


def pure_env() -> dict[str, str]:
    import arena.settings

    return {"PYTHONPATH": str(Path(arena.settings.__file__).parent.parent)}


def test_what_arena_sets_in_jobs_is_no_unknown_variable() -> None:
    from arena.backends.local import layout
    from arena.jobs.plain import PlainJob

    job = PlainJob(name="mnist", command=("train.py",))
    (placed,) = layout.place(job, "mnist-7k3f", job.roles(), [20_000], (), Path("/"), 1)
    ((_, env),) = placed.programs
    assert Settings.load({}, env, Path("/")).unknown_env == ()
