"""Many jobs, many records, many lines: all right, none lost, nothing left over."""

import gc
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

import arena
from arena import State, files, logfile
from arena.backends.local import state
from backends.place import HOLD, LocalPlace, py, sh, texts, until
from calm import waited
from local.victims import arenas, folder, nothing_left

MANY = 5_000


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_hundred_jobs_of_two_replicas_at_once_all_end(place: LocalPlace) -> None:
    def submit(number: int) -> arena.client.Handle:
        return place.run(sh(f"echo {number}; exit {number % 3}"), workers=2, name=f"j{number}")

    with ThreadPoolExecutor(8) as pool:
        jobs = list(pool.map(submit, range(200)))
    for number, job in enumerate(jobs):
        seen = job.wait(200)
        assert seen.exit_code == number % 3, seen
        assert seen.reason != "Lost"
        for replica in seen.observed.replicas:
            assert replica.ended_by_us or texts(job.logs(replica=replica.name)) == [str(number)]
    assert len(place.client().list()) == 200
    runs = Path(place.env["ARENA_STATE_DIR"]) / "runs"
    until(lambda: not [one for one in psutil.process_iter() if str(runs) in " ".join(_words(one))])


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


# --- records -------------------------------------------------------------------------------------------------


@pytest.fixture
def recorded(place: LocalPlace) -> Path:
    """A state folder with thousands of runs that ended yesterday."""
    model = place.run(sh("exit 3"), name="model")
    model.wait()
    made = json.loads((folder(model) / "job.json").read_text())
    facts = json.loads((folder(model) / "state.json").read_text())
    model.delete()
    runs = folder(model).parent
    when = datetime.now(UTC) - timedelta(days=1)
    for number in range(MANY):
        path = runs / f"r{number}-abcd"
        path.mkdir(mode=0o700)
        at = (when + timedelta(seconds=number)).isoformat()
        job = {**made["job"], "name": f"r{number}"}
        values = {**made, "runId": path.name, "name": f"r{number}", "created": at, "job": job}
        (path / "job.json").write_text(json.dumps(values))
        (path / "state.json").write_text(json.dumps({**facts, "finished": at}))
        os.utime(path, (when.timestamp(), when.timestamp()))
    return runs


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_list_reads_again_only_what_changed(place: LocalPlace, recorded: Path) -> None:
    names = [f"r{number}" for number in reversed(range(MANY))]
    assert [job.name for job in place.client().list()] == names
    unread = recorded / "r17-abcd"
    times = unread.stat()
    (unread / "job.json").write_text("{")
    (unread / "state.json").write_text("{")
    os.utime(unread, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert [job.name for job in place.client().list()] == names
    run = state.Run(recorded / "r18-abcd")
    run.write("deleted.json", state.Gone(at=files.now()))
    assert [job.name for job in place.client().list()] == [name for name in names if name != "r18"]
    os.utime(unread)
    client = place.client()
    assert [job.name for job in client.list()] == [name for name in names if name not in ("r17", "r18")]
    assert len(client.warnings.lines) == 1
    seen = next(job.seen for job in client.list() if job.name == "r5")
    assert seen
    assert (seen.state, seen.exit_code) == (State.FAILED, 3)


# --- lines ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_sixteen_replicas_of_a_hundred_thousand_lines_are_followed_without_loss(place: LocalPlace) -> None:
    count, workers = 100_000, 16
    job = place.run(py(f"for i in range({count}): print(i)"), workers=workers)
    nexts = dict.fromkeys((f"worker-{index}" for index in range(workers)), 0)
    for line in job.logs(follow=True):
        assert int(line.data) == nexts[line.replica], line
        nexts[line.replica] += 1
    assert set(nexts.values()) == {count}
    assert job.wait().exit_code == 0


def whole(lines: list[str]) -> list[int]:
    """The numbers in the lines that are all there; at a gap one may be cut."""
    return [int(line) for line in lines if len(line) == 100]


@pytest.mark.slow
def test_a_log_without_end_keeps_head_and_tail_and_says_what_is_missing(place: LocalPlace) -> None:
    client = place.client(ARENA_LOG_MAX="24M")
    count = 400_000
    job = client.run(py(f"for i in range({count}): print(f'{{i:0100}}')"))
    followed = [line.text for line in job.logs(follow=True)]
    job.wait(check=True)
    kept = texts(job.logs())
    size = sum(path.stat().st_size for path in folder(job).glob("attempt-1/*.log"))
    assert size < 40 * 2**20
    (gap,) = [number for number, line in enumerate(kept) if line.startswith("[arena:")]
    assert "not kept" in kept[gap]
    numbers = whole(kept[:gap]), whole(kept[gap + 1 :])
    assert numbers[0] == list(range(len(numbers[0])))
    assert numbers[1] == list(range(numbers[1][0], count))
    assert all(numbers)
    gaps = [line for line in followed if line.startswith("[arena:")]
    seen = whole([line for line in followed if line not in gaps])
    assert seen == sorted(set(seen))
    assert len(followed) - len(gaps) - len(seen) <= 2 * len(gaps), "a line is cut at a gap only, on either side of it"
    assert (seen[0], seen[-1]) == (0, count - 1)


def test_a_reader_goes_on_over_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logfile, "SEGMENT", 1000)
    writer, reader = logfile.LogWriter(tmp_path, "w-0", 1 << 30), logfile.LogReader(tmp_path, "w-0")
    got: list[bytes] = []
    for number in range(500):
        writer.feed("stdout", b"%d\n" % number)
        if number % 7 == 0:
            got += [entry.data for entry in reader.read()]
    writer.close()
    while entries := reader.read():
        got += [entry.data for entry in entries]
    assert got == [b"%d" % number for number in range(500)]
    assert len(logfile.segments(tmp_path, "w-0")) > 10


