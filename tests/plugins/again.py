"""What did not hold the first time, where failed tests are run once more (`AGAIN=1`): shown like a failure.

A test that holds on the second try is a fault to be mended all the same, in the test or in the product.
"""

import pytest
from _pytest.terminal import TerminalReporter


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """The reports of first tries, and their names in one line."""
    first = terminalreporter.getreports("rerun")
    if not first:
        return
    terminalreporter.section("did not hold the first time", yellow=True)
    for report in first:
        terminalreporter.section(report.nodeid, sep="_")
        report.toterminal(terminalreporter._tw)
    terminalreporter.write_line("first tries that failed: " + ", ".join(sorted({one.nodeid for one in first})))
