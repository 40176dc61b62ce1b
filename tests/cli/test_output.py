"""What is printed: upstream's keys with upstream's types, straight tables, and no secret."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from arena.backends.base import Context, Plan
from arena.cli import common, output, wait
from arena.cli.output import Column, Seen, table
from arena.client import Client
from arena.errors import AlreadyExistsError, JobFailedError
from arena.job import Job
from arena.jobs.mpi import MPIJob
from arena.jobs.plain import PlainJob
from arena.jobs.pytorch import PyTorchJob
from arena.status import Observed, Replica, State, Status
from arena.why import Why

T = datetime(2025, 6, 1, 12, 0, 0, 250_000, tzinfo=UTC)
TOKEN = "hf_" + "aB3d" * 8
JOB = PlainJob(name="mnist", command=("train.py", "--lr", "0.1"), workers=2, gpus=1, label={"team": "a"})


@pytest.fixture(autouse=True)
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "CET-1")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def replica(index: int = 0, code: int | None = None, role: str = "worker", **more: Any) -> Replica:
    ended = T + timedelta(seconds=30 + index) if code is not None else None
    state = State.RUNNING if code is None else State.FAILED if code else State.SUCCEEDED
    more = {"rank": index, "gpus": 1, "started": T + timedelta(seconds=10), "state": state, "ended": ended, **more}
    return Replica(role=role, index=index, exit_code=code, **more)


def seen(state: State = State.RUNNING, replicas: tuple[Replica, ...] | None = None, **more: Any) -> Seen:
    word = {State.CANCELLED: "Stopped"}.get(state, state.value.capitalize())
    status = Status(state=state, reason=more.pop("reason", ""), message=more.pop("message", ""), since=T)
    observed = Observed(
        word=word,
        created=T,
        started=T + timedelta(seconds=10),
        finished=T + timedelta(seconds=40) if state.final else None,
        replicas=(replica(0), replica(1)) if replicas is None else replicas,
    )
    given: dict[str, Any] = {"name": "mnist", "run_id": "mnist-7k3f", "job": JOB, "host": "box", "cwd": "/p"}
    return Seen(status=status, observed=observed, **{**given, "duration": 817.6, "user": "alice", **more})


UPSTREAM = {
    "uuid": str, "name": str, "namespace": str, "duration": str, "status": str, "trainer": str, "tensorboard": str,
    "chiefName": str, "instances": list, "priority": str, "requestGPUs": int, "allocatedGPUs": int,
    "creationTimestamp": int, "modelName": str, "modelVersion": str, "modelSource": str,
}  # fmt: skip
INSTANCE = {
    "ip": str, "status": str, "name": str, "age": str, "node": str, "nodeIP": str, "chief": bool, "requestGPUs": int,
    "gpuMetrics": dict, "creationTimestamp": int,
}  # fmt: skip
OURS = [
    "schema", "state", "reason", "message", "since", "exitCode", "backend", "engine", "managedBy", "runId", "uid",
    "user", "createdAt", "submittedAt", "startedAt", "finishedAt", "gpuSeconds", "durationSeconds", "attempt",
    "firstFailure", "cause", "why", "warnings", "command", "labels", "host", "deletedAt", "parent", "error",
    "replicas",
]  # fmt: skip
REPLICA = [
    "name", "role", "index", "rank", "attempt", "state", "exitCode", "reason", "startedAt", "endedAt", "endedByUs",
    "gpus", "nproc", "memoryLimit", "memoryPeak",
]  # fmt: skip


@pytest.mark.parametrize("state", list(State))
def test_upstream_s_keys_come_first_with_their_types(state: State) -> None:
    shown = output.job_json(seen(state))
    assert list(shown)[: len(UPSTREAM)] == list(UPSTREAM)
    assert {key: type(shown[key]) for key in UPSTREAM} == UPSTREAM
    for instance in shown["instances"]:
        assert {key: type(value) for key, value in instance.items()} == INSTANCE
        assert list(instance) == list(INSTANCE)


def test_our_keys_stand_beside_them() -> None:
    shown = output.job_json(seen())
    assert list(shown)[len(UPSTREAM) :] == OURS
    assert [list(one) for one in shown["replicas"]] == [REPLICA] * 2
    assert list(output.job_json(seen(), detail=False))[len(UPSTREAM) :] == OURS[:-1]


def test_values_of_a_running_job() -> None:
    shown = output.job_json(seen())
    assert (shown["duration"], shown["durationSeconds"]) == ("817s", 817.6)
    assert (shown["status"], shown["state"], shown["trainer"]) == ("RUNNING", "RUNNING", "job")
    assert (shown["requestGPUs"], shown["allocatedGPUs"]) == (2, 2)
    assert (shown["chiefName"], [i["chief"] for i in shown["instances"]]) == ("worker-0", [True, False])
    assert (shown["creationTimestamp"], shown["createdAt"]) == (int(T.timestamp()), "2025-06-01T12:00:00.250Z")
    assert (shown["exitCode"], shown["firstFailure"], shown["cause"], shown["error"]) == (None, None, None, None)
    assert (shown["command"], shown["labels"]) == (["train.py", "--lr", "0.1"], {"team": "a"})
    assert {i["age"] for i in shown["instances"]} == {"817s"}
    assert shown["uuid"] == shown["uid"] == "mnist-7k3f"


def test_values_of_a_failed_job() -> None:
    shown = output.job_json(seen(State.FAILED, (replica(0, 143, ended_by_us=True), replica(1, 3))))
    assert shown["exitCode"] == 3
    assert shown["firstFailure"] == {
        "replica": "worker-1",
        "rank": 1,
        "attempt": 1,
        "exitCode": 3,
        "time": "2025-06-01T12:00:31.250Z",
    }
    assert [r["endedByUs"] for r in shown["replicas"]] == [True, False]
    assert [i["age"] for i in shown["instances"]] == ["20s", "21s"]
    assert shown["allocatedGPUs"] == 0


@pytest.mark.parametrize(
    ("state", "word"), [(State.QUEUED, "QUEUING"), (State.SUSPENDED, "PENDING"), (State.CANCELLED, "FAILED")]
)
def test_words_upstream_has(state: State, word: str) -> None:
    shown = output.job_json(seen(state))
    assert (shown["status"], shown["state"]) == (word, state.value)


def test_a_job_of_others_and_one_without_replicas() -> None:
    other = output.job_json(seen(job=None, replicas=()))
    assert (other["command"], other["labels"], other["instances"], other["chiefName"]) == ([], {}, [], "")
    assert output.job_json(seen(State.QUEUED, ()))["requestGPUs"] == 2


def test_the_chief_is_the_leading_role_s() -> None:
    ps, chief = replica(role="ps"), replica(role="chief")
    assert output.job_json(seen(replicas=(ps, replica(), chief)))["chiefName"] == "chief-0"


SECRETS = {"WANDB_API_KEY": "secret1", "PLAIN": "x"}
LEAKS = [
    ("train.py", "--token", "secret1"),
    ("train.py", "--note", "secret1"),
    ("sh", "-c", "DB_PASSWORD=secret2 python train.py"),
    ("DB_PASSWORD='secret2 secret2' python train.py --password  secret2 --api-key=secret2",),
    ("train.py", TOKEN),
    ("sh", "-c", f"echo {TOKEN}"),
]


@pytest.mark.parametrize("command", LEAKS)
def test_secrets_are_masked_everywhere(command: tuple[str, ...]) -> None:
    job = PlainJob(name="mnist", command=command, env=SECRETS, label={"apiKey": "secret2"})
    text = f"died of secret1 and {TOKEN}"
    one = seen(State.FAILED, (replica(0, 3),), job=job, message=text, why=text, warnings=(text,))
    why = Why(cause="ExitCode", text=text, evidence=(text,), next=text)
    shown = [json.dumps(output.job_json(one)), json.dumps(output.why_json(one, why)), output.get_text(one, T)]
    shown += [output.history_table([one], True), output.list_table([one], True)]
    assert not [text for text in shown if re.search(rf"secret\d|{TOKEN}", text)]
    assert "***" in shown[0]


def test_plain_words_keep_their_values() -> None:
    job = PlainJob(command=("MAX_TOKENS=5 python  train.py --lr 0.1 | tee 'a b'",))
    assert output.job_json(seen(job=job))["command"] == list(job.command)


def test_a_shell_line_keeps_what_is_not_secret() -> None:
    job = PlainJob(command=("TOKEN=secret1 sh -c 'exit 4'",))
    assert output.job_json(seen(job=job))["command"] == ["TOKEN=*** sh -c 'exit 4'"]
    job = PlainJob(command=("env", "TOKEN=two words", "train.py"))
    assert output.job_json(seen(job=job))["command"] == ["env", "TOKEN=***", "train.py"]


def test_why_as_json() -> None:
    shown = output.why_json(seen(State.FAILED, (replica(0, 3),)), Why(cause="ExitCode", text="t", evidence=("e",)))
    assert (shown["cause"], shown["text"], shown["evidence"], shown["exitCode"]) == ("ExitCode", "t", ["e"], 3)
    assert output.why_json(seen(), None)["cause"] is None


def test_why_tells_what_is_odd_though_all_is_well() -> None:
    odd = seen(State.SUCCEEDED, warnings=("worker-1 never started",))
    assert output.why_text(odd, None) == "mnist is SUCCEEDED\nWarning: worker-1 never started"
    assert output.why_json(odd, None)["warnings"] == ["worker-1 never started"]


def test_errors_and_warnings() -> None:
    error = AlreadyExistsError("job 'ci-41' exists", why=f"2 min ago with {TOKEN}", hint="--replace")
    assert output.error_json(error) == {
        "error": {
            "code": 4,
            "kind": "AlreadyExistsError",
            "what": "job 'ci-41' exists",
            "why": "2 min ago with ***",
            "hint": "--replace",
        }
    }
    assert output.error_json(JobFailedError(seen(State.FAILED, (replica(0, 3),))))["error"]["code"] == 3
    assert output.warnings_json(["a", TOKEN]) == {"warnings": ["a", "***"]}


# --- formats


def emitted(value: Any, fmt: str, encoding: str = "utf-8") -> str:
    stream = io.TextIOWrapper(raw := io.BytesIO(), encoding=encoding, newline="\n")
    output.emit(value, fmt, stream)
    stream.flush()
    return raw.getvalue().decode(encoding)


ODD = {"name": "é 漢 \udc80 \x1b"}


def test_lists() -> None:
    assert emitted([], "json") == "[]\n"
    assert emitted([], "name") == ""
    assert emitted([{"name": "a"}, {"name": "b"}], "name") == emitted(["a", "b"], "name") == "a\nb\n"
    assert yaml.safe_load(emitted([], "yaml")) == []


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_any_text_through_any_encoding(encoding: str) -> None:
    assert json.loads(emitted(ODD, "json", encoding)) == ODD
    assert yaml.safe_load(emitted({"name": "é 漢"}, "yaml", encoding)) == {"name": "é 漢"}
    assert emitted([ODD, ODD], "name", encoding).count("\n") == 2
    assert "\\udc80" in emitted(ODD, "yaml", encoding).lower()


def test_json_is_readable() -> None:
    assert (
        emitted({"name": "é", "status": "SUCCEEDED"}, "json") == '{\n    "name": "é",\n    "status": "SUCCEEDED"\n}\n'
    )


def test_yaml_and_json_say_the_same() -> None:
    shown = [output.job_json(seen(State.FAILED, (replica(0, 3),)))]
    assert yaml.safe_load(emitted(shown, "yaml")) == json.loads(emitted(shown, "json")) == shown


# --- tables


def test_a_table_is_straight_and_has_no_blanks_at_its_ends() -> None:
    rows = [("a", "1"), ("long name", "22"), ("漢字", "3"), ("e\u0301", ""), ("x\ny\x1b[0m", "4")]
    columns: list[Column[tuple[str, str]]] = [Column("NAME", lambda r: r[0]), Column("N", lambda r: r[1])]
    assert table(rows, columns).splitlines() == [
        "NAME         N",
        "a            1",
        "long name    22",
        "漢字         3",
        "e\u0301",
        r"x\ny\x1b[0m  4",
    ]


def test_wide_columns_only_when_asked() -> None:
    columns: list[Column[str]] = [Column("A", str), Column("B", len, wide=True)]
    assert table(["x"], columns) == "A\nx\n"
    assert table(["x"], columns, True, rule=True, indent="  ") == "  A  B\n  -  -\n  x  1\n"


def test_an_empty_list_is_its_heading() -> None:
    titles = ["NAME", "STATUS", "TRAINER", "DURATION", "GPU(Requested)", "GPU(Allocated)", "NODE"]
    assert output.list_table([]).split() == titles
    assert output.list_table([], namespaces=True).split() == ["NAMESPACE", *titles]
    assert output.list_table([], True).split() == [*titles, "RUN", "REASON", "USER", "CREATED", "MANAGED", "BY"]
    assert output.history_table([]) == "RUN  NAME  STATE  CODE  DURATION  SUBMITTED  CAUSE  WHERE\n"


def test_list() -> None:
    jobs = [seen(), seen(State.SUCCEEDED, (replica(0, 0),), name="b", host="", duration=59.9)]
    lines = output.list_table(jobs).splitlines()
    assert lines[1].split() == ["mnist", "RUNNING", "JOB", "13m", "2", "2", "box"]
    assert lines[2].split() == ["b", "SUCCEEDED", "JOB", "59s", "1", "N/A", "N/A"]


def test_history_is_newest_first_and_marks_unseen_ends() -> None:
    old = seen(State.FAILED, (replica(0, None, lost=True),), run_id="old", reason="Lost", cause="Lost")
    new = seen(State.FAILED, (replica(0, 3),), run_id="new", cause="ExitCode")
    new = Seen(**{f: getattr(new, f) for f in new.__struct_fields__} | {"observed": later(new.observed)})
    gone = seen(State.RUNNING, run_id="gone", deleted=T)
    left = seen(State.CANCELLED, run_id="left", deleted=T, reason="EndNotSeen", cause="Deleted")
    lines = output.history_table([old, new, gone, left]).splitlines()
    assert [line.split()[0] for line in lines] == ["RUN", "new", "old", "gone", "left"]
    assert re.search(r"mnist +FAILED +3 +13m +2025-06-02 13:00:00 CET +ExitCode +local/box$", lines[1])
    assert re.search(r" FAILED +- .*Lost \(end not seen\) +local/box$", lines[2])
    assert re.search(r" RUNNING +- .* \(end not seen\) ", lines[3])
    assert re.search(r" CANCELLED +- .* Deleted \(end not seen\) ", lines[4])


def later(observed: Observed) -> Observed:
    return Observed(word=observed.word, created=T + timedelta(days=1), replicas=observed.replicas)


def test_get() -> None:
    failed = seen(State.FAILED, (replica(0, 143, ended_by_us=True), replica(1, 3)), why="worker-1 failed", reason="E")
    assert output.get_text(failed, T + timedelta(hours=3), events=[("job/mnist", "Normal", "5m", "[A] b")]) == (
        """\
