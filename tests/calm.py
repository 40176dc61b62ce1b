"""A clock that goes slowly while this machine has more to do than it has processors.

What is promised to be quick is so on a calm machine; one that is busy with other things says little about it.
"""

import re
import time
from pathlib import Path

PRESSURE = Path("/proc/pressure/cpu")
SHARE = 0.9  # of the time in which something waited for a processor: what hangs is found on a busy machine, too


def calm() -> float:
    """Seconds of a calm machine; plain ones where the kernel does not tell how busy it is."""
    return time.monotonic() - waited()


def waited() -> float:
    """Seconds that the machine was too busy for, so far."""
    try:
        found = re.search(r"^some .*\btotal=(\d+)", PRESSURE.read_text(), re.MULTILINE)
    except OSError:
        return 0.0
    return int(found[1]) / 1e6 * SHARE if found else 0.0
