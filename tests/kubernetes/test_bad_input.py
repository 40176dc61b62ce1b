"""What people meet when something is wrong: one clear line, the right exit code, nothing left behind, no traceback.

Kubeconfigs, servers that are none, rights, namespaces, quotas, patches, faults of the network: at the command line.
"""

import http.server
import itertools
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from testbed.bed import Bed
from testbed.faults import Fault, FaultProxy

from cli.conftest import Arena, Result
from cluster.spaces import Space, refused

Object = dict[str, Any]
Change = Callable[[Object], object]
PATIENT = "trap 'exit 0' TERM; sleep 60 & wait"  # ends at once when it is asked to


# --- kubeconfigs ---------------------------------------------------------------------------------------------

GOOD: Object = {
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "users": [{"name": "u", "user": {"token": "x"}}],
    "current-context": "c",
}
EXEC = "client.authentication.k8s.io/v1"


def config(change: Change = lambda _: None) -> str:
    """A kubeconfig in which something is otherwise."""
    made = json.loads(json.dumps(GOOD))
    change(made)
    return json.dumps(made)


def cluster_has(**words: Any) -> Change:
    return lambda made: made["clusters"][0]["cluster"].update(words)


def user_is(**words: Any) -> Change:
    return lambda made: made["users"][0].update(user={key.replace("_", "-"): value for key, value in words.items()})


def context_has(**words: Any) -> Change:
    return lambda made: made["contexts"][0]["context"].update(words)


def plugin(*words: str, **more: Any) -> Change:
    entry = {"apiVersion": EXEC, "interactiveMode": "Never", "command": words[0], "args": list(words[1:]), **more}
    return user_is(exec=entry)


KUBECONFIGS: dict[str, tuple[str | bytes, int, list[str]]] = {
    "no YAML": ("clusters: [\n - {", 6, ["cannot be read", "line 2"]),
    "a page": ("<html><body>Sign in</body></html>", 6, ["cannot be read", "got `str`"]),
    "bytes": (bytes(range(256)), 6, ["cannot be read"]),
    "wrong types": (config(lambda made: made.update(clusters="x")), 6, ["cannot be read", "$.clusters"]),
    "a token that is a number": (config(user_is(token=5)), 6, ["$.users[0].user.token"]),
    "a token of two lines": (config(user_is(token="a\nb")), 6, ["the token of user 'u'"]),
    "a token with an umlaut": (config(user_is(token="tökén")), 6, ["the token of user 'u'"]),
    "an unknown user": (config(context_has(user="nobody")), 6, ["'nobody', who is not described", "described: u"]),
    "an unknown cluster": (config(context_has(cluster="x")), 6, ["names no server", "'x' is not described"]),
    "a dead context": (
        config(lambda made: made.update({"current-context": "gone"})),
        6,
        ["'gone' does not exist", "has: c"],
    ),
    "nothing": ("", 6, ["no cluster configured", "-b local"]),
    "no current context": (config(lambda made: made.pop("current-context")), 6, ["no cluster configured", "-b local"]),
    "an address with a blank": (config(cluster_has(server="https://a b")), 6, ["no address: 'https://a b'"]),
    "an address without an end": (config(cluster_has(server="https://[::1")), 6, ["no address: 'https://[::1'"]),
    "a port that is none": (config(cluster_has(server="https://h:99999")), 6, ["no address: 'https://h:99999'"]),
    "ftp": (config(cluster_has(server="ftp://h")), 6, ["no address: 'ftp://h'", "https://HOST:PORT"]),
    "no such host": (
        config(cluster_has(server="https://h.invalid")),
        6,
        ["no answer from https://h.invalid", "-b local"],
    ),
    "nobody listens": (config(), 6, ["no answer from https://127.0.0.1:1", "refused", "-b local"]),
    "a missing CA": (config(cluster_has(**{"certificate-authority": "/nope/ca"})), 6, ["/nope/ca: No such file"]),
    "a CA that is none": (config(cluster_has(**{"certificate-authority-data": "AAAA"})), 6, ["certificates of"]),
    "a CA that is not base64": (config(cluster_has(**{"certificate-authority-data": "%"})), 6, ["is not base64"]),
    "a missing certificate": (
        config(user_is(client_certificate="/nope/c", client_key="/nope/k")),
        6,
        ["/nope/c: No such"],
    ),
    "a missing plug-in": (
        config(plugin("nope-auth", installHint="brew install it")),
        6,
        ["'nope-auth'", "brew install it"],
    ),
    "a failing plug-in": (
        config(plugin("sh", "-c", "echo log in first >&2; echo really >&2; exit 3")),
        7,
        ["'sh' ended with exit code 3", "Why: log in first\n       really", "log in with it"],
    ),
    "a plug-in that says nothing": (config(plugin("true")), 6, ["'true' wrote no credential"]),
    "a plug-in that answers a page": (config(plugin("echo", "<html>")), 6, ["'echo' wrote no credential"]),
    "a plug-in without a command": (config(plugin("")), 6, ["has no command"]),
    "an old plug-in": (config(plugin("true", apiVersion="client.authentication.k8s.io/v1alpha1")), 6, ["v1alpha1"]),
    "a namespace that is a path": (config(context_has(namespace="Team A/../x")), 2, ["'Team A/../x' is no name"]),
}


