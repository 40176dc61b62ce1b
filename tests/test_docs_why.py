"""docs/why.md and the code name the same causes and the same reasons."""

from __future__ import annotations

import re
from pathlib import Path

from arena.why import CAUSES

DOC = Path(__file__).parents[1] / "docs" / "why.md"


def rows() -> dict[str, list[str]]:
    found = [line.strip("|").split("|") for line in DOC.read_text(encoding="utf-8").splitlines() if line[:3] == "| `"]
    return {cells[0].strip(" `"): cells[1:] for cells in found}


def test_the_list_is_the_code_s() -> None:
    assert {cause: tuple(re.findall(r"`(\w+)`", cells[0])) for cause, cells in rows().items()} == dict(CAUSES)


def test_each_cause_says_what_happened_and_what_to_do() -> None:
    assert all(len(cells) == 3 and all(cell.strip() for cell in cells) for cells in rows().values())
