"""The operators, as pods, from the manifests that their own modules publish.

Only what must differ here is changed: the image and how it is pulled, the resources, how soon a pod is asked whether it
is ready, and a few arguments. Accounts, rights, webhooks and certificates are the operator's own.
"""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from testbed.api import Api
from testbed.errors import BedError
from testbed.images import DELIVERY, WORK, operator_image
from testbed.places import cache
from testbed.programs import PROGRAMS, module_folder, program

if TYPE_CHECKING:
    from testbed.bed import Bed

Object = dict[str, Any]


class Operator(NamedTuple):
    """One operator: the program, the folders of its manifests, what it needs, how one knows that it works."""

    name: str
    program: str
    manifests: str
    bases: tuple[str, ...]
    namespace: str
    later: tuple[str, ...] = ()  # applied when the webhooks answer
    without: tuple[str, ...] = ()  # lines of its kustomizations that would fetch from the net
    needs: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()  # what its program finds in /etc/config
    probe: tuple[str, Object] | None = None  # a create that is tried, not done, until the webhook answers


_META = {"name": "probe", "namespace": "default"}
_POD: Object = {"spec": {"containers": [{"name": "pytorch", "image": WORK}]}}
_PYTORCHJOB: Object = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": _META,
    "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": _POD}}},
}
# The operator's own words but for the resources: 64 workers that wait for their master fit on two cores.
_WAIT_FOR_MASTER = """
- name: init-pytorch
  image: {{.InitContainerImage}}
  imagePullPolicy: IfNotPresent
  resources:
    limits:
      cpu: 500m
      memory: 20Mi
    requests:
      cpu: 10m
      memory: 10Mi
  command:
  - sh
  - -c
  - >-
    err=1; for i in $(seq {{.MaxTries}}); do if nslookup {{.MasterAddr}}; then err=0 && break; fi;
    echo waiting for master; sleep 2; done; exit $err
"""
_JOBSET: Object = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": _META,
    "spec": {
        "replicatedJobs": [
            {
                "name": "a",
                "template": {"spec": {"template": {"spec": {**_POD["spec"], "restartPolicy": "Never"}}}},
            }
        ]
    },
}
_TRAINJOB: Object = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": _META,
    "spec": {"runtimeRef": {"name": "torch-distributed"}},
}
OPERATORS = {
    operator.name: operator
    for operator in (
        Operator(
            "training",
            "training-operator",
            "manifests",
            ("overlays/standalone",),
            "kubeflow",
            arguments=(f"-pytorch-init-container-image={WORK}", f"-mpi-kubectl-delivery-image={DELIVERY}"),
            files=(("initContainer.yaml", _WAIT_FOR_MASTER),),
            probe=("/apis/kubeflow.org/v1/namespaces/default/pytorchjobs", _PYTORCHJOB),
        ),
        Operator("mpi", "mpi-operator", "manifests", ("overlays/standalone",), "mpi-operator"),
        Operator(
            "jobset",
            "jobset",
            "config",
            ("default",),
            "jobset-system",
            probe=("/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets", _JOBSET),
        ),
        Operator(
            "trainer",
            "trainer",
            "manifests",
            ("overlays/manager",),
            "kubeflow-system",
            later=("base/runtimes",),
            without=("third-party/jobset",),
            needs=("jobset",),
            probe=("/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs", _TRAINJOB),
        ),
    )
}
# Two operators claim the kind MPIJob; with the second one there, the first serves everything else.
TRAINING_WITHOUT_MPI = tuple(
    f"--enable-scheme={kind}" for kind in ("tfjob", "pytorchjob", "xgboostjob", "paddlejob", "jaxjob")
)
FILES = "testbed-files"
MPI_KIND = "mpijobs.kubeflow.org"
WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def chosen(names: tuple[str, ...]) -> list[Operator]:
    """The operators with these names and what they need, in the order of their installation.

    >>> [operator.name for operator in chosen(("trainer",))]
    ['jobset', 'trainer']
    """
    for name in names:
        if name not in OPERATORS:
            raise BedError(f"there is no operator {name!r}", f"there are {', '.join(OPERATORS)}")
    needed = {need for name in names for need in OPERATORS[name].needs}
    return [operator for operator in OPERATORS.values() if operator.name in {*names, *needed}]


def install(bed: "Bed", names: tuple[str, ...], *, pods: bool) -> None:
    """Create the operators' objects; without a kubelet their kinds only, for nobody could run them."""
    operators = chosen(names)
    documents = [
        changed
        for operator in operators
        for document in (*manifests(operator), *_files(operator))
        if (changed := adapt(document, operator, names)) and (pods or document["kind"] == "CustomResourceDefinition")
    ]
    _create(bed, sorted(documents, key=lambda document: document["kind"] != "Namespace"))
    api = bed.api()
    for path in (path for document in documents for path in kind_paths(document)):
        bed.wait(f"kind served at {path}", lambda p=path: api.get(f"{p}?limit=1"), 30)  # type: ignore[misc]


def kind_paths(document: Object) -> list[str]:
    """Where the objects of a CustomResourceDefinition are listed; empty for anything else."""
    if document["kind"] != "CustomResourceDefinition":
        return []
    spec = document["spec"]
    served = [version["name"] for version in spec["versions"] if version["served"]]
    return [f"/apis/{spec['group']}/{version}/{spec['names']['plural']}" for version in served]


