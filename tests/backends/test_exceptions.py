"""What holds on one machine only is told by name."""

import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"


def test_every_exception_stands_in_the_page() -> None:
    marks = {
        words for file in HERE.glob("test_*.py") for words in re.findall(r'exception\(\s*"([^"]+)"', file.read_text())
    }
    marks = {words.replace("\\\\", "\\") for words in marks}  # as Python reads them
    page = " ".join(PAGE.read_text().split())
    assert len(marks) > 5
    assert not [words for words in marks if words not in page]