@pytest.mark.parametrize("case", KUBECONFIGS)
def test_a_damaged_kubeconfig_says_what_is_wrong_with_it(here: Callable[..., Result], arena: Arena, case: str) -> None:
    text, code, words = KUBECONFIGS[case]
    path = arena.cwd / "kubeconfig"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    env = {"KUBECONFIG": str(path)}
    refused(here("get", "x", "-b", "kubernetes", env=env), code, *words)


def test_the_exit_code_is_125_where_a_job_s_code_is_passed_on(here: Callable[..., Result], arena: Arena) -> None:
    env = {"KUBECONFIG": str(arena.file("k", "x: ["))}
    for words in ("run -- true", "run -d -- true", "wait x", "submit job --wait -- true"):
        refused(here(*words.split(), env=env), 125, "cannot be read", "--kubeconfig FILE")


def test_a_kubeconfig_that_is_named_and_not_there(here: Callable[..., Result]) -> None:
    for words in (["--kubeconfig", "/nope", "list"], ["list", "--kubeconfig", "/nope"]):
        refused(here(*words), 6, "there is no kubeconfig '/nope'", "-b local")
    refused(here("run", "--kubeconfig", "/nope", "--", "true"), 125, "there is no kubeconfig '/nope'")
    refused(here("list", env={"KUBECONFIG": "/nope"}), 6, "there is no kubeconfig '/nope'")


def test_a_context_that_is_not_there(here: Callable[..., Result], arena: Arena) -> None:
    env = {"KUBECONFIG": str(arena.file("k", config()))}
    refused(here("list", "--context", "prod", env=env), 6, "there is no context 'prod'", "has: c")


@pytest.mark.parametrize("name", ["Bad_NS", "a/b", "-a", "ä", "a" * 64, "a b"])
def test_a_namespace_that_cannot_be(here: Callable[..., Result], arena: Arena, name: str) -> None:
    env = {"KUBECONFIG": str(arena.file("k", config()))}
    refused(here("get", "x", f"--namespace={name}", env=env), 2, f"'{name}' is no name of a namespace", "-n NAMESPACE")


# --- what answers and is no API server -----------------------------------------------------------------------

PAGES: dict[str, tuple[int, str, bytes, int, list[str]]] = {
    "a login page": (200, "text/html", b"<html><title>Hotel</title>Sign in</html>", 6, ["Hotel Sign in", "login page"]),
    "a redirect": (302, "", b"", 6, ["it answers 302"]),
    "nothing": (200, "", b"", 6, ["it is empty"]),
    "other JSON": (200, "application/json", b'{"hello": "world"}', 6, ["no kind at /api"]),
    "a list": (200, "application/json", b"[1]", 6, ["not understood"]),
    "a balancer's page": (502, "text/html", b"<html>\n<h1>502\nBad Gateway</h1></html>", 6, ["502 Bad Gateway"]),
    "an ingress without a rule": (404, "text/plain", b"default backend - 404", 6, ["default backend - 404"]),
    "a web server": (404, "text/plain", b"404 page not found\n", 6, ["does not answer as an API server"]),
    "a proxy": (403, "text/html", b"<html>blocked by policy</html>", 6, ["it answers 403: blocked by policy"]),
    "who does not know us": (401, "text/plain", b"", 7, ["the server does not know you"]),
}


