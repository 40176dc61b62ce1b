"""The test bed itself: who may do what, several beside each other, and no trace of a killed one."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from testbed import tokens
from testbed.api import Api, ApiError, wait_for
from testbed.bed import Bed, sweep
from testbed.guard import CGROUPS
from testbed.layout import layout
from testbed.places import REPOSITORY

from cluster.pods import TEAM, container, container_state, pod

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

KWOK_NODE = {"type": "kwok"}
PODS = 4000
NODES = 500


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "testbed", *words], cwd=REPOSITORY, capture_output=True, text=True)


def traces(bed: Bed) -> list[str]:
    """What is left of a test bed on the host."""
    place = bed.place
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if names(bed, line)]
    links = [str(link) for link in Path("/sys/class/net").iterdir() if link.name == place.link]
    cgroups = [str(found) for found in [*CGROUPS.glob(place.cgroup), *CGROUPS.glob(f"*/{place.cgroup}")]]
    folders = [str(place.folder)] if place.folder.exists() else []
    return [*mounts, *links, *cgroups, *folders, *processes(bed)]


def names(bed: Bed, text: str) -> bool:
    """Whether a test bed's folder stands in a text: that of number 5 does not where that of 58 does."""
    return re.search(rf"{re.escape(str(bed.place.folder))}(?!\d)", text) is not None


def processes(bed: Bed) -> list[str]:
    return [line for line in command_lines() if names(bed, line)]


def command_lines() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        found.append(line)
    return found


def no_trace(bed: Bed) -> bool:
    return not traces(bed)


def rules() -> list[str]:
    """The host's own packet rules."""
    said = subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout
    return [line for line in said.splitlines() if line.startswith("-A")]


@pytest.mark.parametrize(
    ("user", "own", "other"), [("alice", "team-a", "team-b"), ("ci", "team-a", "team-b"), ("carol", "team-b", "team-a")]
)
def test_people_have_rights_in_their_namespace_only(bed: Bed, user: str, own: str, other: str) -> None:
    api = bed.api(user)
    assert api.get(f"/api/v1/namespaces/{own}/pods")["items"] == []
    with pytest.raises(ApiError, match="403 Forbidden"):
        api.get(f"/api/v1/namespaces/{other}/pods")
    with pytest.raises(ApiError, match="403 Forbidden"):
        api.get("/api/v1/nodes")


def test_a_guest_may_look_at_nothing(bed: Bed) -> None:
    with pytest.raises(ApiError, match='User "guest" cannot list resource "pods"'):
        bed.api("guest").get("/api/v1/namespaces/team-a/pods")


def test_a_static_token_is_as_good_as_a_certificate(bed: Bed) -> None:
    assert bed.api("bob", "token").get("/api/v1/namespaces/team-a/configmaps")["kind"] == "ConfigMapList"


def test_kubectl_signs_in_by_the_plugin(bed: Bed) -> None:
    said = bed.kubectl("auth", "whoami", "-o", "json", user="alice-exec")
    assert json.loads(said)["status"]["userInfo"]["username"] == "alice"


def test_a_token_of_the_plugin_is_over_after_its_life(bed: Bed) -> None:
    api = bed.api("alice", "token")
    key = (bed.place.folder / "token.key").read_bytes()
    api.token = tokens.mint(key, "alice", time.time() - 10)
    with pytest.raises(ApiError, match="401"):
        api.get("/api/v1/namespaces/team-a/pods")
    api.token = tokens.mint(key, "alice", time.time())
    assert api.get("/api/v1/namespaces/team-a/pods")["items"] == []


def test_a_second_one_runs_beside_the_first(bed: Bed) -> None:
    before = rules()
    with Bed.start(kubelet=False) as second:
        second.api().post("/api/v1/namespaces", {"metadata": {"name": "only-there"}})
        names = {one["metadata"]["name"] for one in bed.api().get("/api/v1/namespaces")["items"]}
        assert "only-there" not in names
        assert second.place.server != bed.place.server
    assert traces(second) == []
    assert rules() == before


def kill_the_keeper(bed: Bed) -> None:
    keeper, _ = (bed.place.folder / "guard.pid").read_text().split()
    os.kill(int(keeper), signal.SIGKILL)


def kill_the_twin(bed: Bed) -> None:
    _, twin = (bed.place.folder / "guard.pid").read_text().split()
    os.kill(int(twin), signal.SIGKILL)


