"""What every backend does with a job, seen through `arena.Client` only, on real processes."""

import asyncio
import hashlib
import json
import multiprocessing
import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import arena
from arena import State
from arena.backends.base import LogQuery, Query, Ref
from backends.place import HOLD, LocalPlace, py, sh, submit_each, texts, until

SHOW = "import os, sys; [print(os.fsencode(word).hex()) for word in sys.argv[1:]]"
SHOW_ENV = "import os; [print(k.hex(), v.hex()) for k, v in os.environb.items()]"
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
KEY = TEXT.filter(lambda key: key and "=" not in key)
ON_PROCESSES = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


# --- what was typed ------------------------------------------------------------------------------------------


@ON_PROCESSES
@given(st.lists(TEXT, max_size=20))
@example(["$$", "$(X)", "${HOME}", "`id`", "a b", "", "'", '"', "\\", "\n", "*", "~", "--", "-e", "é\u2028😀"])
def test_words_arrive_as_typed(place: LocalPlace, words: list[str]) -> None:
    job = place.run(py(SHOW, *words))
    assert job.wait().exit_code == 0
    assert texts(job.logs()) == [word.encode().hex() for word in words]


@ON_PROCESSES
@given(st.dictionaries(KEY, TEXT, max_size=20))
@example({"A": "b,c=d", "B": "=x:1,y:1", "C": "", "D": "5$$ $(A)", "E": "two\nlines", "é": "ü", "HF_TOKEN": "hf_abc"})
def test_environment_arrives_as_typed(place: LocalPlace, env: dict[str, str]) -> None:
    env = {key: value for key, value in env.items() if place.takes(key)}
    job = place.run(py(SHOW_ENV), env=env)
    assert job.wait().exit_code == 0
    there = dict(line.split(" ", 1) for line in texts(job.logs()))
    assert {key: there.get(key.encode().hex(), "") for key in env} == {key: env[key].encode().hex() for key in env}


@pytest.mark.parametrize(
    "line",
    ['python3 -c "print(1)" --note "lr: 0.1"', "echo a # quick", "ls *.sh", "{ echo a; echo b; }", "echo a\necho b"],
)
def test_a_shell_line_keeps_its_rules(place: LocalPlace, line: str) -> None:
    (place.cwd / "x.sh").touch()
    job = place.run(line)
    job.wait(check=True)
    there = subprocess.run(line, shell=True, cwd=place.cwd, capture_output=True, text=True)
    assert texts(job.logs()) == there.stdout.splitlines()


def test_a_script_of_several_lines_stops_at_its_first_error(place: LocalPlace) -> None:
    job = place.run("no-such-program\necho done")
    seen = job.wait()
    assert (seen.state, seen.exit_code) == (State.FAILED, 127)
    assert "done" not in texts(job.logs())


def test_a_here_document_arrives_byte_for_byte(place: LocalPlace) -> None:
    text = "pid=$$$$ cost 5$$\nprice=$$(cat p) $(X) ${Y}\n\ttab 'q' \"d\" \\ é\n"
    job = place.run(sh(f"cat <<'EOF' | sha256sum\n{text}EOF\n"))
    job.wait(check=True)
    assert texts(job.logs()) == [f"{hashlib.sha256(text.encode()).hexdigest()}  -"]


@pytest.mark.parametrize("word", ["a\0b", "a\udcffb"])
def test_words_that_cannot_travel_are_refused_and_shown(place: LocalPlace, word: str) -> None:
    for given_ in ({}, {"env": {"A": word}}, {"env": {word: "a"}}):
        with pytest.raises(arena.SpecError) as caught:
            place.run(["echo", "a" if given_ else word], **given_)
        assert repr(word) in str(caught.value)
    assert place.client().list() == []


def test_bytes_are_refused_as_words(place: LocalPlace) -> None:
    with pytest.raises(arena.SpecError, match="xff"):
        place.run(["echo", b"\xff"])  # type: ignore[list-item]


def test_a_file_name_with_blanks_stays_one_word(place: LocalPlace) -> None:
    job = place.run(py(SHOW, "in 01 A.ipynb", "out.ipynb"))
    job.wait(check=True)
    assert len(texts(job.logs())) == 2
    kept = job.get().job
    assert kept
    assert kept.command[-2:] == ("in 01 A.ipynb", "out.ipynb")


