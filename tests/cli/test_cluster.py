"""The command line on a real API server: objects in and out, refusals in its words, lists with footnotes."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from testbed.bed import Bed

pytestmark = pytest.mark.cluster
IMAGE = "localhost/arena-work:1"


@pytest.fixture
def cluster(arena: Any, bed: Bed) -> Any:
    """`arena` as alice, whose namespace is team-a."""
    arena.env |= {"KUBECONFIG": str(bed.kubeconfig("alice")), "ARENA_IMAGE": IMAGE}
    return arena


@pytest.fixture
def pytorchjobs(bed: Bed) -> Iterator[str]:
    """The kind PyTorchJob without its operator; the path of team-a's."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    names = {"kind": "PyTorchJob", "listKind": "PyTorchJobList", "plural": "pytorchjobs", "singular": "pytorchjob"}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {"group": "kubeflow.org", "scope": "Namespaced", "names": names, "versions": [version]}
    crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": spec}
    api = bed.api()
    api.post(path, {**crd, "metadata": {"name": "pytorchjobs.kubeflow.org"}})
    jobs = "/apis/kubeflow.org/v1/namespaces/team-a/pytorchjobs"
    bed.wait("PyTorchJobs", lambda: api.get(jobs))
    yield jobs
    api.delete(f"{path}/pytorchjobs.kubeflow.org")
    bed.wait(
        "no PyTorchJobs",
        lambda: "pytorchjobs" not in api.text("/apis/apiextensions.k8s.io/v1/customresourcedefinitions"),
    )


def kubectl(bed: Bed, text: str) -> str:
    return bed.kubectl("-n", "team-a", "apply", "--dry-run=server", "-f", "-", given=text, user="alice")


@pytest.mark.parametrize("asks", ["--dry-run", "--dry-run=server"])
@pytest.mark.parametrize("fmt", ["yaml", "json"])
def test_what_a_dry_run_prints_kubectl_apply_takes(cluster: Any, bed: Bed, name: str, fmt: str, asks: str) -> None:
    cluster.file("train.py", "print(1)")
    words = ["--name", name, "-w", "2", "--env", "E=1e3", "--env", "Y=y", "--env", "T=2026-01-31", "train.py"]
    made = cluster("run", asks, "-o", fmt, *words)
    assert made.exit_code == 0, made.stderr
    said = kubectl(bed, made.stdout)
    assert f"job.batch/{name} created" in said
    assert f"service/{name} created" in said
    assert cluster("list", "-o", "name").stdout == ""


def test_a_dry_run_asks_nobody(cluster: Any) -> None:
    dead = {"KUBECONFIG": str(cluster.file("dead", DEAD))}
    made = cluster("run", "--dry-run", "--name", "x", "--", "true", env=dead)
    assert (made.exit_code, "kind: Job" in made.stdout) == (0, True), made.stderr


DEAD = """
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: x}}]
current-context: c
"""


def test_secrets_are_printed_when_they_are_asked_for(cluster: Any) -> None:
    words = ["run", "--dry-run", "--name", "x", "--env", "HF_TOKEN=hush-hush", "--", "true"]
    plain, shown = cluster(*words), cluster(words[0], "--show-secrets", *words[1:])
    assert "hush-hush" not in plain.stdout + plain.stderr
    assert "--show-secrets" in plain.stderr
    assert "HF_TOKEN: hush-hush" in shown.stdout