def kill_the_api_server_for_good(bed: Bed) -> None:
    deadline = time.monotonic() + 60
    while bed.place.folder.exists() and time.monotonic() < deadline:  # it is started again a few times
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes()
            except OSError:
                continue
            if b"kube-apiserver-" in words.split(b"\0")[0] and names(bed, words.decode()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(path.parent.name), signal.SIGKILL)
        time.sleep(0.2)


@pytest.mark.parametrize("kill", [kill_the_keeper, kill_the_twin, kill_the_api_server_for_good])
def test_a_killed_one_leaves_no_trace(kill: Callable[[Bed], None]) -> None:
    with Bed.start(kubelet=False) as bed:
        kill(bed)
        wait_for("end without a trace", lambda: no_trace(bed), 60)


def test_what_two_killed_guards_leave_is_removed_by_the_next() -> None:
    with Bed.start(kubelet=False) as bed:
        kill_the_twin(bed)
        kill_the_keeper(bed)
        wait_for("end of the processes", lambda: not processes(bed), 60)
        sweep()
        assert traces(bed) == []


@pytest.mark.kubelet
def test_a_killed_one_with_a_pod_leaves_no_trace(name: str) -> None:
    with Bed.start() as bed:
        alice = bed.api("alice")
        alice.post(f"{TEAM}/pods", pod(name, container("main", "sleep", "600")))
        wait_for("running pod", lambda: container_state(alice, name).get("state", {}).get("running"))
        assert any("sleep 600" in line for line in command_lines())
        kill_the_keeper(bed)
        wait_for("end without a trace", lambda: no_trace(bed), 60)


START_AND_TELL = """
import time
from testbed.bed import Bed
bed = Bed.start(kubelet=False)
print(bed.place.number, flush=True)
time.sleep(600)
"""


def test_it_ends_with_its_owner() -> None:
    owner = subprocess.Popen([sys.executable, "-c", START_AND_TELL], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    assert owner.stdout
    bed = Bed(layout(int(owner.stdout.readline())))
    assert traces(bed)
    owner.kill()
    owner.wait()
    wait_for("end without a trace", lambda: no_trace(bed), 60)


def test_the_command_starts_shows_and_ends_one() -> None:
    up = command("up", "--no-kubelet", "--operators", "jobset")
    assert up.returncode == 0, up.stderr
    number = up.stderr.split()[2]
    try:
        assert f"test bed {number}: https://" in command("status").stdout
        path = command("kubeconfig", "alice", "--bed", number).stdout.strip()
        api = Api(Path(path))
        # Without a node there are the operators' kinds, and nobody who acts on them.
        assert api.get("/apis/jobset.x-k8s.io/v1alpha2/namespaces/team-a/jobsets")["items"] == []
    finally:
        assert command("down", "--bed", number).returncode == 0
    assert f"test bed {number}:" not in command("status").stdout


def simulated_node(number: int) -> dict[str, object]:
    name = f"kwok-{number}"
    room = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}
    return {
        "metadata": {"name": name, "labels": {**KWOK_NODE, "kubernetes.io/hostname": name}},
        "spec": {"taints": [{"key": "kwok", "effect": "NoSchedule"}]},
        "status": {"capacity": room, "allocatable": room},
    }


def simulated_pod(number: int) -> dict[str, object]:
    containers = [{"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    tolerations = [{"operator": "Exists"}]
    spec = {"containers": containers, "tolerations": tolerations, "nodeSelector": KWOK_NODE}
    return {"metadata": {"name": f"p-{number}"}, "spec": spec}


def test_simulated_nodes_run_thousands_of_pods() -> None:
    """500 nodes and 4,000 pods: over 30 s by its size. How long it takes is printed; docs/testbed.md has the figure.

    On a test bed of its own: so many nodes keep a machine busy as long as they are there.
    """
    with Bed.start(kubelet=False) as bed:
        api = bed.api()
        api.post("/api/v1/namespaces", {"metadata": {"name": "load"}})
        wait_for("account", lambda: api.get("/api/v1/namespaces/load/serviceaccounts/default"))
        start = time.monotonic()
        api.post_all("/api/v1/nodes", [simulated_node(number) for number in range(NODES)])
        api.post_all("/api/v1/namespaces/load/pods", [simulated_pod(number) for number in range(PODS)])
        wait_for("thousands of running pods", lambda: running(api) == PODS, 150, every=3)
        print(f"{NODES} nodes and {PODS} pods in {time.monotonic() - start:.0f} s")
        assert len(api.get("/api/v1/nodes")["items"]) == NODES


def running(api: Api) -> int:
    return len(api.get("/api/v1/namespaces/load/pods?fieldSelector=status.phase%3DRunning")["items"])
