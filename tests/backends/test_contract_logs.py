"""What every backend does with a job's output: each line once, in order, however it was written."""

import hashlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

import arena
from arena import State
from arena.backends.base import LogQuery
from arena.client import Handle
from backends.place import CALM, HOLD, LocalPlace, py, sh, texts, until

MB = 2**20


@pytest.fixture(params=["afterwards", "following"])
def follow(request: pytest.FixtureRequest) -> bool:
    """Both ways to read must give the same."""
    return bool(request.param == "following")


def written(place: LocalPlace, data: bytes, follow: bool) -> list[bytes]:
    """The lines of a job that writes these bytes."""
    (place.cwd / "data").write_bytes(data)
    job = place.run(["cat", "data"])
    if not follow:
        job.wait(check=True)
    return [line.data for line in job.logs(follow=follow)]


def test_every_line_comes_once_and_in_order(place: LocalPlace, follow: bool) -> None:
    job = place.run(sh("seq -f $RANK:%g 20000" + CALM), workers=2)
    if not follow:
        job.wait(check=True)
    lines: dict[str, list[str]] = {"worker-0": [], "worker-1": []}
    for line in job.logs(follow=follow):
        lines[line.replica].append(line.text)
    assert lines == {f"worker-{rank}": [f"{rank}:{n}" for n in range(1, 20001)] for rank in (0, 1)}


def test_lines_of_several_replicas_come_by_time(place: LocalPlace) -> None:
    job = place.run(sh("for n in 1 2 3 4 5; do echo $n; sleep 0.01; done"), workers=3)
    job.wait(check=True)
    lines = list(job.logs())
    assert len(lines) == 15
    assert lines == sorted(lines, key=lambda line: line.time)


@pytest.mark.exception("stdout and stderr are two pipes of a container: their order among each other is not kept")
def test_stdout_and_stderr_are_one_stream(place: LocalPlace, follow: bool) -> None:
    job = place.run(sh("for n in 1 2 3 4; do echo out $n; echo err $n >&2; done"))
    if not follow:
        job.wait(check=True)
    assert texts(job.logs(follow=follow)) == [f"{way} {n}" for n in (1, 2, 3, 4) for way in ("out", "err")]


@pytest.mark.parametrize(
    "data",
    [
        b"a\nb\n",
        b"no end",
        b"a\n\n\nb\n\n",
        b"\n",
        b"",
        b"10%\r20%\r100%\ndone\n",
        b'42\ntrue\n{"a":1}\nnull\n',
        b"  blanks \t\n stdout F no head of ours\n2026-01-01T00:00:00.000000000Z stdout P x\n",
        b"\x00\xff\xfe\n\x1b[31mred\x1b[0m\n",
        "é\u2028\u0085\x0b\x0c😀\n".encode(),
    ],
)
def test_lines_are_what_was_written(place: LocalPlace, data: bytes, follow: bool) -> None:
    lines = data.removesuffix(b"\n").split(b"\n") if data else []
    assert written(place, data, follow) == lines


@pytest.mark.exception("a container's runtime takes the \\r before the end of a line")
def test_lines_of_another_system_are_what_was_written(place: LocalPlace, follow: bool) -> None:
    assert written(place, b"dos\r\nline\r\n", follow) == [b"dos\r", b"line\r"]