def test_the_program_starts_in_the_folder_of_the_caller(place: LocalPlace) -> None:
    (place.cwd / "sub").mkdir()
    (place.cwd / "sub" / "x").touch()
    job = place.run(["pwd"], working_dir="sub")
    job.wait(check=True)
    assert texts(job.logs())[0].endswith("/sub")


def test_a_folder_that_is_not_there_or_not_utf8_is_refused(place: LocalPlace) -> None:
    (place.cwd / "a\udcff").mkdir()
    for folder in ("nothing", "a\udcff"):
        with pytest.raises(arena.SpecError, match="--working-dir"):
            place.run(["true"], working_dir=folder)


@pytest.mark.exception("the caller's environment stays with the caller")
def test_a_variable_of_the_caller_that_is_not_utf8_goes_through(place: LocalPlace) -> None:
    job = place.client(ODD="a\udcff").run(py(SHOW_ENV))
    job.wait(check=True)
    assert f"{b'ODD'.hex()} 61ff" in texts(job.logs())


# --- names ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "a-b-1", "x" * 63])
def test_names_that_work(place: LocalPlace, name: str) -> None:
    name = name[: place.longest]
    job = place.run(["true"], name=name)
    job.wait(check=True)
    assert [one.name for one in place.client().list()] == [name]
    assert place.client().get(name).run_id == job.run_id


@pytest.mark.parametrize("name", ["x" * 64, "Upper", "3d-unet", "-a", "a-", "a/b", "..", "a_b", "é", "a\n", "a b"])
def test_names_that_are_refused_with_one_that_would_do(place: LocalPlace, name: str) -> None:
    with pytest.raises(arena.SpecError, match="--name") as caught:
        place.run(["true"], name=name)
    better = re.search(r"'([a-z0-9-]+)' (?:would do|fits)", str(caught.value))
    assert better
    assert len(better[1]) <= place.longest
    place.run(["true"], name=better[1]).wait(check=True)


def test_a_job_without_a_name_gets_one_of_its_program(place: LocalPlace) -> None:
    (place.cwd / "3D_Unet.py").write_text("")
    job = place.run("3D_Unet.py")
    assert re.fullmatch(r"job-3d-unet-[a-z0-9]{4}", job.name)
    job.wait(check=True)


def test_a_taken_name_is_refused_with_who_and_since_when(place: LocalPlace) -> None:
    first = place.run(sh(HOLD), name="mnist")
    with pytest.raises(arena.AlreadyExistsError) as caught:
        place.run(["true"], name="mnist")
    assert re.search(rf"run {first.run_id}\)? was submitted \d+ s ago by you and is \w+", str(caught.value))
    assert "arena delete mnist" in str(caught.value)
    assert not first.get().state.final


def test_of_two_submits_at_once_exactly_one_wins(place: LocalPlace) -> None:
    names = [f"race-{number}" for number in range(20)]
    spawn = multiprocessing.get_context("spawn")
    start, results = spawn.Barrier(2), spawn.Queue()
    words = (place.backend, dict(place.env), str(place.cwd), names, start, results)
    both = [spawn.Process(target=submit_each, args=words) for _ in range(2)]
    for one in both:
        one.start()
    outcomes = list(zip(results.get(timeout=150), results.get(timeout=150), strict=True))
    for one in both:
        one.join()
    assert [sorted(pair)[0] for pair in outcomes] == ["AlreadyExistsError"] * 20, outcomes
    winners = {max(pair) for pair in outcomes}
    assert {job.run_id for job in place.client().list()} == winners
    assert all(job.wait().state is State.SUCCEEDED for job in place.client().list())


def test_replace_takes_the_place_of_a_finished_job_only(place: LocalPlace) -> None:
    first = place.run(["true"], name="mnist")
    first.wait()
    second = place.run(sh(HOLD), name="mnist", replace=True)
    assert place.client().get("mnist").run_id == second.run_id != first.run_id
    with pytest.raises(arena.AlreadyExistsError):
        place.run(["true"], name="mnist", replace=True)
    client = place.client()
    job = second.get().job
    assert job
    third = client.submit(job, replace=True, force=True)
    assert second.get().state is State.CANCELLED
    assert [one.run_id for one in client.list()] == [third.run_id]