@pytest.mark.parametrize("left", [b"2026-11-30T17:2", b"2026-11-30T17:20:49.123456789Z stdout F half", b"\0\0\0"])
def test_what_a_killed_keeper_left_half_written_is_passed_over(tmp_path: Path, left: bytes) -> None:
    first = logfile.LogWriter(tmp_path, "w-0", 1 << 30)
    first.feed("stdout", b"before\n")
    first.close()
    with open(logfile.segment(tmp_path, "w-0", 0), "ab") as file:
        file.write(left)
    reader = logfile.LogReader(tmp_path, "w-0")
    assert [entry.data for entry in reader.read()] == [b"before"]
    second = logfile.LogWriter(tmp_path, "w-0", 1 << 30)
    second.feed("stdout", b"after\n")
    second.close()
    assert [entry.data for entry in reader.read()] in ([b"after"], [b"half", b"after"])


# --- quick and tidy ------------------------------------------------------------------------------------------


def test_a_change_of_state_reaches_a_wait_in_time(place: LocalPlace) -> None:
    late = []
    for _ in range(5):
        before = waited()
        job = place.run(sh("date +%s.%N; exit 0"))
        job.wait()
        ended = time.time() - (waited() - before)
        (line,) = texts(job.logs())
        late.append(ended - float(line))
    assert sorted(late)[2] < 0.3, late


def test_no_process_of_arena_is_left_when_no_job_runs(place: LocalPlace) -> None:
    job = place.run(sh("(sleep 1000 &) ; exit 0"), workers=2)
    job.wait()
    until(lambda: nothing_left(job))
    place.client().list()
    place.client().history()
    job.get()
    list(job.logs())
    assert not arenas(folder(job))


@pytest.fixture
def own() -> psutil.Process:
    gc.collect()
    return psutil.Process()


def test_a_process_that_submits_much_keeps_no_zombie_thread_or_file(place: LocalPlace, own: psutil.Process) -> None:
    place.run(["true"]).wait()
    before = (threading.active_count(), len(own.children(recursive=True)), own.num_fds())
    jobs = [place.run(sh(HOLD)) for _ in range(20)]
    client = place.client()
    for job in client.list():
        list(job.logs(tail=1))
    place.go()
    for job in jobs:
        job.wait()
    gc.collect()
    assert (threading.active_count(), len(own.children(recursive=True)), own.num_fds()) == before


def test_a_reader_whose_segment_vanishes_in_the_middle_of_an_entry_gives_no_half_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logfile, "SEGMENT", 1000)
    writer, reader = logfile.LogWriter(tmp_path, "w-0", 2000), logfile.LogReader(tmp_path, "w-0")
    for number in range(30):
        writer.feed("stdout", b"%030d\n" % number)
    got = [entry.data for entry in reader.read(limit=100)]
    assert reader.rest, "the reader stands in the middle of an entry"
    for number in range(30, 500):
        writer.feed("stdout", b"%030d\n" % number)
    logfile.segment(tmp_path, "w-0", 0).unlink()
    while entries := reader.read():
        got += [entry.data for entry in entries]
    lines = [line for line in got if not line.startswith(b"[arena:")]
    assert len(lines) < len(got)
    assert all(len(line) == 30 for line in lines)
    assert [int(line) for line in lines] == sorted({int(line) for line in lines})
