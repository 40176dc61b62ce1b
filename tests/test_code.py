"""Which files travel and what is kept of them: real repositories, real trees, odd names and odd files."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arena.code import (
    LEFT_OUT_LIMIT,
    Capture,
    CodeFile,
    LeftOut,
    capture,
    commit_of,
    diff_of,
    folders_at_top,
    gc,
    project_root,
    restore,
    travelling_files,
)
from arena.errors import AlreadyExistsError, ArenaError, BackendError, NotFoundError

needs_root = pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs to become another user")
NO_GIT = {"PATH": "/nonexistent"}


def write(root: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def git(root: Path, *words: str) -> str:
    who = [
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "-c",
        "init.defaultBranch=main",
        "-c",
        "protocol.file.allow=always",
    ]
    return subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A folder without a repository."""
    root = tmp_path / "plain"
    root.mkdir()
    return root


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with one commit, a change and a new file."""
    root = tmp_path / "repo"
    write(root, {"train.py": "print(1)\n", "lib/net.py": "x\n", ".gitignore": "data/\n*.log\n"})
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "one")
    write(root, {"train.py": "print(2)\n", "new.py": "", "data/big": "0", "a.log": "x"})
    return root


def listed(root: Path, **options: object) -> list[str]:
    return sorted(travelling_files(root, **options))  # type: ignore[arg-type]


def told(root: Path, **options: object) -> dict[str, str]:
    left: list[LeftOut] = []
    list(travelling_files(root, left_out=left, **options))  # type: ignore[arg-type]
    return dict(left)


# Which folder


def test_the_project_is_the_nearest_of_arena_yaml_git_root_and_here(repo: Path, plain: Path) -> None:
    home = repo.parent / "home"
    assert project_root(repo / "lib", home) == repo
    write(repo, {"lib/arena.yaml": ""})
    assert project_root(repo / "lib", home) == repo / "lib"
    assert project_root(plain, home) == plain


def test_what_never_travels_as_a_folder(tmp_path: Path, repo: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "link").symlink_to(home)
    assert project_root(Path("/"), home) is None
    assert project_root(home, home) is None
    assert project_root(tmp_path / "link", home) is None
    assert project_root(Path("/root"), None) is None
    assert project_root(Path("/home/somebody"), None) is None
    git(home, "init", "-q")
    (home / "deep").mkdir()
    assert project_root(home / "deep", home) is None, "dotfiles in git do not make the home a project"
    for name in (".ssh", ".kube"):
        (repo / name).mkdir()
        assert project_root(repo / "lib", home) is None
        (repo / name).rmdir()
    assert project_root(repo / "lib", home) == repo


# Which files


def test_tracked_and_new_files_minus_ignored(repo: Path) -> None:
    assert listed(repo) == [".gitignore", "lib/net.py", "new.py", "train.py"]
    assert listed(repo / "lib") == ["net.py"]
    write(repo, {".arenaignore": "new.*\n"})
    assert listed(repo) == [".arenaignore", ".gitignore", "lib/net.py", "train.py"]


def test_who_leaves_a_folder_out_is_told(repo: Path, plain: Path) -> None:
    write(
        repo,
        {"runs/1": "", "part/a.py": "", "part/b.bin": "", "empty/x.log": "", ".arenaignore": "runs/\n/part/*\n!a.py\n"},
    )
    assert told(repo) == {"runs/": "is ignored by .arenaignore"}
    assert folders_at_top(repo) == ["data", "empty", "lib"]
    assert told(repo, include=["runs"]) == {}
    write(plain, {"runs/1": "", "src/a.py": "", ".arenaignore": "runs\n"})
    assert told(plain) == {"runs/": "is ignored by .arenaignore"}
    assert folders_at_top(plain) == ["src"]


def test_the_callers_git_variables_mean_nothing(repo: Path, plain: Path) -> None:
    git(plain, "init", "-q")
    env = {**os.environ, "GIT_DIR": str(plain / ".git"), "GIT_WORK_TREE": str(plain), "GIT_INDEX_FILE": "/nonexistent"}
    assert listed(repo, env=env) == listed(repo)
    assert commit_of(repo, env) == git(repo, "rev-parse", "HEAD").strip()


def test_a_repository_starts_no_program_of_its_own(repo: Path, tmp_path: Path) -> None:
    write(repo, {"evil.sh": f"#!/bin/sh\ntouch {tmp_path}/ran\n", ".git/info/attributes": "*.py diff=evil\n"})
    (repo / "evil.sh").chmod(0o755)
    for name in ("core.fsmonitor", "diff.external", "diff.evil.textconv", "diff.evil.command"):
        git(repo, "config", name, str(repo / "evil.sh"))
    assert "train.py" in listed(repo)
    assert "+print(2)" in diff_of(repo)
    assert not (tmp_path / "ran").exists()


def test_no_commit_no_repository_no_git_detached_head(repo: Path, plain: Path, tmp_path: Path) -> None:
    write(plain, {"a.py": "", "__pycache__/a.pyc": "", "venv/pyvenv.cfg": "", "venv/lib/x.py": ""})
    assert listed(plain) == ["a.py"]
    assert (commit_of(plain), diff_of(plain)) == (None, "")
    git(plain, "init", "-q")
    assert "a.py" in listed(plain)
    assert (commit_of(plain), diff_of(plain)) == (None, "")
    assert commit_of(repo, NO_GIT) is None
    assert listed(repo, env=NO_GIT) == [".gitignore", "a.log", "data/big", "lib/net.py", "new.py", "train.py"]
    git(repo, "checkout", "-q", "--detach")
    assert len(commit_of(repo) or "") == 40
    for root in (repo, plain, tmp_path / "nonexistent"):
        capture(root, tmp_path / "store")


def test_the_diff_is_capped_masked_and_without_credentials(repo: Path) -> None:
    token = "hf_" + "aB3d" * 8
    write(repo, {".env": "PLAIN=1\n", "sub/.env.local": "PLAIN=1\n", "key.PEM": "PLAIN=1\n"})
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "careless")
    write(
        repo,
        {".env": "HIDDEN=2\n", "sub/.env.local": "HIDDEN=2\n", "key.PEM": "HIDDEN=2\n", "train.py": f"t='{token}'\n"},
    )
    diff = diff_of(repo)
    assert "+t='***'" in diff
    assert "HIDDEN" not in diff
    write(repo, {"train.py": "line\n" * 100_000})
    assert len(diff_of(repo, 1000)) < 1100
    assert diff_of(repo, 1000).endswith("(cut at 1000)\n")


def test_repositories_inside_travel_by_their_own_word(repo: Path, plain: Path) -> None:
    git(repo, "submodule", "add", "-q", str(repo), "sub")
    write(repo, {"sub/junk.log": "", "sub/new": ""})
    git(repo, "init", "-q", "nested")
    write(repo, {"nested/n.py": "", "nested/.gitignore": "skip\n", "nested/skip": ""})
    names = listed(repo)
    assert {"sub/train.py", "sub/new", "nested/n.py", "nested/.gitignore"} <= set(names)
    assert not {"sub/junk.log", "nested/skip", "sub"} & set(names)


def test_files_in_conflict_and_deleted_files(repo: Path) -> None:
    git(repo, "commit", "-qam", "two")
    git(repo, "checkout", "-qb", "other", "HEAD~1")
    write(repo, {"train.py": "print(3)\n"})
    git(repo, "commit", "-qam", "three")
    subprocess.run(["git", "merge", "-q", "main"], cwd=repo, capture_output=True)
    (repo / "lib/net.py").unlink()
    assert list(travelling_files(repo)).count("train.py") == 1
    assert told(repo) == {"lib/net.py": "is not there any more"}


def test_an_ignored_project_is_walked(repo: Path) -> None:
    write(repo, {"data/arena.yaml": "", "data/a.py": ""})
    assert listed(repo / "data") == ["a.py", "arena.yaml", "big"]


def test_credentials_stay_unless_named(repo: Path, plain: Path) -> None:
    secret = [
        ".env",
        ".env.prod",
        "deep/.ssh/config",
        "deep/.aws/credentials",
        "k.pem",
        "id_rsa",
        "id_ed25519.pub",
        ".netrc",
    ]
    write(repo, dict.fromkeys([*secret, "id_map.py", "environment.py", "pem.txt"], "x"))
    write(plain, dict.fromkeys([*secret, "id_map.py", "environment.py", "pem.txt"], "x"))
    for root in (repo, plain):
        assert not set(secret) & set(listed(root))
        assert {"id_map.py", "environment.py", "pem.txt"} <= set(listed(root))
        assert told(root)[".env"] == "looks like a key or credential"
        assert {".env", "k.pem"} <= set(listed(root, include=[".env", "*.pem"]))
        assert "deep/.ssh/config" in listed(root, include=["deep/.ssh"])
        assert told(root, include=["nothing", "/etc/passwd", "../x"]).keys() >= {"nothing", "../x"}
        assert not any("passwd" in name for name in listed(root, include=["/etc/passwd", "../*"]))
    assert "data/big" in listed(repo, include=["data"])


@pytest.mark.parametrize(
    ("rules", "gone"),
    [
        ("*.bin", {"a.bin", "d/b.bin", "d/e/c.bin"}),
        ("/*.bin", {"a.bin"}),
        ("d/", {"d/b.bin", "d/e/c.bin", "d/x.py"}),
        ("d/e", {"d/e/c.bin"}),
        ("**/e/", {"d/e/c.bin"}),
        ("d/**", {"d/b.bin", "d/e/c.bin", "d/x.py"}),
        ("*.bin\n!b.bin\n# c\n\n", {"a.bin", "d/e/c.bin"}),
        ("?.b[i]n", {"a.bin", "d/b.bin", "d/e/c.bin"}),
        ("[!a].bin", {"d/b.bin", "d/e/c.bin"}),
        ("a.bin/", set()),
        ("[ab].b[h-j]n", {"a.bin", "d/b.bin"}),
        ("[z-a].bin", set()),
        ("(", set()),
        ("[", set()),
    ],
)
def test_arenaignore_reads_like_gitignore(plain: Path, rules: str, gone: set[str]) -> None:
    names = {"a.bin", "d/b.bin", "d/e/c.bin", "d/x.py", "x.py"}
    write(plain, {**dict.fromkeys(names, ""), ".arenaignore": rules})
    assert names - set(listed(plain)) == gone
    (plain / ".arenaignore").rename(plain / ".gitignore")
    git(plain, "init", "-q")
    assert names - set(listed(plain)) == gone, "git itself says something else"


@pytest.mark.filterwarnings("error")
@given(st.text(alphabet="abz-^&|~*?[]!/.\\ #(+é", max_size=12))
def test_any_line_of_arenaignore_is_read(tmp_path_factory: pytest.TempPathFactory, line: str) -> None:
    root = tmp_path_factory.mktemp("ignore")
    write(root, {"a/a": "", ".arenaignore": line})
    listed(root, env=NO_GIT)


def test_links_stay_links_inside_and_are_left_out_when_they_lead_outside(plain: Path, tmp_path: Path) -> None:
    write(plain, {"a/real": "x"})
    write(tmp_path, {"outside": "x"})
    for name, target in [
        ("rel", "a/real"),
        ("abs", str(plain / "a/real")),
        ("folder", "a"),
        ("dangling", "a/none"),
        ("around", "../plain/a/real"),
        ("out", "../outside"),
        ("sneaky", "folder/../../outside"),
        ("etc", "/etc"),
        ("odd", os.fsdecode(b"/\xff")),
        ("loop", "loop"),
    ]:
        (plain / name).symlink_to(target)
    found = capture(plain, tmp_path / "store")
    restore(found, tmp_path / "store", tmp_path / "copy")
    json.dumps(found.to_json(), ensure_ascii=False).encode()
    assert {name: reason.partition(":")[0] for name, reason in found.left_out} == dict.fromkeys(
        ["out", "sneaky", "etc", "odd"], "is a link that leads outside"
    )
    links = {path.name: os.readlink(path) for path in (tmp_path / "copy").iterdir() if path.is_symlink()}
    assert links == {
        "rel": "a/real",
        "abs": "a/real",
        "folder": "a",
        "dangling": "a/none",
        "around": "a/real",
        "loop": "loop",
    }


# Keeping


def test_odd_files_are_left_out_and_said(plain: Path, tmp_path: Path) -> None:
    write(plain, {"a.py": "x", "empty": ""})
    os.mkfifo(plain / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(plain / "socket"))
        found = capture(plain, tmp_path / "store", only=None)
    assert [file.path for file in found.files] == ["a.py", "empty"]
    assert dict(found.left_out) == {"pipe": "is a pipe", "socket": "is a socket"}
    assert capture(plain, tmp_path / "store", only=["a.py", "none", "../x", "a\0"]).left_out == (
        LeftOut("none", "is not there any more"),
        LeftOut("../x", "lies outside the folder"),
        LeftOut("a\0", "lies outside the folder"),
    )


@needs_root
def test_what_may_not_be_read_is_left_out(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for folder in list(tmp_path.parents)[:3]:
        folder.chmod(folder.stat().st_mode | 0o055)
    write(tmp_path / "p", {"a.py": "x", "mine": "x", "locked/b": "x"})
    (tmp_path / "p/mine").chmod(0o600)
    (tmp_path / "p/locked").chmod(0o700)
    (tmp_path / "store").mkdir(mode=0o777)
    (tmp_path / "store").chmod(0o777)
    code = """