# --- codes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 3, 255])
def test_the_exit_code_is_the_programs(place: LocalPlace, code: int) -> None:
    seen = place.run(sh(f"exit {code}")).wait()
    assert (seen.exit_code, seen.state) == (code, State.FAILED if code else State.SUCCEEDED)
    assert [r.exit_code for r in seen.observed.replicas] == [code]


@pytest.mark.exception("a program is process 1 of its container: signals it sends itself are not heard")
@pytest.mark.parametrize(("name", "code"), [("KILL", 137), ("TERM", 143), ("SEGV", 139), ("HUP", 129), ("INT", 130)])
def test_a_signal_is_128_and_its_number(place: LocalPlace, name: str, code: int) -> None:
    seen = place.run(sh(f"kill -{name} $$; sleep 60")).wait()
    assert (seen.exit_code, seen.state) == (code, State.FAILED)


def test_no_such_program_is_127(place: LocalPlace) -> None:
    script = place.cwd / "lost"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    for program in ("no-such-program", "./nothing", "./lost"):
        seen = place.run([program]).wait()
        assert (seen.exit_code, seen.reason) == (127, "StartError")
        assert program in seen.observed.replicas[0].message


def test_a_program_that_may_not_run_is_126(place: LocalPlace) -> None:
    (place.cwd / "plain").write_text("echo hi\n")
    for program in ("./plain", "/"):
        seen = place.run([program]).wait()
        assert (seen.exit_code, seen.reason) == (126, "StartError")


@pytest.mark.exception("a file without a first line is no program for a container")
def test_a_script_without_its_first_line_runs_as_in_a_shell(place: LocalPlace) -> None:
    (place.cwd / "bare").write_text("echo $0 $1\n")
    (place.cwd / "bare").chmod(0o755)
    job = place.run(["./bare", "x"])
    job.wait(check=True)
    assert texts(job.logs()) == ["./bare x"]


def test_the_code_is_that_of_the_replica_that_failed_first(place: LocalPlace) -> None:
    others = 'trap "exit 5" TERM; touch r$RANK; while :; do sleep 0.02; done'
    script = (
        f"cd ${{HOLD:-.}}; if [ $RANK = 1 ]; then until [ -e r0 -a -e r2 ]; do sleep 0.02; done; exit 7; fi; {others}"
    )
    seen = place.run(sh(script), workers=3).wait()
    assert seen.exit_code == 7
    failure = seen.first_failure
    assert failure
    assert failure.name == "worker-1"
    assert [(r.exit_code, r.ended_by_us) for r in seen.observed.replicas] == [(5, True), (7, False), (5, True)]


def test_an_end_without_a_failure_waits_for_all(place: LocalPlace) -> None:
    job = place.run(sh(f"[ $RANK = 0 ] || {{ {HOLD}; }}"), workers=3)
    until(lambda: job.get().observed.replicas[0].ended)
    assert job.get().state is State.RUNNING
    place.go()
    assert job.wait().state is State.SUCCEEDED


# --- waits ---------------------------------------------------------------------------------------------------


def test_wait_with_check_raises_what_the_job_ended_with(place: LocalPlace) -> None:
    with pytest.raises(arena.JobFailedError) as caught:
        place.run(sh("exit 3")).wait(check=True, timeout=600)
    assert (caught.value.job_code, caught.value.seen.exit_code) == (3, 3)


def test_wait_for_a_job_that_has_ended_returns_at_once(place: LocalPlace) -> None:
    job = place.run(sh("exit 3"))
    job.wait()
    assert place.client().get(job.name).wait(timeout=0).exit_code == 3


def test_wait_ends_when_its_time_is_over_and_the_job_goes_on(place: LocalPlace) -> None:
    job = place.run(sh(HOLD))
    until(lambda: job.get().state is State.RUNNING)
    with pytest.raises(arena.WaitTimeoutError, match="goes on"):
        job.wait(timeout=0.2)
    with pytest.raises(TimeoutError):
        job.wait(timeout=0)
    assert job.get().state is State.RUNNING
    place.go()
    assert job.wait().state is State.SUCCEEDED


@pytest.mark.parametrize("end", ["stop", "delete"])
def test_wait_ends_when_the_job_is_ended_by_someone(place: LocalPlace, end: str) -> None:
    job = place.run(sh(HOLD))
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(job.wait, timeout=50)
        getattr(place.client().get(job.name), end)()
        seen = waiting.result(timeout=place.patience)
    assert (seen.state, seen.exit_code) == (State.CANCELLED, None)


