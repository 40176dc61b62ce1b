"""Where a rerun and a snapshot start, and what they find there beside the recorded code."""

import shutil
from pathlib import Path

import pytest

import arena

PWD = ["sh", "-c", "pwd -P"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with two folders that travel."""
    for folder in ("sub/sub", "other"):
        (tmp_path / "project" / folder).mkdir(parents=True)
        (tmp_path / "project" / folder / "kept.py").touch()
    (tmp_path / "project" / "arena.yaml").touch()
    return tmp_path / "project"


@pytest.fixture
def client(job_env: dict[str, str], project: Path) -> arena.Client:
    return arena.Client(backend="local", env=job_env, cwd=project)


def said(job: arena.Handle) -> list[str]:
    job.wait(check=True)
    return [line.text for line in job.logs()]


def copy_of(client: arena.Client, job: arena.Handle) -> str:
    """The folder of a run's own copy of the code."""
    return str(Path(client.env["ARENA_STATE_DIR"]) / "runs" / job.run_id / "code")


def start(client: arena.Client, job: arena.Handle) -> str:
    """Where a job started, relative to its copy of the code."""
    place, copy = said(job)[0], copy_of(client, job)
    assert f"{place}/".startswith(f"{copy}/"), place
    return place.removeprefix(copy).strip("/")


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_rerun_starts_in_the_folder_of_its_parent(client: arena.Client, snapshot: bool) -> None:
    client.run(PWD, name="a", working_dir="sub", snapshot=snapshot).wait(check=True)
    assert start(client, client.rerun("a", name="b")) == "sub"
    assert start(client, client.rerun("b", name="c")) == "sub"
    assert start(client, client.rerun("c", name="d", working_dir="other")) == "other"
    assert start(client, client.rerun("d", name="e", working_dir="sub/sub")) == "sub/sub"
    assert start(client, client.rerun("e", name="f", working_dir="")) == ""


def test_the_folder_above_and_an_absolute_one_are_the_copys(
    client: arena.Client, job_env: dict[str, str], project: Path
) -> None:
    inner = arena.Client(backend="local", env=job_env, cwd=project / "sub" / "sub")
    inner.run(PWD, name="up", working_dir="..").wait(check=True)
    inner.run(PWD, name="absolute", working_dir=str(project / "other")).wait(check=True)
    assert start(client, client.rerun("up", name="up2")) == "sub"
    assert start(client, client.rerun("up2", name="up3")) == "sub"
    assert start(client, client.rerun("up3", name="up4", working_dir="../..")) == ""
    assert start(client, client.rerun("absolute", name="b")) == "other"
    assert start(client, client.rerun("b", name="c", working_dir=".")) == "sub/sub"
    assert start(client, client.rerun("absolute", name="d", working_dir=str(project / "sub"))) == "sub"


@pytest.mark.parametrize("folder", ["..", "../../..", "/tmp", "sub/../.."])
def test_a_folder_outside_the_project_is_refused(client: arena.Client, folder: str) -> None:
    client.run(["true"], name="a").wait(check=True)
    client.rerun("a", name="b").wait(check=True)
    for parent in ("a", "b"):
        with pytest.raises(arena.SpecError, match=r"--working-dir: .* lies outside the project"):
            client.rerun(parent, name="c", working_dir=folder)
    with pytest.raises(arena.SpecError, match=r"--working-dir: .* lies outside the project"):
        client.run(["true"], name="c", working_dir=folder, snapshot=True)


def test_a_parent_that_started_outside_its_project(client: arena.Client, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    client.run(PWD, name="a", working_dir="../elsewhere").wait(check=True)
    assert said(client.rerun("a", name="b")) == [str(tmp_path / "elsewhere")]
    assert said(client.rerun("b", name="c")) == [str(tmp_path / "elsewhere")]
    assert start(client, client.rerun("c", name="d", working_dir="sub")) == "sub"


def test_a_project_reached_through_a_link(client: arena.Client, job_env: dict[str, str], project: Path) -> None:
    project.with_name("link").symlink_to(project)
    linked = arena.Client(backend="local", env=job_env, cwd=project.with_name("link"))
    job = linked.run(PWD, name="a", working_dir=str(project / "sub"), snapshot=True)
    assert start(client, job) == "sub"


def ignored(project: Path) -> None:
    (project / ".arenaignore").write_text("*.bin\ndata/\n")
    (project / "top.bin").write_text("top\n")
    (project / "sub" / "in.bin").write_text("in\n")
    (project / "sub" / "data").mkdir()
    (project / "sub" / "data" / "deep.txt").write_text("deep\n")


READ = ["sh", "-c", "cat top.bin sub/in.bin sub/data/deep.txt"]


def test_ignored_files_are_there_at_every_depth(client: arena.Client, project: Path) -> None:
    ignored(project)
    first = client.run(READ, name="a", snapshot=True)
    assert said(first) == ["top", "in", "deep"]
    assert said(client.rerun("a", name="b")) == ["top", "in", "deep"]
    client.run(READ, name="c").wait(check=True)
    assert said(client.rerun("c", name="d")) == ["top", "in", "deep"]
    copy = Path(copy_of(client, first))
    assert (copy / "sub" / "in.bin").readlink() == project / "sub" / "in.bin"
    assert not (copy / "sub" / "kept.py").is_symlink()
    assert not (project / "sub" / "data" / "data").exists()


def test_the_links_of_a_rerun_name_the_project_not_the_parents_copy(client: arena.Client, project: Path) -> None:
    ignored(project)
    client.run(READ, name="a", snapshot=True).wait(check=True)
    again = client.rerun("a", name="b")
    again.wait(check=True)
    assert (Path(copy_of(client, again)) / "sub" / "in.bin").readlink() == project / "sub" / "in.bin"


def test_what_came_since_is_not_linked(client: arena.Client, project: Path) -> None:
    """Else a rerun writes over the results of its parent, and finds modules that its code never had."""
    words = ["sh", "-c", "sleep 0.5; test ! -e sub/result && echo $ARENA_RUN_ID > sub/result"]
    client.run(words, name="a").wait(check=True)
    mine = (project / "sub" / "result").read_text()
    (project / "newer").mkdir()
    (project / "newer" / "module.py").touch()
    again = client.rerun("a", name="b")
    again.wait(check=True)
    client.rerun("b", name="c").wait(check=True)
    assert (project / "sub" / "result").read_text() == mine
    assert not (Path(copy_of(client, again)) / "newer").exists()


def test_a_rerun_goes_on_without_the_project(client: arena.Client, project: Path) -> None:
    client.run(PWD, name="a", working_dir="sub").wait(check=True)
    shutil.rmtree(project)
    assert start(client, client.rerun("a", name="b")) == "sub"
