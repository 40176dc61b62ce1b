"""What was left out of a test run, and CI's rule that nothing may be.

Loaded by `tests/conftest.py` (`pytest_plugins = ["plugins.strict"]`). It does three things:

* tests marked `frameworks` are skipped while `.frameworks` is missing, tests marked `root` while we are not root;
* the summary names what was skipped, and the command that adds it;
* with `ARENA_REQUIRE_ALL=1` (CI) a skip is a failure. Only a test for another system may be skipped there: its reason
  begins with `other system:`.
"""

import os
from collections import Counter
from collections.abc import Generator
from typing import Any, TypeVar

import pytest

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)

REQUIRED = bool(os.environ.get("ARENA_REQUIRE_ALL"))  # read once: tests run without any variable of arena's
OTHER_SYSTEM = "other system:"
FRAMEWORKS = "the big frameworks are not installed; add them: make frameworks"
ROOT = "these need root; add them: sudo make test"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what this machine cannot run, with the command that changes it as the reason."""
    has_frameworks = (config.rootpath / ".frameworks" / ".installed").exists()
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    for item in items:
        if not has_frameworks and item.get_closest_marker("frameworks"):
            item.add_marker(pytest.mark.skip(reason=FRAMEWORKS))
        if not is_root and item.get_closest_marker("root"):
            item.add_marker(pytest.mark.skip(reason=ROOT))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """A skipped test fails where everything is required."""
    return _fail_if_skipped((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """A module that skips itself while it is read fails there too."""
    return _fail_if_skipped((yield))


def _fail_if_skipped(report: Report) -> Report:
    reason = _reason(report)
    if REQUIRED and reason is not None and not reason.startswith(OTHER_SYSTEM):
        report.outcome = "failed"
        report.longrepr = f"skipped, but ARENA_REQUIRE_ALL is set: {reason}"
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Name what was left out, most of it first."""
    reasons = Counter(filter(None, map(_reason, terminalreporter.stats.get("skipped", []))))
    marks = config.option.markexpr
    if not reasons and not marks:
        return
    terminalreporter.section("left out")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count:4}  {reason}")
    if marks:
        terminalreporter.write_line(f"   *  all but -m {marks!r}; add them: make test")


def _reason(report: Any) -> str | None:
    """Why a test was skipped, or None if it was not (an expected failure counts as run)."""
    if not report.skipped or hasattr(report, "wasxfail"):
        return None
    longrepr = report.longrepr
    text = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
    return text.removeprefix("Skipped: ")
