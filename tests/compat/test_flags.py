"""Every flag of Arena (Go)'s `submit tfjob|pytorchjob|mpijob`: taken, and with the effect it has there."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from compat.effects import Effect, holds, look, parse
from compat.place import Place, Said
from compat.translation import translated

FOLDER = Path(__file__).parent
FLAGS: dict[str, Any] = yaml.safe_load((FOLDER / "flags.yaml").read_text())
DIFFERENCES: list[dict[str, str]] = yaml.safe_load((FOLDER / "differences.yaml").read_text())
PAGE = (FOLDER.parents[1] / "docs" / "compatibility.md").read_text()
REFUSED = {"starting-timeout": 5}
WORDS = ("--name", "p", "--image", "img:1")


class Case(NamedTuple):
    """A flag of a type, with what it is measured against."""

    type: str
    base: str
    flag: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.flag["name"])

    @property
    def value(self) -> str:
        return str(self.flag.get("value", {"int": "3", "bool": "true"}.get(self.flag["type"], "x")))

    @property
    def words(self) -> list[str]:
        return [f"--{self.name}"] if self.flag["type"] == "bool" else [f"--{self.name}={self.value}"]

    @property
    def around(self) -> tuple[str, ...]:
        """The words beside the flag, in both runs."""
        return tuple(f"{self.flag.get('base', self.base)} {self.flag.get('with', '')}".split())

    @property
    def effects(self) -> list[Effect]:
        return [translated(one) for text in self.flag["effect"] for one in parse(text)]


CASES = [Case(kind, told["base"], flag) for kind, told in FLAGS.items() for flag in told["flags"]]
OWN = [case for case in CASES if "alias_of" not in case.flag]
OLD = [case for case in CASES if "alias_of" in case.flag]


def ids(case: Case) -> str:
    return f"{case.type}-{case.name}"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("compat")
    (folder / "probe" / "cfg").mkdir(parents=True)
    (folder / "probe" / "cfg" / "c.conf").write_text("a = 1\n")
    found = Place(folder)
    found.said = cache(lambda kind, *words: found("submit", kind, *WORDS, *words, "run.sh"))  # type: ignore[attr-defined]
    return found


def said(place: Place, kind: str, *words: str) -> Said:
    found: Said = place.said(kind, *words)  # type: ignore[attr-defined]
    return found


def beside(case: Case) -> list[str]:
    """What a flag needs beside it here, where Arena (Go) let it do nothing."""
    return ["--model-name=m"] if case.name == "model-source" else []


def differs(case: Case, effect: Effect) -> bool:
    """Whether the difference is listed."""
    return any(
        case.type in one["types"] and case.name == one["flag"] and one.get("effect", "") in str(effect)
        for one in DIFFERENCES
    )


@pytest.mark.parametrize("case", OWN, ids=ids)
def test_a_flag_does_what_it_did(case: Case, place: Place) -> None:
    before = said(place, case.type, *case.around)
    if before.code:  # what it was measured with is refused alone
        before = said(place, case.type, *case.flag.get("base", case.base).split())
    after = said(place, case.type, *case.around, *beside(case), *([] if case.name == "name" else case.words))
    assert (before.code, after.code) == (0, REFUSED.get(case.name, 0)), before.stderr + after.stderr
    wrong = [
        f"{effect}: {look(before.by_kind, effect)!r} -> {look(after.by_kind, effect)!r}"
        for effect in case.effects
        if holds(effect, case.value, before.by_kind, after.by_kind) == differs(case, effect)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("case", OLD, ids=ids)
def test_an_old_spelling_is_the_new_one(case: Case, place: Place) -> None:
    new = next(one for one in OWN if one.type == case.type and one.name == case.flag["alias_of"])
    words = [word.replace(f"--{new.name}", f"--{case.name}", 1) for word in new.words]
    assert plain(said(place, case.type, *new.around, *words)) == plain(said(place, case.type, *new.around, *new.words))


@pytest.mark.parametrize("case", [case for case in OWN if "short" in case.flag], ids=ids)
def test_a_letter_is_the_flag(case: Case, place: Place) -> None:
    short = said(place, case.type, f"-{case.flag['short']}", case.value)
    assert plain(short) == plain(said(place, case.type, *case.words))


def plain(found: Said) -> list[dict[str, Any]]:
    """The objects without the words that were typed, and without the id that follows from them."""
    assert found.code == 0, found.stderr
    for one in found.objects:
        one["metadata"].get("annotations", {}).pop("arena.kubeflow.org/run", None)
    return found.objects


def test_the_name_is_that_of_every_object(place: Place) -> None:
    for kind in FLAGS:
        found = said(place, kind, "--tensorboard")
        assert {one["metadata"]["labels"].get("release", "p") for one in found.objects} == {"p"}
        assert found.names[-2:] == [f"ConfigMap/p-{kind}", found.names[-1]]
        assert all(name.partition("/")[2].startswith("p") for name in found.names)


def test_a_configuration_file_is_mounted(place: Place) -> None:
    found = said(place, "tfjob", "--config-file", "probe/cfg/c.conf:/etc/c.conf")
    (held,) = [one for one in found.objects if one["kind"] == "ConfigMap" and one["metadata"]["name"] != "p-tfjob"]
    spec = found.by_kind["TFJob"]["spec"]["tfReplicaSpecs"]["Chief"]["template"]["spec"]
    (mount,) = [one for one in spec["containers"][0]["volumeMounts"] if one["mountPath"] == "/etc/c.conf"]
    assert held["data"] == {mount["subPath"]: "a = 1\n"}
    assert {"name": mount["name"], "configMap": {"name": held["metadata"]["name"]}} in spec["volumes"]


def test_the_model_s_source_is_kept(place: Place) -> None:
    found = said(place, "pytorchjob", "--model-name=m", "--model-source=pvc://a/b")
    assert found.by_kind["PyTorchJob"]["metadata"]["annotations"]["arena.kubeflow.org/model-source"] == "pvc://a/b"
    assert "--model-source" in found.stderr


def test_every_difference_is_on_the_page() -> None:
    for one in DIFFERENCES:
        assert any(one["row"] in line and one["flag"] in line for line in PAGE.splitlines()), one


def test_the_counts(capsys: pytest.CaptureFixture[str]) -> None:
    checked = [(case, effect) for case in OWN for effect in case.effects]
    moved = sum(translated(one) != one for case in OWN for text in case.flag["effect"] for one in parse(text))
    apart = sum(differs(case, effect) for case, effect in checked)
    with capsys.disabled():
        print(
            f"\n{len(CASES)} flags, {len(OLD)} of them old spellings; {len(checked)} effects checked,"
            f" {moved} of them translated, {apart} differ on purpose"
        )
    assert (len(CASES), len(OLD)) == (186, 32)
