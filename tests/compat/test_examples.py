"""Every documented command line of Arena (Go) for these types: taken, and the objects that come of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from compat.place import Place

FOLDER = Path(__file__).parent
EXAMPLES: list[dict[str, Any]] = yaml.safe_load((FOLDER / "examples.yaml").read_text())
# Lines that cannot be taken, with what is said instead.
REFUSED: dict[str, dict[str, Any]] = yaml.safe_load((FOLDER / "examples_refused.yaml").read_text())
KINDS = {"tf": "TFJob", "tfjob": "TFJob", "pytorch": "PyTorchJob", "pytorchjob": "PyTorchJob"}
KINDS |= {"mpi": "MPIJob", "mpijob": "MPIJob"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("compat"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: one["id"])
def test_a_documented_line_is_taken(example: dict[str, Any], place: Place) -> None:
    config = place.folder / "test-config.json"
    config.write_text("{}")
    found = place(*(word.replace("/tmp/test-config.json", str(config)) for word in example["argv"]))
    if refusal := REFUSED.get(example["id"]):
        assert (found.code, refusal["says"] in found.stderr) == (refusal["exit"], True), found.stderr
        return
    assert found.code == 0, found.stderr
    own = [name for name in found.names if not name.startswith(("ConfigMap/", "Secret/"))]
    assert sorted(own) == sorted(example.get("objects") or expected(example["argv"]))


def expected(argv: list[str]) -> list[str]:
    """The objects of a line that Arena (Go) refuses, as it makes them of such that it takes."""
    name = next(word[7:] for word in argv if word.startswith("--name="))
    pair = [f"{kind}/{name}-tensorboard" for kind in ("Service", "Deployment") if "--tensorboard" in argv]
    return [*pair, f"{KINDS[argv[argv.index('submit') + 1]]}/{name}"]


def test_each_refusal_is_for_a_line_and_has_a_reason() -> None:
    assert {*REFUSED} <= {one["id"] for one in EXAMPLES}
    assert all(refusal["because"] for refusal in REFUSED.values())
