"""Logs of real pods: every line of every replica exactly once and in order, whatever happens on the way."""

import itertools
import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from testbed.bed import Bed
from testbed.faults import Fault, FaultProxy
from testbed.images import WORK

import arena
from arena import declared
from arena.backends.base import LogLine, LogQuery
from arena.client import Handle
from backends.place import HOLD, KubernetesPlace, sh, texts, until

pytestmark = [pytest.mark.kubelet, pytest.mark.timeout(240)]

SLOWLY = "n=0; while [ $n -lt {count} ]; do n=$((n+1)); echo $RANK:$n; echo err $RANK:$n >&2; sleep 0.02; done"


@pytest.fixture
def place(job_env: dict[str, str], tmp_path: Path, node: Bed) -> Iterator[KubernetesPlace]:
    """A namespace on the test bed, and a folder that its pods see."""
    folder = tmp_path / "p"
    folder.mkdir()
    made = KubernetesPlace(job_env, folder, node)
    yield made
    made.end()


@pytest.fixture
def proxy(node: Bed) -> Iterator[FaultProxy]:
    with FaultProxy(node) as started:
        yield started


def through(proxy: FaultProxy, place: KubernetesPlace, job: Handle) -> Handle:
    """The same job, as somebody sees it whose requests go through the proxy."""
    env = {**place.env, "KUBECONFIG": str(proxy.kubeconfig("admin")), "ARENA_STATE_DIR": str(place.cwd / "other")}
    return arena.Client(backend="kubernetes", env=env, cwd=place.cwd).get(job.name)


def by_replica(lines: Iterable[LogLine]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        found[line.replica].append(line.text)
    return dict(found)


def told(count: int, rank: int) -> list[str]:
    """What SLOWLY writes, sorted: its two streams may overtake each other."""
    return sorted(f"{way}{rank}:{n}" for n in range(1, count + 1) for way in ("", "err "))


def in_order(lines: list[str]) -> bool:
    """Whether each of the two streams is in order."""
    numbers = [[int(line.split(":")[1]) for line in lines if line.startswith("err") is way] for way in (True, False)]
    return all(found == sorted(found) for found in numbers)


def test_each_line_comes_once_though_the_connection_is_cut(place: KubernetesPlace, proxy: FaultProxy) -> None:
    job = place.run(sh(SLOWLY.format(count=200)), workers=3)
    for cut in (0, 40, 133, 700, 1500, 1501, 2600):
        proxy.add(Fault(method="GET", path=r"/log\?", cut=cut, times=2))
    found = by_replica(through(proxy, place, job).logs(follow=True))
    assert {name: sorted(lines) for name, lines in found.items()} == {f"worker-{n}": told(200, n) for n in range(3)}
    assert all(map(in_order, found.values()))
    assert len(proxy.requests("GET", r"/log\?")) > 14
    assert len(proxy.requests("GET", r"/log\?")) < 60


def test_each_line_comes_once_though_all_connections_are_cut_at_once(place: KubernetesPlace, proxy: FaultProxy) -> None:
    job = place.run(sh(SLOWLY.format(count=250)), workers=2)
    over = threading.Event()

    def cut() -> None:
        while not over.wait(1.1):
            proxy.cut_streams()

    threading.Thread(target=cut, daemon=True).start()
    try:
        found = by_replica(through(proxy, place, job).logs(follow=True))
    finally:
        over.set()
    assert {name: sorted(lines) for name, lines in found.items()} == {f"worker-{n}": told(250, n) for n in range(2)}


def test_a_pod_that_waits_is_not_asked_again_and_again(place: KubernetesPlace, proxy: FaultProxy) -> None:
    with place.full() as client:
        job = client.run(sh("echo up"))
        lines = through(proxy, place, job).logs(follow=True)
        reader = threading.Thread(target=lambda: found.extend(texts(lines)), daemon=True)
        found: list[str] = []
        reader.start()
        time.sleep(3)
        assert len(proxy.requests("GET", r"/log\?")) == 0
    reader.join(60)
    assert found == ["up"]


RESTARTED = """
echo a; echo b; echo x >> /hold/count
[ $(wc -l < /hold/count) -ge 2 ] || exit 1
until [ -e /hold/go ]; do sleep 0.02; done
"""


def restarting(place: KubernetesPlace) -> None:
    """A job of somebody else, whose only pod starts its container again in place."""
    container = {
        "name": "trainer",
        "image": WORK,
        "command": ["sh", "-c", RESTARTED],
        "volumeMounts": [{"name": "hold", "mountPath": "/hold"}],
    }
    volume = {"name": "hold", "hostPath": {"path": str(place.shared)}}
    spec = {"restartPolicy": "OnFailure", "containers": [container], "volumes": [volume]}
    made = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "again", "namespace": place.namespace},
        "spec": {"template": {"spec": spec}},
    }
    place.bed.kubectl("create", "-f", "-", given=json.dumps(made))