import os, sys
from pathlib import Path
import arena.code, arena.secrets, tempfile, zlib, hashlib, shutil, subprocess
os.setuid(54321)
found = arena.code.capture(Path(sys.argv[1]), Path(sys.argv[2]))
print([f.path for f in found.files], sorted(found.left_out), found.stored)
"""
    words = [sys.executable, "-c", code, str(tmp_path / "p"), str(tmp_path / "store")]
    shown = subprocess.run(words, capture_output=True, text=True, cwd="/")
    assert shown.stdout.startswith("['a.py'] [LeftOut(path='locked', reason='cannot be read: Permission denied'), "), (
        shown
    )
    assert shown.stdout.endswith("LeftOut(path='mine', reason='cannot be read')] True\n")


def test_equal_files_are_stored_once_and_new_runs_store_only_what_is_new(plain: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    write(plain, {"a": "same", "b": "same", "c": "c"})
    first = capture(plain, store)
    blobs = {path: path.stat().st_ino for path in store.rglob("*") if path.is_file()}
    assert {path.parent.name + path.name for path in blobs} == first.blobs()
    assert len(blobs) == 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in blobs} == {0o600}
    assert stat.S_IMODE(store.stat().st_mode) == 0o700
    write(plain, {"c": "changed"})
    second = capture(plain, store)
    assert second.hash != first.hash
    assert {path: path.stat().st_ino for path in blobs} == blobs
    restore(first, store, tmp_path / "one")
    assert (tmp_path / "one/c").read_text() == "c"


def test_over_the_limit_only_hashes_are_kept(plain: Path, tmp_path: Path) -> None:
    write(plain, {"a": b"a" * 600, "b": b"b" * 600, "c": b"c" * 300})
    found = capture(plain, tmp_path / "store", limit=1000)
    assert (found.stored, found.reason) == (False, "1.5Ki in 3 files: more than 1000")
    assert [(file.path, file.size, bool(file.sha256)) for file in found.files] == [
        *[("a", 600, True), ("b", 600, False), ("c", 300, True)]
    ]
    assert not (tmp_path / "store").exists()
    assert found.blobs() == set()
    with pytest.raises(NotFoundError, match="was not kept"):
        restore(found, tmp_path / "store", tmp_path / "copy")


def test_a_huge_folder_is_bounded(plain: Path, tmp_path: Path) -> None:
    for number in range(3000):
        (plain / f"{number}.txt").touch()
        (plain / f"{number}.pem").touch()
    found = capture(plain, tmp_path / "store", file_limit=100)
    assert len(found.files) == 100
    assert (found.stored, found.reason) == (False, "more than 100 files")
    git(plain, "init", "-q")
    assert len(capture(plain, tmp_path / "store", file_limit=100).files) == 100
    found = capture(plain, tmp_path / "store")
    assert len(found.files) == 3000
    assert found.left_out[-1] == LeftOut("", f"and {3000 - LEFT_OUT_LIMIT} more")


@pytest.mark.slow
def test_a_folder_of_a_hundred_thousand_files_takes_seconds(plain: Path, tmp_path: Path) -> None:
    for folder in range(100):
        (plain / str(folder)).mkdir()
        for number in range(1000):
            os.close(os.open(plain / str(folder) / str(number), os.O_CREAT))
    started = time.process_time()
    assert len(capture(plain, tmp_path / "store").files) == 20_000
    assert time.process_time() - started < 5


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev")
def test_a_store_that_cannot_be_written_is_a_reason_and_no_error(plain: Path) -> None:
    write(plain, {"a": "x"})
    found = capture(plain, Path("/proc/self/store"))
    assert not found.stored
    assert found.reason.startswith("it could not be stored: ")
    assert found.files[0].sha256


def test_the_hash_tells_what_runs_not_who_cloned_it(plain: Path, tmp_path: Path) -> None:
    write(plain, {"a": "x"})
    (plain / "a").chmod(0o644)
    first = capture(plain, tmp_path / "store").hash
    (plain / "a").chmod(0o600)
    assert capture(plain, tmp_path / "store").hash == first
    (plain / "a").chmod(0o755)
    assert capture(plain, tmp_path / "store").hash != first


def test_the_commit_and_the_diff_are_in_the_capture(repo: Path, tmp_path: Path) -> None:
    found = capture(repo, tmp_path / "store")
    assert found.commit == git(repo, "rev-parse", "HEAD").strip()
    assert "-print(1)\n+print(2)" in found.diff
    assert git(repo, "status", "--porcelain") == " M train.py\n?? new.py\n"
    assert Capture.from_json(json.loads(json.dumps(found.to_json()))) == found


# Restoring


def test_restore_only_into_a_new_or_empty_folder(plain: Path, tmp_path: Path) -> None:
    write(plain, {"a": "x"})
    found = capture(plain, tmp_path / "store")
    with pytest.raises(AlreadyExistsError):
        restore(found, tmp_path / "store", plain)
    with pytest.raises(AlreadyExistsError):
        restore(found, tmp_path / "store", plain / "a")


@pytest.mark.parametrize("damage", [b"", b"garbage", b"x\x9c"])
def test_damage_is_found(plain: Path, tmp_path: Path, damage: bytes) -> None:
    write(plain, {"a": "x"})
    found = capture(plain, tmp_path / "store")
    (blob,) = (path for path in (tmp_path / "store").rglob("*") if path.is_file())
    blob.write_bytes(damage)
    with pytest.raises(BackendError, match="damaged: 'a'"):
        restore(found, tmp_path / "store", tmp_path / "copy1")
    blob.unlink()
    with pytest.raises(NotFoundError, match="'a' is missing"):
        restore(found, tmp_path / "store", tmp_path / "copy2")
    assert capture(plain, tmp_path / "store").stored
    restore(found, tmp_path / "store", tmp_path / "copy3")


def test_a_record_of_somebody_else_writes_nothing_outside(plain: Path, tmp_path: Path) -> None:
    write(plain, {"a": "x"})
    (plain / "up").symlink_to("a")
    found = capture(plain, tmp_path / "store")
    (data,) = (file for file in found.files if file.path == "a")
    target = tmp_path / "target"
    target.write_text("../..")
    outside = capture(tmp_path, tmp_path / "store", only=["target"]).files[0]
    link = outside._replace(mode=stat.S_IFLNK | 0o777, path="l")
    for files in [
        *[(data._replace(path=path),) for path in ("../b", "/tmp/b", "x/../../b", "", "a//b", "./b")],
        (data._replace(sha256="../../../../etc/passwd"),),
        (link,),
        (data, link._replace(path="a")),
    ]:
        with pytest.raises((BackendError, NotFoundError)):
            restore(found._replace(files=files), tmp_path / "store", tmp_path / f"copy{time.monotonic_ns()}")
    assert not (tmp_path / "b").exists()
    restore(found._replace(files=(data._replace(mode=stat.S_IFREG | 0o6755),)), tmp_path / "store", tmp_path / "c")
    assert stat.S_IMODE((tmp_path / "c/a").stat().st_mode) == 0o755


def test_gc_keeps_what_is_named_and_what_is_young(plain: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    write(plain, {"a": "a", "b": "b"})
    first = capture(plain, store)
    write(store, {"README": "not ours", first.files[0].sha256[:2] + "/.new-killed": "half"})
    (plain / "b").unlink()
    second = capture(plain, store)
    assert gc(store, set()) == 0
    assert gc(store, second.blobs(), older_than=-1) > 0
    restore(second, store, tmp_path / "copy")
    with pytest.raises(NotFoundError):
        restore(first, store, tmp_path / "copy2")
    assert (store / "README").exists()
    assert not list(store.rglob(".new-*"))
    assert gc(tmp_path / "nonexistent", set()) == 0


# Any tree

part = st.one_of(
    st.binary(min_size=1, max_size=12).filter(lambda name: not {0, 47} & set(name)),
    st.text(min_size=1, max_size=8, alphabet="aé漢😀 \n\t'\"$\\*?[]:-").map(str.encode),
).filter(lambda name: name not in (b".", b"..", b".git", b".arenaignore", b".gitignore", b".hg", b".svn"))
trees = st.dictionaries(
    st.lists(part, min_size=1, max_size=3).map(b"/".join),
    st.tuples(st.binary(max_size=200), st.sampled_from([0o644, 0o600, 0o755, 0o400, 0o666, 0o500])),
    max_size=8,
)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse names that are not UTF-8")
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(trees, st.booleans())
def test_any_tree_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[bytes, tuple[bytes, int]], with_git: bool
) -> None:
    base = tmp_path_factory.mktemp("tree")
    root = os.fsencode(base / "root")
    os.mkdir(root)
    written = {}
    for name, (content, mode) in tree.items():
        try:
            os.makedirs(os.path.dirname(os.path.join(root, name)), exist_ok=True)
            with open(os.path.join(root, name), "xb") as stream:
                stream.write(content)
        except OSError:
            continue  # a file where another needs a folder
        os.chmod(os.path.join(root, name), mode)
        written[name] = (content, mode)
    if with_git:
        git(base / "root", "init", "-q")
    found = capture(base / "root", base / "store", env=None if with_git else NO_GIT)
    again = Capture.from_json(json.loads(json.dumps(found.to_json(), ensure_ascii=False).encode()))
    assert again == found
    restore(again, base / "store", base / "copy")
    back = {}
    for place, _, names in os.walk(os.fsencode(base / "copy")):
        for name in names:
            path = os.path.join(place, name)
            with open(path, "rb") as stream:
                content = stream.read()
            back[os.path.relpath(path, os.fsencode(base / "copy"))] = (content, stat.S_IMODE(os.stat(path).st_mode))
    missing = {os.fsencode(one.path) for one in found.left_out}
    assert back == {name: value for name, value in written.items() if not _below(name, missing)}
    assert all("credential" in one.reason for one in found.left_out)


def _below(name: bytes, folders: set[bytes]) -> bool:
    return any(name == folder or name.startswith(folder + b"/") for folder in folders)


@given(
    st.text(max_size=20), st.integers(0, 2**17), st.integers(0, 100), st.text(alphabet="0123456789abcdef", max_size=64)
)
def test_any_record_is_restored_or_refused(
    tmp_path_factory: pytest.TempPathFactory, path: str, mode: int, size: int, sha256: str
) -> None:
    base = tmp_path_factory.mktemp("record")
    damaged = Capture(None, "", (CodeFile(path, mode, size, sha256),), "", True)
    with pytest.raises(ArenaError):
        restore(damaged, base / "store", base / "copy")
