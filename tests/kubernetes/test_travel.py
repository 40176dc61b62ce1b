"""How code travels: what is packed and what is not, who shares it, and what arrives in real pods."""

import base64
import hashlib
import io
import json
import os
import tarfile
import time
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from testbed.bed import Bed
from testbed.images import BARE, WORK

import arena
from arena import code
from arena.backends.base import Context
from arena.backends.kubernetes import stored, travel
from arena.backends.kubernetes.backend import KubernetesBackend
from arena.backends.kubernetes.stored import Store
from arena.backends.kubernetes.travel import Parcel, pack
from arena.errors import BackendError, SpecError, UnsupportedError
from arena.job import Job
from arena.jobs.plain import PlainJob
from arena.jobs.pytorch import PyTorchJob
from arena.settings import Settings

JOB = PlainJob(command=("train.py",))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with files that are awkward to carry."""
    folder = tmp_path / "p"
    (folder / "src").mkdir(parents=True)
    (folder / "arena.yaml").touch()
    (folder / "train.py").write_text("import hashlib\n")
    (folder / "src" / "a b 'c' $(d) ü.txt").write_bytes(bytes(range(256)))
    (folder / "src" / "new\nline").write_text("x")
    (folder / ("long" * 40)).write_text("long")
    (folder / "run.sh").write_text("echo run\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "empty").touch()
    (folder / "link").symlink_to("src/new\nline")
    return folder


def settings(**flags: object) -> Settings:
    return Settings.load(flags, {"HOME": "/nonexistent"}, Path("/"))


def context(cwd: Path, root: Path | None = None, **more: Any) -> Context:
    return Context(cwd=str(cwd), code=str(root or cwd), python="/usr/bin/python3.11", **more)


def packed(job: Job, where: Context, **flags: object) -> Parcel:
    found = pack(job, where, settings(**flags))
    assert found is not None
    return found


def members(parcel: Parcel) -> dict[str, tarfile.TarInfo]:
    assert parcel.code
    data = base64.b64decode(parcel.manifests[0]["binaryData"][parcel.code.key])
    assert hashlib.sha256(data).hexdigest() == parcel.code.sha256
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {member.name: member for member in archive}


def test_the_same_files_are_the_same_bytes_whoever_packs_them(project: Path, tmp_path: Path) -> None:
    first = packed(JOB, context(project))
    other = tmp_path / "other"
    code.restore(code.capture(project, tmp_path / "store"), tmp_path / "store", other)
    for path in other.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(path.stat().st_mode | 0o060)  # another umask
            os.utime(path, (1, 1))
    assert packed(JOB, context(other)).manifests == first.manifests
    (other / "empty").write_text("no more")
    assert packed(JOB, context(other)).manifests != first.manifests


def test_no_run_is_named_in_what_runs_share(project: Path) -> None:
    (manifest,) = packed(JOB, context(project)).manifests
    assert manifest["metadata"]["labels"] == {
        "app.kubernetes.io/managed-by": "arena",
        "arena.kubeflow.org/part": "code",
    }
    assert manifest["metadata"]["name"].startswith("arena-code-")
    assert int(manifest["metadata"]["annotations"][travel.SIZE_ANNOTATION]) > 1000


def test_links_and_programs_stay_what_they_are_and_everybody_may_read(project: Path) -> None:
    (project / "train.py").chmod(0o600)
    found = members(packed(JOB, context(project)))
    assert found["run.sh"].mode == 0o755
    assert found["train.py"].mode == 0o644
    assert found["link"].linkname == "src/new\nline"
    assert {(one.uid, one.gid, one.uname) for one in found.values()} == {(0, 0, "")}


def test_keys_stay_here_and_what_stays_is_told(project: Path) -> None:
    (project / ".git").mkdir()
    (project / ".arenaignore").write_text("data/\n")
    (project / "data").mkdir()
    (project / "data" / "x").touch()
    (project / ".env").write_text("TOKEN=1")
    (project / "id_rsa").write_text("KEY")
    parcel = packed(JOB, context(project))
    assert not {".env", "id_rsa", "data/x"} & set(members(parcel))
    told = "\n".join(parcel.notes)
    assert "data/ is ignored by .arenaignore" in told
    assert "by git" not in told
    assert "id_rsa" in told
    assert "--output" in told
    assert "KEY" not in json.dumps(parcel.manifests)


@pytest.mark.parametrize("command", [("train.py",), ("python3", "train.py", ".ssh/id_rsa"), ("sh train.sh",)])
def test_out_of_a_home_folder_only_the_script_travels(tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_rsa").write_text("KEY")
    for name in ("train.py", "train.sh", "diary.txt"):
        (tmp_path / name).write_text("x")
    where = Context(cwd=str(tmp_path), code="")
    parcel = packed(PlainJob(command=command), where)
    script = command[-1].split()[-1] if len(command) == 1 else command[1]
    assert set(members(parcel)) == {script}
    assert parcel.notes[0].startswith(f"only {script} travels")
    nothing = packed(PlainJob(command=("true",)), where)
    assert nothing.code is None
    assert nothing.notes[0].startswith("no code travels")


def test_too_much_is_refused_and_names_the_largest(project: Path) -> None:
    for number in range(8):
        (project / f"weights-{number}.bin").write_bytes(os.urandom(100_000 + 50_000 * number))
    with pytest.raises(SpecError, match="too large") as caught:
        packed(JOB, context(project))
    assert [f"weights-{number}" in caught.value.why for number in range(8)] == [False] * 3 + [True] * 5
    for way in (".arenaignore", "--image", "git"):
        assert way in caught.value.hint
    assert "upload.max" not in caught.value.hint
    with pytest.raises(SpecError, match="too large") as caught:
        packed(JOB, context(project), upload_max="300k")
    assert "upload.max" in caught.value.hint


def test_what_travels_fits_into_a_configmap(project: Path) -> None:
    (project / "weights.bin").write_bytes(os.urandom(990_000))
    assert len(json.dumps(packed(JOB, context(project)).manifests[0])) < 1.4 * 2**20  # etcd takes 1.5


def test_nothing_travels_when_it_is_turned_off_or_there_is_nothing(project: Path, tmp_path: Path) -> None:
    off = packed(JOB, context(project), upload_max="0")
    assert off.code is None
    assert "upload.max" in off.facts[0]
    empty = tmp_path / "nothing"
    empty.mkdir()
    assert packed(JOB, context(empty)).code is None


def test_arena_gos_commands_bring_nothing(project: Path) -> None:
    job = PyTorchJob(command=("train.py",))
    assert pack(job, context(project, creates="type"), settings()) is None
    assert packed(job, context(project, creates="run")).code
    assert packed(JOB, context(project, creates="type")).code  # submit job is ours


def test_the_program_starts_in_the_same_relative_folder(project: Path, tmp_path: Path) -> None:
    assert packed(JOB, context(project)).working_dir == ""
    assert packed(JOB, context(project / "src", project)).working_dir == "src"
    deeper = PlainJob(command=("x",), working_dir="src")
    assert packed(deeper, context(project)).working_dir == "src"
    inside = PlainJob(command=("x",), working_dir=str(project / "src"))
    assert packed(inside, context(project)).working_dir == "src"
    image = PlainJob(command=("x",), working_dir="/workspace")
    assert packed(image, context(project)).working_dir == "/workspace"
    outside = PlainJob(command=("x",), working_dir="..")
    with pytest.raises(SpecError, match="outside the project"):
        packed(outside, context(project))


def test_a_folder_without_files_is_there_to_start_in(project: Path) -> None:
    (project / "out").mkdir()
    found = members(packed(JOB, context(project / "out", project)))
    assert found["out"].isdir()


def test_the_programs_absolute_path_is_that_of_the_pods_and_other_words_stay(project: Path) -> None:
    script = str(project / "train.py")
    job = PlainJob(command=(script, "--config", str(project / "empty")))
    assert packed(job, context(project)).renamed[script] == "/arena/code/train.py"
    assert str(project / "empty") not in packed(job, context(project)).renamed
    assert packed(JOB, context(project)).renamed == {"/usr/bin/python3.11": "python3"}


def test_recorded_code_travels_as_it_was(project: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    captured = code.capture(project, store)
    now = packed(JOB, context(project))
    (project / "train.py").write_text("changed")
    again = pack(JOB, context(project), settings(), recorded=travel.Recorded(captured, store, "src"))
    assert again
    assert again.working_dir == "src"
    assert again.script == ""
    assert [one.name for one in members(again).values()] == [one.name for one in members(now).values()]
    at_top = pack(JOB, context(project), settings(), recorded=travel.Recorded(captured, store))
    assert at_top
    assert at_top.manifests == now.manifests
    assert at_top.script == "import hashlib\n"


# --- on a cluster ------------------------------------------------------------------------------------------


@pytest.fixture
def namespace(node: Bed) -> Iterator[str]:
    name = f"t{uuid.uuid4().hex[:8]}"
    node.kubectl("create", "namespace", name)
    node.wait("an account", lambda: node.kubectl("-n", name, "get", "sa", "default", "-o", "name", check=False))
    yield name
    node.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def client(job_env: dict[str, str], node: Bed, namespace: str, project: Path) -> arena.Client:
    more = {"KUBECONFIG": str(node.kubeconfig()), "ARENA_JOB_NAMESPACE": namespace, "ARENA_IMAGE": WORK}
    return arena.Client(backend="kubernetes", env={**job_env, **more}, cwd=project)


LOOK = """
import hashlib, json, os, sys
found = {}
for place, folders, names in os.walk(os.fsencode(sys.argv[1])):
    for name in names:
        path = os.path.join(place, name)
        link = os.path.islink(path)
        what = os.readlink(path) if link else hashlib.sha256(open(path, "rb").read()).digest()
        found[os.path.relpath(path, os.fsencode(sys.argv[1])).hex()] = [what.hex(), bool(os.access(path, os.X_OK))]