def test_a_short_running_counts_as_started(place: LocalPlace) -> None:
    job = place.run(["sleep", "0.2"])
    assert job.wait(start_timeout=place.patience).state is State.SUCCEEDED
    assert job.wait(start_timeout=0).state is State.SUCCEEDED


def test_a_job_that_does_not_start_in_time_goes_on_waiting(place: LocalPlace) -> None:
    with place.full() as client:
        job = client.run(["true"])
        until(lambda: job.get().state is place.full_state)
        with pytest.raises(arena.NotStartedError, match=place.full_state.name):
            job.wait(start_timeout=0.2)
    assert job.wait(start_timeout=place.patience).state is State.SUCCEEDED


def test_the_running_timeout_counts_from_running(place: LocalPlace) -> None:
    with place.full() as client:
        job = client.run(sh(HOLD), running_timeout="300ms")
        until(lambda: job.get().state is place.full_state)
        with pytest.raises(arena.WaitTimeoutError):
            job.wait(timeout=0.5)
    seen = job.wait()
    assert (seen.state, seen.reason, seen.exit_code) == (State.FAILED, "DeadlineExceeded", None)
    assert 0.3 <= seen.duration < place.patience
    with pytest.raises(arena.JobFailedError) as caught:
        job.wait(check=True)
    assert caught.value.job_code == 1


@pytest.mark.parametrize("look", ["list", "get", "submit"])
def test_a_job_leaves_the_list_some_time_after_its_end(place: LocalPlace, look: str) -> None:
    job = place.run(["true"], name="brief", ttl_after_finished="200ms")
    assert job.wait().state is State.SUCCEEDED
    client = place.client()
    if look == "list":
        assert until(lambda: client.list() == [])
    elif look == "submit":
        assert until(lambda: _started(client, "brief"))
    else:
        assert until(lambda: not _exists(client, "brief"))
    assert client.get(job.run_id, gone=True).get().exit_code == 0


def _started(client: arena.Client, name: str) -> bool:
    try:
        return bool(client.run(["true"], name=name))
    except arena.AlreadyExistsError:
        return False


def _exists(client: arena.Client, name: str) -> bool:
    try:
        return bool(client.get(name))
    except arena.NotFoundError:
        return False


# --- ends ----------------------------------------------------------------------------------------------------


def test_stop_ends_the_job_and_keeps_it_in_the_list(place: LocalPlace) -> None:
    job = place.run(sh(f"echo hi; {HOLD}"), workers=2)
    until(lambda: len(list(job.logs())) == 2)
    seen = job.stop()
    assert (seen.state, seen.reason, seen.exit_code) == (State.CANCELLED, "Stopped", None)
    assert all(r.ended and r.ended_by_us for r in seen.observed.replicas)
    assert [one.get().state for one in place.client().list()] == [State.CANCELLED]
    assert job.stop().observed == seen.observed


def test_delete_takes_it_from_the_list_and_keeps_its_record(place: LocalPlace) -> None:
    job = place.run(sh(f"echo hi; {HOLD}"), name="mnist")
    until(lambda: texts(job.logs()) == ["hi"])
    first = job.delete()
    assert job.delete().status == first.status
    client = place.client()
    assert client.list() == []
    with pytest.raises(arena.NotFoundError, match="does not exist any more"):
        client.get("mnist@1")
    again = client.get("mnist", gone=True)
    assert texts(again.logs())[0] == "hi"  # a shell may add that it was terminated
    assert again.wait().state is State.CANCELLED
    assert again.get().job == job.get().job
    assert [seen.run_id for seen in client.history("mnist")] == [job.run_id]
    assert client.run(["true"], name="mnist").wait().state is State.SUCCEEDED


def test_a_delete_whose_time_is_over_says_so_and_the_end_goes_on(place: LocalPlace) -> None:
    job = place.run(sh("trap '' TERM; echo hi; while :; do sleep 0.1; done"))
    until(lambda: texts(job.logs()) == ["hi"], place.patience)
    with pytest.raises(arena.WaitTimeoutError, match=r"is not gone after 0\.1 s; its end goes on"):
        place.client().delete(job.name, timeout=0.1)
    assert job.wait(timeout=place.patience).state is State.CANCELLED
    for left in place.client().list():
        left.delete(timeout=place.patience)
    assert place.client().list() == []
    assert place.client().get(job.name, gone=True).get().state is State.CANCELLED


