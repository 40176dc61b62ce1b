"""A submit as the API server sees it: how many trips, in which order, and what is left when it is killed in between."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from testbed.bed import Bed
from testbed.faults import Fault, FaultProxy
from testbed.images import WORK

import arena
from arena.backends.kubernetes.backend import KubernetesBackend
from arena.backends.kubernetes.submitting import Submission
from arena.jobs.plain import PlainJob

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

TRIP = 3.0  # seconds the proxy lets each request wait: much longer than a busy machine needs for all of them


@pytest.fixture
def namespace(bed: Bed) -> Iterator[str]:
    """A namespace of the test's own, with an account for pods."""
    name = f"s{uuid.uuid4().hex[:8]}"
    bed.kubectl("create", "namespace", name)
    bed.wait("an account", lambda: bed.kubectl("-n", name, "get", "sa", "default", "-o", "name", check=False))
    yield name
    bed.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def proxy(bed: Bed) -> Iterator[FaultProxy]:
    with FaultProxy(bed) as started:
        yield started


@pytest.fixture
def env(job_env: dict[str, str], namespace: str, proxy: FaultProxy) -> dict[str, str]:
    """The environment of somebody whose requests go through the proxy."""
    more = {"KUBECONFIG": str(proxy.kubeconfig("admin")), "ARENA_JOB_NAMESPACE": namespace, "ARENA_IMAGE": WORK}
    return {**job_env, **more}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a script in it."""
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "train.py").write_text("print('hi')\n")
    return folder


def client(env: Mapping[str, str], cwd: Path) -> arena.Client:
    return arena.Client(backend="kubernetes", env=env, cwd=cwd)


KINDS = "jobs,pods,configmaps,secrets,services"


def left(bed: Bed, namespace: str) -> set[str]:
    """What of arena's is in a namespace."""
    words = ("-n", namespace, "get", KINDS, "-l", "app.kubernetes.io/managed-by=arena", "-o", "name")
    return set(bed.kubectl(*words).split())


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="one worker"),
        pytest.param({"workers": 4, "env": {"HF_TOKEN": "hf_abcdefgh"}}, id="workers, code, a secret"),
    ],
)
def test_a_submit_takes_four_trips_one_after_another(
    env: dict[str, str], project: Path, proxy: FaultProxy, fields: dict[str, Any]
) -> None:
    made = client(env, project)
    made.run("train.py", name="warm")  # discovery and the defaults of the namespace are remembered from here on
    proxy.add(Fault(delay=TRIP))
    fresh = client(env, project)
    begun = time.monotonic()
    fresh.run("train.py", name="cold", **fields)
    trips = (time.monotonic() - begun) / TRIP
    assert 3 < trips < 4.9, [request.path for request in proxy.requests()]


