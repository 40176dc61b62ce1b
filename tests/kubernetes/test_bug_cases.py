"""Faults that users of tools like this one have reported (bug_cases.yaml): the right value of each, held by a test."""

import json
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from testbed.faults import Fault, FaultProxy
from testbed.images import WORK

from arena import status
from arena.engines import load
from arena.engines.objects import Pod
from arena.job import made_up_name, shorten
from arena.kube.api import Api
from arena.kube.config import find
from cli.conftest import Arena, Result
from cluster.spaces import Object, Space, refused

TESTS = Path(__file__).parents[1]
NOWHERE = """
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: x}}]
contexts: [{name: c, context: {cluster: c, user: u, namespace: n2}}]
current-context: c
"""
CASES: dict[str, Object] = yaml.safe_load(Path(__file__).with_name("bug_cases.yaml").read_text())
AREAS = {"submit and delete", "names", "status", "logs", "kubeconfig and tokens", "rights", "kinds and versions"}
LONG = pytest.mark.timeout(150)


# --- the list itself -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_every_case_is_held_by_a_test_that_is_there_or_says_why_not(case: str) -> None:
    told = CASES[case]
    assert {"of", "area", "right"} < set(told)
    assert told["area"] in AREAS
    assert ("test" in told) != ("why" in told)
    if "test" in told:
        file, _, name = told["test"].partition("::")
        assert f"def {name}(" in (TESTS / file).read_text()


def test_every_test_here_is_for_a_case(capsys: pytest.CaptureFixture[str]) -> None:
    here = {name for name in globals() if name.startswith("test_") and not name.startswith("test_every_")}
    named = {told["test"].partition("::")[2] for told in CASES.values() if "test_bug_cases.py" in told.get("test", "")}
    assert here - {"test_every_line_has_its_prefix_once"} == named - {"test_every_line_has_its_prefix_once"}
    counts = Counter("held" if "test" in told else "not yet" for told in CASES.values())
    with capsys.disabled():
        print(
            f"\n{len(CASES)} reported faults: {counts['held']} held by a test, {counts['not yet']} not in this version"
        )


# --- submit and delete ---------------------------------------------------------------------------------------

MADE = r"/jobs\?(?!.*dryRun)"  # the job itself, and not the question whether it may be made


@pytest.mark.cluster
def test_a_refused_job_leaves_no_helper_for_the_next_try(space: Space, proxy: FaultProxy) -> None:
    words = ["submit", "job", "--name", "a", "-w", "2", "--env", "A_TOKEN=x", "--", "true"]
    proxy.add(Fault(method="POST", path=MADE, status=422, times=1))
    assert space.cli(*words).exit_code == 2
    assert space.left() == set()
    assert space.cli(*words).exit_code == 0


@pytest.mark.cluster
def test_an_interrupt_before_the_job_is_there_undoes_all(space: Space, proxy: FaultProxy) -> None:
    proxy.add(Fault(method="POST", path=r"/secrets\?(?!.*dryRun)", delay=8))
    process = space.cli.start("submit", "job", "--name", "a", "-w", "2", "--env", "A_TOKEN=x", "--", "true")
    space.bed.wait("its helpers", lambda: proxy.requests("POST", r"/services\?(?!.*dryRun)"))
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert space.left() == set(), said


@pytest.mark.cluster
def test_a_delete_that_was_refused_can_be_repeated(space: Space, proxy: FaultProxy) -> None:
    assert space.cli("submit", "job", "--name", "a", "--env", "A_TOKEN=x", "--", "true").exit_code == 0
    proxy.add(Fault(method="DELETE", status=403, times=1))
    first = space.cli("delete", "a")
    assert first.exit_code == 7, first.stderr
    assert "job.batch/a" in space.left()
    assert space.cli("get", "a").exit_code == 0
    assert space.cli("delete", "a").exit_code == 0
    assert "job.batch/a" not in space.left()


