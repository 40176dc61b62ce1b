"""The limits of the history, and the code of a run packed beside its start."""

import json
import os
import time
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

import arena
from arena import files
from arena.backends.local import keeping, state
from arena.client import Handle
from backends.place import HOLD, LocalPlace, sh, texts, until
from calm import calm
from local.victims import folder, keepers, supervisor

DAY = 86400.0


def ended_before(job: Handle, seconds: float) -> None:
    """Make it a job that ended so long ago."""
    run = state.Run(folder(job))
    facts = run.facts()
    assert facts.finished
    old = msgspec.structs.replace(facts, finished=facts.finished - timedelta(seconds=seconds))
    run.write("state.json", old)


def done(place: LocalPlace, name: str, script: str = "echo a", age: float = 0.0) -> Handle:
    job = place.run(sh(script), name=name)
    job.wait()
    until(lambda: supervisor(folder(job)) is None)
    if age:
        ended_before(job, age)
    return job


def look_again(place: LocalPlace) -> Path:
    """Let the next command look after the history, whenever the last one did."""
    stamp = Path(place.env["ARENA_STATE_DIR"]) / keeping.STAMP
    if stamp.exists():
        os.utime(stamp, (0, 0))
    return stamp


def history(place: LocalPlace, **env: str) -> set[str]:
    """The names that are remembered after the next command."""
    look_again(place)
    place.client(**env).list()
    return {seen.name for seen in place.client().history()}


def test_records_older_than_the_limit_go_with_their_name(place: LocalPlace) -> None:
    for name, days in (("old", 91), ("young", 89), ("deleted", 91)):
        done(place, name, age=days * DAY)
    place.client().get("deleted", gone=True).where.delete(place.client().get("deleted", gone=True).ref)
    assert history(place) == {"young"}
    assert place.run(["true"], name="old").wait().exit_code == 0
    assert not list((Path(place.env["ARENA_STATE_DIR"]) / "new").iterdir())


def test_the_age_is_a_setting(place: LocalPlace) -> None:
    done(place, "x", age=2 * DAY)
    assert history(place) == {"x"}
    assert history(place, ARENA_HISTORY_MAX_AGE="1d") == set()


def test_a_run_that_has_not_ended_is_never_touched(place: LocalPlace) -> None:
    job = place.run(sh("echo line; " + HOLD), name="x")
    until(lambda: texts(job.logs()))
    assert history(place, ARENA_HISTORY_MAX_AGE="0s", ARENA_HISTORY_MAX_SIZE="1") == {"x"}
    assert texts(job.logs()) == ["line"]
    place.go()
    job.wait()


def test_beyond_the_size_the_oldest_logs_go_and_say_so(place: LocalPlace) -> None:
    write = "head -c 300000 /dev/zero | tr '\\0' 'x' | fold -w 99"
    jobs = [done(place, f"j{n}", write, age=DAY * (5 - n)) for n in range(4)]
    size = sum(p.stat().st_size for p in Path(place.env["ARENA_STATE_DIR"]).rglob("*") if p.is_file())
    assert history(place, ARENA_HISTORY_MAX_SIZE=str(size - 600_000)) == {"j0", "j1", "j2", "j3"}
    for job in jobs[:2]:
        (line,) = texts(job.logs())
        assert "removed" in line
        assert job.get().exit_code == 0
    assert all(len(texts(job.logs())) > 3000 for job in jobs[2:])


def test_a_deleted_mark_stays_as_long_as_its_record(place: LocalPlace) -> None:
    job = done(place, "x")
    job.delete()
    history(place, ARENA_HISTORY_MAX_SIZE="1")
    with pytest.raises(arena.NotFoundError, match="any more"):
        place.client().get("x")
    assert place.client().get("x", gone=True).get().deleted


def test_it_is_looked_after_once_an_hour(place: LocalPlace) -> None:
    done(place, "x", age=91 * DAY)
    stamp = look_again(place)
    now = time.time()
    os.utime(stamp, (now - 3500, now - 3500))
    place.client().list()
    assert {seen.name for seen in place.client().history()} == {"x"}
    os.utime(stamp, (now - 3700, now - 3700))
    place.client().list()
    assert place.client().history() == []
    assert time.time() - stamp.stat().st_mtime < 60