def test_of_three_deletes_the_one_without_a_job_says_so(place: LocalPlace) -> None:
    for name in ("a", "c"):
        place.run(["true"], name=name).wait()
    client, missing = place.client(), []
    for name in ("a", "b", "c"):
        try:
            client.get(name).delete()
        except arena.NotFoundError as error:
            missing.append(str(error))
    assert [text.splitlines()[0] for text in missing] == [f"job 'b' not found{place.where}"]
    assert client.list() == []


def test_a_follower_ends_when_the_job_is_deleted(place: LocalPlace) -> None:
    job = place.run(sh(f"exec 2>/dev/null; echo hi; trap 'echo bye; exit 0' TERM; {HOLD}"))
    with ThreadPoolExecutor() as pool:
        following = pool.submit(lambda: texts(job.logs(follow=True)))
        until(lambda: texts(job.logs()) == ["hi"])
        job.delete()
        assert following.result(timeout=place.patience) == ["hi", "bye"]


@pytest.mark.parametrize("look", ["get", "logs", "wait", "delete"])
def test_what_is_missing_is_said_the_same_way_everywhere(place: LocalPlace, look: str) -> None:
    client = place.client()
    for there in (False, True):
        with pytest.raises(arena.NotFoundError) as caught:
            getattr(client, look)("nothing")
        assert str(caught.value).splitlines()[0] == f"job 'nothing' not found{place.where}"
        assert caught.value.hint
        if not there:
            place.run(["true"]).wait()


@pytest.mark.exception("an odd object is shown as what it is: the API server keeps no damaged ones")
def test_one_odd_job_is_a_warning_and_the_rest_is_listed(place: LocalPlace) -> None:
    job = place.run(["true"], name="fine")
    job.wait()
    odd = place.make_odd()
    client = place.client()
    assert [one.name for one in client.list()] == ["fine"]
    (warning,) = client.warnings.lines
    assert odd in warning
    assert "damaged" in warning
    assert [seen.name for seen in client.history()] == ["fine"]


def test_a_job_that_is_listed_is_the_run_that_was_submitted(place: LocalPlace) -> None:
    job, client = place.run(["true"]), place.client()
    (listed,) = client.list()
    assert listed.ref == Ref.of(job.get())
    assert listed.wait().run_id == job.run_id
    listed.delete()
    assert [client.handle(seen).ref for seen in client.history()] == [listed.ref]


def test_a_list_is_given_again_whenever_a_job_changes(place: LocalPlace) -> None:
    client = place.client()
    place.run(["true"], name="other", label={"team": "b"}).wait()
    changes = client.changes(Query(labels={"team": "a"}))
    assert next(changes) == []
    job = place.run(sh(HOLD), label={"team": "a"})

    def comes(*states: State) -> bool:
        return any([seen.state for seen in seens] == [*states] for seens in changes)

    assert comes(State.RUNNING)
    place.go()
    assert comes(State.SUCCEEDED)
    job.delete()
    assert comes()


def test_list_selects_by_state_label_and_user(place: LocalPlace) -> None:
    place.run(["true"], name="good", label={"team": "a"}).wait()
    place.run(["false"], name="bad", label={"team": "b"}).wait()
    client = place.client()
    assert [job.name for job in client.list()] == ["bad", "good"]
    assert [job.name for job in client.list(state=["SUCCEEDED"])] == ["good"]
    assert [job.name for job in client.list(labels={"team": "b"})] == ["bad"]
    assert client.list(user="somebody-else") == []


# --- starting again ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "attempts"),
    [
        ({}, 1),
        ({"retry": 2}, 3),
        ({"restart_policy": "OnFailure", "retry": 1}, 2),
        ({"restart_policy": "ExitCode", "retry": 3}, 1),
    ],
)
def test_how_often_a_gang_that_fails_is_started(place: LocalPlace, fields: dict[str, object], attempts: int) -> None:
    seen = place.run(sh("exit 3"), **fields).wait()
    assert (seen.observed.attempt, seen.exit_code) == (attempts, 3)
    assert [r.exit_code for r in seen.observed.earlier] == [3] * (attempts - 1)