# --- names ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pytorch", "--name", "3d-unet"], "'job-3d-unet' would do"),
        (["tf", "--name", "a" * 80, "--ps", "1", "-w", "2"], "has 80 characters"),
        (["tf", "--name", "a" * 60, "--ps", "1", "-w", "2"], "a TFJob of this size has room for"),
        (["pytorch", "--name", "a" * 60, "-w", "200"], "a PyTorchJob of this size has room for"),
        (["mpi", "--name", "a" * 60, "-w", "3"], "a MPIJob of this size has room for"),
    ],
)
def test_names_are_refused_before_anything_is_written(
    here: Callable[..., Result], arena: Arena, words: list[str], said: str
) -> None:
    env = {"KUBECONFIG": str(arena.file("k", NOWHERE))}
    result = here("submit", *words, "--image", "i", "--dry-run", "--", "true", env=env)
    refused(result, 2, "--name", said)


@given(st.from_regex(r"\A[a-z0-9A-Z._ -]{1,80}\Z"), st.integers(1, 70))
def test_a_name_that_is_cut_does_not_end_with_a_dash(name: str, room: int) -> None:
    for made in (shorten(name.lower(), room), made_up_name((name,), b"abcd")):
        assert not made.startswith("-")
        assert not made.endswith("-")


# --- status --------------------------------------------------------------------------------------------------


def told(engine: str, thing: Object, *pods: Object) -> Any:
    """What is said of an object and its pods."""
    made = load(engine)
    return status.decide(
        made.read(msgspec.json.decode(json.dumps(thing), type=made.thing), msgspec.convert(list(pods), list[Pod]))
    )


NOW = "2026-01-31T10:00:00Z"


def pod(name: str, labels: Object, state: Object, phase: str) -> Object:
    container = next(iter(state))
    return {
        "metadata": {"name": name, "uid": name, "labels": labels, "creationTimestamp": NOW},
        "spec": {"nodeName": "n", "containers": [{"name": container, "image": "i"}]},
        "status": {
            "phase": phase,
            "startTime": NOW,
            "containerStatuses": [{"name": container, "state": state[container]}],
        },
    }


def test_a_trainjob_that_says_only_that_it_was_resumed_runs() -> None:
    resumed = {"type": "Suspended", "status": "False", "reason": "Resumed", "lastTransitionTime": NOW}
    thing = {
        "metadata": {"name": "t", "uid": "u", "creationTimestamp": NOW},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 1}},
        "status": {"conditions": [resumed]},
    }
    labels = {"jobset.sigs.k8s.io/jobset-name": "t", "jobset.sigs.k8s.io/replicatedjob-name": "node",
              "batch.kubernetes.io/job-completion-index": "0"}  # fmt: skip
    found = told("trainjob", thing, pod("t-node-0-0-x", labels, {"node": {"running": {"startedAt": NOW}}}, "Running"))
    assert found.state.name == "RUNNING"


def test_a_job_that_says_restarting_with_a_code_that_is_not_retried_has_failed() -> None:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}
    master = {"replicas": 1, "restartPolicy": "ExitCode", "template": template}
    restarting = {"type": "Restarting", "status": "True", "reason": "JobRestarting", "lastTransitionTime": NOW}
    thing = {
        "metadata": {"name": "t", "uid": "u", "creationTimestamp": NOW},
        "spec": {"pytorchReplicaSpecs": {"Master": master}},
        "status": {"conditions": [restarting], "replicaStatuses": {"Master": {"failed": 1}}},
    }
    labels = {"training.kubeflow.org/job-name": "t", "training.kubeflow.org/replica-type": "master",
              "training.kubeflow.org/replica-index": "0"}  # fmt: skip
    end = {"terminated": {"exitCode": 1, "reason": "Error", "startedAt": NOW, "finishedAt": NOW}}
    found = told("pytorchjob", thing, pod("t-master-0", labels, {"pytorch": end}, "Failed"))
    assert found.state.name == "FAILED"


