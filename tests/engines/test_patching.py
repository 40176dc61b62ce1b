"""What a patch and a path do to an object, and what they refuse."""

import copy

import pytest

from arena.engines.patching import apply_patch, read_patch, read_setting, set_path, split_path
from arena.errors import SpecError

JOB = {
    "kind": "Job",
    "metadata": {"name": "x", "labels": {"team": "a"}},
    "spec": {
        "suspend": False,
        "template": {
            "spec": {
                "containers": [{"name": "main", "image": "i", "env": [{"name": "A", "value": "1"}], "args": ["1", "2"]}]
            }
        },
    },
}


def main_of(manifest):
    return manifest["spec"]["template"]["spec"]["containers"][0]


def test_mappings_merge_and_null_removes():
    before = copy.deepcopy(JOB)
    made = apply_patch(JOB, {"metadata": {"labels": {"team": None, "cost": "b"}}, "spec": {"suspend": True}})
    assert made["metadata"] == {"name": "x", "labels": {"cost": "b"}}
    assert made["spec"]["suspend"] is True
    assert before == JOB


def test_items_with_names_merge_by_name_and_new_ones_are_added():
    container = {"name": "main", "env": [{"name": "A", "value": "2"}, {"name": "B", "value": "3"}]}
    patch = {"spec": {"template": {"spec": {"containers": [container, {"name": "side", "image": "s"}]}}}}
    made = apply_patch(JOB, patch)
    assert main_of(made)["image"] == "i"
    assert main_of(made)["env"] == [{"name": "A", "value": "2"}, {"name": "B", "value": "3"}]
    assert [one["name"] for one in made["spec"]["template"]["spec"]["containers"]] == ["main", "side"]


def test_other_lists_are_replaced():
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "main", "args": ["3"]}]}}}}
    assert main_of(apply_patch(JOB, patch))["args"] == ["3"]


@pytest.mark.parametrize(
    ("path", "value", "look"),
    [
        ("spec.template.spec.priorityClassName", "high", lambda m: m["spec"]["template"]["spec"]["priorityClassName"]),
        ("spec.template.spec.containers.main.image", "j", lambda m: main_of(m)["image"]),
        ("spec.template.spec.containers[0].image", "j", lambda m: main_of(m)["image"]),
        ("spec.template.spec.containers.0.args.1", "z", lambda m: main_of(m)["args"][1]),
        (r"metadata.annotations.a\.b/c", "d", lambda m: m["metadata"]["annotations"]["a.b/c"]),
        ('metadata.annotations["a.b/c"]', "d", lambda m: m["metadata"]["annotations"]["a.b/c"]),
    ],
)
def test_a_path_is_keys_names_and_numbers(path, value, look):
    before = copy.deepcopy(JOB)
    assert look(set_path(JOB, path, value)) == value
    assert before == JOB


def test_null_takes_away():
    assert "suspend" not in set_path(JOB, "spec.suspend", None)["spec"]
    assert main_of(set_path(JOB, "spec.template.spec.containers.main.env.A", None))["env"] == []


@pytest.mark.parametrize("path", ["", ".x", "x..y", "x[", "x.[", "x."])
def test_what_is_no_path(path):
    with pytest.raises(SpecError):
        set_path(JOB, path, 1) if path else read_setting("=1")


@pytest.mark.parametrize("path", ["spec.template.spec.containers.mian.image", "spec.suspend.x", "kind.x"])
def test_what_is_not_there(path):
    with pytest.raises(SpecError, match="--set"):
        set_path(JOB, path, 1)


def test_values_are_yaml():
    said = ["a=1", "a=true", "a='1'", "a=", "a=b=c", "a=[1, 2]"]
    assert [read_setting(one)[1] for one in said] == [1, True, "1", None, "b=c", [1, 2]]
    with pytest.raises(SpecError, match="YAML"):
        read_setting("a={")
    with pytest.raises(SpecError, match="PATH=VALUE"):
        read_setting("alone")


def test_a_patch_is_a_mapping():
    assert read_patch("metadata: {labels: {a: b}}", "p") == {"metadata": {"labels": {"a": "b"}}}
    for text in ("- a", "", "a: {", "text"):
        with pytest.raises(SpecError, match=r"p[: ]"):
            read_patch(text, "p")


def test_steps():
    assert split_path("a.b[0]['c.d'].e") == ["a", "b", "0", "c.d", "e"]