def test_the_pods_of_a_job_without_indexes_are_all_read(place: KubernetesPlace) -> None:
    container = {"name": "c", "image": WORK, "command": ["sh", "-c", "echo here; sleep 1; echo there"]}
    template = {"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}}
    spec = {"completions": 3, "parallelism": 2, "template": template}
    made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "theirs"}, "spec": spec}
    place.bed.kubectl("-n", place.namespace, "create", "-f", "-", given=json.dumps(made))
    job = place.client().get("theirs")
    expected = {f"worker-{index}": ["here", "there"] for index in range(3)}
    assert by_replica(job.logs(follow=True)) == expected
    assert by_replica(job.logs()) == expected


def test_a_restart_in_place_is_another_attempt(place: KubernetesPlace) -> None:
    place.go()
    restarting(place)
    job = place.client().get("again")
    followed = [(line.attempt, line.text) for line in job.logs(follow=True)]
    assert followed == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
    assert [line.attempt for line in job.logs()] == [2, 2]
    assert texts(job.raw_logs(LogQuery(attempt=1))) == ["a", "b"]


def test_the_log_before_a_restart_is_there_for_those_who_come_later(place: KubernetesPlace) -> None:
    restarting(place)
    job = place.client().get("again")
    until(lambda: job.get().observed.attempt == 2, 90)
    lines = job.logs(follow=True)
    assert [(line.attempt, line.text) for line in itertools.islice(lines, 4)] == [
        (1, "a"),
        (1, "b"),
        (2, "a"),
        (2, "b"),
    ]
    place.go()
    assert texts(lines) == []


def test_a_log_that_comes_after_a_restart_is_not_taken_for_the_one_before_it(
    place: KubernetesPlace, proxy: FaultProxy
) -> None:
    proxy.add(Fault(method="GET", path=r"/log\?", delay=4))
    restarting(place)
    lines = through(proxy, place, place.client().get("again")).logs(follow=True)
    found = [(line.attempt, line.text) for line in itertools.islice(lines, 4)]
    assert found == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
    place.go()
    assert texts(lines) == []


def test_what_the_record_has_is_shown_while_the_job_runs_though_the_node_has_lost_it(
    place: KubernetesPlace, proxy: FaultProxy
) -> None:
    restarting(place)
    lines = place.client().get("again").raw_logs(LogQuery(follow=True))
    assert [line.text for line in itertools.islice(lines, 4)] == ["a", "b", "a", "b"]
    proxy.add(Fault(method="GET", path=r"previous=true", status=404))
    env = {**place.env, "KUBECONFIG": str(proxy.kubeconfig("admin"))}
    later = arena.Client(backend="kubernetes", env=env, cwd=place.cwd).get("again")
    assert texts(later.raw_logs(LogQuery(attempt=1))) == ["a", "b"]
    followed = later.logs(follow=True)
    assert [(line.attempt, line.text) for line in itertools.islice(followed, 4)] == [
        (1, "a"),
        (1, "b"),
        (2, "a"),
        (2, "b"),
    ]
    assert later.where.notes.lines == []
    place.go()
    assert texts(followed) == []


def test_what_the_node_keeps_no_more_is_said_once(place: KubernetesPlace) -> None:
    place.go()
    restarting(place)
    job = place.client().get("again")
    until(lambda: job.get().state.final, 90)
    (pod,) = pods(place)
    words = ("-n", place.namespace, "logs", pod, "--previous")
    until(lambda: "not found" in place.bed.kubectl(*words, check=False), 90)  # the node removes what went before
    assert [(line.attempt, line.text) for line in job.logs()] == [(2, "a"), (2, "b")]
    (note,) = job.where.notes.lines
    assert note.startswith("worker-0: the log of its attempt 1 is lost: ")
    assert [line.attempt for line in job.logs(follow=True)] == [2, 2]
    assert len(job.where.notes.lines) == 1


def test_logs_that_nobody_read_before_their_pods_went_are_named(place: KubernetesPlace) -> None:
    job = place.run(sh("[ $RANK = 1 ] || exec sleep 100; echo bad; exit 3"), workers=2)
    failed = ("wait", "--for=condition=failed", f"job/{job.name}", "--timeout=60s")
    place.bed.kubectl("-n", place.namespace, *failed)
    assert by_replica(job.logs()) == {"worker-1": ["bad"]}
    assert job.where.notes.lines == ["worker-0: its log was not seen: the pod was deleted"]