def wait_until_ready(bed: "Bed", names: tuple[str, ...]) -> None:
    """Each operator's webhooks answer; then what had to wait for them is created."""
    api = bed.api()
    for operator in chosen(names):
        bed.wait(f"operator {operator.name!r} that is ready", lambda o=operator: _is_ready(api, o), 120)  # type: ignore[misc]
        later = list(manifests(operator, later=True))
        if later:
            bed.wait(f"webhook of {operator.name!r}", lambda a=later: _apply(bed, a), 60)  # type: ignore[misc]
        if operator.probe:
            path, thing = operator.probe
            bed.wait(f"webhook of {operator.name!r}", lambda p=path, t=thing: api.post(f"{p}?dryRun=All", t), 60)  # type: ignore[misc]


def adapt(document: Object, operator: Operator, names: tuple[str, ...]) -> Object | None:
    """An operator's object as it is created here, None if it is left out."""
    if operator.name == "training" and "mpi" in names and document["metadata"]["name"] == MPI_KIND:
        return None
    if document["kind"] != "Deployment":
        return document
    changed: Object = json.loads(json.dumps(document))
    for container in changed["spec"]["template"]["spec"]["containers"]:
        extra = TRAINING_WITHOUT_MPI if operator.name == "training" and "mpi" in names else ()
        _adapt_container(container, operator, [*operator.arguments, *extra])
    if operator.files:
        _mount_files(changed["spec"]["template"]["spec"])
    return changed


def _adapt_container(container: Object, operator: Operator, arguments: list[str]) -> None:
    container["image"] = operator_image(operator.program)
    container["imagePullPolicy"] = "IfNotPresent"
    container["resources"] = {"requests": {"cpu": "10m", "memory": "32Mi"}}
    if arguments:
        container["args"] = [*container.get("args", []), *arguments]
    if "readinessProbe" in container:
        container["readinessProbe"].update(initialDelaySeconds=0, periodSeconds=1)


def _files(operator: Operator) -> list[Object]:
    meta = {"name": FILES, "namespace": operator.namespace}
    found = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": dict(operator.files)}
    return [found] if operator.files else []


def _mount_files(spec: Object) -> None:
    spec.setdefault("volumes", []).append({"name": FILES, "configMap": {"name": FILES}})
    for container in spec["containers"]:
        container.setdefault("volumeMounts", []).append({"name": FILES, "mountPath": "/etc/config"})


def manifests(operator: Operator, *, later: bool = False) -> Iterator[Object]:
    """The operator's published objects, as rendered when the test bed was built."""
    path = manifest_path(operator)
    rendered = json.loads(path.read_text())
    yield from rendered["later" if later else "first"]


def manifest_path(operator: Operator) -> Path:
    """The file of an operator's rendered manifests."""
    recipe = hashlib.sha256(repr(operator).encode()).hexdigest()[:12]
    return cache() / "manifests" / f"{operator.name}-{PROGRAMS[operator.program].version}-{recipe}.json"


def render_manifests(operator: Operator) -> None:
    """Render the operator's kustomizations and keep them as JSON."""
    path = manifest_path(operator)
    copy = path.with_suffix("")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(module_folder(operator.program) / operator.manifests, copy, copy_function=shutil.copyfile)
    subprocess.run(["chmod", "-R", "u+w", str(copy)], check=True)
    for file in copy.rglob("kustomization.yaml"):
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(line for line in lines if not any(word in line for word in operator.without)))
    groups = {"first": operator.bases, "later": operator.later}
    rendered = {name: [d for base in bases for d in _render(copy / base)] for name, bases in groups.items()}
    path.write_text(json.dumps(rendered))
    shutil.rmtree(copy)


def _render(folder: Path) -> list[Object]:
    kubectl = str(program("kubectl"))
    text = _output([kubectl, "kustomize", str(folder)])
    # A label that is taken away again: kubectl's way to turn YAML into JSON without a server.
    said = _output([kubectl, "label", "--local", "-f", "-", "-o", "json", "testbed-"], text)
    return list(_json_stream(said))


def _json_stream(text: str) -> Iterator[Object]:
    decoder = json.JSONDecoder()
    place = 0
    while place < len(text):
        found, place = decoder.raw_decode(text, place)
        yield from found["items"] if found["kind"] == "List" else [found]
        while place < len(text) and text[place].isspace():
            place += 1


def _output(words: list[str], given: str | None = None) -> str:
    done = subprocess.run(words, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BedError(" ".join(words[1:]), done.stderr.strip()[-500:])
    return done.stdout


def _create(bed: "Bed", documents: list[Object]) -> None:
    if documents:
        bed.kubectl("create", "--validate=false", "-f", "-", given=_stream(documents))


def _apply(bed: "Bed", documents: list[Object]) -> bool:
    """Like `_create`, and may be said again."""
    bed.kubectl("apply", "--server-side", "-f", "-", given=_stream(documents))
    return True


def _stream(documents: list[Object]) -> str:
    return "\n---\n".join(map(json.dumps, documents))


def _is_ready(api: Api, operator: Operator) -> bool:
    found = api.get(f"/apis/apps/v1/namespaces/{operator.namespace}/deployments")["items"]
    return bool(found) and all(item["status"].get("availableReplicas") for item in found)