def test_set_and_patch_change_the_object(cluster: Any) -> None:
    patch = cluster.file(
        "patch.yaml", "metadata: {labels: {cost: a}}\nspec: {template: {spec: {priorityClassName: low}}}"
    )
    more = ["--patch", str(patch), "--set", "spec.template.spec.priorityClassName=high"]
    made = cluster("run", "--dry-run", "-o", "json", "--name", "x", *more, "--", "true").json["items"][-1]
    assert made["metadata"]["labels"]["cost"] == "a"
    assert made["spec"]["template"]["spec"]["priorityClassName"] == "high"


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (["--set", "spec.bla=1"], 2, "spec.bla"),
        (["--set", "spec.template.spec.containers.mian.image=x"], 2, "'mian'"),
        (["--set", "metadata.name=other"], 2, "--name"),
        (["--gpus", "17"], 7, "requests.nvidia.com/gpu: 17 asked"),
        (["--workers", "3", "--gpus", "8"], 7, "requests.nvidia.com/gpu: 24 asked, 0 used of 16"),
        (["--workers", "61"], 7, "pods: 61 asked"),
        (["--priority", "nope"], 3, "--priority: there is no PriorityClass 'nope'"),
        (["--data", "nope:/data"], 3, "--data or --output: there is no claim 'nope'"),
        (["-n", "team-b"], 7, "you may not create jobs.batch in namespace 'team-b'"),
    ],
)
def test_what_is_refused_before_anything_is_made(
    cluster: Any, bed: Bed, name: str, more: list[str], code: int, said: str
) -> None:
    result = cluster("submit", "job", "--name", name, *more, "--", "true")
    assert result.exit_code == code, result.stderr
    assert said in result.stderr
    assert result.stdout == ""
    assert name not in bed.kubectl("get", "jobs,services,secrets,configmaps", "-A", "-o", "name")


def test_run_gives_125_and_names_the_way_to_rights(cluster: Any, name: str) -> None:
    result = cluster("run", "-n", "team-b", "--name", name, "--", "true")
    assert result.exit_code == 125
    assert "create jobs.batch in namespace 'team-b'" in result.stderr
    assert "arena doctor --role" in result.stderr


OWN = """
apiVersion: v1
kind: ConfigMap
metadata: {{name: {name}}}
data: {{"a": "1e3"}}
---
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}, labels: {{mine: "yes"}}}}
spec:
  template:
    spec: {{restartPolicy: Never, containers: [{{name: c, image: i, command: [sh, -c, "true"]}}]}}
"""


def test_an_operator_s_own_object_is_sent_as_it_stands(cluster: Any, bed: Bed, name: str) -> None:
    file = str(cluster.file("own.yaml", OWN.format(name=name)))
    asked = cluster("submit", "-f", file, "--dry-run=server", "-o", "json")
    assert [one["kind"] for one in asked.json["items"]] == ["ConfigMap", "Job"]
    assert f"job.batch/{name} created" in kubectl(bed, asked.stdout)
    sent = cluster("submit", "-f", file, "-o", "name")
    assert (sent.exit_code, sent.stdout) == (0, f"{name}\n"), sent.stderr
    job = json.loads(bed.kubectl("-n", "team-a", "get", "job", name, "-o", "json"))
    assert job["metadata"]["labels"] == {"mine": "yes"}
    shown = cluster("get", name, "-o", "json").json
    assert (shown["namespace"], shown["engine"], shown["managedBy"], shown["state"]) == ("team-a", "job", "", "PENDING")
    again = cluster("submit", "-f", file)
    assert again.exit_code == 4
    cluster("delete", name)
    assert f"configmap/{name}" in bed.kubectl("-n", "team-a", "get", "cm", "-o", "name")


def test_several_jobs_in_one_file_are_refused(cluster: Any, name: str) -> None:
    file = cluster.file("two.yaml", OWN.format(name=name) + "---" + OWN.format(name=f"{name}x"))
    result = cluster("submit", "-f", str(file))
    assert result.exit_code == 2
    assert "2 jobs in one file" in result.stderr
    result = cluster("submit", "-f", str(cluster.file("none.yaml", OWN.format(name=name).partition("---")[0])))
    assert result.exit_code == 2
    assert "holds no job" in result.stderr


def test_an_exported_manifest_can_be_applied(cluster: Any, bed: Bed, name: str) -> None:
    assert cluster("submit", "job", "--name", name, "-w", "2", "--", "true").exit_code == 0
    exported = cluster("export", name, "--manifest")
    assert exported.exit_code == 0, exported.stderr
    assert "uid" not in exported.stdout
    cluster("delete", name)
    assert f"job.batch/{name} created" in kubectl(bed, exported.stdout)


