"""`--set` and `--patch` are a part of what was typed: the object remembers them, and so does the record."""

import json
from typing import Any

import pytest

from cluster.spaces import Space, refused

pytestmark = pytest.mark.cluster


def test_a_rerun_changes_the_object_as_its_parent_did(space: Space) -> None:
    patch = str(space.cli.file("patch.yaml", "spec: {ttlSecondsAfterFinished: 77}"))
    label = "metadata.labels.team=a"
    assert space.cli("submit", "job", "--name", "first", "--patch", patch, "--set", label, "true").exit_code == 0
    for source in ("first", "again"):  # of the object, then of the record
        words = ("rerun", source, "--name", f"{source}x", "--set", "spec.suspend=true", "--dry-run", "-o", "json")
        (thing,) = [one for one in items(space.cli(*words).json) if one["kind"] == "Job"]
        spec = thing["spec"]
        assert (spec["ttlSecondsAfterFinished"], spec["suspend"], thing["metadata"]["labels"]["team"]) == (
            77,
            True,
            "a",
        )
        assert "not in its run file" in space.cli("export", source).stderr
        if source == "first":
            assert space.cli("rerun", "first", "--name", "again").exit_code == 0
            space.cli("delete", "again", "--force")


def items(found: Any) -> list[Any]:
    """The objects that a dry run printed."""
    return found["items"] if found["kind"] == "List" else [found]


def test_what_looks_secret_in_a_change_is_not_remembered(space: Space) -> None:
    change = ("--set", "spec.template.metadata.annotations.api_token=hunter2xyz")
    assert space.cli("submit", "job", "--name", "first", *change, "--", "true").exit_code == 0
    (thing,) = items(json.loads(space.kubectl("get", "job", "first", "-o", "json")))
    assert thing["spec"]["template"]["metadata"]["annotations"]["api_token"] == "hunter2xyz"
    assert "hunter2xyz" not in json.dumps(thing["metadata"])
    assert [path for path in space.cli.state.rglob("*.json") if "hunter2xyz" in path.read_text()] == []
    again = space.cli("rerun", "first", "--name", "again")
    refused(again, 2, "api_token in --set or --patch are not stored")
