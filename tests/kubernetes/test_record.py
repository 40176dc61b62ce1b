"""The record of cluster jobs: what was seen answers when the job, its pods or the whole cluster are gone."""

import json
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec import structs
from testbed.bed import Bed

import arena
from arena import State
from arena.backends.base import LogQuery, Query
from arena.backends.kubernetes.records import joined
from arena.backends.kubernetes.tapes import Tape
from arena.status import Observed, Replica
from backends.place import HOLD, KubernetesPlace, sh, texts, until

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


# --- what several looks saw ---------------------------------------------------------------------------------------


def at(seconds: int) -> datetime:
    return NOON + timedelta(seconds=seconds)


def replica(index: int = 0, **values: object) -> Replica:
    return Replica(role="worker", index=index, rank=index, **values)  # type: ignore[arg-type]


def observed(*replicas: Replica, word: str = "Running", finished: datetime | None = None) -> Observed:
    return Observed(word=word, created=NOON, finished=finished, replicas=replicas)


def test_a_replica_whose_pod_is_gone_is_known_from_before() -> None:
    before = observed(replica(0, started=at(1)), replica(1, started=at(1), exit_code=3, ended=at(5)))
    now = joined(before, observed(replica(1, started=at(1), exit_code=3, ended=at(5)), word="Failed", finished=at(6)))
    assert [(r.name, r.state, r.ended, r.ended_by_us) for r in now.replicas] == [
        ("worker-0", State.CANCELLED, at(6), True),
        ("worker-1", State.PENDING, at(5), False),
    ]


def test_a_replica_that_runs_elsewhere_for_a_while_is_not_ended() -> None:
    before = observed(replica(0, state=State.RUNNING, started=at(1)), replica(1, state=State.RUNNING, started=at(1)))
    now = joined(before, observed(replica(1, state=State.RUNNING, started=at(1))))
    assert [(r.name, r.state) for r in now.replicas] == [("worker-0", State.RUNNING), ("worker-1", State.RUNNING)]


def test_who_took_a_pod_away_is_known_when_it_is_gone() -> None:
    before = observed(replica(started=at(1), state=State.RUNNING, pod="a", reason="PreemptionByScheduler"))
    now = joined(before, observed(replica(), word="Failed", finished=at(6)))
    assert [(r.state, r.reason) for r in now.replicas] == [(State.CANCELLED, "PreemptionByScheduler")]


def test_a_job_has_run_since_it_was_first_seen_to_run() -> None:
    before = structs.replace(observed(replica(started=at(1))), started=at(1))
    assert joined(before, structs.replace(observed(), started=at(0))).started == at(1)
    assert joined(observed(), structs.replace(observed(), started=at(3))).started == at(3)


def test_why_a_pod_could_not_start_is_known_until_another_follows_it() -> None:
    failed = observed(replica(pod="a", reason="InitContainerFailed", message="init-code ended with code 10"))
    gone = joined(failed, observed(replica()))
    assert gone.replicas == failed.replicas
    assert joined(gone, observed(replica(), word="Failed", finished=at(6))).replicas == failed.replicas
    assert joined(gone, observed(replica(pod="b"))).replicas == (replica(pod="b"),)


def test_when_a_pod_whose_end_was_lost_had_started_is_known_from_before() -> None:
    before = observed(replica(pod="a", state=State.RUNNING, started=at(1)))
    lost = replica(pod="a", state=State.FAILED, lost=True, reason="Evicted", ended=at(9))
    now = joined(before, observed(lost, word="Failed", finished=at(9)))
    assert now.replicas == (structs.replace(lost, started=at(1)),)


def test_a_pod_that_was_replaced_is_an_earlier_attempt() -> None:
    first = replica(0, started=at(1), ended=at(5), exit_code=3, state=State.FAILED)
    now = joined(observed(first), observed(replica(0, started=at(8), state=State.RUNNING)))
    assert [(r.attempt, r.started) for r in now.replicas] == [(2, at(8))]
    assert [(r.attempt, r.exit_code) for r in now.earlier] == [(1, 3)]
    again = joined(now, observed(replica(0, started=at(12), state=State.RUNNING)))
    assert [(r.attempt, r.started) for r in again.replicas] == [(3, at(12))]
    assert [(r.attempt, r.exit_code) for r in again.earlier] == [(1, 3)]


def test_two_starts_of_a_pod_in_one_second_are_two_attempts() -> None:
    first = replica(pod="a", started=at(1), ended=at(1), exit_code=3, state=State.FAILED)
    second = replica(pod="a", started=at(1), state=State.RUNNING, attempt=2, restarts=1)
    before = joined(observed(first), Observed(word="Running", created=NOON, replicas=(second,), earlier=(first,)))
    ended = structs.replace(second, ended=at(2), exit_code=3, state=State.FAILED)
    for earlier in ([first], []):  # the node keeps the end of one start only, and that for a minute
        last = Observed(word="Failed", created=NOON, replicas=(ended,), earlier=tuple(earlier), finished=at(3))
        now = joined(before, last)
        assert [(r.attempt, r.exit_code) for r in (*now.earlier, *now.replicas)] == [(1, 3), (2, 3)]