Name:        mnist
Status:      FAILED
Namespace:   N/A
Priority:    N/A
Trainer:     JOB
Duration:    13m
CreateTime:  2025-06-01 13:00:00 CET
EndTime:     2025-06-01 13:00:40 CET
Reason:      E
Why:         worker-1 failed
Since:       2025-06-01 13:00:00 CET (3h ago)
Run:         mnist-7k3f (local on box)
Command:     train.py --lr 0.1
Results:     /p

Instances:
  NAME      STATUS  AGE  IS_CHIEF  GPU(Requested)  NODE  RANK  CODE
  ----      ------  ---  --------  --------------  ----  ----  ----
  worker-0  Error   20s  true      1               box   0     143
  worker-1  Error   21s  false     1               box   1     3

Events:
  SOURCE     TYPE    AGE  MESSAGE
  ------     ----    ---  -------
  job/mnist  Normal  5m   [A] b
"""
    )


def test_get_of_a_running_job_has_an_empty_end_time() -> None:
    assert "\nEndTime:\n" in output.get_text(seen(), T)


def test_get_of_a_big_gang_shows_the_first_and_the_failing_ones() -> None:
    gang = tuple(replica(i, 3 if i == 37 else 143, ended_by_us=i != 37) for i in range(64))
    text = output.get_text(seen(State.FAILED, gang), T)
    names = re.findall(r"^  (worker-\d+) ", text, re.M)
    assert names == [f"worker-{i}" for i in (*range(8), 37)]
    assert text.endswith("  55 more: -o wide\n")
    assert len(re.findall(r"^  worker-", output.get_text(seen(State.FAILED, gang), T, wide=True), re.M)) == 64


def test_ranks_of_a_replica_with_several_processes() -> None:
    assert re.search(r" 4-7 +-$", output.get_text(seen(replicas=(replica(1, rank=4, nproc=4),)), T), re.M)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0s"), (0, "0s"), (12.9, "12s"), (60, "1m"), (3599, "59m"), (3600, "1h"), (86400, "1d"), (400 * 86400, "1y")],
)
def test_durations(seconds: float, text: str) -> None:
    assert output.short_duration(seconds) == text


# --- colour


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_only_on_a_terminal_that_wants_it() -> None:
    assert output.use_color(Terminal(), {})
    assert output.use_color(Terminal(), {"NO_COLOR": ""})
    assert not output.use_color(Terminal(), {"NO_COLOR": "1"})
    assert not output.use_color(Terminal(), {"TERM": "dumb"})
    assert not output.use_color(io.StringIO(), {})


def test_colour_moves_nothing() -> None:
    jobs = [seen(), seen(State.FAILED, (replica(0, 3),))]
    for show in (output.list_table, output.history_table):
        colored = show(jobs, color=True)
        assert "\x1b[31mFAILED" in colored
        assert re.sub(r"\x1b\[\d+m", "", colored) == show(jobs)
    assert re.sub(r"\x1b\[\d+m", "", output.get_text(jobs[1], T, color=True)) == output.get_text(jobs[1], T)


# --- lines


def plan(job: Job, **more: Any) -> Plan:
    context = Context(**{"cwd": "/home/a/p", "environ": {"HOME": "/home/a"}, "python": "/v/python", **more})
    return Plan(backend="local", job=job, name="x", run_id="x-1", context=context)


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (
            plan(PlainJob(command=("train.py",), workers=2), rule="no kubeconfig"),
            "local (no kubeconfig): 2 workers, python /v/python, in ~/p",
        ),
        (plan(PlainJob(command=("true",))), "local: 1 worker, in ~/p"),
        (
            plan(PyTorchJob(command=("t.py",), workers=3, gpus=2, nproc_per_node=4), cwd="/home/ab"),
            "local: 1 master, 2 workers, 4 processes each, 2 GPUs each, python /v/python, in /home/ab",
        ),
        (plan(MPIJob(command=("true",), workers=2, gpus=4)), "local: 1 launcher, 8 GPUs each, in ~/p"),
        (
            replace(plan(MPIJob(command=("true",), workers=2, gpus=4)), backend="kubernetes"),
            "kubernetes: 1 launcher, 2 workers, 4 GPUs each",
        ),
    ],
)
def test_plan_line(made: Plan, line: str) -> None:
    assert output.plan_line(made) == line


def test_what_went_half_right_is_said_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert wait.ended(seen(State.SUCCEEDED, (replica(0, 0),), warnings=("worker-1 never started",))) == 0
    said = capsys.readouterr().err.splitlines()
    assert said == ["Warning: mnist: worker-1 never started", "mnist: SUCCEEDED after 13m"]


def test_log_prefixes_have_one_width() -> None:
    names = ["worker-0", "worker-10"]
    assert output.log_prefix(names) == {"worker-0": "worker-0  | ", "worker-10": "worker-10 | "}
    assert output.log_prefix([]) == {}
    assert all("\x1b[" in prefix for prefix in output.log_prefix(names, color=True).values())


def test_nothing_heavy_is_imported() -> None:
    heavy = ("yaml", "rich", "httpx", "sqlite3", "ssl", "psutil", "unicodedata")
    code = f"import sys, arena.cli.output; print([m for m in {heavy} if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (answer.stdout, answer.stderr) == ("[]\n", "")


def test_the_priority_is_the_job_s() -> None:
    urgent = seen(job=PlainJob(command=("true",), priority="high"))
    assert [output.job_json(one)["priority"] for one in (urgent, seen(), seen(job=None))] == ["high", "N/A", "N/A"]
    assert re.search(r"(?m)^Priority: +high$", output.get_text(urgent, T))


@pytest.mark.parametrize(
    ("made", "word"),
    [
        (replica(state=State.PENDING, pod="a", reason="ImagePullBackOff"), "ImagePullBackOff"),
        (replica(state=State.PENDING, pod="a", reason="Unschedulable"), "Pending"),
        (replica(state=State.PENDING), "Pending"),
        (replica(state=State.SUSPENDED), "Suspended"),
        (replica(pod="a", reason="PreemptionByScheduler"), "Terminating"),
        (replica(reason="NotSeen"), "Running"),
        (replica(code=3, pod="a", reason="Error"), "Error"),
    ],
)
def test_instances_are_told_as_kubectl_tells_pods(made: Replica, word: str) -> None:
    assert output.job_json(seen(replicas=(made,)))["instances"][0]["status"] == word


def test_what_was_said_before_is_not_said_again(capsys: pytest.CaptureFixture[str]) -> None:
    client = Client()
    client.warnings.add("PyTorchJobs are not listed")
    client.warnings.add("pods are not listed")
    common.print_warnings(client, as_json=False, strict=False, said=1)
    assert capsys.readouterr().err == "Warning: pods are not listed\n"