@pytest.fixture
def page() -> Iterator[Callable[[int, str, bytes], str]]:
    """A web server: what it answers goes in, its address comes out."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            code, kind, body = self.server.answers  # type: ignore[attr-defined]
            self.send_response_only(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = do_PATCH = answer  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()

    def serve(*answers: Any) -> str:
        server.answers = answers  # type: ignore[attr-defined]
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield serve
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("case", PAGES)
def test_what_answers_and_is_no_api_server(
    here: Callable[..., Result], arena: Arena, page: Callable[..., str], case: str
) -> None:
    *answers, code, words = PAGES[case]
    env = {"KUBECONFIG": str(arena.file("k", config(cluster_has(server=page(*answers)))))}
    for command in (["get", "x"], ["list"], ["delete", "x"], ["logs", "x"], ["why", "x"]):
        refused(here(*command, env=env), code, *words)
    for command in (["run", "-d", "--name", "x", "--", "true"], ["wait", "x"]):
        refused(here(*command, env=env), 125, *words)


@pytest.mark.slow
def test_a_server_that_says_nothing_is_given_up_within_20_seconds(arena: Arena) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as mute:
        server = f"https://127.0.0.1:{mute.getsockname()[1]}"
        arena.env["KUBECONFIG"] = str(arena.file("k", config(cluster_has(server=server))))
        begun = time.monotonic()
        refused(arena("list"), 6, f"no answer from {server}", "-b local runs it here")
        assert time.monotonic() - begun < 20


# --- a real API server ---------------------------------------------------------------------------------------


def submit(space: Space, *words: str, name: str = "a", **more: Any) -> Result:
    return space.cli("submit", "job", "--name", name, *words, "--", "true", **more)


@pytest.mark.cluster
def test_a_token_that_is_wrong(arena: Arena, bed: Bed) -> None:
    made = json.loads(bed.kubeconfig("alice", "token").read_text())
    made["users"][0]["user"]["token"] = "expired"
    arena.env["KUBECONFIG"] = str(arena.file("k", json.dumps(made)))
    for words in (["list"], ["list", "-A"], ["get", "x"], ["logs", "x"], ["delete", "x"], ["why", "x"]):
        refused(arena(*words), 7, "the server does not know you", "new kubeconfig or token for user 'alice'")
    assert "the server does not know you" in arena("doctor").stdout
    refused(arena("run", "--", "true"), 125, "the server does not know you", "new kubeconfig or token")


@pytest.mark.cluster
def test_rights_in_one_namespace_only(space: Space) -> None:
    env = {"KUBECONFIG": str(space.without("services"))}
    words = "you may not", "arena doctor --role"
    elsewhere = ["-n", "kube-system"]
    refused(space.cli("list", *elsewhere, env=env), 7, "list jobs in namespace 'kube-system'", *words)
    refused(space.cli("get", "x", *elsewhere, env=env), 7, "get jobs.batch in namespace 'kube-system'", *words)
    refused(space.cli("delete", "x", *elsewhere, env=env), 7, "get jobs.batch in namespace 'kube-system'", *words)
    refused(submit(space, *elsewhere, env=env), 7, "create jobs.batch in namespace 'kube-system'", *words)
    everywhere = space.cli("list", "-A", "-o", "json", env=env)
    assert (everywhere.exit_code, everywhere.json) == (0, []), everywhere.stderr
    assert f"only namespace {space.name!r} is listed" in everywhere.stderr


@pytest.mark.cluster
def test_without_the_right_to_make_secrets_the_flag_that_sends_it_in_clear_is_named(space: Space) -> None:
    env = {"KUBECONFIG": str(space.without("secrets"))}
    given = ["--env", "HF_TOKEN=hush-hush"]
    result = submit(space, *given, env=env)
    refused(result, 7, "you may not create secrets", "HF_TOKEN looks secret", "--plain-env HF_TOKEN sends it in clear")
    assert space.left() == set()
    sent = submit(space, *given, "--plain-env", "HF_TOKEN", env=env)
    assert sent.exit_code == 0, sent.stderr
    assert "hush-hush" in space.kubectl("get", "job", "a", "-o", "yaml")
    shown = [space.cli(*words, env=env) for words in (["get", "a", "-o", "yaml"], ["export", "a"], ["history", "a"])]
    assert not [one for one in shown if "hush-hush" in one.stdout + one.stderr]
    refused(submit(space, "--plain-env", "X", name="b"), 2, "--plain-env: 'X' is not among")


@pytest.mark.cluster
def test_without_the_right_to_make_config_maps_code_does_not_travel(space: Space) -> None:
    space.cli.file("train.py", "print(1)")
    result = space.cli("submit", "job", "--name", "a", "train.py", env={"KUBECONFIG": str(space.without("configmaps"))})
    refused(result, 7, "you may not create configmaps", "arena doctor --role")
    assert space.left() == set()


@pytest.mark.cluster
def test_a_namespace_that_is_not_there(space: Space) -> None:
    refused(submit(space, "-n", "no-such"), 3, "there is no namespace 'no-such'", "-n NAMESPACE")
    refused(space.cli("get", "x", "-n", "no-such"), 3, "job 'x' not found in namespace 'no-such'")


@pytest.mark.cluster
def test_a_namespace_that_is_ending(space: Space) -> None:
    space.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "keeps", "finalizers": ["a.b/c"]}})
    space.kubectl("delete", "namespace", space.name, "--wait=false")
    try:
        refused(submit(space), 7, f"namespace {space.name!r} is being deleted", "-n NAMESPACE")
    finally:
        space.kubectl(
            "patch", "configmap", "keeps", "--type=json", '-p=[{"op":"remove","path":"/metadata/finalizers"}]'
        )


REFUSALS: dict[str, tuple[list[str], int, list[str]]] = {
    "a claim": (["--data", "nope:/d"], 3, ["--data", "no claim 'nope'"]),
    "a pull secret": (["--image-pull-secret", "nope"], 3, ["--image-pull-secret", "no secret 'nope'"]),
    "a priority class": (["--priority", "nope"], 3, ["--priority", "no PriorityClass 'nope'"]),
    "a service account": (["--set", "spec.template.spec.serviceAccountName=nope"], 3, ["no ServiceAccount 'nope'"]),
    "an unknown field": (["--set", "spec.bla=1"], 2, ["no field spec.bla", "--set"]),
    "an empty path": (["--set", "=1"], 2, ["'=1' is not PATH=VALUE"]),
    "no value": (["--set", "spec"], 2, ["'spec' is not PATH=VALUE"]),
    "another name": (["--set", "metadata.name=b"], 2, ["metadata.name cannot be patched", "--name"]),
    "another kind": (["--set", "kind=Pod"], 2, ["kind cannot be patched"]),
    "a word for containers": (["--set", "spec.template.spec.containers=x"], 2, ["containers: expected array, got str"]),
    "a word for a number": (["--set", "spec.parallelism=two"], 2, ["spec.parallelism: expected int, got str"]),
    "a number for labels": (["--set", "metadata.labels=5"], 2, ["metadata.labels: expected object, got int"]),
    "a number for the template": (["--set", "spec.template=5"], 2, ["spec.template"]),
    "no containers": (["--set", "spec.template.spec.containers=[]"], 2, ["containers: Required value"]),
    "a claim twice": (["--data", "c:/d", "--data", "c:/d"], 2, ["--data", "'c' is given twice"]),
    "two claims at one path": (["--data", "c:/d", "--data", "e:/d"], 2, ["/d is taken already"]),
    "annotations of 300 kB": (["--annotation", f"a={'x' * 100_000}", "--annotation", f"b={'x' * 100_000}",
                               "--annotation", f"c={'x' * 100_000}"], 2, ["Too long"]),
    "a label with an umlaut": (["--label", "a=ö"], 2, ["--label a: 'ö'"]),
    "a variable with an umlaut": (["--env", "Ü=1"], 2, ["--env: 'Ü'"]),
    "a toleration that is none": (["--toleration", "??"], 2, ["tolerations[0].key"]),
    "an image with a blank": (["--image", "my image"], 2, ["--image: 'my image'"]),
    "an image with an umlaut": (["--image", "bild:ü"], 2, ["--image: 'bild:ü'"]),
}  # fmt: skip


@pytest.mark.cluster
def test_what_is_refused_is_named_and_leaves_nothing(space: Space) -> None:
    for case, (given, code, words) in REFUSALS.items():
        result = submit(space, *given, "--env", "HF_TOKEN=x")
        assert result.exit_code == code, f"{case}: {result.stderr}"
        refused(result, code, *words)
    assert space.left() == set()


PATCHES = {
    "[1]": "a patch is a mapping",
    "": "a patch is a mapping",
    "{": "is not YAML",
    "spec: {template: {spec: {containers: 7}}}": "spec.template.spec.containers: expected array, got int",
    "spec: {template: {spec: {containers: [5]}}}": "spec.template.spec.containers[0]: expected object, got int",
    "spec: {template: {spec: {volumes: [{name: a, persistentVolumeClaim: 5}]}}}": "persistentVolumeClaim",
    "spec: {template: {spec: {containers: [{name: main, resources: {requests: 5}}]}}}": "resources.requests",
    "spec: {template: {spec: {nodeSelector: {a: true}}}}": "nodeSelector",
    "spec: {template: {metadata: 5}}": "spec.template.metadata: expected object, got int",
    "spec: {parallelism: two}": "spec.parallelism: expected int, got str",
    "spec: 5": "spec",
    "metadata: 5": "metadata: expected object, got int",
    "metadata: {namespace: other}": "metadata.namespace cannot be patched",
    "spec: {template: {spec: {containers: [{name: main, env: 5}]}}}": "containers.env",
}


@pytest.mark.cluster
def test_a_patch_of_wrong_types(space: Space) -> None:
    for text, words in PATCHES.items():
        result = submit(space, "--patch", str(space.cli.file("patch.yaml", text)))
        assert result.exit_code == 2, f"{text}: {result.stderr}"
        refused(result, 2, words)
    refused(submit(space, "--patch", "nope.yaml"), 3, "there is no file nope.yaml")
    assert space.left() == set()


OBJECTS = {
    "{apiVersion: batch/v1, kind: Job, metadata: 5}": (2, "document 1 is no object"),
    "{apiVersion: batch/v1, kind: Job, metadata: {name: 5}}": (2, "metadata.name"),
    "{apiVersion: batch/v1, kind: Job, metadata: {name: x}, spec: 5}": (2, "spec"),
    "{apiVersion: batch/v1beta1, kind: Job, metadata: {name: x}}": (5, "serves no Job of batch/v1beta1"),
    "{apiVersion: batch/v1, kind: [Job], metadata: {name: x}}": (2, "holds no job"),
    "{apiVersion: batch/v1, kind: Job, metadata: {name: x, namespace: 5}}": (2, "for namespace '5'"),
    "[]": (2, "a run file is a mapping"),
}


@pytest.mark.cluster
def test_an_object_in_a_file_that_cannot_be(space: Space) -> None:
    for text, (code, words) in OBJECTS.items():
        refused(space.cli("submit", "-f", str(space.cli.file("o.yaml", text))), code, words)
    assert space.kubectl("get", "jobs", "-o", "name") == ""


@pytest.mark.cluster
def test_quotas_and_limits(space: Space) -> None:
    space.apply(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
         "spec": {"hard": {"pods": "2", "requests.cpu": "4"}}},
        {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"},
         "spec": {"limits": [{"type": "Container", "max": {"memory": "1Gi"}, "min": {"memory": "64Mi"}}]}},
    )  # fmt: skip
    space.bed.wait("the quota", lambda: space.kubectl("get", "quota", "q", "-o", "jsonpath={.status.hard.pods}"))
    enough = ["--cpu", "1", "--memory", "256Mi"]
    refused(submit(space, "--memory", "256Mi"), 7, "quota 'q'", "requests.cpu", "add --cpu")
    refused(submit(space, *enough, "-w", "3"), 7, "pods: 3 asked, 0 used of 2", "--workers")
    refused(submit(space, "--cpu", "5", "--memory", "1Gi"), 7, "requests.cpu: 5 asked", "lower --cpu")
    refused(submit(space, "--cpu", "1", "--memory", "2Gi"), 7, "maximum memory usage per Container is 1Gi", "--memory")
    refused(
        submit(space, "--cpu", "1", "--memory", "32Mi"), 7, "minimum memory usage per Container is 64Mi", "--memory"
    )
    assert space.left() == set()
    assert submit(space, *enough).exit_code == 0


@pytest.mark.cluster
def test_restricted_pods(space: Space) -> None:
    space.bed.kubectl("label", "namespace", space.name, "pod-security.kubernetes.io/enforce=restricted")
    root = ("--set", "spec.template.spec.securityContext.runAsNonRoot=false")
    refused(submit(space, *root), 7, "takes restricted pods only", "runAsNonRoot", "--patch")
    assert space.left() == set()
    assert space.left() == set()


@pytest.mark.cluster
def test_no_operator(space: Space) -> None:
    result = space.cli("submit", "pytorch", "--name", "a", "--", "true")
    refused(result, 5, "serves no PyTorchJob", "training operator is not installed")
    assert space.left() == set()


@pytest.mark.cluster
def test_names_at_the_limit(space: Space) -> None:
    for count in (1, 3, 12):
        room = {1: 61, 3: 61, 12: 60}[count]
        words = ["-w", str(count)]
        refused(submit(space, *words, name="a" * (room + 1)), 2, f"has room for {room}", f"'{'a' * room}' fits")
        result = submit(space, *words, "--env", "A_TOKEN=x", name="a" * room)
        assert result.exit_code == 0, result.stderr
        assert space.cli("delete", "a" * room).exit_code == 0


@pytest.mark.cluster
def test_much_of_everything_arrives(space: Space) -> None:
    long = "x" * 100_000
    env = [word for number in range(300) for word in ("--env", f"V{number}=wert {number} äöü 日本 😀")]
    words = [
        "--name",
        "much",
        *env,
        "--annotation",
        "note=öäü 😀\nzwei",
        "--",
        "echo",
        "$HOME",
        "$$(X)",
        "日本",
        *[long] * 9,
    ]
    result = space.cli("submit", "job", *words)
    assert result.exit_code == 0, result.stderr
    job = json.loads(space.kubectl("get", "job", "much", "-o", "json"))
    (main,) = job["spec"]["template"]["spec"]["containers"]
    assert sum(one["name"].startswith("V") for one in main["env"]) == 300
    assert {"name": "V299", "value": "wert 299 äöü 日本 😀"} in main["env"]
    assert job["metadata"]["annotations"]["note"] == "öäü 😀\nzwei"
    shown = space.cli("get", "much", "-o", "json")
    assert shown.exit_code == 0, shown.stderr
    assert space.cli("export", "much").exit_code == 0
    too_much = space.cli("submit", "job", "--name", "more", "--", "echo", *[long] * 18)
    assert too_much.exit_code == 2, too_much.stderr[-500:]
    assert "Error: " in too_much.stderr
    assert len(too_much.stderr) < 2000
    assert not [one for one in space.left() if "more" in one]


@pytest.mark.cluster
def test_two_submits_of_one_name_at_once(space: Space) -> None:
    words = ["submit", "job", "--name", "twin", "--env", "A_TOKEN=x", "--", "true"]
    both = [space.cli.start(*words) for _ in range(2)]
    ends = [(process.communicate(timeout=60), process.returncode) for process in both]
    assert sorted(code for _, code in ends) == [0, 4], ends
    (loser,) = [said for (_, said), code in ends if code == 4]
    assert "job 'twin' already exists" in loser
    assert "Traceback" not in loser
    kinds = sorted(one.partition("/")[0] for one in space.left())
    assert kinds.count("secret") == 1
    assert kinds.count("job.batch") == 1


@pytest.mark.cluster
def test_what_others_own_is_not_deleted(space: Space) -> None:
    assert submit(space).exit_code == 0
    other = {"KUBECONFIG": str(space.without("services")), "ARENA_USER": "other"}
    refused(space.cli("delete", "a", env=other), 7, "job 'a' of admin is PENDING", "--force")
    assert "job.batch/a" in space.left()
    assert space.cli("delete", "a", "--force", env=other).exit_code == 0
    assert "job.batch/a" not in space.left()


# --- faults on the way ---------------------------------------------------------------------------------------

BROKEN: dict[str, tuple[Object, str]] = {
    "429": ({"status": 429}, "says TooManyRequests"),
    "500": ({"status": 500}, "says InternalError"),
    "503": ({"status": 503}, "says ServiceUnavailable"),
    "cut": ({"cut": 20}, "broke"),
}


@pytest.mark.cluster
@pytest.mark.parametrize("kind", BROKEN)
def test_a_submit_that_fails_in_the_middle_leaves_nothing(space: Space, proxy: FaultProxy, kind: str) -> None:
    fault, words = BROKEN[kind]
    proxy.add(Fault(method="POST", path=r"/jobs\?(?!.*dryRun)", **fault))
    result = submit(space, "-w", "2", "--env", "A_TOKEN=x")
    if kind == "cut":  # the server has made it: whoever looks finds it, and it is whole
        assert result.exit_code in (0, 6), result.stderr
        assert "Traceback" not in result.stderr
        proxy.clear()
        assert space.cli("delete", "a").exit_code == 0
    else:
        refused(result, 6, words)
    space.bed.wait("nothing left", lambda: not space.left())  # helpers go with their owner, a moment later


@pytest.mark.cluster
def test_a_submit_that_is_put_off_is_made_again(space: Space, proxy: FaultProxy) -> None:
    proxy.add(Fault(method="POST", status=429, retry_after=1, times=1))
    assert submit(space).exit_code == 0


@pytest.mark.cluster
@pytest.mark.parametrize("kind", BROKEN)
def test_a_list_that_fails_is_no_empty_list(space: Space, proxy: FaultProxy, kind: str) -> None:
    assert submit(space).exit_code == 0
    proxy.add(Fault(method="GET", path="/(jobs|pods)", **BROKEN[kind][0]))
    result = space.cli("list", "-o", "json")
    assert (result.exit_code, result.stdout) == (6, ""), result.stderr
    assert "error" in result.last


@pytest.mark.cluster
def test_pods_that_cannot_be_listed_leave_the_jobs(space: Space, proxy: FaultProxy) -> None:
    assert submit(space).exit_code == 0
    proxy.add(Fault(method="GET", path="/pods", status=500))
    result = space.cli("list")
    assert result.exit_code == 6
    assert "a " in result.stdout
    assert "pods are left out" in result.stderr


@pytest.mark.cluster
def test_kinds_that_are_not_served_are_not_missed(space: Space, proxy: FaultProxy) -> None:
    proxy.hide("Job")
    refused(submit(space), 5, "serves no Job")
    assert (space.cli("list", "-o", "json").json, space.cli("list").exit_code) == ([], 0)


@pytest.mark.cluster
@pytest.mark.parametrize("kind", ["429", "500", "503", "cut"])
def test_a_wait_goes_on_after_a_fault(space: Space, proxy: FaultProxy, kind: str) -> None:
    assert submit(space).exit_code == 0
    waiting = space.cli.start("wait", "a")
    space.bed.wait("a watch", lambda: len(proxy.requests(path="watch=true")) >= 4)
    proxy.add(Fault(method="GET", times=4, **BROKEN[kind][0]))
    proxy.cut_streams()
    time.sleep(1)
    ended = {"status": {"conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]}}
    space.kubectl("patch", "job", "a", "--subresource=status", "--type=merge", "-p", json.dumps(ended))
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    ended["status"] |= {"startTime": now, "completionTime": now, "succeeded": 1}  # type: ignore[dict-item]
    ended["status"]["conditions"].append({"type": "Complete", "status": "True"})
    space.kubectl("patch", "job", "a", "--subresource=status", "--type=merge", "-p", json.dumps(ended), check=False)
    _, said = waiting.communicate(timeout=60)
    assert waiting.returncode == 0, said
    assert "Traceback" not in said


# --- this machine --------------------------------------------------------------------------------------------


@pytest.mark.cluster
def test_a_state_folder_that_cannot_be_written_is_one_warning(space: Space) -> None:
    env = {"ARENA_STATE_DIR": "/proc/nowhere"}
    for words in (
        ["submit", "job", "--name", "a", "--", "true"],
        ["get", "a"],
        ["list"],
        ["why", "a"],
        ["delete", "a"],
    ):
        result = space.cli(*words, env=env)
        assert result.exit_code == 0, result.stderr
        assert result.stderr.count("/proc/nowhere") <= 1, result.stderr
        assert "Traceback" not in result.stderr
    assert "/proc/nowhere" in space.cli("submit", "job", "--name", "b", "--", "true", env=env).stderr


@pytest.fixture(scope="session")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that makes a program's clock wrong."""
    library = tmp_path_factory.mktemp("clock") / "clock.so"
    source = Path(__file__).with_name("clock.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


@pytest.mark.cluster
@pytest.mark.parametrize("shift", ["600", "86400"])
def test_a_clock_that_is_wrong_changes_nothing(space: Space, clock: Path, shift: str) -> None:
    env = {"LD_PRELOAD": str(clock), "CLOCK_SHIFT": shift}
    assert submit(space, env=env).exit_code == 0
    seen = space.cli("get", "a", "-o", "json", env=env)
    assert (seen.exit_code, seen.json["state"]) == (0, "PENDING"), seen.stderr
    assert "a " in space.cli("list", env=env).stdout
    refused(submit(space, env=env), 4, "already exists")
    assert space.cli("delete", "a", env=env).exit_code == 0


HANG: Object = {"metadata": {"finalizers": ["example.com/hang"]}}


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.timeout(120)
def test_a_job_that_a_finalizer_holds(space: Space) -> None:
    assert submit(space).exit_code == 0
    space.kubectl("patch", "job", "a", "--type=merge", "-p", json.dumps(HANG))
    try:
        deleting = space.cli.start("delete", "a")
        _, said = deleting.communicate(timeout=60)
        assert (deleting.returncode, "held by finalizer example.com/hang" in said) == (6, True), said
        refused(submit(space), 4, "is not gone yet", "example.com/hang")
        assert "example.com/hang" in space.cli("get", "a").stdout
    finally:
        space.kubectl("patch", "job", "a", "--type=json", '-p=[{"op":"remove","path":"/metadata/finalizers"}]')
    space.bed.wait("its end", lambda: space.cli("get", "a").exit_code == 3)
    assert submit(space).exit_code == 0


@pytest.mark.cluster
def test_a_webhook_that_is_down(space: Space) -> None:
    name = f"down-{space.name}.example.com"
    rule = {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}
    hook = {
        "name": name,
        "rules": [rule],
        "clientConfig": {"service": {"name": "gone", "namespace": space.name}},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": space.name}},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    kind = "ValidatingWebhookConfiguration"
    version = "admissionregistration.k8s.io/v1"
    space.apply({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "webhooks": [hook]})
    try:
        names = (f"b{number}" for number in itertools.count())  # before the webhook is known they are taken
        space.bed.wait("the webhook", lambda: submit(space, name=next(names)).exit_code == 6)
        words = f"its webhook {name} is down", f"look at gone in namespace {space.name}"
        refused(submit(space, "--env", "A_TOKEN=x"), 6, *words)
        assert not [one for one in space.left() if one.startswith(("secret", "service", "job.batch/a"))]
    finally:
        space.kubectl("delete", kind, name)


# --- real pods -----------------------------------------------------------------------------------------------

LONG = pytest.mark.timeout(150)


@pytest.mark.kubelet
@LONG
def test_without_the_right_to_read_logs_the_job_s_code_comes_all_the_same(alive: Space) -> None:
    env = {"KUBECONFIG": str(alive.without("pods/log"))}
    ran = alive.cli("run", "--name", "a", "--", "sh", "-c", "echo hi; exit 3", env=env)
    assert ran.exit_code == 3, ran.stderr
    assert "its logs are not shown: you may not get pods/log" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert "failed with code 3" in alive.cli("why", "a", env=env).stdout
    refused(alive.cli("logs", "a", env=env), 7, "you may not get pods/log", "arena doctor --role")
    refused(alive.cli("logs", "-f", "a", env=env), 7, "you may not get pods/log")
    assert alive.cli("delete", "a", env=env).exit_code == 0


@pytest.mark.kubelet
@LONG
def test_without_the_right_to_read_pods_the_object_tells(alive: Space) -> None:
    env = {"KUBECONFIG": str(alive.without("pods", "pods/log"))}
    ran = alive.cli("run", "--name", "a", "--", "sh", "-c", "exit 3", env=env)
    assert ran.exit_code == 1, ran.stderr  # nobody saw the code
    assert "FAILED" in ran.stderr
    assert "Traceback" not in ran.stderr
    listed = alive.cli("list", env=env)
    assert (listed.exit_code, "FAILED" in listed.stdout, "pods are left out" in listed.stderr) == (0, True, True)
    assert "its pods are not seen" in alive.cli("get", "a", env=env).stdout
    assert "pods may not be read" in alive.cli("why", "a", env=env).stderr
    assert alive.cli("wait", "a", env=env).exit_code == 1
    refused(alive.cli("logs", "a", env=env), 7, "you may not list pods")
    gone = alive.cli("delete", "a", env=env)
    assert (gone.exit_code, "whether its pods have ended is not seen" in gone.stderr) == (0, True), gone.stderr


@pytest.mark.kubelet
@LONG
def test_without_the_right_to_read_events_why_says_so(alive: Space) -> None:
    env = {"KUBECONFIG": str(alive.without("events"))}
    ran = alive.cli("run", "--name", "a", "--", "sh", "-c", "echo hi; exit 3", env=env)
    assert ran.exit_code == 3, ran.stderr
    told = alive.cli("why", "a", env=env)
    assert "failed with code 3" in told.stdout
    assert "events may not be read" in told.stdout + told.stderr


@pytest.mark.kubelet
@LONG
def test_a_token_that_expires_in_the_middle_of_a_wait(alive: Space) -> None:
    env = {"KUBECONFIG": str(alive.bed.kubeconfig("alice", "exec")), "ARENA_JOB_NAMESPACE": "team-a"}
    line = "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 2; done; exit 5"
    ran = alive.cli("run", "--name", alive.name, "--", "sh", "-c", line, env=env)
    assert ran.exit_code == 5, ran.stderr
    assert ran.stdout.split() == [str(number) for number in range(1, 9)]
    assert alive.cli("delete", alive.name, env=env).exit_code == 0


STUBBORN = "trap '' TERM; while :; do sleep 1; done"


@pytest.mark.kubelet
@LONG
def test_a_name_whose_old_pods_are_still_ending(alive: Space) -> None:
    grace = "spec.template.spec.terminationGracePeriodSeconds=20"
    alive.cli("run", "-d", "--name", "a", "-w", "2", "--set", grace, "--", "sh", "-c", STUBBORN)
    alive.cli.running("a")
    assert alive.cli("delete", "a", "--no-wait").exit_code == 0
    ran = alive.cli("run", "--name", "a", "-w", "2", "--", "sh", "-c", "echo new; exit 4")
    assert ran.exit_code == 4, ran.stderr
    assert set(ran.stdout.splitlines()) <= {"worker-0 | new", "worker-1 | new"}
    seen = alive.cli("get", "a", "-o", "json")
    assert seen.exit_code == 0, seen.stderr
    assert seen.json["state"] == "FAILED"


@pytest.mark.kubelet
@LONG
def test_a_name_whose_old_pods_nobody_owns(alive: Space) -> None:
    alive.cli("run", "-d", "--name", "a", "--", "sh", "-c", PATIENT)
    alive.cli.running("a")
    alive.kubectl("delete", "job", "a", "--cascade=orphan")
    ran = alive.cli("run", "--name", "a", "--", "sh", "-c", "echo new; exit 4")
    assert (ran.exit_code, ran.stdout) == (4, "new\n"), ran.stderr
    seen = alive.cli.job("a")
    assert (seen["state"], len(seen["replicas"])) == ("FAILED", 1)
    assert alive.cli("delete", "a").exit_code == 0


@pytest.mark.kubelet
@LONG
def test_what_no_node_has_is_a_warning_and_a_cause(alive: Space) -> None:
    made = alive.cli("run", "-d", "--name", "a", "--device", "example.com/fpga=1", "--", "true")
    assert made.exit_code == 0, made.stderr
    assert "no node fits today: 1 example.com/fpga is asked for, the largest node has none" in made.stderr
    alive.cli.until(lambda: "example.com/fpga" in alive.cli("why", "a").stdout)
    assert alive.cli("delete", "a").exit_code == 0


@pytest.mark.kubelet
@LONG
def test_output_that_nobody_takes(alive: Space) -> None:
    alive.cli("run", "-d", "--name", "a", "--", "sh", "-c", "for i in $(seq 100000); do echo $i; done; sleep 1")
    alive.cli.until(lambda: alive.cli("logs", "a").stdout)
    piped = alive.cli.shell("arena logs -f a | head -1; echo codes ${PIPESTATUS[@]}")
    assert piped.stdout == "1\ncodes 0 0\n", piped
    full = alive.cli.shell("arena logs -f a > /dev/full; echo code $?")
    assert full.stdout == "code 6\n", full
    assert "No space left" in full.stderr
    assert "Traceback" not in full.stderr + piped.stderr


@pytest.mark.kubelet
@LONG
def test_a_state_folder_that_cannot_be_written_is_one_warning_of_a_run(alive: Space) -> None:
    ran = alive.cli("run", "--name", "a", "--", "sh", "-c", "echo hi; exit 3", env={"ARENA_STATE_DIR": "/proc/nowhere"})
    assert (ran.exit_code, ran.stdout) == (3, "hi\n"), ran.stderr
    assert ran.stderr.count("/proc/nowhere") == 1, ran.stderr


@pytest.mark.kubelet
@LONG
@pytest.mark.parametrize("kind", BROKEN)
def test_a_run_goes_on_over_faults(alive: Space, kind: str) -> None:
    with FaultProxy(alive.bed) as between:
        env = {"KUBECONFIG": str(between.kubeconfig("admin"))}
        line = "for i in 1 2 3 4 5 6 7 8; do echo line $i; sleep 1; done; exit 5"
        running = alive.cli.start("run", "--name", "a", "--", "sh", "-c", line, env=env)
        alive.bed.wait("its log", lambda: between.requests(path="/log"))
        time.sleep(1)
        between.add(Fault(method="GET", times=5, **BROKEN[kind][0]))
        between.cut_streams()
        out, said = running.communicate(timeout=90)
    assert running.returncode == 5, said
    assert out == "".join(f"line {number}\n" for number in range(1, 9))
    assert "Traceback" not in said


@pytest.mark.kubelet
@LONG
@pytest.mark.parametrize(("kind", "engine"), [("pytorch", "pytorchjob"), ("tensorflow", "tfjob"), ("mpi", "mpijob")])
def test_operators_refuse_and_take(alive: Space, kind: str, engine: str) -> None:
    refused(alive.cli("submit", kind, "--name", "a", "--set", "spec.bla=1", "--", "true"), 2, "no field spec.bla")
    assert alive.left() == set()
    made = alive.cli("submit", kind, "--name", "a", "-o", "json", "--", "true")
    assert (made.exit_code, made.json["engine"]) == (0, engine), made.stderr
    assert alive.cli("delete", "a").exit_code == 0


@pytest.mark.kubelet
@LONG
def test_the_last_minute_is_the_last_minute_of_the_cluster_s_clock(alive: Space, clock: Path) -> None:
    ran = alive.cli("run", "--name", "a", "--", "echo", "hi")
    assert (ran.exit_code, ran.stdout) == (0, "hi\n"), ran.stderr
    env = {"LD_PRELOAD": str(clock), "CLOCK_SHIFT": "600"}
    for more in ({}, {"ARENA_STATE_DIR": str(alive.cli.cwd / "other")}):
        shown = alive.cli("logs", "a", "--since", "5m", env={**env, **more})
        assert (shown.exit_code, shown.stdout) == (0, "hi\n"), shown.stderr


@pytest.mark.cluster
def test_an_object_whose_answer_is_lost_keeps_what_it_needs(space: Space, proxy: FaultProxy) -> None:
    proxy.add(Fault(method="POST", path=r"/jobs\?(?!.*dryRun)", cut=20))
    pod = {
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "none", "envFrom": [{"configMapRef": {"name": "h"}}]}],
    }
    thing = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "own"}, "spec": {"template": {"spec": pod}}}
    helper = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "h"}, "data": {"A": "b"}}
    both = json.dumps({"apiVersion": "v1", "kind": "List", "items": [helper, thing]})
    result = space.cli("submit", "-f", str(space.cli.file("own.json", both)))
    assert result.exit_code == 6, result.stderr
    assert space.kubectl("get", "job/own", "cm/h", "-o", "name").split() == ["job.batch/own", "configmap/h"]