@pytest.mark.exception("operators start a pod again where one machine starts the gang again")
def test_retry_starts_the_whole_gang_with_new_ports_and_keeps_what_was(place: LocalPlace) -> None:
    job = place.run(
        sh('echo $ARENA_ATTEMPT $RANK $MASTER_PORT; [ $ARENA_ATTEMPT -gt 2 ] || exit "1$RANK"'), workers=2, retry=5
    )
    seen = job.wait()
    assert (seen.state, seen.exit_code, seen.observed.attempt) == (State.SUCCEEDED, 0, 3)
    lines = [(line.attempt, line.text.split()) for line in job.logs(follow=True)]
    ports: dict[int, set[str]] = {}
    for attempt, (said, _, port) in lines:
        assert str(attempt) == said
        ports.setdefault(attempt, set()).add(port)
    assert [len(ports[attempt]) for attempt in (1, 2, 3)] == [1, 1, 1]
    assert len(set.union(*ports.values())) == 3
    assert {line.attempt for line in job.raw_logs(LogQuery(attempt=1))} == {1}
    failed = [r for r in seen.observed.earlier if r.failed]
    assert {r.attempt for r in failed} == {1, 2}
    assert all(r.exit_code == 10 + r.index for r in failed)
    assert seen.first_failure
    assert seen.first_failure.attempt == 1


@pytest.mark.exception("operators start a pod again where one machine starts the gang again")
def test_exit_code_policy_starts_again_after_a_signal(place: LocalPlace) -> None:
    job = place.run(sh("[ $ARENA_ATTEMPT = 2 ] || kill -9 $$"), restart_policy="ExitCode", retry=3)
    assert job.wait().observed.attempt == 2


@pytest.mark.exception("the time between two starts is the cluster's, and grows")
def test_a_gang_that_may_start_again_does_so_six_times(place: LocalPlace) -> None:
    seen = place.run(sh("exit 3"), restart_policy="OnFailure").wait()
    assert (seen.observed.attempt, [r.exit_code for r in seen.observed.earlier]) == (7, [3] * 6)


@pytest.mark.exception("the time between two starts is the cluster's, and grows")
def test_stop_ends_a_job_that_starts_again_and_again(place: LocalPlace) -> None:
    job = place.run(["sleep", "0.01"], restart_policy="Always", retry=1000)
    until(lambda: job.get().observed.attempt > 2)
    assert job.stop().state is State.CANCELLED


# --- peers ---------------------------------------------------------------------------------------------------

MEET = """
import os, socket, time
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "0":
    with socket.create_server(address) as server:
        print("got", server.accept()[0].makefile().readline())
else:
    while True:
        try:
            connection = socket.create_connection(address, 20)
        except OSError:
            time.sleep(0.02)
            continue
        connection.sendall(b"hello from rank 1")
        break
"""


def test_two_replicas_meet_at_the_master_address(place: LocalPlace) -> None:
    job = place.run(py(MEET), workers=2)
    job.wait(check=True, timeout=100)
    assert texts(job.logs()) == ["got hello from rank 1"]


def environments(job: arena.client.Handle) -> list[dict[str, str]]:
    job.wait(check=True)
    return sorted((json.loads(line.text) for line in job.logs()), key=lambda env: int(env.get("RANK", 0)))


SHOW_ALL = "import json, os; print(json.dumps(dict(os.environ)))"


def test_a_plain_job_has_the_names_of_torch_and_jax(place: LocalPlace) -> None:
    for rank, env in enumerate(environments(place.run(py(SHOW_ALL), workers=2))):
        assert (env["RANK"], env["WORLD_SIZE"], env["LOCAL_RANK"]) == (str(rank), "2", "0")
        assert (env["PROCESS_ID"], env["NUM_PROCESSES"]) == (str(rank), "2")
        assert env["COORDINATOR_ADDRESS"] == env["MASTER_ADDR"]
        assert env["PYTHONUNBUFFERED"] == "1"
        assert env.get("ARENA_ATTEMPT", "1") == "1"


