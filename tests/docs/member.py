"""Somebody with a kubeconfig and rights in one namespace of a test bed, who types what a page says of a cluster.

The namespace is the test's own; on the pages it is `team-a`, as other names of the test bed have names there, too.
"""

import json
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path

from testbed.bed import Bed
from testbed.images import WORK
from testbed.programs import program
from testbed.upstream import charts
from testbed.users import namespace, team_objects

from docs import pages
from journeys.team import DEFAULTS, TEAM, Object, kubeconfig

CLAIM = "results"
PROGRAMS = {"kubectl": "kubectl", "arena-kubectl": "kubectl", "arena-go": "arena"}  # the last is Arena (Go)
SHARED = "shared"  # the folder behind the claim


@contextmanager
def member(bed: Bed, env: Mapping[str, str], folder: Path) -> Iterator[pages.Reader]:
    """A reader with rights in a new namespace, which has an image, a quota and a claim; it is gone afterwards."""
    mine = f"docs-{uuid.uuid4().hex[:8]}"
    (folder / SHARED).mkdir(mode=0o777)
    config = kubeconfig(bed, "alice")
    config["users"][0]["name"] = config["contexts"][0]["context"]["user"] = "ada"
    config["contexts"][0] |= {"name": "lab"}
    config["contexts"][0]["context"]["namespace"] = mine
    config["current-context"] = "lab"
    real = {TEAM: mine, pages.IMAGE: WORK, pages.SERVER: config["clusters"][0]["cluster"]["server"]}
    bed.kubectl("create", "-f", "-", given=json.dumps(_objects(mine, folder / SHARED)))
    try:
        reader = pages.Reader(dict(env), real=real, shown={"alice": "ada"})
        (reader.folder / "examples").unlink()  # what leads outside does not travel, and each command says so
        write(reader.home / ".kube" / "config", config)
        login = kubeconfig(bed, "alice", "token")["users"][0]["user"]["token"]
        (reader.home / ".kube" / "token").write_text(f"{login}\n")
        write(reader.home / ".kube" / "admin.config", kubeconfig(bed, "admin"))
        for name, there in PROGRAMS.items():
            offer(reader.home / "bin" / name, program(there))
        shutil.copytree(charts(), reader.home / "charts", copy_function=shutil.copyfile)  # where Arena (Go) looks
        yield reader
    finally:
        bed.kubectl("delete", "namespace", mine, "--wait=false")
        bed.kubectl("delete", "persistentvolume", mine, "--wait=false", "--ignore-not-found")


def write(path: Path, content: Object) -> None:
    """A private JSON file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    path.chmod(0o600)


def offer(path: Path, target: Path) -> None:
    """A program under another folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def _objects(name: str, shared: Path) -> Object:
    items = [namespace(name), *deepcopy(team_objects(TEAM))]
    for thing in items[1:]:
        thing["metadata"]["namespace"] = name
        if thing["kind"] == "RoleBinding":
            thing["subjects"].append({**thing["subjects"][0], "name": "ada"})
    meta = {"namespace": name}
    size = {"storage": "1Gi"}
    modes: Object = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    place = {"hostPath": {"path": str(shared)}, "claimRef": {"name": CLAIM, **meta}}
    items += [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": DEFAULTS, **meta}, "data": {"image": WORK}},
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {**modes, **place, "capacity": size, "persistentVolumeReclaimPolicy": "Retain"},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM, **meta},
            "spec": {**modes, "volumeName": name, "resources": {"requests": size}},
        },
    ]
    return {"apiVersion": "v1", "kind": "List", "items": items}