def test_a_program_that_its_time_limit_kept_from_starting_has_no_log(place: KubernetesPlace) -> None:
    slow = {"name": "slow", "image": WORK, "command": ["sleep", "60"]}
    client = place.client()
    job = declared.build("job", {"command": ["true"], "name": "late", "running_timeout": "2s"})
    plan = client.plan(job, patch={"spec": {"template": {"spec": {"initContainers": [slow]}}}})
    late = client.submit(plan)
    assert texts(late.logs(follow=True)) == []
    assert late.wait().reason == "DeadlineExceeded"
    assert texts(late.logs()) == []


def test_a_container_that_the_node_has_lost_has_no_log_any_more(place: KubernetesPlace, proxy: FaultProxy) -> None:
    proxy.add(Fault(method="GET", path=r"/log\?", status=400))
    job = through(proxy, place, place.run(sh("echo gone; exit 3")))
    assert texts(job.logs(follow=True)) == []
    assert job.where.notes.lines == ["worker-0: its log was not seen: the node keeps it no more"]
    assert job.wait().exit_code == 3


def test_a_pod_that_replaces_another_is_followed_too(place: KubernetesPlace) -> None:
    script = 'echo $1; echo x >> "$HOLD/count"; [ $(wc -l < "$HOLD/count") -ge 3 ]'
    job = place.run(sh(script, "up"), retry=5)
    assert [(line.attempt, line.text) for line in job.logs(follow=True)] == [(1, "up"), (2, "up"), (3, "up")]
    assert [line.attempt for line in job.logs()] == [3]


def test_a_pod_that_somebody_deletes_is_read_to_its_end(place: KubernetesPlace) -> None:
    job = place.run(sh(f'trap "echo bye; exit 1" TERM; echo up; {HOLD}; echo done'), retry=2)
    lines = job.logs(follow=True)
    assert next(lines).text == "up"
    (replica,) = job.get().observed.replicas
    place.bed.kubectl("-n", place.namespace, "delete", "pod", replica.pod, "--wait=false", "--grace-period=60")
    assert [next(lines).text for _ in range(2)] == ["bye", "up"]
    place.go()
    assert texts(lines) == ["done"]


def test_the_last_words_of_a_gang_are_kept_though_its_pods_are_deleted(place: KubernetesPlace) -> None:
    script = f"echo rank $RANK up; {HOLD}; if [ $RANK = 1 ]; then echo bad; exit 3; fi; sleep 100"
    job = place.run(sh(script), workers=3)
    lines = job.raw_logs(LogQuery(follow=True, keep=True, replicas=frozenset({"worker-0"})))
    shown = [next(lines).text]
    kept_so_far = Path(place.env["ARENA_STATE_DIR"]) / "cluster" / job.run_id / "logs"
    until(lambda: len([log for log in kept_so_far.rglob("*.log") if log.stat().st_size]) == 3, 90)
    place.go()
    shown += texts(lines)
    assert shown == ["rank 0 up"]
    until(lambda: len(pods(place)) == 1, 60)
    kept = by_replica(job.logs())
    assert kept == {"worker-0": ["rank 0 up"], "worker-1": ["rank 1 up", "bad"], "worker-2": ["rank 2 up"]}
    seen = job.get()
    assert (seen.exit_code, len(seen.observed.replicas)) == (3, 3)


def pods(place: KubernetesPlace) -> list[str]:
    return place.bed.kubectl("-n", place.namespace, "get", "pods", "-o", "name").split()


def test_what_was_not_seen_is_said(place: KubernetesPlace, proxy: FaultProxy) -> None:
    job = place.run(sh(f"echo up; {HOLD}"), workers=2)
    until(lambda: len(list(job.logs())) == 2, 60)
    proxy.add(Fault(method="GET", path=r"pods/.*-1-.*/log\?", status=404))
    other = through(proxy, place, job)
    assert by_replica(other.logs()) == {"worker-0": ["up"]}
    assert other.where.notes.lines == ["worker-1: its log was not seen: the pod was deleted"]
    place.go()


def test_a_reader_that_leaves_ends_its_connections(place: KubernetesPlace) -> None:
    job = place.run(sh(f"echo up; {HOLD}"), workers=2)
    before = threading.active_count()
    lines = job.logs(follow=True)
    assert [line.text for line in itertools.islice(lines, 2)] == ["up", "up"]
    lines.close()  # type: ignore[attr-defined]
    until(lambda: threading.active_count() <= before)
    place.go()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_sixty_four_replicas_are_followed_at_once(place: KubernetesPlace) -> None:
    """A minute: 64 pods are started."""
    job = place.run(sh("seq -f $RANK:%g 300; sleep 1"), workers=64)
    found = by_replica(job.logs(follow=True))
    assert found == {f"worker-{rank}": [f"{rank}:{n}" for n in range(1, 301)] for rank in range(64)}
