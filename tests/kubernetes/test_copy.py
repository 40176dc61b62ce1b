"""Files out of real pods: while they run, at their end, and what is said when they are gone."""

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed.bed import Bed
from testbed.images import BARE, WORK

import arena
from arena.errors import BackendError
from backends.place import texts, until

pytestmark = [pytest.mark.kubelet, pytest.mark.timeout(180)]

WRITES = """
import os, sys
os.makedirs("out", exist_ok=True)
open("out/model.txt", "w").write("rank " + os.environ["RANK"])
open("out/\\u00fc b", "wb").write(bytes(range(256)) * 9000)
os.symlink("model.txt", "out/last")
sys.exit(int(os.environ.get("CODE", "0")))
"""


@pytest.fixture
def namespace(node: Bed) -> Iterator[str]:
    name = f"c{uuid.uuid4().hex[:8]}"
    node.kubectl("create", "namespace", name)
    node.wait("an account", lambda: node.kubectl("-n", name, "get", "sa", "default", "-o", "name", check=False))
    yield name
    node.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def env(job_env: dict[str, str], node: Bed, namespace: str) -> dict[str, str]:
    more = {"KUBECONFIG": str(node.kubeconfig()), "ARENA_JOB_NAMESPACE": namespace, "ARENA_IMAGE": WORK}
    return {**job_env, **more, "ARENA_BACKEND": "kubernetes"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "train.py").write_text(WRITES)
    return folder


def command(env: dict[str, str], cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    words = (sys.executable, "-m", "arena", *words)
    return subprocess.run(words, env=env, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


def test_fetch_brings_what_rank_0_wrote(env: dict[str, str], project: Path) -> None:
    done = command(env, project, "run", "--name", "fetch", "-w", "2", "--fetch", "out", "train.py")
    assert done.returncode == 0, done.stderr
    assert (project / "out" / "model.txt").read_text() == "rank 0"
    assert (project / "out" / "ü b").read_bytes() == bytes(range(256)) * 9000
    assert os.readlink(project / "out" / "last") == "model.txt"
    assert "are lost" not in done.stderr


def test_fetch_keeps_the_jobs_own_code_and_brings_what_a_failed_one_wrote(env: dict[str, str], project: Path) -> None:
    words = ("run", "--name", "fails", "--env", "CODE=3", "--fetch", "out/model.txt", "--fetch", "no", "train.py")
    done = command(env, project, *words)
    assert done.returncode == 3
    assert (project / "out" / "model.txt").read_text() == "rank 0"
    assert os.listdir(project / "out") == ["model.txt"]
    assert "no is not there" in done.stderr


def test_what_a_job_that_succeeded_did_not_write_is_a_failure(env: dict[str, str], project: Path) -> None:
    done = command(env, project, "run", "--name", "less", "--fetch", "no.txt", "train.py")
    assert done.returncode == 125
    assert "no.txt is not there" in done.stderr


def test_fetch_where_nobody_waits_is_refused(env: dict[str, str], project: Path) -> None:
    done = command(env, project, "run", "--fetch", "out", "--detach", "train.py")
    assert done.returncode == 125
    assert "--fetch" in done.stderr


def test_a_container_that_keeps_its_files_ends_when_it_is_told(env: dict[str, str], project: Path) -> None:
    client = arena.Client(env=env, cwd=project)
    script = "trap 'echo told; exit 9' TERM; echo up; while :; do sleep 0.1; done"
    job = client.run(script, name="told", fetch=["x"])
    until(lambda: texts(job.logs()) == ["up"])
    begun = time.monotonic()
    job.stop()
    assert time.monotonic() - begun < 28  # neither the grace of 30 seconds nor ten minutes


def test_a_fetch_in_python(env: dict[str, str], project: Path) -> None:
    job = arena.Client(env=env, cwd=project).run("train.py", name="python", workers=2, fetch=["out/model.txt"])
    assert job.fetch(["out/model.txt"]) == []
    assert (project / "out" / "model.txt").read_text() == "rank 0"
    assert job.get().state is arena.State.SUCCEEDED


def test_cp_out_of_any_replica_while_it_runs(env: dict[str, str], project: Path, tmp_path: Path) -> None:
    client = arena.Client(env=env, cwd=project)
    job = client.run(
        "python3 train.py; ln -s out way; ln -s /etc/passwd out/evil; exec sleep 300", name="long", workers=2
    )
    for seen in job.watch():
        if [one.state for one in seen.observed.replicas] == [arena.State.RUNNING] * 2:
            break
    dest = tmp_path / "dest"
    dest.mkdir()
    for worker in ("worker-0", "worker-1"):
        evil = f"job/long/{worker}:out/evil"
        until(lambda evil=evil: command(env, tmp_path, "cp", evil, str(tmp_path / "ready")).returncode == 0)  # type: ignore[misc]
    first = command(env, tmp_path, "cp", "long:out/model.txt", str(dest))
    assert (first.returncode, (dest / "model.txt").read_text()) == (0, "rank 0")
    second = command(env, tmp_path, "cp", "job/long/worker-1:/arena/code/way", "dest/new")
    assert second.returncode == 6
    assert "evil" in second.stderr
    assert (dest / "new" / "model.txt").read_text() == "rank 1"
    assert sorted(os.listdir(dest / "new")) == ["last", "model.txt", "ü b"]
    assert command(env, tmp_path, "cp", "long:nowhere", ".").returncode == 3
    assert command(env, tmp_path, "cp", "long/worker-7:x", ".").returncode == 3
    other = command(env, tmp_path, "cp", str(dest), "long:x")
    assert (other.returncode, "not the other way" in other.stderr) == (2, True)
    job.delete()


def test_an_image_with_sh_and_tar_alone_gives_files_too(env: dict[str, str], project: Path, tmp_path: Path) -> None:
    job = arena.Client(env=env, cwd=project).run(
        "echo hi > x; echo there; while :; do read l < train.py; done", name="bare", image=BARE
    )
    until(lambda: texts(job.logs()) == ["there"])
    assert job.copy("x", tmp_path / "x") == []
    assert (tmp_path / "x").read_text() == "hi\n"
    job.delete()


def test_files_of_an_ended_job_are_gone_and_it_says_how_to_keep_them(env: dict[str, str], project: Path) -> None:
    job = arena.Client(env=env, cwd=project).run("true", name="ended")
    job.wait(60)
    with pytest.raises(BackendError, match="has ended") as caught:
        job.copy("x", project)
    assert "--fetch" in caught.value.hint
