"""Each line once and in order, wherever the connection is cut: the rules alone, against a node that is played."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.backends.kubernetes.cutting import ENTRY, LONGEST, Cutter
from arena.backends.kubernetes.starts import Start

START = Start("worker-3", "worker", 3, 3, 2, "mnist-3-x", "uid", "main", 1)
BEGIN = datetime(2026, 11, 30, 17, 20, 49, tzinfo=UTC)


class Node:
    """A log as a node keeps it: entries with a time each, of which long lines have several."""

    def __init__(self, lines: list[tuple[int, bytes]], zone: str = "Z") -> None:
        self.zone = zone
        self.entries = [entry for millis, line in lines for entry in self._entries(millis, line)]

    def _entries(self, millis: int, line: bytes) -> list[tuple[datetime, bytes]]:
        pieces = [line[at : at + ENTRY] for at in range(0, len(line), ENTRY)] or [b""]
        times = [BEGIN + timedelta(milliseconds=millis + 10 * number) for number in range(len(pieces))]
        return list(zip(times, [*pieces[:-1], pieces[-1] + b"\n"], strict=True))

    def answer(self, since: str) -> bytes:
        """What the API gives from a time on: the time of an entry only where a line begins."""
        begin = datetime.fromisoformat(since) if since else BEGIN
        text, fresh = b"", True
        for time, data in self.entries:
            if time < begin:
                continue
            text += (self._stamp(time) + b" " if fresh else b"") + data
            fresh = data.endswith(b"\n")
        return text

    def _stamp(self, time: datetime) -> bytes:
        if self.zone == "+08:00":
            time += timedelta(hours=8)
        return (time.strftime("%Y-%m-%dT%H:%M:%S.%f") + "000" + self.zone).encode()


def read(node: Node, cuts: list[int], *, pieces: bool = False, chunk: int = 7) -> list[bytes]:
    """The lines, over as many connections as there are cuts: each ends after so many bytes."""
    cutter, parts, found = Cutter(START, pieces=pieces), b"", []
    for cut in [*cuts, None]:
        answer = node.answer(cutter.position.since)[:cut]
        cutter.begin()
        for at in range(0, len(answer), chunk):
            for line in cutter.feed(answer[at : at + chunk]):
                parts += line.data
                if not line.partial:
                    found.append(parts)
                    parts = b""
    assert not parts
    assert not cutter.trouble
    return found


LINE = st.binary(max_size=30).filter(lambda data: b"\n" not in data)
LOG = st.lists(st.tuples(st.integers(0, 700), LINE), max_size=30)


@settings(deadline=None)
@given(LOG, st.lists(st.integers(0, 400), max_size=6), st.booleans(), st.sampled_from(["Z", "+08:00"]))
def test_each_line_once_wherever_it_is_cut(
    log: list[tuple[int, bytes]], cuts: list[int], pieces: bool, zone: str
) -> None:
    moment, lines = 0, []
    for step, data in log:
        moment += step
        lines.append((moment, data))
    assert read(Node(lines, zone), cuts, pieces=pieces) == [data for _, data in lines]


def test_lines_of_one_moment_are_told_apart_by_their_number() -> None:
    lines = [(0, b"same")] * 5 + [(1, b"other")]
    whole = Node(lines).answer("")
    for cut in range(len(whole)):
        assert read(Node(lines), [cut]) == [data for _, data in lines]


def test_two_streams_that_are_written_out_of_order_lose_nothing() -> None:
    lines = [(5, b"out"), (4, b"err"), (6, b"out"), (3, b"err")]
    for cut in range(len(Node(lines).answer(""))):
        assert read(Node(lines), [cut, cut]) == [data for _, data in lines]


@pytest.mark.parametrize("after", [0, 10, 30, 2000])
def test_a_long_line_that_reaches_into_the_next_second_does_not_come_again(after: int) -> None:
    long = b"x" * (5 * ENTRY)  # 50 ms
    lines = [(980, long), (1030 + after, b"next"), (1031 + after, b"last"), (4000 + after, b"later")]
    wanted = [data for _, data in lines]
    whole = Node(lines).answer("")
    for cut in (100, len(long) + 20, len(long) + 40, *range(len(whole) - 150, len(whole), 5)):
        assert read(Node(lines), [cut], chunk=4096) == wanted
        assert read(Node(lines), [cut, 50], chunk=4096) == wanted
        assert read(Node(lines), [cut], chunk=4096, pieces=True) == wanted


def test_a_line_without_an_end_is_given_out_in_pieces() -> None:
    cutter = Cutter(START)
    cutter.begin()
    head = b"2026-11-30T17:20:49.000000000Z "
    given = [
        line for _ in range(3) for line in cutter.feed((head if not cutter.position.newest else b"") + b"x" * LONGEST)
    ]
    assert all(line.partial for line in given)


def test_the_words_of_a_node_are_no_line() -> None:
    cutter = Cutter(START)
    cutter.begin()
    lines = cutter.feed(
        b"2026-11-30T17:20:49.000000000Z fine\nfailed to create fsnotify watcher: too many open files\n"
    )
    assert [line.text for line in lines] == ["fine"]
    assert "fsnotify" in cutter.trouble


def test_a_new_file_of_the_node_is_noticed() -> None:
    cutter = Cutter(START)
    cutter.begin()
    cutter.feed(Node([(0, b"one"), (1, b"two")]).answer(""))
    cutter.begin()
    assert [line.text for line in cutter.feed(Node([(500, b"nine")]).answer(""))] == ["nine"]
    assert cutter.gap


def test_lines_know_where_they_come_from() -> None:
    cutter = Cutter(START)
    cutter.begin()
    (line,) = cutter.feed(b"2026-11-30T18:20:49.123456789+01:00 hi\n")
    assert (line.replica, line.role, line.index, line.rank, line.attempt) == ("worker-3", "worker", 3, 3, 2)
    assert line.time == datetime(2026, 11, 30, 17, 20, 49, 123456, tzinfo=UTC)
