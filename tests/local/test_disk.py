"""Full disks, read-only ones, no home, and state that is damaged or another version's."""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import arena
from arena import State
from arena.backends.local import state
from backends.place import HOLD, LocalPlace, py, sh, texts, until
from local.victims import folder, kill_all

CLIENT = "import arena, os\nclient = arena.Client(backend='local')\n"


@pytest.fixture
def small_disk(tmp_path: Path, place: LocalPlace) -> Iterator[Path]:
    """A state folder of 1 MB."""
    path = tmp_path / "small"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder nobody can write to, root neither."""
    path = tmp_path / "fixed"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(path: Path) -> None:
    """Take the last byte of a disk."""
    with open(path / "filler", "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass


# --- full ----------------------------------------------------------------------------------------------------


@pytest.mark.root
@pytest.mark.parametrize("workers", [1, 2])
def test_a_log_that_fills_the_disk_changes_no_code(place: LocalPlace, small_disk: Path, workers: int) -> None:
    client = place.client(ARENA_STATE_DIR=str(small_disk))
    write = "import sys\nfor i in range(50_000): print('x' * 99)\nsys.exit(7)"
    job = client.run(py(write), workers=workers)
    seen = job.wait(50)
    assert (seen.state, seen.exit_code, seen.reason) == (State.FAILED, 7, "Error")
    for rank in range(workers):
        if seen.observed.replicas[rank].exit_code == 7:
            lines = texts(job.logs(rank=rank))
            assert "bytes of this log could not be written]" in lines[-1]
            assert set(lines[:-1]) == {"x" * 99}
    assert [one.get().exit_code for one in client.list()] == [7]


@pytest.mark.root
def test_a_job_on_a_disk_that_becomes_full_ends_as_it_ends(place: LocalPlace, small_disk: Path) -> None:
    client = place.client(ARENA_STATE_DIR=str(small_disk))
    job = client.run(sh(HOLD + "; echo never; exit 9"))
    until(lambda: job.get().observed.replicas[0].pids)
    fill(small_disk)
    place.go()
    assert job.wait(50).exit_code == 9


@pytest.mark.root
def test_a_submit_onto_a_full_disk_is_refused_in_one_line_and_leaves_nothing(
    place: LocalPlace, small_disk: Path
) -> None:
    client = place.client(ARENA_STATE_DIR=str(small_disk))
    client.run(["true"]).wait()
    fill(small_disk)
    before = sorted(str(path) for path in small_disk.rglob("*") if path.parent.name in ("runs", "new", "names"))
    with pytest.raises(arena.BackendError) as caught:
        client.run(["true"], name="late")
    assert len(caught.value.what.splitlines()) == 1
    assert "No space left" in caught.value.what
    after = sorted(str(path) for path in small_disk.rglob("*") if path.parent.name in ("runs", "new", "names"))
    assert after == before
    (small_disk / "filler").unlink()
    assert client.run(["true"], name="late").wait().exit_code == 0


@pytest.mark.root
def test_a_first_submit_onto_a_full_disk_is_refused(place: LocalPlace, small_disk: Path) -> None:
    fill(small_disk)
    with pytest.raises(arena.BackendError, match="No space left"):
        place.client(ARENA_STATE_DIR=str(small_disk / "state")).run(["true"])


# --- no home -------------------------------------------------------------------------------------------------


def without_home(place: LocalPlace, tmp_path: Path, **env: str) -> dict[str, str]:
    """The environment of somebody whose state goes to TMPDIR."""
    spare = tmp_path / "spare"
    spare.mkdir(exist_ok=True)
    spare.chmod(0o1777)
    dropped = ("ARENA_STATE_DIR", "HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")
    kept = {key: value for key, value in place.env.items() if key not in dropped}
    return {**kept, "TMPDIR": str(spare), **env}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.root
def test_where_the_home_is_read_only_the_state_is_private_in_tmpdir(
    place: LocalPlace, tmp_path: Path, read_only: Path
) -> None:
    env = without_home(place, tmp_path, HOME=str(read_only))
    client = arena.Client(backend="local", env=env, cwd=place.cwd)
    (notice,) = client.notices("local")
    spare = tmp_path / "spare" / f"arena-{os.getuid()}"
    assert str(spare) in notice
    assert client.run(["true"]).wait().exit_code == 0
    assert mode(spare) == 0o700
    later = arena.Client(backend="local", env=env, cwd=place.cwd)
    assert later.notices("local") == []
    assert len(later.list()) == 1


def test_a_spare_folder_that_others_made_is_refused(place: LocalPlace, tmp_path: Path) -> None:
    env = without_home(place, tmp_path)
    spare = tmp_path / "spare" / f"arena-{os.getuid()}"
    spare.mkdir(mode=0o777)
    spare.chmod(0o777)
    with pytest.raises(arena.BackendError, match="private"):
        arena.Client(backend="local", env=env, cwd=place.cwd).list()


@pytest.mark.root
def test_no_home_and_a_uid_without_a_name(place: LocalPlace, tmp_path: Path) -> None:
    env = without_home(place, tmp_path)
    code = (
        "job = client.run(['sh', '-c', 'id -u; exit 3'])\n"
        "seen = job.wait(50)\n"
        "print(seen.exit_code, seen.user, [line.text for line in job.logs()], len(client.list()))\n"
    )
    source = str(Path(arena.__file__).parents[1])
    # The one capability lets that uid read this Python, wherever root keeps it.
    caps = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]
    words = ["setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups", *caps, "--"]
    done = subprocess.run(
        [*words, sys.executable, "-c", CLIENT + code],
        env={**env, "PYTHONPATH": source},
        cwd=place.cwd,
        capture_output=True,
        text=True,
        timeout=55,
    )
    assert (done.stdout, done.stderr) == ("3 uid-54321 ['54321'] 1\n", "")
    assert mode(tmp_path / "spare" / "arena-54321") == 0o700


# --- who may read it -----------------------------------------------------------------------------------------


def test_all_of_the_state_is_private(place: LocalPlace) -> None:
    old = os.umask(0)
    try:
        place.run(sh("echo a; exit 1"), workers=2, retry=1).wait()
        place.client().list()
        place.run(["true"], name="x").delete()
    finally:
        os.umask(old)
    for path in Path(place.env["ARENA_STATE_DIR"]).rglob("*"):
        if not path.is_symlink():
            assert mode(path) == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.root
def test_a_reader_of_a_read_only_state_folder(place: LocalPlace, tmp_path: Path) -> None:
    done = place.run(sh("echo a; exit 3"), name="done")
    done.wait()
    place.client().list()
    lost = place.run(sh(HOLD), name="lost")
    until(lambda: lost.get().observed.replicas[0].pids)
    kill_all(lost)
    there = tmp_path / "there"
    there.mkdir()
    subprocess.run(["mount", "--bind", place.env["ARENA_STATE_DIR"], str(there)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(there)], check=True)
        client = place.client(ARENA_STATE_DIR=str(there))
        assert {job.name: job.get().state for job in client.list()} == {"done": State.FAILED, "lost": State.RUNNING}
        assert texts(client.logs("done")) == ["a"]
        assert client.wait("done").exit_code == 3
        for act in (client.get("lost").stop, client.get("done").delete, lambda: client.run(["true"])):
            with pytest.raises(arena.BackendError, match="Read-only") as caught:
                act()
            assert len(caught.value.what.splitlines()) == 1
    finally:
        subprocess.run(["umount", "-l", str(there)], check=True)
    assert lost.wait(40).reason == "Lost"


# --- other versions, damage ----------------------------------------------------------------------------------


def test_state_of_another_version_is_refused_in_one_line(place: LocalPlace) -> None:
    place.run(["true"], name="x").wait()
    version = Path(place.env["ARENA_STATE_DIR"]) / "version"
    version.write_text("999\n")
    client = place.client()
    for act in (client.list, lambda: client.get("x"), lambda: client.run(["true"]), client.history):
        with pytest.raises(arena.UnsupportedError, match="'999'") as caught:
            act()
        assert len(caught.value.what.splitlines()) == 1
    version.write_text(state.VERSION + "\n")


DAMAGE = {
    "deleted": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_bytes(b"this is no database, but long enough to look like one " * 100),
    "head": lambda path: path.write_bytes(b"\0" * 50 + path.read_bytes()[50:]),
    "body": lambda path: path.write_bytes(path.read_bytes()[:4096] + os.urandom(path.stat().st_size - 4096)),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_the_index_can_be_lost(place: LocalPlace, damage: str) -> None:
    names = [place.run(sh(f"exit {code}"), name=f"j{code}").name for code in range(4)]
    for name in names:
        place.client().wait(name)
    place.client().get("j3").delete()
    before = place.client().history()
    index = Path(place.env["ARENA_STATE_DIR"]) / "index.db"
    DAMAGE[damage](index)
    assert place.client().history() == before
    assert sorted(job.name for job in place.client().list()) == names[:3]
    assert place.client().history() == before
    if index.is_dir():
        index.rmdir()


def test_a_damaged_run_is_a_warning_and_the_others_are_listed(place: LocalPlace) -> None:
    good, bad = place.run(["true"]), place.run(["true"])
    good.wait()
    bad.wait()
    (folder(bad) / "state.json").write_text('{"word": ')
    client = place.client()
    assert [job.name for job in client.list()] == [good.name]
    assert any(bad.run_id in line for line in client.warnings.lines)


def test_values_of_a_later_arena_are_readable(place: LocalPlace) -> None:
    job = place.run(["true"])
    job.wait()
    for name in ("job.json", "state.json"):
        path = folder(job) / name
        path.write_text(json.dumps({**json.loads(path.read_text()), "fromLater": {"a": 1}}))
    assert job.get().exit_code == 0
    assert [one.name for one in place.client().list()] == [job.name]
    shutil.rmtree(folder(job))
    assert place.client().list() == []