def test_processes_per_node_are_started_with_their_ranks(place: LocalPlace) -> None:
    (place.cwd / "show.py").write_text(SHOW_ALL)
    for kind in ("job", "pytorch"):
        found = environments(place.run("show.py", type=kind, workers=2, nproc_per_node=2))
        assert [(e["RANK"], e["LOCAL_RANK"], e["WORLD_SIZE"]) for e in found] == [
            ("0", "0", "4"), ("1", "1", "4"), ("2", "0", "4"), ("3", "1", "4"),
        ]  # fmt: skip
        assert {e["MASTER_PORT"] for e in found} == {found[0]["MASTER_PORT"]}
        assert not [name for e in found for name in e if name.startswith("PET_")]


def test_torchrun_is_told_how_many_processes_it_starts(place: LocalPlace) -> None:
    show = place.cwd / "torchrun"
    show.write_text(f"#!/usr/bin/env python3\n{SHOW_ALL}")
    show.chmod(0o755)
    for kind in ("job", "pytorch"):
        found = environments(place.run(["./torchrun", "x.py"], type=kind, workers=2, nproc_per_node=3))
        names = ("PET_NPROC_PER_NODE", "PET_NNODES", "PET_NODE_RANK")
        assert [tuple(e[name] for name in names) for e in found] == [("3", "2", "0"), ("3", "2", "1")]


def test_other_programs_with_several_processes_are_refused(place: LocalPlace) -> None:
    with pytest.raises(arena.SpecError, match="--nproc-per-node"):
        place.run(["./train"], nproc_per_node=2)


@pytest.mark.exception("the processes of one container have one log")
def test_a_rank_is_chosen_among_the_processes_of_a_node(place: LocalPlace) -> None:
    (place.cwd / "say.py").write_text("import os; print(os.environ['RANK'])")
    job = place.run("say.py", workers=2, nproc_per_node=2)
    job.wait(check=True)
    assert [(line.rank, line.text) for line in job.logs(rank=[1, 2])] in ([(1, "1"), (2, "2")], [(2, "2"), (1, "1")])
    assert sorted(texts(job.logs(replica="worker-1"))) == ["2", "3"]


# --- from where it is called ---------------------------------------------------------------------------------


def test_it_works_inside_a_running_event_loop(place: LocalPlace) -> None:
    async def main() -> list[str]:
        job = place.run(["echo", "hi"])
        job.wait(check=True)
        return texts(job.logs(follow=True))

    assert asyncio.run(main()) == ["hi"]


def test_it_works_from_eight_threads(place: LocalPlace) -> None:
    client, together = place.client(), threading.Barrier(8)

    def one(number: int) -> list[str]:
        together.wait()
        job = client.run(["echo", str(number)])
        job.wait(check=True)
        assert client.list()
        return texts(job.logs())

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(8))) == [[str(number)] for number in range(8)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="other system: has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_it_works_after_a_fork(place: LocalPlace) -> None:
    client = place.client()
    before = client.run(sh(HOLD))
    beside = threading.Thread(target=before.wait, daemon=True)
    beside.start()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            place.go()
            ends = (before.wait(timeout=60), client.run(["true"], name="child").wait(timeout=60))
            code = 0 if all(seen.state is State.SUCCEEDED for seen in ends) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    beside.join(20)
    assert not beside.is_alive()
    assert [job.name for job in client.list()] == ["child", before.name]


def test_a_job_outlives_the_process_that_submitted_it(place: LocalPlace) -> None:
    program = (
        f"import arena; print(arena.Client(backend={place.backend!r}).run(['sh', '-c', {HOLD!r}], name='mnist').run_id)"
    )
    words = [sys.executable, "-c", program + "; import os; os.kill(os.getpid(), 9)"]
    ended = subprocess.run([*words[:2], program], env=place.env, cwd=place.cwd, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    job = place.client().get("mnist")
    assert job.run_id == ended.stdout.strip()
    place.go()
    assert job.wait().state is State.SUCCEEDED


def test_the_library_prints_nothing(place: LocalPlace, capfd: pytest.CaptureFixture[str]) -> None:
    job = place.run(["echo", "hi"])
    job.wait()
    list(job.logs(follow=True))
    place.client().list()
    job.delete()
    assert capfd.readouterr() == ("", "")


def test_times_follow_each_other(place: LocalPlace) -> None:
    seen = place.run(["true"]).wait()
    (replica,) = seen.observed.replicas
    times = [seen.observed.created, seen.observed.started, replica.started, replica.ended, seen.observed.finished]
    assert all(a and b and a <= b for a, b in pairwise(times))
    assert abs(time.time() - seen.observed.created.timestamp()) < 60