@pytest.mark.cluster
def test_a_device_that_nobody_knows(space: Space) -> None:
    container = {"name": "c", "image": WORK, "resources": {"limits": {"rdma/hca_shared_devices_a": "1"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    space.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": {"template": template}})
    for words in (["get", "a"], ["get", "a", "-o", "json"], ["list"], ["why", "a"], ["logs", "a"]):
        result = space.cli(*words)
        assert result.exit_code == 0, result.stderr
    assert space.cli.job("a")["state"] == "PENDING"
    assert space.cli("delete", "a").exit_code == 0


# --- logs ----------------------------------------------------------------------------------------------------

ODD = '42\ntrue\n{"a":1}\nnull\n\n\nend\n'


@pytest.mark.kubelet
@LONG
def test_lines_are_text_followed_or_not(alive: Space) -> None:
    ran = alive.cli("run", "--name", "a", "--", "printf", ODD.replace("\n", "\\n"))
    assert (ran.exit_code, ran.stdout) == (0, ODD), ran.stderr
    assert alive.cli("logs", "a").stdout == ODD
    assert alive.cli("logs", "-f", "a").stdout == ODD
    assert alive.cli("logs", "a", env={"ARENA_STATE_DIR": str(alive.cli.cwd / "other")}).stdout == ODD


@pytest.mark.kubelet
@LONG
def test_every_line_has_its_prefix_once(alive: Space) -> None:
    ran = alive.cli("run", "--name", "a", "-w", "2", "--", "sh", "-c", "for i in 1 2 3; do echo $i; done")
    assert ran.exit_code == 0, ran.stderr
    assert sorted(ran.stdout.splitlines()) == [f"worker-{w} | {i}" for w in (0, 1) for i in (1, 2, 3)]


@pytest.mark.kubelet
@LONG
def test_a_log_that_is_put_off_and_then_cut_is_printed(alive: Space) -> None:
    line = "for i in $(seq 500); do echo line $i; done"
    assert alive.cli("run", "--name", "a", "--", "sh", "-c", line).exit_code == 0
    with FaultProxy(alive.bed) as between:
        between.add(Fault(path="/log", status=429, retry_after=1, times=1))
        between.add(Fault(path="/log", cut=100, times=1))
        env = {"KUBECONFIG": str(between.kubeconfig("admin")), "ARENA_STATE_DIR": str(alive.cli.cwd / "other")}
        shown = alive.cli("logs", "-f", "a", env=env)
    assert shown.exit_code == 0, shown.stderr
    assert shown.stdout.splitlines() == [f"line {number}" for number in range(1, 501)]
    assert "429" not in shown.stderr


# --- kubeconfig and tokens -----------------------------------------------------------------------------------

PLUGIN = """
import json, pathlib, sys
count = pathlib.Path(sys.argv[1])
count.write_text(count.read_text() + "x" if count.exists() else "x")
status = {"token": f"token-{len(count.read_text())}"}
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}))
"""


@pytest.fixture
def prefixed() -> Iterator[tuple[str, list[str]]]:
    """A server below a path, which refuses the first token; its address, and the paths it was asked for."""
    import threading
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.path)
            good = self.headers["Authorization"] != "Bearer token-1"
            body = b"{}" if good else b'{"kind": "Status", "code": 401}'
            self.send_response_only(200 if good else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/k8s/clusters/c-1", seen
    server.shutdown()
    server.server_close()


def test_a_server_s_path_is_kept_when_credentials_are_renewed(tmp_path: Path, prefixed: tuple[str, list[str]]) -> None:
    server, seen = prefixed
    (tmp_path / "plugin.py").write_text(PLUGIN)
    entry = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable, "interactiveMode": "Never",
             "args": [str(tmp_path / "plugin.py"), str(tmp_path / "count")]}  # fmt: skip
    made = {
        "clusters": [{"name": "c", "cluster": {"server": f"{server}/"}}],
        "users": [{"name": "u", "user": {"exec": entry}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    (tmp_path / "k").write_text(json.dumps(made))
    access = find(kubeconfig=str(tmp_path / "k"), env={}, home=None)
    assert access
    with Api(access) as api:
        assert api.get("/api") == {}
    assert seen == ["/k8s/clusters/c-1/api"] * 2


def test_a_kubeconfig_goes_before_the_pod_s_own_account(here: Callable[..., Result], arena: Arena) -> None:
    env = {"KUBECONFIG": str(arena.file("k", NOWHERE))}
    env |= {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    result = here("run", "--dry-run", "--image", "i", "--name", "a", "--", "true", env=env)
    assert "namespace: n2" in result.stdout, result.stderr
    refused(here("get", "a", env=env), 6, "no answer from https://127.0.0.1:1")


# --- rights, kinds and versions ------------------------------------------------------------------------------


@pytest.mark.kubelet
@LONG
def test_a_kind_that_is_forbidden_is_a_footnote(alive: Space) -> None:
    env = {"KUBECONFIG": str(alive.without("services"))}  # batch and core only: no operator's kind may be read
    assert alive.cli("submit", "job", "--name", "a", "--", "true", env=env).exit_code == 0
    result = alive.cli("list", "-o", "json", env=env)
    assert (result.exit_code, [one["name"] for one in result.json]) == (0, ["a"]), result.stderr
    assert "PyTorchJobs are left out: you may not list pytorchjobs.kubeflow.org" in str(result.last["warnings"])
    assert alive.cli("list", "--strict", env=env).exit_code == 7
    assert alive.cli("delete", "a", env=env).exit_code == 0


@pytest.fixture
def served(space: Space) -> Iterator[Callable[..., None]]:
    """Serve a kind of kubeflow.org in these versions only."""
    made: list[str] = []

    def serve(kind: str, *versions: str) -> None:
        plural = f"{kind.lower()}s"
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
        each = [{"name": one, "served": True, "storage": one == versions[0], "schema": schema} for one in versions]
        spec = {"group": "kubeflow.org", "scope": "Namespaced", "names": names, "versions": each}
        crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
        space.apply({**crd, "metadata": {"name": f"{plural}.kubeflow.org"}, "spec": spec})
        made.append(f"{plural}.kubeflow.org")
        space.bed.wait(kind, lambda: space.bed.kubectl("get", plural, "-A", check=False) is not None)
        path = f"/apis/kubeflow.org/{versions[0]}/{plural}"
        space.bed.wait(kind, lambda: _answers(space, path))

    yield serve
    for name in made:
        space.bed.kubectl("delete", "crd", name)


def _answers(space: Space, path: str) -> bool:
    from testbed.api import ApiError

    try:
        space.bed.api().get(path)
    except ApiError:
        return False
    return True


@pytest.mark.cluster
def test_a_kind_in_another_version(space: Space, served: Callable[..., None]) -> None:
    served("TFJob", "v1beta1")
    served("MPIJob", "v1")
    served("PyTorchJob", "v2", "v1")
    words = "this cluster serves TFJob v1beta1; arena makes v1", "the training operator"
    refused(space.cli("submit", "tf", "--name", "a", "--", "true"), 5, *words)
    words = "this cluster serves MPIJob v1; arena makes v2beta1", "the mpi-operator"
    refused(space.cli("submit", "mpi", "--name", "a", "--", "true"), 5, *words)
    assert space.left() == set()
    made = space.cli("submit", "pytorch", "--name", "a", "--", "true")
    assert made.exit_code == 0, made.stderr
    thing = json.loads(space.kubectl("get", "pytorchjobs.v1.kubeflow.org", "a", "-o", "json"))
    assert thing["apiVersion"] == "kubeflow.org/v1"
    assert space.cli.job("a")["state"] == "PENDING"
    assert space.cli("delete", "a").exit_code == 0


@pytest.mark.parametrize(
    ("kind", "where"),
    [("pytorch", ("runPolicy", "backoffLimit")), ("tf", ("runPolicy", "backoffLimit")), ("job", ("backoffLimit",))],
)
def test_retries_are_in_the_object(
    here: Callable[..., Result], arena: Arena, kind: str, where: tuple[str, ...]
) -> None:
    words = ["submit", kind, "--dry-run", "-o", "json", "--name", "a", "--image", "i", "--retry", "3", "--", "true"]
    found = here(*words, env={"KUBECONFIG": str(arena.file("k", NOWHERE))}).json
    thing = found["items"][-1] if "items" in found else found
    value = thing["spec"]
    for key in where:
        value = value[key]
    assert value == 3
