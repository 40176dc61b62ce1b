"""A namespace of a test's own on a test bed, and the command line in it as whoever the test says."""

import json
import uuid
from pathlib import Path
from typing import Any

from testbed.bed import Bed
from testbed.images import WORK

from cli.conftest import Arena, Result

Object = dict[str, Any]
MADE = "jobs,pods,configmaps,secrets,services"
RIGHTS = {
    "": ["pods", "pods/log", "services", "configmaps", "secrets", "events", "resourcequotas", "persistentvolumeclaims"],
    "batch": ["jobs"],
    "trainer.kubeflow.org": ["trainjobs", "trainingruntimes"],
}


def refused(result: Result, code: int, *words: str) -> None:
    """One error of arena's own, with this code and these words."""
    assert result.exit_code == code, result.stderr
    assert "Traceback" not in result.stderr
    assert "made a mistake" not in result.stderr
    errors = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1, result.stderr
    assert [word for word in words if word not in result.stderr] == [], result.stderr


class Space:
    """A namespace of a test's own on a test bed, and arena in it as whoever the test says."""

    def __init__(self, bed: Bed, cli: Arena) -> None:
        self.bed = bed
        self.cli = cli
        self.name = f"x{uuid.uuid4().hex[:8]}"
        bed.kubectl("create", "namespace", self.name)
        bed.wait("an account", lambda: self.kubectl("get", "sa", "default", "-o", "name", check=False))
        cli.env |= {"KUBECONFIG": str(self.as_user("admin")), "ARENA_JOB_NAMESPACE": self.name, "ARENA_IMAGE": WORK}

    def kubectl(self, *words: str, **more: Any) -> str:
        return self.bed.kubectl("-n", self.name, *words, **more)

    def apply(self, *objects: Object) -> None:
        self.kubectl("apply", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def as_user(self, name: str) -> Path:
        """A kubeconfig for requests on behalf of this user."""
        made = json.loads(self.bed.kubeconfig("admin").read_text())
        if name != "admin":
            made["users"][0]["user"]["as"] = name
        return self.cli.file(f"kubeconfigs/{name}", json.dumps(made))

    def without(self, *resources: str) -> Path:
        """The kubeconfig of somebody who may do all in this namespace but these."""
        rules = [
            {"apiGroups": [group], "resources": [one for one in kinds if one not in resources], "verbs": ["*"]}
            for group, kinds in RIGHTS.items()
        ]
        name = "-".join(["no", *(one.replace("/", "-") for one in resources)])
        group = "rbac.authorization.k8s.io"
        role = {"kind": "Role", "apiVersion": f"{group}/v1", "metadata": {"name": name}, "rules": rules}
        binding = {
            "kind": "RoleBinding",
            "apiVersion": f"{group}/v1",
            "metadata": {"name": name},
            "roleRef": {"kind": "Role", "name": name, "apiGroup": group},
            "subjects": [{"kind": "User", "name": name, "apiGroup": group}],
        }
        self.apply(role, binding)
        return self.as_user(name)

    def left(self) -> set[str]:
        """What of arena's is here."""
        words = ("get", MADE, "-l", "app.kubernetes.io/managed-by=arena", "-o", "name")
        return set(self.kubectl(*words).split())

    def end(self) -> None:
        self.bed.kubectl("delete", "namespace", self.name, "--wait=false")
