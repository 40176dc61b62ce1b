"""A job as it goes: its lines on stdout, its states on stderr."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from arena.backends.base import LogLine, LogQuery
from arena.cli.common import say, say_notes
from arena.cli.output import log_prefix
from arena.errors import ArenaError, ForbiddenError
from arena.status import Seen

if TYPE_CHECKING:
    from arena.client import Handle

MANY = 8  # replicas that are all shown
LAST_WORDS = 50  # lines of the failing replica when not all are shown
SILENCE = 60.0  # seconds without a word on stderr


class Printer:
    """Writes lines to stdout: raw bytes, a prefix where more than one replica is shown, or JSON."""

    def __init__(
        self, names: Iterable[str], *, prefix: bool | None = None, as_json: bool = False, timestamps: bool = False
    ) -> None:
        names = list(names)
        self.heads = {name: head.encode() for name, head in log_prefix(names).items()}
        self.prefix = len(names) > 1 if prefix is None else prefix
        self.as_json = as_json
        self.timestamps = timestamps
        self.wrote = False
        self.out = sys.stdout.buffer

    @property
    def pieces(self) -> bool:
        """Whether lines can be shown before they end."""
        return not (self.prefix or self.as_json or self.timestamps)

    def lines(self, lines: Iterable[LogLine]) -> None:
        """Write them as they come."""
        last = 0.0
        for line in lines:
            self.wrote = True
            self.out.write(self._shown(line))
            now = time.monotonic()
            if now - last > 0.05 or line.partial:
                self.out.flush()
                last = now
        self.out.flush()

    def _shown(self, line: LogLine) -> bytes:
        if self.as_json:
            return json.dumps(line_json(line)).encode() + b"\n"
        head = self.heads[line.replica] if self.prefix else b""
        if self.timestamps:
            head += stamp(line).encode() + b" "
        return head + line.data + (b"" if line.partial and self.pieces else b"\n")


def stamp(line: LogLine) -> str:
    """When the line was written, in UTC."""
    return line.time.isoformat().replace("+00:00", "Z")


def grep(lines: Iterable[LogLine], pattern: str) -> Iterator[LogLine]:
    """Only lines in which the regular expression is found."""
    import re

    from arena.errors import SpecError

    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise SpecError(f"--grep: {pattern!r} is no regular expression: {error}") from error
    return (line for line in lines if wanted.search(line.text))


def line_json(line: LogLine) -> dict[str, object]:
    """One line as data."""
    return {
        "time": stamp(line),
        "replica": line.replica,
        "role": line.role,
        "index": line.index,
        "rank": line.rank,
        "attempt": line.attempt,
        "text": line.text,
    }


def few(seen: Seen) -> frozenset[str] | None:
    """The replicas shown when nobody chose: all of a small gang (None), else the first and the one that failed."""
    replicas = seen.observed.replicas
    if len(replicas) <= MANY:
        return None
    failure = seen.first_failure
    return frozenset({replicas[0].name} | ({failure.name} if failure else set()))


def follow(
    job: Handle,
    *,
    show_all: bool,
    prefix: bool | None = None,
    timeout: float | None = None,
    start_timeout: float | None = None,
) -> Seen:
    """Print the lines of a job until it has ended; the job at its end, with why."""
    from arena import showing

    seen = job.get()
    names = [replica.name for replica in seen.observed.replicas]
    first = None if show_all or len(names) <= MANY else frozenset(names[:1])
    printer = Printer(names, prefix=prefix)
    with narrated(job), limited(job, timeout, start_timeout):
        try:
            printer.lines(job.raw_logs(LogQuery(follow=True, replicas=first, pieces=printer.pieces, keep=True)))
        except ForbiddenError as error:
            say(f"{job.name}: its logs are not shown: {error.what}")
        seen = job.wait()
    say_notes(job)
    if first is not None:
        last_words(job, seen, printer, first)
    return showing.with_why(job, seen)


@contextmanager
def limited(job: Handle, timeout: float | None, start_timeout: float | None) -> Iterator[None]:
    """The block is left with WaitTimeoutError or NotStartedError when its time is over."""
    begun = time.monotonic()

    def ring(*_: object) -> None:
        seen = job.get()
        if not seen.state.final:
            job.check_time(seen, time.monotonic() - begun, timeout, start_timeout)
            arm()

    def arm() -> None:
        passed = time.monotonic() - begun
        left = [limit - passed for limit in (timeout, start_timeout) if limit is not None and limit > passed]
        signal.setitimer(signal.ITIMER_REAL, min(left, default=0.0))

    if timeout is None and start_timeout is None:
        yield
        return
    before = signal.signal(signal.SIGALRM, ring)
    try:
        ring()
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def last_words(job: Handle, seen: Seen, printer: Printer, shown: frozenset[str]) -> None:
    """The end of the replica that failed, where its lines were not shown, and how to see the others."""
    failure = seen.first_failure
    if failure and failure.name not in shown:
        query = LogQuery(tail=LAST_WORDS, replicas=frozenset({failure.name}), attempt=failure.attempt)
        printer.lines(job.raw_logs(query))
    say(f"{len(seen.observed.replicas) - 1} more: arena logs {job.name} --all")


@contextmanager
def narrated(job: Handle) -> Iterator[None]:
    """Say each change of state meanwhile, and once a minute that it still waits."""
    over = threading.Event()
    thread = threading.Thread(target=_narrate, args=(job, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()


def _narrate(job: Handle, over: threading.Event) -> None:
    with suppress(ArenaError):  # whoever waits for the job gets it too
        for line in narration(job, over):
            if over.is_set():
                return
            say(line)


def narration(job: Handle, over: threading.Event | None = None) -> Iterator[str]:
    """A line per state, and one a minute while a state lasts."""
    last, told, said = "", "", 0.0
    for seen in watched(job, SILENCE):
        if (over is not None and over.is_set()) or seen.state.final:
            return
        mark, now = f"{seen.state} {seen.reason}", time.monotonic()
        if mark == last and now - said < SILENCE:
            continue
        line = told_line(job, seen)
        if line != told:
            yield line
        elif now - said >= SILENCE:
            yield f"{line} ({minutes(seen)} min)"
        else:
            continue  # another word for the same, as ErrImagePull and ImagePullBackOff
        last, told, said = mark, line, now


def minutes(seen: Seen) -> int:
    """For how many minutes the job has been in its state."""
    since = seen.status.since or seen.observed.created
    return int((datetime.now(UTC) - since).total_seconds() // 60)


def watched(job: Handle, seconds: float) -> Iterator[Seen]:
    """The job at each change, and each time so many seconds were quiet."""
    due = [time.monotonic() + (seconds + 0.05) * count for count in range(1, 10_000)]
    yield from job.where.watch(job.ref, due)


def told_line(job: Handle, seen: Seen) -> str:
    """The line of a state with why a job waits, where somebody can be asked."""
    from arena import showing
    from arena.cli.output import cell

    try:
        return cell(state_line(showing.with_why(job, seen)))
    except ArenaError:  # a line beside the job's own is never why a command fails
        return cell(state_line(seen))


def state_line(seen: Seen) -> str:
    """`mnist: QUEUED, waits for bert-x2p1`."""
    more = seen.why or seen.status.message or seen.reason
    return f"{seen.name}: {seen.state.name}" + (f", {more}" if more else "")
