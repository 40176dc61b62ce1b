"""Data on stdout, everything else on stderr; pipes that close, streams that are not there, no terminal."""

import json
import re
import subprocess
from typing import Any

import pytest
import yaml

READ = [("list",), ("get", "a"), ("why", "a"), ("history",), ("wait", "a"), ("config", "show")]


def test_stdout_of_run_is_the_jobs_alone(arena: Any) -> None:
    ran = arena("run", "-w", "2", "--name", "a", "--", "sh", "-c", "echo out; echo err >&2")
    assert ran.exit_code == 0
    assert sorted(set(ran.stdout.splitlines())) == [f"worker-{n} | {text}" for n in (0, 1) for text in ("err", "out")]
    assert "2 workers" in ran.stderr.splitlines()[0]
    assert "\r" not in ran.stderr
    assert "a: SUCCEEDED" in ran.stderr.splitlines()[-1]
    assert arena("run", "--", "printf", "a\\rb\\n\\nno end").stdout == "a\rb\n\nno end"


def test_of_a_big_gang_that_is_followed_the_one_that_failed_is_shown(arena: Any) -> None:
    fails = "until [ -e go ]; do sleep 0.05; done; echo bad; exit 3"
    arena(
        "run", "-d", "--name", "a", "-w", "10", "--", "sh", "-c", f"echo up; [ $RANK != 7 ] || {{ {fails}; }}; sleep 60"
    )
    with arena.start("logs", "a", "-f") as followed:
        assert followed.stdout.readline() == "worker-0 | up\n"
        arena.file("go", "")
        out, err = followed.communicate(timeout=60)
    assert [line for line in out.splitlines() if "bad" in line] == ["worker-7 | bad"]
    assert "9 more: arena logs a --all" in err


def test_where_the_log_of_the_first_failure_is_lost_the_last_one_is_shown(arena: Any) -> None:
    arena("run", "--name", "a", "--retry", "1", "--", "sh", "-c", "echo $ARENA_ATTEMPT; [ $ARENA_ATTEMPT = 2 ]")
    assert arena("logs", "a", "--failed").stdout == "1\n"
    for log in arena.state.rglob("attempt-1/*.log"):
        log.unlink()
    lost = arena("logs", "a", "--failed")
    assert (lost.stdout, lost.stderr) == (
        "2\n",
        "nothing is left of attempt 1, which failed first: this is the last one\n",
    )
    assert arena("logs", "a", "--failed", "--attempt", "1").stdout == ""


def test_names_alone(arena: Any) -> None:
    assert arena("run", "-d", "--name", "a", "true").stdout == "a\n"
    assert arena("submit", "job", "--name", "b", "-o", "name", "true").stdout == "b\n"
    assert arena("submit", "job", "--name", "c", "true").stdout == ""
    assert sorted(arena("list", "-o", "name").stdout.split()) == ["a", "b", "c"]
    assert arena("get", "a", "-o", "name").stdout == "a\n"
    assert arena("list", "-o", "name").stderr == ""
    assert arena.job("job/a")["name"] == "a"


def test_the_version_as_a_flag_is_the_commands_first_line(here: Any) -> None:
    first, *more = here("version").stdout.splitlines()
    assert [line.split()[0] for line in more] == ["Python:", "Platform:", "Path:"]
    for words in (["--version"], ["--version", "list"], ["-n", "a", "--version"], ["version", "--short"]):
        assert here(*words) == (0, f"{first}\n", "")


def test_nothing_is_an_empty_list(here: Any) -> None:
    assert here("list", "-o", "json").stdout == "[]\n"
    assert here("history", "-o", "json").stdout == "[]\n"
    assert yaml.safe_load(here("list", "-o", "yaml").stdout) == []
    assert here("list", "-o", "name").stdout == ""
    empty = here("list")
    assert empty.stdout.split()[:3] == ["NAME", "STATUS", "TRAINER"]
    assert "arena run" in empty.stderr