def test_a_pod_that_starts_in_the_second_of_the_one_before_is_another_attempt() -> None:
    first = replica(pod="a", started=at(1), ended=at(1), exit_code=3, state=State.FAILED)
    second = replica(pod="b", started=at(1), state=State.RUNNING)
    now = joined(observed(first), observed(second))
    assert [(r.attempt, r.pod) for r in (*now.earlier, *now.replicas)] == [(1, "a"), (2, "b")]
    assert joined(now, observed(second)) == now


def test_a_log_whose_end_cannot_be_noted_is_not_whole(tmp_path: Path) -> None:
    for folder in (tmp_path / "kept", tmp_path / "gone"):
        folder.mkdir()
        tape = Tape(folder, "worker-0", 1 << 20)
        if folder.name == "gone":
            folder.rmdir()
        tape.end()
    assert sorted(path.name for path in tmp_path.rglob("*.end")) == ["worker-0.end"]


def test_a_second_look_at_the_same_changes_nothing() -> None:
    now = observed(replica(0, started=at(1), attempt=2), replica(1, started=at(1)))
    assert joined(now, now).replicas == now.replicas
    assert joined(joined(now, now), now) == joined(now, now)


# --- on the test bed ----------------------------------------------------------------------------------------------

# 800,000 lines, more than a node keeps in one file; slow enough for a reader on a busy machine.
MUCH = (
    "for n in 0 1 2 3 4 5 6 7; do seq -f 'a line that is somewhat longer than a number: %g'"
    " $((n * 100000 + 1)) $((n * 100000 + 100000)); sleep 2; done"
)
kubelet = [pytest.mark.kubelet, pytest.mark.timeout(180)]


@pytest.fixture
def place(job_env: dict[str, str], tmp_path: Path, node: Bed) -> Iterator[KubernetesPlace]:
    """A namespace on the test bed, and a folder that its pods see."""
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "train.py").write_text("import helper\n")
    (folder / "helper.py").write_text("print('helper v1')\n")
    made = KubernetesPlace(job_env, folder, node)
    yield made
    made.end()


