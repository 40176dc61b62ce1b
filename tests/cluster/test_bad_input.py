"""What a newcomer meets when something is missing: one line that says what, and how to get it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from testbed.places import REPOSITORY

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other system: the test bed needs Linux"),
]


def ask(*words: str, cache: Path, before: tuple[str, ...] = (), **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, sys.executable, "-m", "testbed", *words],
        cwd=REPOSITORY,
        env={**os.environ, "XDG_CACHE_HOME": str(cache), **env},
        capture_output=True,
        text=True,
    )


def only_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    line = only_line(ask("up", cache=tmp_path, PATH=str(tmp_path)))
    assert "these Debian packages are missing:" in line
    assert "containerd" in line
    assert line.endswith("python -m testbed build")


def test_a_go_that_is_too_old_is_named(tmp_path: Path) -> None:
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text("#!/bin/sh\necho go1.21.3\n")
    go.chmod(0o755)
    line = only_line(ask("build", cache=tmp_path, PATH=f"{go.parent}:{os.environ['PATH']}"))
    assert "this Go is too old (go1.21.3): install Go 1.26 or newer" in line


def test_a_go_that_is_missing_is_named(tmp_path: Path) -> None:
    line = only_line(ask("build", cache=tmp_path, PATH="/usr/bin:/bin"))
    assert "Go is missing: install Go 1.26 or newer" in line


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    small = 'mount -t tmpfs -o size=10m tmpfs "$XDG_CACHE_HOME" && exec "$@"'
    line = only_line(ask("build", cache=tmp_path, before=("unshare", "--mount", "sh", "-c", small, "sh")))
    assert "MB are needed: make room, or set XDG_CACHE_HOME to another disk" in line


def test_a_user_who_is_not_root_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    # Root without the number 0: whoever runs the tests may have a checkout that nobody else can read.
    not_root = ("setpriv", "--reuid", "65534", "--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search")
    line = only_line(ask("up", cache=tmp_path, before=not_root))
    assert "a test bed needs root: sudo python -m testbed" in line


def test_without_overlayfs_layers_are_copied(tmp_path: Path) -> None:
    hide = 'grep -v overlay /proc/filesystems > "$0/fs"; mount --bind "$0/fs" /proc/filesystems && exec "$@"'
    question = "from testbed.parts import snapshotter; print(snapshotter())"
    words = ["unshare", "--mount", "sh", "-c", hide, str(tmp_path), sys.executable, "-c", question]
    assert subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True).stdout == "native\n"


def test_the_folder_of_a_killed_run_is_removed(tmp_path: Path) -> None:
    stale = tmp_path / "arena-testbed" / "beds" / "1"
    stale.mkdir(parents=True)
    (stale / "lock").touch()
    (stale / "guard.pid").write_text("1")
    assert ask("down", "--all", cache=tmp_path).returncode == 0
    assert not stale.exists()


def test_without_a_test_bed_one_is_named(tmp_path: Path) -> None:
    for words in (("down",), ("kubeconfig", "alice")):
        line = only_line(ask(*words, cache=tmp_path))
        assert line == "testbed: no test bed is up: python -m testbed up"


def test_an_operator_that_is_not_known_is_named_first(tmp_path: Path) -> None:
    line = only_line(ask("up", "--operators", "trianing", cache=tmp_path))
    assert line == "testbed: there is no operator 'trianing': there are training, mpi, jobset, trainer"