@pytest.mark.parametrize("size", [16 * 1024 - 1, 16 * 1024, 16 * 1024 + 1, 256 * 1024, MB])
def test_a_long_line_stays_one(place: LocalPlace, size: int, follow: bool) -> None:
    line = b"0123456789abcde\t" * (size // 16) + b"x" * (size % 16)
    assert written(place, b"a\n" + line + b"\nb\n", follow) == [b"a", line, b"b"]


def test_output_that_is_not_text_is_shown_as_text(place: LocalPlace) -> None:
    job = place.run(sh(r"printf 'a\377b\n'"))
    job.wait(check=True)
    assert texts(job.logs()) == ["a\ufffdb"]


READ = r"""
import hashlib, re, sys
import arena
from arena.backends.base import LogQuery
seen, size = hashlib.sha256(), 0
job = arena.Client(backend=sys.argv[2]).get("binary")
for line in job.raw_logs(LogQuery(follow=True, pieces=True)) if sys.argv[1] == "follow" else job.logs():
    assert len(line.data) < 2**24, len(line.data)
    seen.update(line.data)
    size += len(line.data)
    if size == 100 * 2**20:
        break
print(seen.hexdigest(), int(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1]) // 1024)
"""


@pytest.mark.exception("a piece of a line is kept by the container's runtime until it ends")
def test_a_hundred_megabytes_without_a_line_end_take_little_memory(place: LocalPlace) -> None:
    """Some seconds: 100 MB are written once and read twice."""
    block = bytes(n for n in range(256) if n != 10) * 4112 + b"x" * 16
    (place.cwd / "block").write_bytes(block)
    assert len(block) == MB
    job = place.run(sh(f"for n in $(seq 100); do cat block; done; {HOLD}"), name="binary")
    wanted = hashlib.sha256(block * 100).hexdigest()
    for how in ("follow", "read"):
        words = [sys.executable, "-c", READ, how, place.backend]
        read = subprocess.run(words, env=place.env, cwd=place.cwd, capture_output=True, text=True)
        assert read.returncode == 0, read.stderr
        digest, megabytes = read.stdout.split()
        assert digest == wanted
        assert int(megabytes) < 100
    assert place.keeping(job) < 64 * MB
    place.go()
    job.wait(check=True)


def test_following_begins_before_the_job_does(place: LocalPlace) -> None:
    with place.full() as client:
        job = client.run(sh("echo first; echo last"))
        until(lambda: job.get().state is place.full_state)
        followed: list[str] = []
        with ThreadPoolExecutor() as pool:
            following = pool.submit(lambda: followed.extend(texts(job.logs(follow=True))))
            assert not following.done()
            place.make_room()
            following.result(timeout=place.patience)
    assert followed == ["first", "last"]


@pytest.mark.exception("a container does not know its attempt")
def test_following_goes_on_over_a_restart(place: LocalPlace) -> None:
    job = place.run(sh("echo $ARENA_ATTEMPT; printf rest; [ $ARENA_ATTEMPT = 3 ]"), retry=5)
    followed = [(line.attempt, line.text) for line in job.logs(follow=True)]
    assert followed == [(n, text) for n in (1, 2, 3) for text in (str(n), "rest")]
    assert texts(job.logs()) == ["3", "rest"]


def test_a_line_is_there_as_soon_as_it_is_written(place: LocalPlace) -> None:
    job = place.run(sh(f"echo first; {HOLD}; echo last"))
    lines = job.logs(follow=True)
    assert next(lines).text == "first"
    assert job.get().state is State.RUNNING
    place.go()
    assert texts(lines) == ["last"]


BAR = """
import os, time
while not os.path.exists("go"):
    print("=", end="\\r", flush=True)
    time.sleep(0.02)
print()
"""


@pytest.mark.exception("a piece of a line is kept by the container's runtime until it ends")
def test_a_progress_bar_arrives_piece_by_piece(place: LocalPlace) -> None:
    job = place.run(py(BAR))
    pieces = job.raw_logs(LogQuery(follow=True, pieces=True))
    first = [next(pieces) for _ in range(3)]
    assert all(piece.partial and set(piece.text) == {"=", "\r"} for piece in first)
    assert job.get().state is State.RUNNING
    place.go()
    rest = list(pieces)
    (whole,) = job.logs()
    assert b"".join(piece.data for piece in (*first, *rest)) == whole.data
    assert not rest[-1].partial


@pytest.mark.exception("a piece of a line is kept by the container's runtime until it ends")
def test_a_prompt_without_a_line_end_arrives(place: LocalPlace) -> None:
    job = place.run(sh(f"printf 'name? '; {HOLD}; echo bob"))
    pieces = job.raw_logs(LogQuery(follow=True, pieces=True))
    assert next(pieces).text == "name? "
    place.go()
    assert texts(pieces) == ["bob"]
    assert texts(job.logs()) == ["name? bob"]


@pytest.fixture
def ended(place: LocalPlace) -> Handle:
    """A job of three replicas with five lines each."""
    job = place.run(sh("seq -f $RANK:%g 5"), workers=3)
    job.wait(check=True)
    return job


def test_tail_gives_the_last_lines_of_each_replica(ended: Handle, follow: bool) -> None:
    lines = texts(ended.logs(tail=2, follow=follow))
    assert sorted(lines) == ["0:4", "0:5", "1:4", "1:5", "2:4", "2:5"]
    assert texts(ended.logs(tail=0, follow=follow)) == []
    assert len(texts(ended.logs(tail=100, follow=follow))) == 15


@pytest.mark.exception("a piece of a line is kept by the container's runtime until it ends")
def test_tail_goes_on_with_what_comes(place: LocalPlace) -> None:
    job = place.run(sh(f"seq 5; printf ba; {HOLD}; echo r; echo 7"))
    until(lambda: len(list(job.logs())) == 6)
    lines = job.logs(follow=True, tail=1)
    assert next(lines).text == "5"
    place.go()
    assert texts(lines) == ["bar", "7"]


def test_since_gives_what_was_written_after_it(place: LocalPlace) -> None:
    job = place.run(sh(f"echo old; {HOLD}; echo new"))
    until(lambda: texts(job.logs()) == ["old"])
    moment = datetime.now(UTC)
    place.go()
    job.wait(check=True)
    for follow in (False, True):
        assert texts(job.logs(since=moment, follow=follow)) == ["new"]
        assert texts(job.logs(since=moment.astimezone().replace(tzinfo=None), follow=follow)) == ["new"]
        assert texts(job.logs(since=moment, tail=5, follow=follow)) == ["new"]


@pytest.mark.parametrize(
    ("chosen", "replicas"),
    [
        ({"replica": "worker-1"}, {1}),
        ({"replica": ["worker-0", "worker-2"]}, {0, 2}),
        ({"replica": "worker-0,worker-2"}, {0, 2}),
        ({"replica": "last"}, {2}),
        ({"rank": 1}, {1}),
        ({"rank": [0, 2]}, {0, 2}),
        ({"rank": "1-2"}, {1, 2}),
        ({"rank": "last"}, {2}),
        ({"role": "worker"}, {0, 1, 2}),
        ({"role": "Worker", "replica": "worker-1"}, {1}),
        ({"role": "worker", "rank": "0-1"}, {0, 1}),
        ({"replica": "worker-0", "rank": 0}, {0}),
        ({"replica": "worker-0", "rank": 1}, set()),
    ],
)
def test_replicas_are_chosen(ended: Handle, chosen: dict[str, object], replicas: set[int]) -> None:
    for follow in (False, True):
        assert {line.index for line in ended.logs(follow=follow, **chosen)} == replicas  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("chosen", "text"),
    [
        ({"replica": "worker-3"}, "no replica 'worker-3'"),
        ({"rank": 3}, "no rank 3"),
        ({"rank": "0-7"}, "no rank 3"),
        ({"role": "ps"}, "no role 'ps'"),
        ({"role": "worker,ps"}, "no role 'ps'"),
    ],
)
def test_what_cannot_be_chosen_is_said(ended: Handle, chosen: dict[str, object], text: str) -> None:
    with pytest.raises(arena.NotFoundError, match=text):
        ended.logs(**chosen)  # type: ignore[arg-type]