print(json.dumps([os.getcwd(), found], sort_keys=True))
"""


def logs(node: Bed, namespace: str, job: str, *words: str) -> list[str]:
    selector = f"arena.kubeflow.org/job={job}"
    return node.kubectl("-n", namespace, "logs", "-l", selector, "--tail=-1", *words).splitlines()


def as_here(project: Path) -> Mapping[str, Any]:
    import subprocess
    import sys

    words = [sys.executable, "-IS", "-c", LOOK, str(project)]
    return dict(json.loads(subprocess.run(words, capture_output=True, check=True).stdout)[1])


@pytest.mark.kubelet
@pytest.mark.timeout(180)
def test_code_arrives_byte_for_byte_on_every_rank(
    client: arena.Client, node: Bed, namespace: str, project: Path
) -> None:
    (project / os.fsdecode(b"not-\xff-utf8")).write_text("x")
    below = arena.Client(backend="kubernetes", env=client.env, cwd=project / "src")
    job = below.run(["python3", "-IS", "-c", LOOK, "/arena/code"], name="look", workers=3)
    assert job.wait(120).state is arena.State.SUCCEEDED
    lines = logs(node, namespace, "look")
    assert len(lines) == 3
    assert {json.dumps(json.loads(line)[0]) for line in lines} == {'"/arena/code/src"'}
    assert [json.loads(line)[1] for line in lines] == [as_here(project)] * 3


@pytest.mark.kubelet
@pytest.mark.timeout(180)
def test_a_large_folder_and_an_absolute_program(client: arena.Client, node: Bed, namespace: str, project: Path) -> None:
    (project / "large.bin").write_bytes(os.urandom(700_000))
    (project / "train.py").write_text("import sys; print(sys.argv, len(open('large.bin', 'rb').read()))")
    job = client.run([str(project / "train.py"), "a b"], name="large")
    assert job.wait(120).state is arena.State.SUCCEEDED
    assert logs(node, namespace, "large") == ["['/arena/code/train.py', 'a b'] 700000"]


@pytest.mark.kubelet
@pytest.mark.timeout(180)
def test_an_image_with_sh_and_tar_alone_takes_code(client: arena.Client, node: Bed, namespace: str) -> None:
    job = client.run("read line < train.py; echo $line; [ -x run.sh ]", name="bare", image=BARE)
    assert job.wait(120).state is arena.State.SUCCEEDED
    assert logs(node, namespace, "bare") == ["import hashlib"]


@pytest.mark.kubelet
@pytest.mark.timeout(180)
def test_other_code_than_was_sent_does_not_run(client: arena.Client, node: Bed, namespace: str) -> None:
    plan = client.plan(PlainJob(command=("sh", "-c", "echo ran"), name="forged"), creates="run")
    (forged,) = [one for one in plan.data.helpers if one["kind"] == "ConfigMap"]
    other = json.loads(json.dumps(forged))
    other["binaryData"] = {key: base64.b64encode(b"something else").decode() for key in forged["binaryData"]}
    node.kubectl("-n", namespace, "create", "-f", "-", given=json.dumps(other))
    seen = client.submit(plan).wait(120)
    assert seen.state is arena.State.FAILED
    assert "the code is not what was sent" in "\n".join(logs(node, namespace, "forged", "-c", "arena-code"))


@pytest.mark.kubelet
@pytest.mark.timeout(180)
def test_code_comes_before_the_operators_own_init_container(client: arena.Client, node: Bed, namespace: str) -> None:
    job = PyTorchJob(command=("python3", "-c", "import time; time.sleep(3)"), workers=2, name="torch")
    handle = client.run(job)
    words = ("-n", namespace, "get", "pod", "torch-worker-0", "-o", "jsonpath={.spec.initContainers[*].name}")
    found = node.wait("the worker", lambda: node.kubectl(*words, check=False).strip())
    assert found.split() == ["arena-code", "init-pytorch"]
    assert handle.wait(120).state is arena.State.SUCCEEDED


@pytest.mark.kubelet
@pytest.mark.timeout(180)
def test_a_quota_that_demands_limits_is_satisfied(client: arena.Client, node: Bed, namespace: str) -> None:
    hard = {"limits.memory": "1Gi", "limits.cpu": "4", "requests.cpu": "4", "requests.memory": "1Gi"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}}
    node.kubectl("-n", namespace, "create", "-f", "-", given=json.dumps(quota))
    time.sleep(1)
    job = client.run("true", name="small", cpu="100m", memory="64Mi")
    assert job.wait(120).state is arena.State.SUCCEEDED


def code_of(node: Bed, namespace: str) -> dict[str, list[str]]:
    """The code that a namespace holds, and the names of its owners."""
    found = json.loads(node.kubectl("-n", namespace, "get", "cm", "-l", stored.LABELS, "-o", "json"))["items"]
    return {
        one["metadata"]["name"]: sorted(owner["name"] for owner in one["metadata"].get("ownerReferences", []))
        for one in found
    }


@pytest.mark.kubelet
@pytest.mark.timeout(180)
def test_runs_share_code_and_the_last_one_takes_it_away(client: arena.Client, node: Bed, namespace: str) -> None:
    first = client.run("true", name="first")
    second = client.run("true", name="second")
    (owners,) = code_of(node, namespace).values()
    assert owners == ["first", "second"]
    first.wait(60)
    first.delete()
    third = client.run("true", name="third")
    second.wait(60)
    second.delete()
    assert third.wait(60).state is arena.State.SUCCEEDED
    node.wait("one owner", lambda: list(code_of(node, namespace).values()) == [["third"]] or None)
    third.delete()
    node.wait("no code", lambda: not code_of(node, namespace) or None)


@pytest.fixture
def store(client: arena.Client, namespace: str) -> Store:
    backend = client.backend("kubernetes")
    assert isinstance(backend, KubernetesBackend)
    return Store(backend.api, namespace)


def make_code(node: Bed, namespace: str, name: str, size: int, owner: Mapping[str, Any] | None = None) -> None:
    metadata: dict[str, Any] = {
        "name": name,
        "labels": {"app.kubernetes.io/managed-by": "arena", "arena.kubeflow.org/part": "code"},
        "annotations": {travel.SIZE_ANNOTATION: str(size)},
        "ownerReferences": [owner] if owner else [],
    }
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    node.kubectl("-n", namespace, "create", "-f", "-", given=json.dumps(manifest))


@pytest.mark.kubelet
@pytest.mark.timeout(180)
def test_code_that_a_killed_submit_left_goes_once_it_is_old(node: Bed, namespace: str, store: Store) -> None:
    make_code(node, namespace, "arena-code-left", 10)
    make_code(node, namespace, "arena-code-taken", 10)
    store.read()
    now = datetime.now(UTC)
    assert store.room_for([], now) == []
    going = store.room_for([], now + timedelta(minutes=11))
    assert [one.name for one in going] == ["arena-code-left", "arena-code-taken"]
    node.kubectl("-n", namespace, "annotate", "cm", "arena-code-taken", "somebody=needs-it")
    for one in going:
        store.remove(one)
    assert list(code_of(node, namespace)) == ["arena-code-taken"]


@pytest.mark.kubelet
@pytest.mark.timeout(180)
def test_no_more_than_so_much_code_and_that_of_ended_runs_goes_first(
    client: arena.Client, node: Bed, namespace: str, store: Store
) -> None:
    for name, script in (("over", "true"), ("alive", "sleep 100")):
        client.run(script, name=name)
    assert client.get("over").wait(60).state is arena.State.SUCCEEDED
    for name in ("over", "alive"):
        uid = node.kubectl("-n", namespace, "get", "job", name, "-o", "jsonpath={.metadata.uid}").strip()
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}
        make_code(node, namespace, f"arena-code-{name}", 4_900_000, owner)
    new = {"metadata": {"name": "arena-code-new", "labels": {"arena.kubeflow.org/part": "code"},
                        "annotations": {travel.SIZE_ANNOTATION: "900000"}}}  # fmt: skip
    store.read()
    assert [one.name for one in store.room_for([new], datetime.now(UTC))] == ["arena-code-over"]
    new["metadata"]["annotations"] = {travel.SIZE_ANNOTATION: "9000000"}
    with pytest.raises(BackendError, match="of code"):
        store.room_for([new], datetime.now(UTC))


@pytest.mark.kubelet
@pytest.mark.timeout(180)
def test_defaults_that_changed_are_taken_though_others_were_remembered(
    client: arena.Client, node: Bed, namespace: str
) -> None:
    values = {"patch": "metadata: {labels: {team: one}}"}
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "arena-defaults"}, "data": values}
    node.kubectl("-n", namespace, "create", "-f", "-", given=json.dumps(manifest))
    client.run("true", name="one")
    node.kubectl("-n", namespace, "patch", "cm", "arena-defaults", "--type=merge", "-p",
                 json.dumps({"data": {"patch": "metadata: {labels: {team: two}}"}}))  # fmt: skip
    arena.Client(backend="kubernetes", env=client.env, cwd=client.cwd).run("true", name="two")
    words = ("-n", namespace, "get", "jobs", "-o", "jsonpath={.items[*].metadata.labels.team}")
    assert node.kubectl(*words).split() == ["one", "two"]


@pytest.mark.kubelet
@pytest.mark.timeout(180)
@pytest.mark.parametrize("spoilt", [{"patch": "metadata: [1"}, {"image": "required"}])
def test_defaults_that_were_put_right_are_taken_though_spoilt_ones_were_remembered(
    client: arena.Client, node: Bed, namespace: str, spoilt: dict[str, str]
) -> None:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "arena-defaults"}, "data": spoilt}
    node.kubectl("-n", namespace, "create", "-f", "-", given=json.dumps(manifest))
    env = {name: value for name, value in client.env.items() if name != "ARENA_IMAGE"}
    again = arena.Client(backend="kubernetes", env=env, cwd=client.cwd)
    job = PlainJob(name="one", command=("true",))
    for _ in range(2):
        with pytest.raises((SpecError, UnsupportedError), match=r"arena-defaults"):
            again.plan(job)
    node.kubectl("-n", namespace, "delete", "cm", "arena-defaults")
    assert again.plan(job).name == "one"


@pytest.mark.kubelet
@pytest.mark.timeout(180)
def test_code_is_laid_out_under_restricted_pod_security(client: arena.Client, node: Bed, namespace: str) -> None:
    label = "pod-security.kubernetes.io/enforce=restricted"
    node.kubectl("label", "namespace", namespace, label)
    context = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    pod = {"runAsNonRoot": True, "runAsUser": 12345, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"securityContext": pod, "containers": [{"name": "main", "securityContext": context}]}
    patch = json.dumps({"spec": {"template": {"spec": spec}}})
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "arena-defaults"},
        "data": {"patch": patch},
    }
    node.kubectl("-n", namespace, "create", "-f", "-", given=json.dumps(manifest))
    job = client.run("id -u; touch written src/written && sh run.sh && cat link", name="restricted")
    assert job.wait(120).state is arena.State.SUCCEEDED
    assert logs(node, namespace, "restricted") == ["12345", "run", "x"]
