"""The library's way to export a run and to run it again."""

from pathlib import Path

import pytest

import arena
from arena import runfile


def test_export_reads_back(job_env: dict[str, str], tmp_path: Path) -> None:
    client = arena.Client(backend="local", env=job_env, cwd=tmp_path)
    job = client.run(["true"], name="first", workers=2)
    job.wait(check=True)
    assert runfile.read(client.export("first"), "first.yaml").job() == job.job()


def test_rerun_takes_the_recorded_code(job_env: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "hello.py").write_text("print('hello v1')\n")
    client = arena.Client(backend="local", env=job_env, cwd=folder)
    first = client.run("hello.py", name="first")
    first.wait(check=True)
    (folder / "hello.py").write_text("print('hello v2')\n")
    again = client.rerun("first", name="second")
    seen = again.wait(check=True)
    assert [line.text for line in again.logs()] == ["hello v1"]
    assert seen.parent == first.run_id
    here = client.rerun("first", name="third", code="here")
    here.wait(check=True)
    assert [line.text for line in here.logs()] == ["hello v2"]


def test_a_masked_value_must_be_there_again(job_env: dict[str, str], tmp_path: Path) -> None:
    client = arena.Client(backend="local", env=job_env, cwd=tmp_path)
    client.run(["sh", "-c", 'echo "$HF_TOKEN"'], name="first", env={"HF_TOKEN": "x1y2"}).wait(check=True)
    with pytest.raises(arena.SpecError, match="HF_TOKEN"):
        client.rerun("first", name="second")
    richer = arena.Client(backend="local", env={**job_env, "HF_TOKEN": "z3"}, cwd=tmp_path)
    again = richer.rerun("first", name="second")
    again.wait(check=True)
    assert [line.text for line in again.logs()] == ["z3"]


def test_gpu_seconds(job_env: dict[str, str]) -> None:
    env = {**job_env, "ARENA_LOCAL_GPUS": "2"}
    seen = arena.Client(backend="local", env=env).run(["sleep", "0.3"], workers=2, gpus=1).wait(check=True)
    assert seen.gpu_seconds == pytest.approx(2 * seen.duration, rel=0.5)
