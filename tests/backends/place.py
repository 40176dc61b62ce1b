"""A backend under test, and the few things only it can arrange; words and waits the tests share."""

import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psutil
from testbed.bed import Bed
from testbed.images import WORK

import arena
from arena.client import Handle

T = TypeVar("T")

# A replica waits here until the test lets it go on. On a cluster the folder of the test is seen below $HOLD.
HOLD = 'until [ -e "${HOLD:-.}/go" ]; do sleep 0.02; done'

# The end of a program that wrote much: a container's runtime drops what it has not taken yet when the program ends.
CALM = '; [ -z "$HOLD" ] || sleep 1'


class LocalPlace:
    """Jobs as processes of this machine, in a folder and a state of their own."""

    backend = "local"
    full_state = arena.State.QUEUED
    longest = 63  # letters of a name
    where = ""
    patience = 20.0  # seconds for what takes a moment

    def __init__(self, env: Mapping[str, str], cwd: Path) -> None:
        self.env = env
        self.cwd = cwd

    def client(self, **env: str) -> arena.Client:
        """A client, with more environment."""
        return arena.Client(backend=self.backend, env={**self.env, **env}, cwd=self.cwd)

    def run(self, words: Sequence[str] | str, **fields: Any) -> Handle:
        """A job, started."""
        return self.client().run(words, **fields)

    def takes(self, variable: str) -> bool:
        """Whether an environment may have a variable of this name."""
        return bool(variable)

    def go(self) -> None:
        """Let all replicas go on that wait at HOLD."""
        (self.cwd / "go").touch()

    @contextmanager
    def full(self) -> Iterator[arena.Client]:
        """A client whose next job waits until the block ends."""
        client = self.client(ARENA_LOCAL_MAX_REPLICAS="1")
        first = client.run(sh("until [ -e room ]; do sleep 0.02; done"))
        until(lambda: first.get().state is arena.State.RUNNING)
        yield client
        self.make_room()

    def make_room(self) -> None:
        """Let the job that waits in a `full` place begin."""
        (self.cwd / "room").touch()

    def make_odd(self) -> str:
        """The name of a job whose object makes no sense."""
        job = self.run(["true"], name="odd")
        job.wait()
        made = Path(self.env["ARENA_STATE_DIR"]) / "runs" / job.run_id / "job.json"
        made.write_text("{ not at all")
        (made.parent / "state.json").unlink()
        return job.name

    def keeping(self, job: Handle) -> int:
        """The most memory, in bytes, that whatever takes this job's log has used."""
        (replica,) = job.get().observed.replicas
        keeper = psutil.Process(replica.pids[0]).ppid()
        (line,) = [x for x in Path(f"/proc/{keeper}/status").read_text().splitlines() if x.startswith("VmHWM")]
        return int(line.split()[1]) * 1024


class KubernetesPlace(LocalPlace):
    """Jobs on the test bed, in a namespace of their own whose defaults show the pods the folder of the test."""

    backend = "kubernetes"
    full_state = arena.State.PENDING
    patience = 60.0
    longest = 61  # its only pod has the host name NAME-0

    def __init__(self, env: Mapping[str, str], cwd: Path, bed: Bed) -> None:
        super().__init__(env, cwd)
        self.bed = bed
        self.namespace = f"p{uuid.uuid4().hex[:8]}"
        shared = cwd.parent / "shared"
        shared.mkdir()
        shared.chmod(0o777)
        self.shared = shared
        self.env = {
            **env,
            "KUBECONFIG": str(bed.kubeconfig("admin")),
            "ARENA_JOB_NAMESPACE": self.namespace,
            "ARENA_IMAGE": WORK,
            "ARENA_ENGINES": "job",
        }
        self.where = f" in namespace {self.namespace!r}"
        bed.kubectl("create", "-f", "-", given=json.dumps(self._objects()))
        bed.wait(
            "an account", lambda: bed.kubectl("-n", self.namespace, "get", "sa", "default", "-o", "name", check=False)
        )

    def _objects(self) -> dict[str, Any]:
        """The namespace, and the defaults of every job in it."""
        container = {
            "name": "main",
            "env": [{"name": "HOLD", "value": "/hold"}],
            "volumeMounts": [{"name": "hold", "mountPath": "/hold"}],
        }
        volume = {"name": "hold", "hostPath": {"path": str(self.shared), "type": "Directory"}}
        patch = {"spec": {"template": {"spec": {"volumes": [volume], "containers": [container],
                                                "terminationGracePeriodSeconds": 1}}}}  # fmt: skip
        defaults = {"kind": "ConfigMap", "apiVersion": "v1", "data": {"patch": json.dumps(patch)}}
        items = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}},
            {**defaults, "metadata": {"name": "arena-defaults", "namespace": self.namespace}},
        ]
        return {"apiVersion": "v1", "kind": "List", "items": items}

    def takes(self, variable: str) -> bool:
        return variable.isascii() and variable.isprintable()

    def go(self) -> None:
        (self.shared / "go").touch()

    @contextmanager
    def full(self) -> Iterator[arena.Client]:
        """A client whose next job waits until the block ends: nothing may be placed on the only node."""
        (node,) = self.bed.kubectl("get", "nodes", "-l", "!kwok", "-o", "name").split()
        self.bed.kubectl("taint", "--overwrite", *node.split("/"), "arena.test/full=yes:NoSchedule")
        try:
            yield self.client()
        finally:
            self.make_room()

    def make_room(self) -> None:
        (node,) = self.bed.kubectl("get", "nodes", "-l", "!kwok", "-o", "name").split()
        self.bed.kubectl("taint", *node.split("/"), "arena.test/full-", check=False)

    def end(self) -> None:
        """Take the namespace down; nothing waits for it."""
        self.bed.kubectl("delete", "namespace", self.namespace, "--wait=false", "--ignore-not-found")


def sh(script: str, *words: str) -> list[str]:
    """A command: this shell script."""
    return ["sh", "-c", script, "sh", *words]


def py(code: str, *words: str) -> list[str]:
    """A command: this Python text, started as quickly as Python can."""
    return ["python3", "-IS", "-c", code, *words]


def texts(lines: Iterable[arena.LogLine]) -> list[str]:
    """The texts of the lines."""
    return [line.text for line in lines]


def until(look: Callable[[], T], seconds: float = 50.0) -> T:
    """What `look` gives as soon as it is true; fails when it is not in time."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.01)
    return found


def submit_each(backend: str, env: Mapping[str, str], cwd: str, names: list[str], start: Any, results: Any) -> None:
    """Submit a job of each name when all others are ready to; the outcomes go into the queue."""
    client = arena.Client(backend=backend, env=env, cwd=cwd)
    outcomes = []
    for name in names:
        start.wait()
        try:
            outcomes.append(client.run(["true"], name=name).run_id)
        except arena.ArenaError as error:
            outcomes.append(type(error).__name__)
    results.put(outcomes)
