"""The image nobody named: who is asked in which order, and what a script's imports mean."""

from pathlib import Path

import pytest

from arena import images
from arena.backends.kubernetes import defaults
from arena.errors import SpecError, UnsupportedError
from arena.jobs.plain import PlainJob
from arena.settings import Settings

JOB = PlainJob(command=("train.py",))


def settings(*, env: dict[str, str] | None = None, **flags: object) -> Settings:
    return Settings.load(flags, {"HOME": "/nonexistent", **(env or {})}, Path("/"))


@pytest.mark.parametrize(
    ("script", "image"),
    [
        ("import torch", images.BUILT_IN["torch"]),
        ("from torch.nn import functional", images.BUILT_IN["torch"]),
        ("def f():\n    import tensorflow as tf", images.BUILT_IN["tensorflow"]),
        ("try:\n    import jax\nexcept ImportError:\n    jax = None", images.BUILT_IN["jax"]),
        ("import torch, tensorflow", images.BUILT_IN["torch"]),
        ("import torchvision", images.BUILT_IN["torch"]),
        ("from . import torch", images.PLAIN),
        ("import json  # import torch", images.PLAIN),
        ("'import torch'", images.PLAIN),
        ("import torch as", images.PLAIN),
        ("\0", images.PLAIN),
        ("", images.PLAIN),
    ],
)
def test_the_table_goes_by_what_the_script_imports(script: str, image: str) -> None:
    found, source = images.choose(JOB, settings(), script)
    assert found == image
    assert "built-in default" in source
    assert "arena config set image" in source


def test_gpus_take_the_image_that_has_their_libraries() -> None:
    job = PlainJob(command=("train.py",), gpus=1)
    assert images.choose(job, settings(), "import tensorflow")[0].endswith("-gpu")


def test_a_flag_wins_then_a_setting_then_the_namespace_then_the_table() -> None:
    named = PlainJob(command=("train.py",), image="mine:1")
    own = settings(env={"ARENA_IMAGE": "users:1"})
    assert images.choose(named, own, "") == ("mine:1", "--image")
    assert images.choose(JOB, defaults.layered(own, "team-a", {"image": "teams:1"}), "") == ("users:1", "ARENA_IMAGE")
    teams = defaults.layered(settings(), "team-a", {"image": "teams:1"})
    assert images.choose(JOB, teams, "import torch") == ("teams:1", "ConfigMap team-a/arena-defaults")


def test_required_turns_the_table_off_and_so_do_the_commands_of_arena_go() -> None:
    required = defaults.layered(settings(), "team-a", {"image": "required"})
    with pytest.raises(UnsupportedError, match="no image") as caught:
        images.choose(JOB, required, "import torch")
    assert "arena-defaults" in caught.value.why
    assert "--image" in caught.value.hint
    with pytest.raises(UnsupportedError, match="no image"):
        images.choose(JOB, settings(), None)


def test_the_script_of_a_module_is_found(tmp_path: Path) -> None:
    (tmp_path / "team").mkdir()
    (tmp_path / "team" / "__main__.py").write_text("import jax")
    assert images.read_script(("-m", "team"), tmp_path) == "import jax"
    assert images.read_script(("python3", "-m", "team", "-v"), tmp_path) == "import jax"
    assert images.read_script(("sh", "run.sh"), tmp_path) == ""


def test_a_namespace_sets_what_is_its_business_and_no_more() -> None:
    values = {"image": "i:1", "backend": "local", "kubeconfig": "/x", "imge": "typo"}
    layered = defaults.layered(settings(), "team-a", values)
    assert layered.text("image") == "i:1"
    assert layered.layer("image") == "namespace"
    assert layered.value("backend") is None
    assert [line for line in defaults.strangers("team-a", values) if "imge" in line]
    assert len(defaults.strangers("team-a", values)) == 3


def test_a_wrong_value_names_the_configmap() -> None:
    with pytest.raises(SpecError, match="ConfigMap team-a/arena-defaults"):
        defaults.layered(settings(), "team-a", {"upload.max": "many"})


def test_defaults_are_remembered_by_user_and_namespace(tmp_path: Path) -> None:
    memory = defaults.Memory(tmp_path, "alice", "team-a")
    assert memory.recall() is None
    memory.keep({"image": "i:1"})
    assert memory.recall() == {"image": "i:1"}
    assert defaults.Memory(tmp_path, "bob", "team-a").recall() is None
    assert defaults.Memory(tmp_path, "alice", "team-b").recall() is None
    assert defaults.Memory(None, "alice", "team-a").recall() is None


def test_a_damaged_memory_is_none(tmp_path: Path) -> None:
    memory = defaults.Memory(tmp_path, "alice", "team-a")
    memory.keep({})
    (file,) = (tmp_path / "defaults").rglob("*.json")
    for text in ("", "[1]", "{"):
        file.write_text(text)
        assert memory.recall() is None


def test_a_locked_image_is_every_jobs(tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text("locked:\n  image: x:1\n")
    settings = Settings.load({}, {"ARENA_SITE_CONFIG": str(site), "HOME": str(tmp_path)}, tmp_path)
    image, who = images.choose(PlainJob(command=("true",), image="y:2"), settings, None)
    assert image == "x:1"
    assert who.startswith(f"locked: {site}")
    assert "instead of y:2" in who