def test_submit_with_json_prints_the_job_as_get_does(arena: Any) -> None:
    made = arena("submit", "job", "--name", "a", "-o", "json", "--", "sleep", "60").json
    assert made["name"] == "a"
    assert made.keys() == arena.job("a").keys()
    ended = arena("submit", "job", "--wait", "--name", "b", "-o", "json", "--", "sh", "-c", "exit 125")
    assert ended.exit_code == 125
    assert (ended.json["state"], ended.json["exitCode"]) == ("FAILED", 125)


@pytest.mark.parametrize("fmt", ["json", "yaml"])
def test_what_is_read_parses_while_a_warning_is_due(arena: Any, here: Any, fmt: str) -> None:
    arena("run", "--name", "odd", "true")
    arena("run", "--name", "a", "true")
    (odd,) = (arena.state / "runs").glob("odd-*")
    (odd / "state.json").unlink()
    (odd / "job.json").write_text("{ not at all")
    for words in READ:
        result = here(*words, "-o", fmt, env={"ARENA_NO_SUCH_SETTING": "1"})
        assert result.exit_code == 0, result
        assert yaml.safe_load(result.stdout), words
    listed = here("list", "-o", fmt, "--strict")
    assert listed.exit_code == 6
    assert [job["name"] for job in yaml.safe_load(listed.stdout)] == ["a"]
    if fmt == "json":
        assert json.loads(listed.stdout)
        assert re.search("odd-.* left out", listed.last["warnings"][0])


@pytest.mark.parametrize(
    ("words", "code", "kind"),
    [
        (["get", "missing", "-o", "json"], 3, "NotFoundError"),
        (["list", "-o", "json", "--no-such-flag"], 2, "SpecError"),
        (["list", "-ojson", "--state", "LOST"], 2, "SpecError"),
        (["list", "--output=json", "-b", "kubernetes"], 6, "BackendError"),
        (["wait", "--output", "json", "missing"], 3, "NotFoundError"),
        (["submit", "pytorch", "-o", "json", "true"], 6, "BackendError"),
        (["run", "-o", "json", "--name", "Bad", "true"], 2, "SpecError"),
        (["logs", "missing", "-o", "json"], 3, "NotFoundError"),
    ],
)
def test_errors_are_json_where_the_data_would_have_been(here: Any, words: list[str], code: int, kind: str) -> None:
    result = here(*words)
    assert result.stdout == ""
    assert (result.last["error"]["code"], result.last["error"]["kind"]) == (code, kind)
    assert set(result.last["error"]) == {"code", "kind", "what", "why", "hint"}


def test_the_programs_own_json_flag_changes_nothing(here: Any) -> None:
    assert here("run", "--name", "Bad", "true", "-o", "json").stderr.startswith("Error: ")


def test_lines_of_logs_as_json(arena: Any) -> None:
    arena("run", "-w", "2", "--name", "a", "--", "echo", "hi")
    lines = [json.loads(line) for line in arena("logs", "a", "-o", "json").stdout.splitlines()]
    assert sorted((line["replica"], line["rank"], line["text"]) for line in lines) == [
        ("worker-0", 0, "hi"),
        ("worker-1", 1, "hi"),
    ]
    assert {"time", "role", "index"} <= lines[0].keys()


@pytest.mark.parametrize(
    "words", ["logs a", "schema", "--help", "list -o json", "history", "export a", "run --help-all"]
)
def test_a_reader_that_goes_away_is_no_error(arena: Any, words: str) -> None:
    arena("run", "-d", "--name", "a", "--", "sh", "-c", "seq 1 50000; echo x")
    arena("wait", "a")
    for reader in ("head -1", "true"):
        result = arena.shell(f"arena {words} | {reader}; exit ${{PIPESTATUS[0]}}")
        assert (result.exit_code, result.stderr) == (0, ""), result


