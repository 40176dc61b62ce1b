"""Submit of every type, and what one does with jobs afterwards."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

TYPES = {
    "job": ("job", ["worker", "worker"]),
    "plain": ("job", ["worker", "worker"]),
    "pytorch": ("pytorchjob", ["master", "worker"]),
    "pytorchjob": ("pytorchjob", ["master", "worker"]),
    "py": ("pytorchjob", ["master", "worker"]),
    "jax": ("jaxjob", ["worker", "worker"]),
    "tf": ("tfjob", ["worker", "worker"]),
    "tfjob": ("tfjob", ["worker", "worker"]),
    "tensorflow": ("tfjob", ["worker", "worker"]),
}


@pytest.mark.parametrize("name", TYPES)
def test_submit_of_every_type(arena: Any, name: str) -> None:
    made = arena("submit", name, "-b", "local", "--name", "a", "-w", "2", "-o", "json", 'sh -c "sleep 0.1; echo $0"')
    assert made.exit_code == 0
    assert "The Job a has been submitted successfully" in made.stderr
    assert (made.json["trainer"], [r["role"] for r in made.json["replicas"]]) == TYPES[name]
    assert arena("wait", "a").exit_code == 0
    assert set(arena("logs", "a", "--raw").stdout.splitlines()) - {"Terminated"} == {
        "sh"
    }  # a worker ended with the first


@pytest.mark.parametrize("name", ["pytorch", "tf", "mpi", "mpijob", "jax"])
def test_upstreams_types_never_run_here_unasked(here: Any, name: str) -> None:
    refused = here("submit", name, "--name", "a", "true")
    assert refused.exit_code == 6
    assert "no cluster" in refused.stderr
    assert "-b local" in refused.stderr
    assert here("submit", name, "--name", "a", "--dry-run", "-b", "local", "-w", "2", "true").exit_code == 0


def test_flags_anywhere_before_the_dashes(arena: Any) -> None:
    words = ["submit", "job", "echo", "--name", "a", "-w", "2", "hi", "--wait", "--", "--name", "b"]
    assert arena(*words).exit_code == 0
    assert arena("logs", "a", "--raw").stdout == "hi --name b\n" * 2
    assert arena("submit", "--name", "b", "-w", "1", "job", "--wait", "echo", "hi").exit_code == 0
    unknown = arena("submit", "job", "--name", "c", "train.py", "--epoch", "3")
    assert unknown.exit_code == 2
    assert "--epoch" in unknown.stderr
    assert " -- " in unknown.stderr
    near = arena("submit", "job", "--worker", "2", "true")
    assert "--workers" in near.stderr


def test_submit_of_a_run_file(arena: Any) -> None:
    arena.file("job.yaml", "type: pytorch\nworkers: 2\ncommand: [echo, filed]\n")
    assert arena("submit", "-f", "job.yaml").exit_code == 6
    assert arena("submit", "-b", "local", "-f", "job.yaml", "--name", "a", "--wait").exit_code == 0
    assert sorted(arena("logs", "a").stdout.splitlines()) == ["master-0 | filed", "worker-0 | filed"]
    assert (
        arena("submit", "-f", "job.yaml", "-b", "local", "--name", "b", "--wait", "-w", "1", "echo", "typed").exit_code
        == 0
    )
    assert arena("logs", "b").stdout == "typed\n"
    assert arena("submit", "pytorch", "-f", "job.yaml", "-b", "local", "--name", "c", "--wait").exit_code == 0


# Looking


def test_list_chooses(arena: Any, here: Any) -> None:
    arena("run", "--name", "good", "--label", "team=a", "true")
    arena("run", "--name", "bad", "--label", "team=b", "false")
    arena("submit", "jax", "-b", "local", "--name", "live", "--label", "team=a", "sleep", "60")
    arena.running("live")

    def names(*words: str, **env: str) -> list[str]:
        return sorted(here("list", "-o", "name", *words, env=env).stdout.split())

    assert names() == ["bad", "good", "live"]
    assert names("--state", "FAILED") == ["bad"]
    assert names("--state", "failed", "--state", "RUNNING") == names("--state", "FAILED,RUNNING") == ["bad", "live"]
    assert names("-l", "team=a") == ["good", "live"]
    assert names("-l", "team=a", "--state", "RUNNING") == ["live"]
    assert names("-T", "jax") == ["live"]
    assert names("--mine") == ["bad", "good", "live"]
    assert names("--mine", ARENA_USER="somebody") == []
    assert names("--user", "nobody") == []
    assert arena("list").stdout.splitlines()[0].split()[:4] == ["NAME", "STATUS", "TRAINER", "DURATION"]
    assert "RUN" in arena("list", "-o", "wide").stdout.splitlines()[0].split()


def test_list_w_prints_again(arena: Any) -> None:
    watching = arena.start("list", "-w", "-o", "name")
    arena("run", "-d", "--name", "a", "true")
    assert watching.stdout.readline() == "a\n"
    watching.send_signal(2)
    assert watching.wait(20) == 130
    assert watching.stderr.read() == ""


def test_get_and_why_tell_the_cause(arena: Any) -> None:
    arena("run", "--name", "a", "-w", "2", "--", "sh", "-c", "[ $RANK = 0 ] && sleep 60; echo nomod >&2; exit 3")
    text = arena("get", "a").stdout
    for word in ("FAILED", "worker-1", "3"):
        assert word in text
    why = arena("why", "a", "-o", "json").json
    assert (why["state"], why["exitCode"], why["firstFailure"]["replica"]) == ("FAILED", 3, "worker-1")
    assert why["cause"]
    assert why["next"]
    assert arena("why", "a").stdout.startswith(why["cause"])
    arena("run", "--name", "b", "true")
    assert arena("why", "b", "-o", "json").json["cause"] is None


STAY = "touch said-$RANK; exec sleep 60"


def after(*ranks: int) -> str:
    """A piece of shell that goes on when these have come to STAY."""
    return f"until ls {' '.join(f'said-{rank}' for rank in ranks)} >/dev/null 2>&1; do sleep 0.05; done"


def test_logs_choose(arena: Any, here: Any) -> None:
    bad = f"[ $RANK = 2 ] && {{ {after(0, 1, 3)}; echo bad; exit 3; }}"
    script = f'for i in 1 2 3; do echo "$RANK-$i"; done; {bad}; {STAY}'
    arena("run", "--name", "a", "-w", "4", "--", "sh", "-c", script)

    def lines(*words: str) -> list[str]:
        done = here("logs", "a", *words)
        assert done.exit_code == 0, done
        return done.stdout.splitlines()

    assert len(lines()) == 13
    assert lines("--rank", "0") == ["0-1", "0-2", "0-3"]
    assert sorted(lines("--rank", "0,3", "--raw")) == ["0-1", "0-2", "0-3", "3-1", "3-2", "3-3"]
    assert sorted(lines("--rank", "1-2", "--tail", "1")) == ["worker-1 | 1-3", "worker-2 | bad"]
    assert lines("--rank", "last", "--tail", "1") == ["3-3"]
    assert lines("--replica", "worker-1", "--tail", "1", "--prefix") == ["worker-1 | 1-3"]
    assert len(lines("--replica", "worker-1,worker-3")) == 6
    assert len(lines("--role", "worker")) == 13
    assert lines("--grep", "^.-2$", "--rank", "1") == ["1-2"]
    assert lines("--failed") == ["2-1", "2-2", "2-3", "bad"]
    assert set(lines("--failed=all")) >= {"2-1", "bad"} or len(lines("--failed=all")) == 4
    assert lines("--since", "1h", "--rank", "1") == lines("--rank", "1")
    assert lines("--since-time", "2100-01-01T00:00:00Z") == []
    assert re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z 1-1$", lines("--timestamps", "--rank", "1")[0])
    assert lines("--attempt", "1", "--rank", "1") == lines("--rank", "1")
    for words, code in (
        (["--rank", "9"], 3), (["--rank", "x"], 2), (["--replica", "worker-9"], 3), (["--role", "ps"], 3),
        (["--grep", "("], 2), (["--since", "soon"], 2),
    ):  # fmt: skip
        refused = here("logs", "a", *words)
        assert (refused.exit_code, refused.stdout) == (code, ""), words


def test_logs_of_a_big_gang_are_few_and_say_so(arena: Any) -> None:
    arena(
        "run",
        "--name",
        "a",
        "-w",
        "10",
        "--",
        "sh",
        "-c",
        f"echo $RANK; [ $RANK != 7 ] || {{ {after(*range(7), 8, 9)}; exit 3; }}; {STAY}",
    )
    some = arena("logs", "a")
    assert sorted(some.stdout.splitlines()) == ["worker-0 | 0", "worker-7 | 7"]
    assert "8 more: --all" in some.stderr
    assert len(arena("logs", "a", "--all").stdout.splitlines()) == 10
    one = arena("logs", "a", env={"ARENA_COMPAT": "go"})
    assert (one.stdout, one.exit_code) == ("0\n", 0)


def test_logs_follow_to_the_end(arena: Any) -> None:
    arena("run", "-d", "--name", "a", "--", "sh", "-c", "echo one; sleep 0.5; echo two; exit 3")
    followed = arena("logs", "-f", "a")
    assert (followed.exit_code, followed.stdout) == (0, "one\ntwo\n")
    assert arena("logs", "-f", "--exit-code", "a").exit_code == 3


def test_what_a_job_waits_for_is_said_once(arena: Any) -> None:
    few = {"ARENA_LOCAL_MAX_REPLICAS": "1"}
    arena("run", "-d", "--name", "a", "until test -e go; do sleep 0.05; done", env=few)
    arena("run", "-d", "--name", "b", "true", env=few)
    follower = arena.start("logs", "-f", "b")
    assert follower.stderr.readline().startswith("b: QUEUED")
    arena.file("go", "")
    assert "QUEUED" not in follower.communicate(timeout=30)[1]


def test_wait_writes_the_record(arena: Any) -> None:
    arena("run", "-d", "--name", "a", "-w", "2", "--", "sh", "-c", "echo hi; [ $RANK = 0 ] || exit 3; sleep 60")
    waited = arena("wait", "a", "--record", "out", "-o", "json")
    assert (waited.exit_code, waited.json["exitCode"]) == (3, 3)
    assert json.loads((arena.cwd / "out/result.json").read_text())["runId"] == waited.json["runId"]
    assert (arena.cwd / "out/logs/worker-1.log").read_text() == "hi\n"
    assert arena("rerun", "out", "--name", "b").exit_code == 0
    assert arena("wait", "b").exit_code == 3


def test_a_record_that_cannot_be_written_is_told_before_the_wait(arena: Any) -> None:
    arena("run", "-d", "--name", "a", "sleep", "60")
    arena.file("taken", "")
    refused = arena("wait", "a", "--record", "taken")
    assert (refused.exit_code, refused.stderr) == (125, "Error: --record: taken cannot be written: File exists\n")
    assert arena("wait", "nosuch", "--record", "out").exit_code == 125
    assert not (arena.cwd / "out").exists()


def test_a_full_disk_is_told_with_the_file(arena: Any) -> None:
    (arena.cwd / "r.json").symlink_to("/dev/full")
    run = arena("run", "--name", "a", "--result", "r.json", "true")
    assert (run.exit_code, "\nError: r.json: No space left on device\n" in run.stderr) == (125, True)
    (arena.cwd / "out").mkdir()
    (arena.cwd / "out" / "result.json").symlink_to("/dev/full")
    waited = arena("wait", "a", "--record", "out")
    assert (waited.exit_code, "\nError: out: No space left on device\n" in waited.stderr) == (125, True)


def test_exec_is_in_the_replicas_place(arena: Any) -> None:
    arena.file("sub/x", "")
    arena("run", "-d", "-w", "2", "--name", "a", "--working-dir", "sub", "--env", "A=b c", "sleep", "60")
    arena.running("a")
    assert arena("exec", "a", "--replica", "worker-1", "--", "sh", "-c", 'echo "$RANK $A"; pwd').stdout == (
        f"1 b c\n{arena.cwd / 'sub'}\n"
    )
    assert arena("exec", "a", "--rank", "1", "printenv", "RANK").stdout == "1\n"
    assert arena("exec", "--rank=0", "a", "printenv", "RANK").stdout == "0\n"
    shell = arena.terminal("attach", "a", env={"SHELL": "/bin/sh"})
    shell.key("echo $RANK-$WORLD_SIZE; exit 4\n")
    assert shell.wait() == 4
    assert "0-2" in shell.text


# Ending


def test_stop_keeps_it(arena: Any) -> None:
    arena("run", "-d", "--name", "a", "sleep", "60")
    stopped = arena("stop", "a", "missing", "a")
    assert stopped.exit_code == 3
    assert "a is CANCELLED" in stopped.stderr
    assert arena.job("a")["state"] == "CANCELLED"
    assert arena("stop", "a").exit_code == 0


def test_a_job_of_others_is_stopped_by_force(arena: Any, here: Any) -> None:
    arena("run", "-d", "--name", "a", "sleep", "60")
    other = {"ARENA_USER": "somebody"}
    refused = here("stop", "a", env=other)
    assert (refused.exit_code, "only --force stops it" in refused.stderr) == (7, True)
    assert here("stop", "a", "--force", env=other).exit_code == 0
    assert here("stop", "a", env=other).exit_code == 0


def test_delete_goes_on_past_what_is_missing(arena: Any) -> None:
    for name in ("a", "c"):
        arena("run", "-d", "--name", name, "sleep", "60")
    done = arena("delete", "a", "b", "c")
    assert done.exit_code == 0
    assert "'b' does not exist" in done.stderr
    assert arena("list", "-o", "name").stdout == ""
    gone = arena("get", "a")
    assert gone.exit_code == 3
    assert "deleted" in gone.stderr
    assert arena("logs", "a").exit_code == 0
    assert arena("delete", "a", "--must-exist").exit_code == 3


def test_an_empty_variable_deletes_nothing(arena: Any, here: Any) -> None:
    arena("run", "--name", "a", "true")
    for word in ("", "job/", "@", "@0", "a@0", "*", "."):
        done = here("delete", word)
        assert done.exit_code in (0, 2), done
        assert "deleted successfully" not in done.stderr, word
    assert here("list", "-o", "name").stdout == "a\n"


def test_delete_by_label_state_and_of_others(arena: Any, here: Any) -> None:
    arena("run", "--name", "a", "--label", "team=x", "true")
    arena("run", "--name", "b", "--label", "team=x", "false")
    arena("run", "-d", "--name", "c", "sleep", "60")
    arena.running("c")
    assert here("delete", "-l", "team=x", "--state", "FAILED").exit_code == 0
    assert sorted(here("list", "-o", "name").stdout.split()) == ["a", "c"]
    other = {"ARENA_USER": "somebody"}
    refused = here("delete", "c", env=other)
    assert (refused.exit_code, "--force" in refused.stderr) == (7, True)
    assert here("delete", "c", "--force", env=other).exit_code == 0
    assert here("delete", "--all").exit_code == 0
    assert here("list", "-o", "name").stdout == ""
    assert here("delete", "--state", "FAILED").exit_code == 0


def test_prune_takes_mine_that_are_finished(arena: Any, here: Any) -> None:
    arena("run", "--name", "mine", "true")
    arena("run", "--name", "others", "true", env={"ARENA_USER": "somebody"})
    arena("run", "-d", "--name", "live", "sleep", "60")
    arena.running("live")
    assert arena("prune", "--since", "1h").stdout == ""
    shown = arena("prune", "--since", "0s", "--dry-run")
    assert [line.split()[0] for line in shown.stdout.splitlines()] == ["mine"]
    assert "mine" in here("list", "-o", "name").stdout.split()
    terminal = arena.terminal("prune", "--since", "0s")
    terminal.until("?")
    terminal.key("n\n")
    assert terminal.wait() == 0
    assert "mine" in here("list", "-o", "name").stdout.split()
    yes = arena.terminal("prune", "--since", "0s", "--yes")
    assert (yes.wait(), "?" in yes.text) == (0, False)
    assert sorted(here("list", "-o", "name").stdout.split()) == ["live", "others"]
    assert arena("prune", "--since", "0s", "--all-users").exit_code == 0
    assert here("list", "-o", "name").stdout == "live\n"
    assert len(here("history", "-o", "name").stdout.split()) == 3


# Again


@pytest.mark.parametrize(
    ("by", "shown", "text"),
    [("ada", "Deleted", "deleted before its end"), ("", "Deleted (end not seen)", "deleted, end not seen")],
    ids=["by somebody", "nobody saw it"],
)
def test_the_cause_of_a_deleted_cluster_job(arena: Any, here: Any, by: str, shown: str, text: str) -> None:
    folder = arena.state / "cluster" / "a-x2p1"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text('{"runId": "a-x2p1", "name": "a", "created": "2025-06-01T12:00:00Z"}')
    (folder / "deleted.json").write_text(json.dumps({"at": "2025-06-01T12:05:00Z", "by": by}))
    assert f"  {shown}  " in here("history").stdout.splitlines()[1]
    (run,) = here("history", "-o", "json").json
    why = here("why", "a", "-o", "json").json
    assert run["cause"] == why["cause"] == "Deleted"
    assert why["text"] in run["why"]
    assert why["text"].startswith(text)


def test_history_names_runs(arena: Any, here: Any) -> None:
    for number in range(3):
        arena("run", "--name", "a", "--replace", "--", "sh", "-c", f"echo {number}; exit {number}")
    runs = here("history", "a", "-o", "json").json
    assert [run["exitCode"] for run in runs] == [2, 1, 0]
    assert [run["exitCode"] for run in here("history", "--limit", "1", "-o", "json").json] == [2]
    assert here("logs", "a@2").stdout == "1\n"
    assert here("logs", "a@3").stdout == "0\n"
    assert here("logs", "@last").stdout == "2\n"
    assert here("logs", runs[2]["runId"]).stdout == "0\n"
    assert here("get", "@last", "-o", "json").json["runId"] == runs[0]["runId"]
    gone = here("get", "a@2")
    assert (gone.exit_code, "does not exist any more" in gone.stderr) == (3, True)
    missing = here("logs", "a@9")
    assert (missing.exit_code, "3 runs" in missing.stderr) == (3, True)


def test_nothing_to_show_is_said(here: Any) -> None:
    assert here("list").stderr == "No jobs. Start one with: arena run train.py\n"
    assert here("list", "--state", "FAILED").stderr == "No such jobs.\n"
    assert here("history").stderr == "No run is remembered.\n"
    nosuch = here("history", "nosuch")
    assert (nosuch.exit_code, nosuch.stderr) == (0, "No run of 'nosuch' is remembered.\n")
    assert here("history", "nosuch", "-o", "json").json == []
    empty = here("history", "")
    assert (empty.exit_code, empty.stdout) == (2, "")


def test_export_reads_back(arena: Any) -> None:
    odd = ["sh", "-c", "echo $0 '$$' # x", "a: b", "yes", "1e3", "0644", "é", " ", "two\nlines"]
    arena("run", "--name", "a", "-w", "2", "--env", "LIST=a,b=c", "--memory", "1Gi", "--", *odd)
    text = arena("export", "a").stdout
    arena.file("a.yaml", text)
    assert arena("run", "-f", "a.yaml", "--name", "b").exit_code == 0
    again = arena("export", "b").stdout
    assert again.replace("name: b", "name: a") == text
    assert arena("logs", "a", "--rank", "0").stdout == arena("logs", "b", "--rank", "0").stdout


def test_rerun(arena: Any, here: Any) -> None:
    arena.file("t.py", "import sys; print('old', *sys.argv[1:])")
    arena("run", "--name", "a", "t.py", "1")
    arena.file("t.py", "import sys; print('new', *sys.argv[1:])")

    def rerun(*words: str, **env: str) -> str:
        made = here("rerun", words[0], "-o", "name", *words[1:], env=env)
        assert made.exit_code == 0, made
        name = made.stdout.strip()
        assert here("wait", name).exit_code == 0
        return here("logs", name).stdout

    assert rerun("a", "--name", "b") == "old 1\n"
    assert rerun("a", "--name", "c", "--code", "here") == "new 1\n"
    assert rerun("a", "--name", "d", "--", "t.py", "2") == "old 2\n"
    assert rerun("a@1", "--replace") == "old 1\n"
    assert here("history", "d", "-o", "json").json[0]["parent"] == here("history", "a", "-o", "json").json[1]["runId"]
    assert here("rerun", "a").exit_code == 4
    assert here("rerun", "a@7").exit_code == 3


def test_rerun_takes_secrets_from_the_environment(arena: Any) -> None:
    arena("run", "--name", "a", "--env", "HF_TOKEN=hf_one", "--", "sh", "-c", "echo ${#HF_TOKEN}")
    missing = arena("rerun", "a", "--name", "b")
    assert (missing.exit_code, "HF_TOKEN" in missing.stderr) == (2, True)
    assert arena("rerun", "a", "--name", "b", env={"HF_TOKEN": "hf_twoo"}).exit_code == 0
    arena("wait", "b")
    assert arena("logs", "b").stdout == "7\n"


# The rest


def test_settings_are_shown_with_their_source_and_set(here: Any, arena: Any) -> None:
    assert here("config", "set", "backend", "local").exit_code == 0
    shown = here("config", "show", "-o", "json").json
    assert shown["backend"]["value"] == "local"
    assert shown["backend"]["source"].endswith("config.yaml")
    assert shown["state_dir"]["source"] == "ARENA_STATE_DIR"
    assert here("submit", "pytorch", "--name", "a", "--dry-run", "true").exit_code == 0


def test_settings_are_shown_as_they_are_written(here: Any) -> None:
    rows = [line.split() for line in here("config", "show", env={"ARENA_ENGINES": "a,b"}).stdout.splitlines()]
    shown = {key: value for key, value, *_ in rows}
    assert (shown["engines"], shown["local.enabled"], shown["image"]) == ("a,b", "true", "-")
    typed = here("config", "show", "-o", "json", env={"ARENA_ENGINES": "a,b"}).json
    assert (typed["engines"]["value"], typed["local.enabled"]["value"]) == (["a", "b"], True)


def test_a_word_that_the_site_overrules_is_said(here: Any, tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text("locked: {backend: local}\n")
    env = {"ARENA_SITE_CONFIG": str(site)}
    vain = f"has no effect: backend is local by {site} (locked)\n"
    assert here("list", "-b", "kubernetes", env=env).stderr.startswith(f"Warning: flag --backend {vain}")
    typed = {**env, "ARENA_BACKEND": "kubernetes"}
    assert here("config", "show", env=typed).stderr == f"Warning: ARENA_BACKEND {vain}"
    assert vain not in here("list", env=typed).stderr
    assert here("-b", "local", "run", "--name", "a", "true").exit_code == 0
    assert here("-b", "kubernetes", "rerun", "a", "--name", "b", env=env).stderr.count(vain) == 1


def test_words_of_arena_go_that_mean_nothing_here(here: Any) -> None:
    for words in (
        ["--loglevel", "debug", "--pprof", "--trace", "list"],
        ["list", "--loglevel=info", "--pprof", "--trace"],
    ):
        assert here(*words).exit_code == 0
    assert here("get", "missing", "--traceback").stderr.startswith("Traceback")


def test_a_program_on_the_path_is_a_command(arena: Any) -> None:
    tool = arena.file("bin/arena-hello", '#!/bin/sh\necho "hello $*"; exit 5\n')
    tool.chmod(0o755)
    path = {"PATH": f"{tool.parent}:{os.environ['PATH']}"}
    done = arena("hello", "--world", "-x", "--help", env=path)
    assert (done.exit_code, done.stdout) == (5, "hello --world -x --help\n")
    assert arena("hello").exit_code == 2


def test_silence_is_broken_once_a_minute(arena: Any) -> None:
    script = "from arena.cli import follow; follow.SILENCE = 0.5; from arena.cli.main import main; main()"
    import subprocess
    import sys

    arena("run", "-d", "--name", "a", "--", "sleep", "60")
    arena.running("a")
    done = subprocess.run(
        [sys.executable, "-c", script, "wait", "a", "--timeout", "5s"],
        env=arena.env, cwd=arena.cwd, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 124
    said = done.stderr.splitlines()
    assert said[0] == "a: RUNNING"
    assert 2 <= said.count("a: RUNNING (0 min)") <= 10