def arena_says(place: KubernetesPlace, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """What the command line says."""
    command = [sys.executable, "-m", "arena", *words]
    return subprocess.run(command, env={**place.env, **env}, cwd=place.cwd, capture_output=True, text=True, timeout=120)


def record(place: KubernetesPlace, run_id: str) -> Path:
    return Path(place.env["ARENA_STATE_DIR"]) / "cluster" / run_id


class TestOnTheBed:
    """Real jobs, whose objects and pods go."""

    pytestmark = kubelet

    def test_after_a_delete_the_record_answers(self, place: KubernetesPlace) -> None:
        bad = "until [ -e $HOLD/r0 ]; do sleep 0.1; done; echo bad; exit 3"
        job = place.run(
            sh(f"echo rank $RANK; touch $HOLD/r$RANK; [ $RANK = 0 ] || {{ {bad}; }}"), workers=2, name="mnist"
        )
        seen = job.wait()
        job.delete()
        assert (seen.state, seen.exit_code) == (State.FAILED, 3)
        assert place.bed.kubectl("-n", place.namespace, "get", "pods,jobs", "-o", "name") == ""
        client = place.client()
        with pytest.raises(arena.NotFoundError, match=r"does not exist any more\n.*deleted .* ago, FAILED"):
            client.get("mnist")
        assert client.list() == []
        gone = client.get("mnist", gone=True)
        assert gone.get().recorded.startswith("from the record: deleted")
        assert gone.wait().exit_code == 3
        failure = gone.get().first_failure
        assert failure
        assert failure.name == "worker-1"
        assert sorted(texts(gone.logs())) == ["bad", "rank 0", "rank 1"]
        assert "worker-1" in gone.why()
        assert "bad" in gone.why()
        assert client.get(job.run_id, gone=True).run_id == job.run_id

    def test_no_cluster_is_needed_to_read_a_record(self, place: KubernetesPlace) -> None:
        job = place.run(["echo", "hi"], name="mnist")
        job.wait(check=True)
        for env in ({"KUBECONFIG": "/nonexistent"}, {"KUBECONFIG": ""}):
            said = arena_says(place, "logs", "mnist", **env)
            assert (said.returncode, said.stdout) == (0, "hi\n"), said.stderr
            assert "from the record" in said.stderr
            assert job.run_id in arena_says(place, "history", **env).stdout
            assert arena_says(place, "wait", "mnist", **env).returncode == 0
            assert "command:" in arena_says(place, "export", "mnist", **env).stdout
            assert arena_says(place, "get", "mnist", "-b", "kubernetes", **env).returncode == 6

    def test_runs_of_one_name_are_counted_from_the_newest(self, place: KubernetesPlace) -> None:
        ids: list[str] = []
        for number in (1, 2, 3):
            job = place.run(["echo", f"run {number}"], name="mnist")
            job.wait(check=True)
            job.delete()
            ids.insert(0, job.run_id)
        client = place.client()
        assert [seen.run_id for seen in client.history("mnist")] == ids
        assert texts(client.get("mnist", gone=True).logs()) == ["run 3"]
        assert texts(client.get("mnist@2", gone=True).logs()) == ["run 2"]
        assert texts(client.get("mnist@3", gone=True).logs()) == ["run 1"]
        assert client.get("@last", gone=True).run_id == ids[0]
        with pytest.raises(arena.NotFoundError, match="3 runs"):
            client.get("mnist@9", gone=True)

    def test_history_has_runs_of_both_backends(self, place: KubernetesPlace) -> None:
        place.run(["true"], name="there").wait()
        arena.Client(backend="local", env=place.env, cwd=place.cwd).run(["true"], name="here").wait()
        both = arena.Client(env=place.env, cwd=place.cwd).history()
        assert [(seen.name, seen.backend) for seen in both] == [("here", "local"), ("there", "kubernetes")]

    def test_the_last_run_is_the_one_that_is_got_and_deleted_wherever_it_is(self, place: KubernetesPlace) -> None:
        arena.Client(backend="local", env=place.env, cwd=place.cwd).run(["true"], name="here").wait()
        time.sleep(1)  # the server's stamps are whole seconds
        there = place.run(["true"], name="there")
        there.wait()
        both = arena.Client(env=place.env, cwd=place.cwd)
        assert both.get("@last").run_id == there.run_id
        said = arena_says(place, "delete", "@last")
        assert (said.returncode, "The job there has been deleted" in said.stderr) == (0, True)
        with pytest.raises(arena.NotFoundError, match="'there' does not exist any more"):
            both.get("@last")
        assert both.get("here").get().state.name == "SUCCEEDED"

    def test_a_name_of_another_place_is_told_with_it_and_never_deleted_there(self, place: KubernetesPlace) -> None:
        job = place.run(sh(f"echo up; {HOLD}"), name="mnist")
        until(lambda: texts(job.logs()) == ["up"], 60)
        elsewhere = arena.Client(backend="kubernetes", namespace="default", env=place.env, cwd=place.cwd)
        with pytest.raises(arena.NotFoundError, match=f"--context .* -n {place.namespace}"):
            elsewhere.delete("mnist")
        said = arena_says(place, "-n", "default", "delete", "mnist")
        assert said.returncode == 0
        assert "mnist" in said.stderr
        assert "--context" in said.stderr
        said = arena_says(place, "-n", "default", "why", "mnist")
        assert f"-n {place.namespace}" in said.stderr
        assert job.get().state is State.RUNNING
        place.go()
        job.wait(check=True)

    def test_an_end_that_nobody_saw_is_marked(self, place: KubernetesPlace) -> None:
        job = place.run(sh(f"echo up; {HOLD}"), name="mnist")
        until(lambda: job.get().state is State.RUNNING, 60)
        place.bed.kubectl("-n", place.namespace, "delete", "job", "mnist", "--grace-period=1")
        (seen,) = place.client().history("mnist")
        assert (seen.state, seen.reason) == (State.CANCELLED, "EndNotSeen")
        assert seen.status.message.startswith("end not seen, last RUNNING")
        assert "end not seen" in arena_says(place, "history", "mnist").stdout + arena_says(place, "why", "mnist").stdout

    def test_what_a_follower_left_is_completed_once(self, place: KubernetesPlace) -> None:
        job = place.run(sh(f"seq 1000; {HOLD}; seq 1001 2000; sleep 1"), workers=2)
        lines = job.logs(follow=True)
        for _ in range(700):
            next(lines)
        lines.close()  # type: ignore[attr-defined]
        place.go()
        job.wait(check=True)
        job.delete()
        for name in ("worker-0", "worker-1"):
            assert texts(job.logs(replica=name)) == [str(n) for n in range(1, 2001)]

    def test_a_log_that_grows_without_end_keeps_its_head_and_tail(self, place: KubernetesPlace) -> None:
        client = place.client(ARENA_LOG_MAX="16M")
        job = client.run(sh(f"echo from: 0; {HOLD}; {MUCH}"))
        lines = job.logs(follow=True)
        followed = [next(lines).data]
        place.go()  # of a node's files only the newest is given to who comes late: he who writes waits for who reads
        followed += [line.data for line in lines]
        assert [line.rpartition(b" ")[2] for line in followed] == [b"%d" % number for number in range(800_001)]
        job.delete()
        kept = texts(client.get(job.run_id, gone=True).logs())
        assert kept[0].endswith(": 0")
        assert kept[-1].endswith(": 800000")
        assert len(kept) < 500_000
        assert sum("middle of this log was not kept" in line for line in kept) == 1

    def test_secrets_are_nowhere_in_a_record(self, place: KubernetesPlace) -> None:
        words = (
            "run",
            "--name",
            "mnist",
            "--env",
            "WANDB_API_KEY=secret1",
            "--",
            "sh",
            "-c",
            "echo $WANDB_API_KEY | wc -c",
        )
        assert arena_says(place, *words, ARENA_BACKEND="kubernetes").returncode == 0
        for path in (Path(place.env["ARENA_STATE_DIR"]) / "cluster").rglob("*"):
            assert path.is_dir() or b"secret1" not in path.read_bytes(), path
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
        client = place.client()
        assert "***" in client.export("mnist")
        with pytest.raises(arena.SpecError, match="WANDB_API_KEY"):
            client.rerun("mnist")

    def test_a_rerun_takes_the_recorded_code(self, place: KubernetesPlace) -> None:
        job = place.run(["python3", "train.py"], name="mnist")
        job.wait(check=True)
        job.delete()
        (place.cwd / "helper.py").write_text("print('helper v2')\n")
        again = place.client().rerun("mnist", name="mnist-b")
        again.wait(check=True)
        assert texts(again.logs()) == ["helper v1"]
        assert place.client().history("mnist-b")[0].parent == job.run_id
        fresh = place.client().rerun("mnist", name="mnist-c", code="here")
        fresh.wait(check=True)
        assert texts(fresh.logs()) == ["helper v2"]

    def test_a_state_folder_that_cannot_be_written_stops_nothing(self, place: KubernetesPlace) -> None:
        blocked = place.cwd / "blocked"
        blocked.write_text("a file, no folder")
        said = arena_says(
            place,
            "run",
            "--name",
            "mnist",
            "--",
            "echo",
            "hi",
            ARENA_BACKEND="kubernetes",
            ARENA_STATE_DIR=str(blocked),
        )
        assert (said.returncode, said.stdout) == (0, "hi\n"), said.stderr
        assert said.stderr.count("no record is kept") == 1

    def test_a_job_of_somebody_else_gets_a_record_when_it_is_waited_for(self, place: KubernetesPlace) -> None:
        container = {"name": "c", "image": place.env["ARENA_IMAGE"], "command": ["sh", "-c", "echo theirs; exit 4"]}
        made = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "theirs", "namespace": place.namespace},
            "spec": {"backoffLimit": 0, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
        }
        place.bed.kubectl("create", "-f", "-", given=json.dumps(made))
        job = place.client().get("theirs")
        assert not record(place, job.run_id).exists()
        assert job.wait().exit_code == 4
        job.delete(force=True)
        assert texts(place.client().logs("theirs")) == ["theirs"]

    def test_the_record_as_files_for_ci(self, place: KubernetesPlace) -> None:
        place.run(["echo", "hi"], name="mnist", workers=2)
        said = arena_says(place, "wait", "mnist", "--record", "out", ARENA_BACKEND="kubernetes")
        assert said.returncode == 0, said.stderr
        result = json.loads((place.cwd / "out" / "result.json").read_text())
        assert (result["state"], result["exitCode"], result["namespace"]) == ("SUCCEEDED", 0, place.namespace)
        assert (place.cwd / "out" / "logs" / "worker-1.log").read_bytes() == b"hi\n"
        again = arena_says(place, "rerun", "out", "--dry-run", "-o", "yaml", ARENA_BACKEND="kubernetes")
        assert "kind: Job" in again.stdout, again.stderr

    def test_two_readers_do_not_write_a_log_twice(self, place: KubernetesPlace) -> None:
        job = place.run(sh(f"seq 500; {HOLD}; seq 501 1000; sleep 1"))
        first, second = job.logs(follow=True), job.raw_logs(LogQuery(follow=True))
        heads = [next(first).text, next(second).text]
        place.go()
        assert [heads[0], *texts(first)] == [heads[1], *texts(second)] == [str(n) for n in range(1, 1001)]
        job.delete()
        assert texts(job.logs()) == [str(n) for n in range(1, 1001)]

    def test_a_list_notes_what_it_sees(self, place: KubernetesPlace) -> None:
        job = place.run(["true"])
        until(lambda: any(s.state.final for s in place.client().seen(Query(name=job.name))), 60)
        assert (record(place, job.run_id) / "final").exists()
