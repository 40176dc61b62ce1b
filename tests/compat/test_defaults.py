"""What is set where no flag says anything: Arena (Go)'s values in its own commands, ours in `run`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from compat.place import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def template(manifest: dict[str, Any], role: str = "Worker") -> dict[str, Any]:
    specs = next((v for k, v in manifest["spec"].items() if k.endswith("ReplicaSpecs")), None)
    found: dict[str, Any] = specs[role]["template"] if specs else manifest["spec"]["template"]
    return found


def submitted(place: Place, *words: str) -> dict[str, Any]:
    found = place("submit", *words, "--name", "p", "--image", "i", "true")
    assert found.code == 0, found.stderr
    return found.objects[-1]


@pytest.mark.parametrize("kind", ["tfjob", "pytorchjob", "mpijob"])
def test_the_marks_of_arena_go(kind: str, place: Place) -> None:
    thing = submitted(place, kind, "--workers", "2")
    marks = {"app": kind, "release": "p", "heritage": "Helm", "createdBy": thing["kind"]}
    for metadata in (thing["metadata"], template(thing)["metadata"]):
        assert {**metadata["labels"], **marks} == metadata["labels"]
        assert metadata["labels"]["chart"].startswith(f"{kind}-0.")
        assert metadata["annotations"]["requestGPUsOfJobOwner"] == "0"


@pytest.mark.parametrize("kind", ["tfjob", "pytorchjob", "mpijob"])
def test_the_values_of_arena_go(kind: str, place: Place) -> None:
    pod = template(submitted(place, kind, "--workers", "2", "--memory", "1Gi"))
    (main,) = pod["spec"]["containers"]
    env = {one["name"]: one.get("value") for one in main["env"]}
    assert (main["imagePullPolicy"], main["workingDir"]) == ("Always", "/root")
    assert (env["workers"], env["gpus"], env["NVIDIA_VISIBLE_DEVICES"]) == ("2", "0", "void")
    assert pod["spec"]["volumes"] == [{"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}}]


def test_its_bookkeeping(place: Place) -> None:
    found = place("submit", "tf", "--name", "p", "--image", "i", "--env", "A=b", "--tensorboard", "true")
    held = found.by_kind["ConfigMap"]
    assert (held["metadata"]["name"], held["metadata"]["labels"]["createdBy"]) == ("p-tfjob", "arena")
    assert held["data"]["tfjob"] == "0.39.1"
    assert held["data"]["app"].split() == [
        "service/p-tensorboard",
        "deployment.apps/p-tensorboard",
        "tfjob.kubeflow.org/p",
    ]
    values = yaml.safe_load(held["data"]["values"])
    assert (values["name"], values["tensorboard"], "env" in values) == ("p", True, False)


@pytest.mark.parametrize("kind", ["job", "jax"])
def test_other_types_have_none_of_it(kind: str, place: Place) -> None:
    found = place("submit", kind, "--name", "p", "--image", "i", "true")
    assert [name for name in found.names if name.startswith("ConfigMap/p")] == []
    assert "imagePullPolicy" not in template(found.objects[-1])["spec"]["containers"][0]
    assert "app" not in found.objects[-1]["metadata"]["labels"]


@pytest.mark.parametrize(
    ("words", "size"), [((), "2Gi"), (("--memory", "1Gi"), str(1 << 29)), (("--memory", "8Gi"), "2Gi"),
                        (("--share-memory", "3Gi", "--memory", "1Gi"), "3Gi")],
)  # fmt: skip
def test_shared_memory_of_a_plain_job(words: tuple[str, ...], size: str, place: Place) -> None:
    volumes = template(submitted(place, "job", *words))["spec"]["volumes"]
    assert volumes[0]["emptyDir"]["sizeLimit"] == size


def test_no_shared_memory_where_none_is_asked_for(place: Place) -> None:
    assert "volumes" not in template(submitted(place, "tf", "--share-memory", "0", "--workers", "2"))["spec"]


def test_no_sidecar_unless_asked_for(place: Place) -> None:
    key = "sidecar.istio.io/inject"
    for words, value in (((), "false"), (("--label", f"{key}=true"), "true")):
        metadata = template(submitted(place, "job", *words))["metadata"]
        assert (metadata["labels"][key], metadata["annotations"][key]) == (value, value)


def test_results_are_kept_in_a_folder_of_the_run(place: Place) -> None:
    thing = submitted(place, "job", "--output", "results:/exp")
    (main,) = template(thing)["spec"]["containers"]
    run = thing["metadata"]["labels"]["arena.kubeflow.org/run-id"]
    assert {"name": "arena-output", "mountPath": "/arena/output", "subPath": f"exp/{run}"} in main["volumeMounts"]
    assert {"name": "ARENA_OUTPUT_DIR", "value": "/arena/output"} in main["env"]


def test_its_config_file_is_heard(place: Place) -> None:
    (place.folder / ".arena").mkdir()
    (place.folder / ".arena" / "config").write_text("imagePullSecrets=one,two\ntfjob_role_sequence=w,p\n")
    thing = submitted(place, "tf", "--workers", "2", "--image-pull-secret", "two")
    assert template(thing)["spec"]["imagePullSecrets"] == [{"name": "two"}, {"name": "one"}]
    assert thing["metadata"]["annotations"]["job-role-sequence"] == "Worker,PS"


@pytest.mark.parametrize(
    ("label", "said"),
    [("app=x", "Arena (Go) finds its jobs by it"), ("arena.kubeflow.org/job=x", "arena's own mark"),
     ("a b=c", "is no key of a label"), ("a=b c", "is no value of a label")],
)  # fmt: skip
def test_labels_that_cannot_be(label: str, said: str, place: Place) -> None:
    found = place("submit", "tf", "--name", "p", "--image", "i", "--label", label, "true")
    assert (found.code, said in found.stderr) == (2, True)


def test_what_is_served_can_be_told(place: Place) -> None:
    (place.folder / "served.yaml").write_text("TFJob.kubeflow.org: {version: v1, properties: [tfReplicaSpecs]}\n")
    words = ["--name", "p", "--image", "i", "--served", "served.yaml"]
    thing = place("submit", "tf", *words, "--starting-timeout", "1h", "true").objects[-1]
    assert (thing["spec"]["cleanPodPolicy"], thing["spec"]["startingDeadlineSeconds"]) == ("Running", 3600)
    other = place("submit", "pytorch", *words, "true")
    assert (other.code, "serves no PyTorchJob" in other.stderr) == (5, True)


def test_the_launcher_has_no_devices_and_the_data_only_on_demand(place: Place) -> None:
    words = ("--gpus", "1", "--device", "a.b/c=1", "--rdma", "--data", "d:/d", "--mounts-on-launcher")
    for given, mounts in ((words, 2), (words[:-1], 1)):
        thing = submitted(place, "mpi", *given)
        launcher, worker = (template(thing, role)["spec"]["containers"][0] for role in ("Launcher", "Worker"))
        assert ("resources" in launcher, len(launcher["volumeMounts"])) == (False, mounts)
        assert worker["resources"]["limits"] == {"nvidia.com/gpu": "1", "rdma/hca": "1", "a.b/c": "1"}


def test_retry_of_tensorflow_is_a_limit(place: Place) -> None:
    assert submitted(place, "tf", "--retry", "3")["spec"]["runPolicy"]["backoffLimit"] == 3
