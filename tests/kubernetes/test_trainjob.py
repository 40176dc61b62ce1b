"""TrainJobs as the command line makes them, each with a runtime of its own, and those of others."""

import json

import pytest
from testbed.images import WORK

from cluster.spaces import Space, refused

pytestmark = [pytest.mark.kubelet, pytest.mark.timeout(180)]

TRAINJOB = {"ARENA_ENGINES": "trainjob"}
MET = "import os, socket; socket.create_connection((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])))"
RANK_1_FAILS = f"""echo starts
[ $RANK = 1 ] || exec python3 -m http.server $MASTER_PORT >/dev/null 2>&1
until python3 -c "{MET}" 2>/dev/null; do sleep 0.2; done
exit 3"""
WAITS = "trap 'exit 1' TERM; sleep 600 & wait"
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


def test_without_the_right_to_make_runtimes_nothing_is_made(alive: Space) -> None:
    env = {"KUBECONFIG": str(alive.without("trainingruntimes"))}
    words = ("--name", "a", "--", "sh", "-c", "exit 4")
    denied = alive.cli("run", "--env", "MY_TOKEN=abc", *words, env=env)
    refused(denied, 125, "you may not create trainingruntimes.trainer.kubeflow.org", "engines: job")
    assert alive.left() == set()
    assert alive.cli("run", *words, env={**env, "ARENA_ENGINES": "job"}).exit_code == 4


def test_its_pods_have_what_flags_say(alive: Space) -> None:
    alive.cli.file("helper.py", "FOUND = 7")
    alive.cli.file("train.py", "import os, helper\nprint(os.environ['RANK'], os.environ['MASTER_PORT'], helper.FOUND)")
    said = ("--annotation", "team=vision", "--image-pull-policy", "IfNotPresent", "--env", "MASTER_PORT=29400")
    ran = alive.cli("run", "--name", "a", "-w", "2", *said, "--running-timeout", "1h", "train.py")
    assert ran.exit_code == 0, ran.stderr
    assert sorted(ran.stdout.splitlines()) == ["worker-0 | 0 29400 7", "worker-1 | 1 29400 7"]
    pods = json.loads(alive.kubectl("get", "pods", "-l", "arena.kubeflow.org/job=a", "-o", "json"))["items"]
    for pod in pods:
        main = pod["spec"]["containers"][0]
        found = (pod["metadata"]["annotations"]["team"], main["imagePullPolicy"], pod["spec"]["activeDeadlineSeconds"])
        assert found == ("vision", "IfNotPresent", 3600)
        assert [one["name"] for one in pod["spec"]["initContainers"]] == ["arena-code", "arena-peers"]
    assert len(pods) == 2


def test_its_time_ends(alive: Space) -> None:
    ran = alive.cli("run", "--name", "a", "--running-timeout", "8s", "--", "sh", "-c", WAITS)
    assert ran.exit_code == 1, ran.stderr
    assert "ended by its time limit" in ran.stderr


def test_a_quota_is_told_before_anything_is_made(alive: Space) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}}
    alive.apply({**quota, "spec": {"hard": {"limits.memory": "100Mi"}}})
    alive.bed.wait("a quota that counts", lambda: "limits.memory" in alive.kubectl("get", "quota", "-o", "json"))
    over = alive.cli("run", "--name", "a", "-w", "2", "--memory", "64Mi", "--", "true")
    refused(over, 125, "limits.memory: 128Mi asked, 0 used of 100Mi", "the replicas are counted together")
    refused(alive.cli("run", "--name", "a", "--", "true"), 125, "needs limits.memory to be told", "--memory")
    assert alive.left() == set()
    assert json.loads(alive.kubectl(*RUNTIMES))["items"] == []


def test_a_namespace_of_restricted_pods_gets_such(alive: Space) -> None:
    alive.bed.kubectl("label", "namespace", alive.name, "pod-security.kubernetes.io/enforce=restricted")
    made = alive.cli("run", "-d", "--name", "a", "-w", "2", "--", "true")
    assert made.exit_code == 0, made.stderr
    assert "takes restricted pods only" in made.stderr
    (runtime,) = json.loads(alive.kubectl(*RUNTIMES))["items"]
    (nodes,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    spec = nodes["template"]["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    own = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert [one["securityContext"] for one in (*spec["initContainers"], *spec["containers"])] == [own] * 3


def test_somebody_s_own_by_a_published_runtime_is_read_and_deleted(alive: Space) -> None:
    trainer = {"image": WORK, "numNodes": 2, "command": ["sh", "-c", "echo $PET_NODE_RANK of $PET_NNODES"]}
    limits = {"limits": {"memory": "64Mi"}}
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": {**trainer, "resourcesPerNode": limits}}
    thing = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "b"}, "spec": spec}
    alive.apply(thing)
    waited = alive.cli("wait", "b")
    assert waited.exit_code == 0, waited.stderr
    assert sorted(alive.cli("logs", "b").stdout.splitlines()) == ["worker-0 | 0 of 2", "worker-1 | 1 of 2"]
    (one,) = alive.cli("list", "-o", "json").json
    assert (one["name"], one["status"], one["trainer"]) == ("b", "SUCCEEDED", "trainjob")
    assert [one["rank"] for one in alive.cli("get", "b", "-o", "json").json["replicas"]] == [0, 1]
    assert alive.cli("delete", "b").exit_code == 0