def test_nothing_is_looked_after_twice_at_once(place: LocalPlace) -> None:
    done(place, "x", age=91 * DAY)
    lock = files.try_lock(look_again(place))
    assert lock is not None
    place.client().list()
    assert {seen.name for seen in place.client().history()} == {"x"}
    os.close(lock)
    assert history(place) == set()


# --- code ----------------------------------------------------------------------------------------------------


def code_of(job: Handle) -> dict[str, object]:
    """The record of the job's code, once it is there."""
    path = folder(job) / "code.json"
    until(path.exists)
    found: dict[str, object] = json.loads(path.read_bytes())
    return found


def blobs(place: LocalPlace) -> set[str]:
    return {path.parent.name + path.name for path in Path(place.env["ARENA_STATE_DIR"]).glob("blobs/??/*")}


def test_code_is_kept_once_whatever_the_run(place: LocalPlace) -> None:
    (place.cwd / "train.py").write_text("print('a')\n")
    first, second = (place.run(["python3", "train.py"]) for _ in range(2))
    records = [code_of(job) for job in (first, second)]
    assert records[0] == records[1]
    assert records[0]["stored"] is True
    assert len(blobs(place)) == 1
    (place.cwd / "train.py").write_text("print('b')\n")
    third = place.run(["python3", "train.py"])
    assert code_of(third)["hash"] != records[0]["hash"]
    assert len(blobs(place)) == 2
    for job in (first, second, third):
        job.wait()


def test_code_goes_with_the_last_record_that_names_it(place: LocalPlace) -> None:
    (place.cwd / "shared.py").write_text("shared")
    for number in (1, 2):
        (place.cwd / "own.py").write_text(f"own {number}")
        code_of(done(place, f"j{number}", age=DAY * (4 - 2 * number)))
    assert len(blobs(place)) == 3
    for path in Path(place.env["ARENA_STATE_DIR"]).glob("blobs/??/*"):
        os.utime(path, (0, 0))
    assert history(place, ARENA_HISTORY_MAX_AGE="1d") == {"j2"}
    assert len(blobs(place)) == 2


def test_nothing_of_the_code_goes_while_a_record_of_it_cannot_be_read(place: LocalPlace) -> None:
    (place.cwd / "a.py").write_text("a")
    job = done(place, "x")
    code_of(job)
    (folder(job) / "code.json").write_text("{")
    for path in Path(place.env["ARENA_STATE_DIR"]).glob("blobs/??/*"):
        os.utime(path, (0, 0))
    history(place)
    assert len(blobs(place)) == 1


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_folder_of_a_hundred_thousand_files_delays_nothing(place: LocalPlace) -> None:
    for number in range(100):
        inner = place.cwd / f"d{number}"
        inner.mkdir()
        for one in range(1000):
            (inner / f"f{one}").touch()
    quick = []
    for _ in range(3):
        began = calm()
        job = place.run(sh("echo first; " + HOLD))
        next(iter(job.logs(follow=True)))
        quick.append(calm() - began)
        job.stop()
    assert min(quick) < 1.0
    record = code_of(job)
    assert record["stored"] is False
    assert "files" in str(record["reason"])


def test_what_packs_holds_nothing_of_its_job(place: LocalPlace, tmp_path: Path) -> None:
    """A folder that does not stop to be read: the job ends, its GPU and its turn are free, only the packer stays."""
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text(f"#!/bin/sh\nuntil [ -e {tmp_path}/read ]; do sleep 0.05; done\n")
    slow.chmod(0o755)
    (place.cwd / ".git").mkdir()
    path = f"{slow.parent}:{place.env['PATH']}"
    client = place.client(PATH=path, ARENA_LOCAL_GPUS="1", ARENA_LEASE_DIR=str(tmp_path / "leases"))
    for _ in range(2):
        assert client.run(["true"], gpus=1).wait().exit_code == 0
    jobs = [folder(job) for job in client.list()]
    assert [keepers(job) for job in jobs] == [{}, {}]
    assert not any((job / "code.json").exists() for job in jobs)
    (tmp_path / "read").touch()
    until(lambda: all((job / "code.json").exists() for job in jobs))
