"""Archives that are not to be trusted: nothing outside the place named is written, read through or replaced."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from arena import receiving
from arena.errors import BackendError, NotFoundError, SpecError


def entry(name: str, content: bytes = b"x", **more: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), 0o644
    for key, value in more.items():
        setattr(info, key, value)
    return info, content if info.isfile() else b""


def folder(name: str) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, b"", type=tarfile.DIRTYPE, mode=0o755)


def link(name: str, to: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, b"", type=kind, linkname=to)


def archive(*entries: tuple[tarfile.TarInfo, bytes]) -> io.BytesIO:
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w") as made:
        for info, content in entries:
            made.addfile(info, io.BytesIO(content))
    found.seek(0)
    return found


def outside(tmp_path: Path) -> Path:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    return victim


def test_a_folder_comes_as_it_was(tmp_path: Path) -> None:
    made = archive(
        folder("./out"),
        entry("./out/a", b"a" * 3_000_000, mode=0o755, mtime=1000),
        folder("./out/in"),
        entry("./out/in/b c", b""),
        link("./out/last", "in/b c"),
        link("./out/same", "./out/a", tarfile.LNKTYPE),
    )
    assert receiving.receive(made, tmp_path / "got") == []
    got = tmp_path / "got"
    assert (got / "a").read_bytes() == b"a" * 3_000_000
    assert (got / "a").stat().st_mode & 0o777 == 0o755
    assert (got / "a").stat().st_mtime == 1000
    assert (got / "in" / "b c").read_bytes() == b""
    assert os.readlink(got / "last") == "in/b c"
    assert (got / "same").read_bytes() == (got / "a").read_bytes()
    assert sorted(os.listdir(got)) == ["a", "in", "last", "same"]


@pytest.mark.parametrize(
    "bad",
    [
        entry("../victim", b"theirs"),
        entry("out/../../victim", b"theirs"),
        entry("/tmp/arena-victim", b"theirs"),
        entry("elsewhere/x", b"theirs"),
        link("out/evil", "/etc/passwd"),
        link("out/evil", "../../victim"),
        link("out/evil", "in/../../../victim"),
        link("out/evil", "../../victim", tarfile.LNKTYPE),
        entry("out/pipe", b"", type=tarfile.FIFOTYPE),
        entry("out/null", b"", type=tarfile.CHRTYPE, devmajor=1, devminor=3),
    ],
    ids=lambda pair: f"{pair[0].name} {pair[0].linkname}".strip(),
)
def test_what_leads_outside_is_refused_and_the_rest_comes(tmp_path: Path, bad: tuple[tarfile.TarInfo, bytes]) -> None:
    victim = outside(tmp_path)
    refused = receiving.receive(archive(folder("out"), bad, entry("out/good", b"good")), tmp_path / "dest")
    assert len(refused) == 1
    assert (tmp_path / "dest" / "good").read_text() == "good"
    assert sorted(os.listdir(tmp_path / "dest")) == ["good"]
    assert victim.read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["dest", "victim"]


def test_nothing_is_written_through_a_link_of_the_archive(tmp_path: Path) -> None:
    made = archive(folder("out"), folder("out/real"), link("out/way", "real"), entry("out/way/x", b"theirs"))
    (refused,) = receiving.receive(made, tmp_path / "dest")
    assert "through" in refused
    assert os.listdir(tmp_path / "dest" / "real") == []


def test_nothing_is_written_through_a_link_that_was_here(tmp_path: Path) -> None:
    victim = outside(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    dest = tmp_path / "dest"
    dest.mkdir()
    (dest / "file").symlink_to(victim)
    (dest / "way").symlink_to(tmp_path / "elsewhere")
    made = archive(folder("out"), entry("out/file", b"theirs"), folder("out/way"), entry("out/way/x", b"theirs"))
    refused = receiving.receive(made, dest)
    assert len(refused) == 2
    assert victim.read_text() == "mine"
    assert (dest / "file").read_text() == "theirs"  # the link is replaced, not followed
    assert not (dest / "file").is_symlink()
    assert os.listdir(tmp_path / "elsewhere") == []


def test_a_file_replaces_a_file_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "model"
    target.write_text("old")
    whole = archive(entry("model", b"new" * 100_000)).getvalue()
    with pytest.raises(BackendError, match="not whole"):
        receiving.receive(io.BytesIO(whole[:100_000]), target)
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["model"]
    assert receiving.receive(io.BytesIO(whole), target) == []
    assert target.read_bytes() == b"new" * 100_000


def test_a_file_does_not_take_the_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "dest" / "a").mkdir(parents=True)
    (refused,) = receiving.receive(archive(folder("out"), entry("out/a")), tmp_path / "dest")
    assert "is a folder" in refused
    assert (tmp_path / "dest" / "a").is_dir()


def test_where_a_copy_goes_is_as_with_cp(tmp_path: Path) -> None:
    assert receiving.target_of("out/model.txt", tmp_path) == tmp_path / "model.txt"
    assert receiving.target_of("out/model.txt", tmp_path / "new") == tmp_path / "new"
    assert receiving.target_of("out/", tmp_path) == tmp_path / "out"
    assert receiving.target_of(".", tmp_path) == tmp_path
    with pytest.raises(SpecError, match="no folder"):
        receiving.target_of("x", tmp_path / "a" / "b")


def test_files_of_this_machine_are_copied_by_the_same_rules(tmp_path: Path) -> None:
    source = tmp_path / "job"
    (source / "out").mkdir(parents=True)
    (source / "out" / "a").write_text("a")
    (source / "out" / "evil").symlink_to("/etc/passwd")
    (source / "link").symlink_to("out")
    dest = tmp_path / "dest"
    dest.mkdir()
    assert len(receiving.copy_here(str(source / "link"), dest)) == 1
    assert os.listdir(dest / "link") == ["a"]
    with pytest.raises(NotFoundError):
        receiving.copy_here(str(source / "no"), dest)
    with pytest.raises(SpecError, match="the same"):
        receiving.copy_here(str(source / "out"), source)
    assert (source / "out" / "a").read_text() == "a"
