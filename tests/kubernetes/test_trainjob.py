"""TrainJobs as the command line makes them: each brings a runtime that starts its replicas as often as the job says."""

import json

import pytest

from cluster.spaces import Space, refused

pytestmark = [pytest.mark.kubelet, pytest.mark.timeout(180)]

TRAINJOB = {"ARENA_ENGINES": "trainjob"}
RANK_1_FAILS = "echo starts; [ $RANK = 1 ] && sleep 2 && exit 3; exec sleep 600"
RUNTIMES = ("get", "trainingruntimes", "-o", "json")


@pytest.fixture(autouse=True)
def made_by_the_trainer(alive: Space) -> None:
    alive.cli.env |= TRAINJOB


def test_the_first_failure_ends_the_gang_and_the_job(alive: Space) -> None:
    ran = alive.cli("run", "--name", "a", "-w", "2", "--", "sh", "-c", RANK_1_FAILS)
    assert ran.exit_code == 3, ran.stderr
    assert sorted(ran.stdout.splitlines()) == ["worker-0 | starts", "worker-1 | starts"]
    assert "FAILED (exit code 3), worker-1 (rank 1) failed first, with code 3" in ran.stderr

    (runtime,) = json.loads(alive.kubectl(*RUNTIMES))["items"]
    assert [(one["kind"], one["name"]) for one in runtime["metadata"]["ownerReferences"]] == [("TrainJob", "a")]
    assert alive.cli("delete", "a").exit_code == 0
    alive.bed.wait("no runtime without its job", lambda: not json.loads(alive.kubectl(*RUNTIMES))["items"])


def test_replicas_start_again_as_often_as_the_job_says(alive: Space) -> None:
    ran = alive.cli("run", "--name", "a", "--retry", "1", "--", "sh", "-c", "echo starts; sleep 1; exit 5")
    assert ran.exit_code == 5, ran.stderr
    assert ran.stdout == "starts\n" * 2


def test_what_a_dry_run_prints_is_what_is_made(alive: Space) -> None:
    words = ("--name", "a", "-w", "2", "-o", "yaml", "--", "sh", "-c", "exit 0")
    asked = alive.cli("run", "--dry-run=server", *words)
    assert asked.exit_code == 0, asked.stderr
    kinds = [line for line in asked.stdout.splitlines() if line.startswith("kind: ")]
    assert kinds[-2:] == ["kind: TrainingRuntime", "kind: TrainJob"]
    assert json.loads(alive.kubectl(*RUNTIMES))["items"] == []
    file = alive.cli.file("job.yaml", alive.cli("run", "--dry-run", *words).stdout)
    sent = alive.cli("submit", "-f", str(file), "--wait")
    assert sent.exit_code == 0, sent.stderr


def test_without_the_right_to_make_runtimes_the_way_around_is_told(alive: Space) -> None:
    env = {"KUBECONFIG": str(alive.without("trainingruntimes"))}
    words = ("--name", "a", "--", "sh", "-c", "exit 4")
    denied = alive.cli("run", *words, env=env)
    refused(denied, 125, "you may not create trainingruntimes.trainer.kubeflow.org", "--restart-policy OnFailure")
    assert alive.left() == set()
    assert alive.cli("run", "-d", "--restart-policy", "OnFailure", *words, env=env).exit_code == 0
    assert alive.cli("delete", "a", env=env).exit_code == 0
    assert alive.cli("run", *words, env={**env, "ARENA_ENGINES": "job"}).exit_code == 4