def test_the_job_goes_on_when_nobody_reads_run(arena: Any) -> None:
    result = arena.shell("arena run --name a -- sh -c 'seq 1 50000; sleep 60' | head -1; exit ${PIPESTATUS[0]}")
    assert (result.exit_code, result.stdout) == (0, "1\n")
    assert "a goes on: arena logs a -f, arena delete a" in result.stderr
    assert "Traceback" not in result.stderr
    assert arena.job("a")["state"] == "RUNNING"
    tied = arena.shell("arena run --rm --name b -- sh -c 'seq 1 50000; sleep 60' | head -1; exit ${PIPESTATUS[0]}")
    assert tied.exit_code == 0
    assert arena("get", "b").exit_code == 3


@pytest.mark.slow
def test_streams_that_are_not_there(arena: Any) -> None:
    arena("run", "--name", "a", "true")
    for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        for words in ("version", "list", "get a -o json", "run -- sh -c 'echo hi'"):
            result = arena.shell(f"arena {words} {closed}")
            assert (result.exit_code, "Traceback" in result.stderr) == (0, False), (words, closed, result)
    assert arena.shell("arena run --name b -- sh -c 'exit 3' <&- >&- 2>&-").exit_code == 3
    assert "b" in arena("list", "-o", "name").stdout.split()


def test_a_full_disk_is_said_in_one_line(arena: Any) -> None:
    full = arena.shell("arena version >/dev/full")
    assert full.exit_code == 6
    assert full.stderr == "Error: output: No space left on device\n  Try: --traceback shows where\n"


def test_a_folder_that_is_gone_is_said_in_one_line(arena: Any) -> None:
    gone = arena.shell("mkdir gone; cd gone; rmdir ../gone; arena run true")
    assert (gone.exit_code, gone.stdout) == (125, "")
    assert gone.stderr.startswith("Error: the folder you are in does not exist any more")


def test_without_a_terminal_nothing_is_redrawn_or_asked(arena: Any) -> None:
    arena("run", "--name", "a", "--", "true")
    for words in (("list",), ("get", "a"), ("history",)):
        assert not re.search("[\r\033]", arena(*words).stdout)
    pruned = arena("prune", "--since", "0s")
    assert (pruned.exit_code, "a" in pruned.stdout) == (0, True)
    assert arena("list", "-o", "name").stdout == ""


def test_any_letters_in_any_locale(arena: Any) -> None:
    plain = {"LANG": "C", "LC_ALL": "C", "PYTHONIOENCODING": "", "PYTHONUTF8": ""}
    arena.file("bücher.py", "import sys; print(sys.argv[1])")
    ran = arena("run", "--name", "a", "--env", "WORD=naïve ✓", "bücher.py", "Grüße ✓", env=plain)
    assert (ran.exit_code, ran.stdout) == (0, "Grüße ✓\n")
    for words in (("list",), ("get", "a"), ("get", "a", "-o", "json"), ("history", "-o", "yaml"), ("export", "a")):
        assert arena(*words, env=plain).exit_code == 0
    assert arena("get", "a", "-o", "json", env=plain).json["command"][-1] == "Grüße ✓"
    assert "naïve ✓" in arena("export", "a", env=plain).stdout
    ascii_only = arena("get", "a", env={**plain, "PYTHONIOENCODING": "ascii", "PYTHONCOERCECLOCALE": "0"})
    assert ascii_only.exit_code == 0


def test_words_that_are_not_utf8_are_refused(arena: Any) -> None:
    done = subprocess.run(
        [*arena.words, b"run", b"echo", b"\xff"],
        env=arena.env, cwd=arena.cwd, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 125
    assert done.stderr.startswith(b"Error: ")
    assert rb"\udcff' is not UTF-8" in done.stderr


def test_colour_is_for_terminals_that_want_it(arena: Any) -> None:
    arena("run", "--name", "a", "--", "true")
    for env, coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
        terminal = arena.terminal("list", env={"TERM": "xterm", **env})
        terminal.wait()
        assert ("\033[" in terminal.text) is coloured, env