def test_words_that_choose_nothing_are_refused(ended: Handle) -> None:
    with pytest.raises(arena.SpecError, match="rank"):
        ended.logs(rank="first")
    with pytest.raises(arena.SpecError, match="tail"):
        ended.logs(tail=-1)


def test_many_may_read_at_once_and_leave_at_any_time(place: LocalPlace) -> None:
    job = place.run(sh(f"seq 1000; {HOLD}; seq 1001 2000"))
    early = job.logs(follow=True)
    assert next(early).text == "1"
    assert isinstance(early, Iterator)
    del early
    together = threading.Barrier(5)

    def read() -> list[str]:
        together.wait()
        return texts(job.logs(follow=True))

    with ThreadPoolExecutor() as pool:
        readers = [pool.submit(read) for _ in range(4)]
        together.wait()
        place.go()
        assert [reader.result(timeout=place.patience) for reader in readers] == [[str(n) for n in range(1, 2001)]] * 4


def test_lines_know_their_replica_rank_and_time(place: LocalPlace) -> None:
    before = datetime.now(UTC)
    job = place.run(["echo", "hi"], workers=2)
    seen = job.wait(check=True)
    lines = sorted(job.logs(), key=lambda line: line.index)
    assert [(x.replica, x.role, x.index, x.rank, x.attempt, x.partial) for x in lines] == [
        ("worker-0", "worker", 0, 0, 1, False),
        ("worker-1", "worker", 1, 1, 1, False),
    ]
    assert all(
        seen.observed.finished and before <= line.time <= seen.observed.finished + timedelta(seconds=1)
        for line in lines
    )
