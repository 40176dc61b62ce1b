"""CPU and wall time of commands, as medians of rounds that take turns."""

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple


class Figure(NamedTuple):
    """A line of the table. `limit` bounds the value, `most` its ratio to the peer's; higher is better where `rate`."""

    what: str
    value: float
    unit: str
    peer: str = ""
    peer_value: float | None = None
    limit: float | None = None
    most: float | None = None
    rate: bool = False

    @property
    def ratio(self) -> float | None:
        return self.value / self.peer_value if self.peer_value else None

    @property
    def kept(self) -> bool:
        """Whether it is within its budget."""
        within = self.limit is None or (self.value >= self.limit if self.rate else self.value <= self.limit)
        return within and (self.most is None or self.ratio is None or self.ratio <= self.most)


def cpu(words: Sequence[str], env: Mapping[str, str]) -> float:
    """Milliseconds of CPU that a command and its children take."""
    with open(os.devnull, "r+b") as null:
        process = subprocess.Popen(words, env=dict(env), stdin=null, stdout=null, stderr=null)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} ended with code {process.returncode}")
    return (usage.ru_utime + usage.ru_stime) * 1000


def in_turns(rounds: int, **measures: Callable[[], float]) -> dict[str, float]:
    """The median of each, one round after the other, so that a busy moment meets them all."""
    found: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            found[name].append(measure())
    return {name: statistics.median(values) for name, values in found.items()}


def first_line(words: Sequence[str], env: Mapping[str, str]) -> float:
    """Milliseconds until a command has written its first line."""
    began = time.monotonic()
    process = subprocess.Popen(words, env=dict(env), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout
    process.stdout.readline()
    took = (time.monotonic() - began) * 1000
    process.stdout.read()
    process.wait()
    return took