def test_a_type_tells_two_jobs_of_one_name_apart(cluster: Any, bed: Bed, pytorchjobs: str, name: str) -> None:
    assert cluster("submit", "job", "--name", name, "--", "true").exit_code == 0
    thing = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {
            "pytorchReplicaSpecs": {
                "Master": {"template": {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}}
            }
        },
    }
    bed.api("alice").post(pytorchjobs, thing)
    both = cluster("get", name)
    assert both.exit_code == 2
    assert "-T" in both.stderr
    for word, trainer in (("job", "job"), ("py", "pytorchjob"), ("pytorchjob", "pytorchjob")):
        assert cluster("get", name, "-T", word, "-o", "json").json["trainer"] == trainer
        assert [one["name"] for one in cluster("list", "-T", word, "-o", "json").json] == [name]
    assert cluster("list", "-T", "trainjob", "-o", "json").json == []
    assert cluster("get", f"pytorchjob/{name}", "-o", "json").json["trainer"] == "pytorchjob"
    assert cluster("delete", name).exit_code == 2
    assert [run["name"] for run in cluster("history", name, "-n", "team-a", "-o", "json").json] == [name]
    assert cluster("history", name, "-n", "team-b", "-o", "json").json == []
    assert cluster("delete", name, "-T", "py").exit_code == 0
    assert cluster("get", name, "-T", "mpi").exit_code == 3
    assert cluster("delete", name, "-T", "mpi", "--must-exist").exit_code == 3
    assert cluster("logs", name, "-T", "job").exit_code == 0
    assert cluster("delete", name).exit_code == 0


def test_all_namespaces_or_those_that_may_be_read(cluster: Any, bed: Bed, name: str) -> None:
    assert cluster("submit", "job", "--name", name, "--", "true").exit_code == 0
    mine = cluster("list", "-A")
    assert mine.exit_code == 0
    assert "only namespace 'team-a' is listed" in mine.stderr
    everywhere = cluster("list", "-A", "-o", "wide", env={"KUBECONFIG": str(bed.kubeconfig("admin"))})
    assert everywhere.stdout.split()[:2] == ["NAMESPACE", "NAME"]
    assert ["team-a", name] in [line.split()[:2] for line in everywhere.stdout.splitlines()]
    assert cluster("delete", name).exit_code == 0


def test_nothing_that_may_be_read_is_no_empty_list(cluster: Any, bed: Bed) -> None:
    result = cluster("list", "-o", "json", "-n", "team-b")
    assert (result.exit_code, result.stdout) == (7, "")
    assert "arena doctor --role" in result.last["error"]["hint"]


def test_another_user_s_eyes(cluster: Any, bed: Bed) -> None:
    admin = {"KUBECONFIG": str(bed.kubeconfig("admin"))}
    assert cluster("--as", "bob", "list", "-n", "team-a", env=admin).exit_code == 0
    assert cluster("--as", "bob", "list", "-n", "team-b", env=admin).exit_code == 7
    assert cluster("list", "--as-group", "x", env=admin).exit_code == 2


def test_a_name_that_only_this_machine_has(cluster: Any, name: str) -> None:
    assert cluster("run", "-b", "local", "-d", "--name", name, "--", "sleep", "60").exit_code == 0
    found = cluster("get", name, "-o", "json")
    assert found.json["backend"] == "local"
    assert "a job of this machine" in found.stderr
    assert "1 job on this machine too" in cluster("list").stderr
    assert cluster("delete", name, f"{name}-not").exit_code == 0


def test_a_cluster_that_does_not_answer_is_never_replaced(cluster: Any, name: str) -> None:
    dead = {"KUBECONFIG": str(cluster.file("dead", DEAD))}
    assert cluster("run", "-b", "local", "-d", "--name", name, "--", "sleep", "60").exit_code == 0
    result = cluster("get", name, env=dead)
    assert result.exit_code == 6
    assert "-b local" in result.stderr
    assert cluster("list", env=dead).exit_code == 6