def test_helpers_come_before_the_job_and_owners_after_it(
    env: dict[str, str], project: Path, proxy: FaultProxy, bed: Bed, namespace: str
) -> None:
    client(env, project).run("train.py", name="order", workers=2, env={"HF_TOKEN": "hf_abcdefgh"})
    writes = [r for r in proxy.requests("POST|PATCH") if "dryRun" not in r.path and f"/{namespace}/" in r.path]
    kinds = [(r.method, r.path.partition(f"/{namespace}/")[2].partition("?")[0].partition("/")[0]) for r in writes]
    job = kinds.index(("POST", "jobs"))
    assert sorted(kinds[:job]) == [("POST", "configmaps"), ("POST", "secrets"), ("POST", "services")]
    assert sorted(kinds[job + 1 :]) == [("PATCH", "configmaps"), ("PATCH", "secrets"), ("PATCH", "services")]
    for kind in ("configmaps", "secrets", "services"):
        words = ("-n", namespace, "get", kind, "-l", "app.kubernetes.io/managed-by=arena", "-o", "json")
        for one in json.loads(bed.kubectl(*words))["items"]:
            (owner,) = one["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["name"]) == ("Job", "order")
            assert not owner.get("blockOwnerDeletion")


SUBMIT = (
    "import arena; arena.Client(backend='kubernetes').run('train.py', name='half', workers=2, env={'HF_TOKEN': 'x'})"
)


@pytest.mark.parametrize("deliver", [False, True], ids=["lost", "delivered"])
@pytest.mark.parametrize("writes", range(8))
def test_killed_after_any_request_it_leaves_nothing_that_waits(
    env: dict[str, str], project: Path, proxy: FaultProxy, bed: Bed, namespace: str, writes: int, deliver: bool
) -> None:
    client(env, project).run("train.py", name="warm").delete()
    proxy.silence(after_writes=writes, deliver=deliver)
    child = subprocess.Popen([sys.executable, "-c", SUBMIT], env=env, cwd=project)
    watcher = threading.Timer(20, child.kill)
    watcher.start()
    while child.poll() is None and not [r for r in proxy.requests() if r.status == 0]:
        time.sleep(0.02)
    time.sleep(0.3)  # what is sent side by side has been sent
    with_job = child.poll() is None
    if with_job:
        os.kill(child.pid, signal.SIGKILL)
    child.wait()
    watcher.cancel()
    proxy.clear()
    helpers = {name.partition("/")[0] for name in left(bed, namespace)} - {"job.batch", "pod"}
    if "job.batch/half" in left(bed, namespace):
        assert helpers == {"configmap", "secret", "service"}
    else:
        assert not [name for name in left(bed, namespace) if name.startswith("pod/")]
        client(env, project).run("train.py", name="half", workers=2, env={"HF_TOKEN": "x"})
        assert "job.batch/half" in left(bed, namespace)


@pytest.mark.parametrize("times", [1, 2])
def test_a_job_whose_answer_was_lost_keeps_what_it_needs(
    env: dict[str, str], project: Path, proxy: FaultProxy, bed: Bed, namespace: str, times: int
) -> None:
    proxy.add(Fault(method="POST", path=r"/jobs\?(?!.*dryRun)", cut=0, times=times))
    made = client(env, project)
    fields: dict[str, Any] = {"name": "lost", "workers": 2, "env": {"HF_TOKEN": "x"}}
    if times == 1:
        assert made.run("train.py", **fields).get().name == "lost"
    else:
        with contextlib.suppress(arena.BackendError):
            made.run("train.py", **fields)
    assert {name.partition("/")[0] for name in left(bed, namespace)} - {"pod"} == {
        "job.batch",
        "configmap",
        "secret",
        "service",
    }


def test_helpers_that_get_no_owner_are_told(env: dict[str, str], project: Path, proxy: FaultProxy) -> None:
    proxy.add(Fault(method="PATCH", path=r"/(services|configmaps)/", status=403, times=2))
    job = client(env, project).run("train.py", name="alone", workers=2)
    assert "not all it needs goes when it is deleted" in "".join(job.where.notes.lines)


@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_who_loses_a_name_leaves_the_helpers_of_who_has_it(
    env: dict[str, str], project: Path, bed: Bed, namespace: str, first: bool
) -> None:
    made = client(env, project)
    job = PlainJob(name="race", command=("train.py",), workers=2)
    place = made.backend("kubernetes")
    assert isinstance(place, KubernetesBackend)
    winner, loser = (Submission(place.api, made.plan(job)) for _ in range(2))
    for acts in (loser.helpers.make, winner.carry_out) if first else (winner.carry_out, loser.helpers.make):
        acts()
    loser.helpers.undo()
    service = json.loads(bed.kubectl("-n", namespace, "get", "service", "race", "-o", "json"))
    assert [owner["name"] for owner in service["metadata"]["ownerReferences"]] == ["race"]


def test_what_a_quota_refuses_leaves_nothing(env: dict[str, str], project: Path, bed: Bed, namespace: str) -> None:
    bed.kubectl("-n", namespace, "create", "quota", "few", "--hard=requests.nvidia.com/gpu=1")
    with pytest.raises(arena.ForbiddenError, match=r"requests\.nvidia\.com/gpu"):
        client(env, project).run("train.py", gpus=2)
    assert left(bed, namespace) == set()


def test_what_is_refused_when_the_job_is_made_leaves_nothing(
    env: dict[str, str], project: Path, proxy: FaultProxy, bed: Bed, namespace: str
) -> None:
    proxy.add(Fault(method="POST", path=r"/jobs\?(?!.*dryRun)", status=500))
    with pytest.raises(arena.BackendError):
        client(env, project).run("train.py", workers=2, env={"HF_TOKEN": "x"})
    assert left(bed, namespace) == set()
