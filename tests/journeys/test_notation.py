"""The notation and the runner, shown on plain shell commands: every kind of demand can hold, and can fail."""

import doctest
import re
import sys
from collections.abc import Iterator

import pytest

from journeys import left_out, notation
from journeys import stage as stages
from journeys.left_out import Rule, choose
from journeys.notation import Count, Exit, Json, Match, NotationError, Step, parse, parse_step
from journeys.observed import is_traceback
from journeys.ready import read_day
from journeys.runner import Report, Runner, Script
from journeys.stage import Stage, age, shift_times, stage


@pytest.fixture(scope="module")
def place() -> Iterator[Stage]:
    with stage("notation") as made:
        yield made


def play(place: Stage, text: str, rules: tuple[Rule, ...] = ()) -> Report:
    return Runner(place).play(Script("small", f"```journey\n{text}\n```", rules))


def one(text: str) -> Step:
    [step] = parse(f"```journey\n{text}\n```")
    return step


# --- the parser


@pytest.mark.parametrize("number", range(1, 13))
def test_every_day_is_understood(number: int) -> None:
    text = read_day(number)
    steps = parse(text)
    assert steps
    demands = [each for step in steps for each in step.expectations]
    indented = [line for line in text.splitlines() if line.startswith("  ") and not line.startswith("  --")]
    assert {each.text for each in demands} <= {line.strip() for line in indented}
    assert all(text.splitlines()[step.line - 1].strip() == step.source for step in steps)


@pytest.mark.parametrize(
    ("line", "kind", "who", "text"),
    [
        ("$ a | b", "run", "", "a | b"),
        ("tty$ a", "tty", "", "a"),
        ("bob$ a", "run", "bob", "a"),
        ("admin$ a", "run", "admin", "a"),
        ("& a", "background", "", "a"),
        ("key$ ^C", "key", "", "^C"),
        ("sig$ TERM", "signal", "", "TERM"),
        ("py> x = 1", "cell", "", "x = 1"),
    ],
)
def test_steps(line: str, kind: str, who: str, text: str) -> None:
    step = one(line)
    assert (step.kind, step.who, step.text, step.line) == (kind, who, text, 2)


def test_demands_are_understood() -> None:
    step = one("$ a\n  exit 130 or 0\n  err! /a\\/b/\n  lines out /x/ 2-4\n  lines err /y/ 1\n  errjson e['a'] == 1")
    whats = [each.what for each in step.expectations]
    assert whats == [
        Exit((130, 0)),
        Match("err", re.compile(r"a\/b"), wanted=False),
        Count("out", re.compile("x"), 2, 4),
        Count("err", re.compile("y"), 1, 1),
        Json("err", "e['a'] == 1"),
    ]


@pytest.mark.parametrize(
    "text", ["what", "$", "carol$ a", "  exit 0", "$ a\n  exits 0", "$ a\n  out x", "$ a\n  time 2"]
)
def test_what_is_not_understood_is_named_with_its_line(text: str) -> None:
    with pytest.raises(NotationError, match=r"line \d: "):
        parse(f"```journey\n{text}\n```")


def test_prose_and_comments_are_no_steps() -> None:
    assert parse("$ not a step\n```sh\n$ nor this\n```\n```journey\n# $ comment\n\n$ a\n```\nend")[0].line == 8


@pytest.mark.parametrize("module", [notation, left_out, stages])
def test_examples_in_docstrings(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


# --- each demand can hold and can fail


@pytest.mark.parametrize(
    ("command", "holds", "fails"),
    [
        ("exit 3", "exit 3", "exit 0"),
        ("exit 3", "exit 0 or 3", "exit 1 or 2"),
        ("kill -TERM $$", "exit 143", "exit 15"),
        ("echo a b; echo c >&2", "out /^a b$/", "out /c/"),
        ("echo a b; echo c >&2", "err /^c$/", "err /a/"),
        ("echo a b", "out! /^b/", "out! /b$/"),
        (r"printf 'a\rb\n' >&2", "err! /x/", r"err! /\r/"),
        ("echo a >&2", "out empty", "err empty"),
        ("seq 12", "lines out /1/ 4", "lines out /1/ 3"),
        ("seq 12 >&2", "lines err /1/ 3-5", "lines err /1/ 5-9"),
        ("echo '{\"a\": [1]}'", 'json j["a"] == [1]', 'json j["b"]'),
        ("echo word", "exit 0", "json j"),
        ("echo Note >&2; echo '{\"e\": 1}' >&2", 'errjson e["e"] == 1', 'errjson e["e"] == 2'),
        ("sleep 2.5", "time < 20s", "time < 0.2s"),
        ("touch made", "ok test -e made", "ok test -e nothing-made"),
        ("(sleep 313 >/dev/null 2>&1 &)", "none /sleep 314/", "none /sleep 313/"),
        ("echo at http://x/1", r"save URL /(http\S+)/", r"save URL /(ftp\S+)/"),
    ],
)
def test_demand(place: Stage, monkeypatch: pytest.MonkeyPatch, command: str, holds: str, fails: str) -> None:
    monkeypatch.setattr("journeys.runner.ASK_FOR", 1.0)
    assert not play(place, f"$ {command}\n  {holds}").failures
    [failure] = play(place, f"$ {command}\n  {fails}").failures
    assert (failure.demand, failure.line) == (fails, 3)


@pytest.mark.parametrize(
    "command",
    [
        "echo 'Traceback (most recent call last):' >&2",
        "echo key=secret1",
        "echo secret2 >&2",
        "echo KEYKEY",
        "echo 'Error: not for stdout' # arena list",
        "echo word # arena list -o json",
        "sleep 5 &",
    ],
)
def test_the_unwritten_demands_can_fail(place: Stage, command: str) -> None:
    [failure] = play(place, f"$ {command}").failures
    assert failure.demand == "(always)"


def test_a_step_that_does_not_end_ends_the_day(place: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("journeys.runner.STEP_LIMIT", 1.0)
    [failure] = play(place, "tty$ sleep 60\n$ false\n  exit 0").failures
    assert "still running" in failure.why


def test_a_failure_shows_line_step_demand_and_the_last_lines(place: Stage) -> None:
    shown = str(play(place, "$ seq 100\n  out /x/"))
    assert "small line 2: $ seq 100" in shown
    assert "line 3 demanded: out /x/" in shown
    assert "  71\n" in shown
    assert "  70\n" not in shown


# --- how steps are carried out


def test_folder_and_variables_carry_over(place: Stage) -> None:
    text = "$ cd ~ && export WORD='a b'\n$ pwd; echo $WORD\n  out /alice$/\n  out /^a b$/"
    assert not play(place, text).failures
    assert not play(place, "$ cd ~/p\n$ cat data/x.csv\n  exit 0").failures


def test_a_saved_word_is_a_variable(place: Stage) -> None:
    text = "$ echo at http://x/1\n  save URL /(http\\S+)/\n$ echo ${URL%/1}\n  out /^http:..x$/"
    assert not play(place, text).failures


def test_stdin_is_closed_and_there_is_no_terminal(place: Stage) -> None:
    text = "$ cat\n  exit 1\n$ (: </dev/tty) 2>&1\n  exit 1\n$ echo a | cat\n  out /a/"
    assert not play(place, text).failures


def test_the_machine_s_own_settings_are_not_the_person_s(place: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARENA_BACKEND", "kubernetes")
    assert not play(place, "$ env\n  out! /PYTHONUNBUFFERED|KUBECONFIG|ARENA/").failures


def test_the_tested_python_comes_first(place: Stage) -> None:
    assert not play(place, f"$ python -c 'import sys; print(sys.prefix)'\n  out /^{re.escape(sys.prefix)}$/").failures


def test_a_terminal_is_one_and_takes_keys(place: Stage) -> None:
    assert not play(place, "tty$ test -t 0 -a -t 1 -a -t 2\n  exit 0").failures
    assert not play(place, "tty$ read -p 'sure? ' x; echo got $x\nkey$ n\n  out /got n/\n  exit 0").failures


def test_control_c_reaches_the_program(place: Stage) -> None:
    text = "tty$ echo up; sleep 600\nkey$ ^C\n  exit 130\n  time < 1s"
    assert not play(place, text).failures


@pytest.mark.parametrize("words", ["", "A=1 ", "true; ", "env -i PATH=$PATH "])
def test_a_signal_goes_to_the_program_not_to_the_shell(place: Stage, words: str) -> None:
    program = place.project / "program.py"
    program.write_text(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('bye', flush=True), sys.exit(9)))\n"
        "print('up', flush=True)\n"
        "while True: time.sleep(0.1)\n"
    )
    text = f"& {words}python program.py\nsig$ TERM\n  exit 9\n  out /bye/\n  time < 2s"
    assert not play(place, text).failures


def test_a_key_or_signal_after_the_end_changes_nothing(place: Stage) -> None:
    text = "& echo up; exit 4\n$ sleep 0.2\nsig$ TERM\n  exit 4\ntty$ exit 5\nkey$ ^C\n  exit 5"
    assert not play(place, text).failures


def test_the_next_step_waits_for_the_first_line(place: Stage) -> None:
    text = "& sleep 0.5; touch late; echo up; sleep 30\n$ test -e late\n  exit 0\n$ true\nsig$ KILL"
    assert not play(place, text).failures


def test_what_is_left_is_ended(place: Stage) -> None:
    with stage("left") as own:
        play(own, "& echo up; sleep 271\n$ (setsid sleep 272 >/dev/null 2>&1 &)\n  ok pgrep -f 'sleep 272'")
        root = own.root
    assert list(stages.processes(root)) == []
    assert not root.exists()


def test_bob_has_his_own_home_or_a_reason(place: Stage) -> None:
    report = play(place, "bob$ echo $HOME $(id -u); python -c 'print(6 * 7)'\n  out /bob 21002$/\n  out /42/")
    assert not report.failures
    if reason := place.others["bob"].reason:
        assert reason in report.left_out[0]


def test_nobody_plays_the_administrator(place: Stage) -> None:
    assert "no admin" in play(place, "admin$ true").left_out[0]


def test_a_container_without_home_has_one_writable_folder() -> None:
    with stage("bare") as own:
        stages.bare_container(own)
        assert not play(own, "$ echo ${HOME-none}; touch $TMPDIR/x made\n  out /^none$/\n  err empty").failures
        assert not play(own, "$ python -c 'print(6 * 7)'; git log --oneline\n  out /^42$/\n  out /One/").failures
        if not own.notes:
            assert not play(own, "$ whoami\n  exit 1\n$ touch /var/tmp/x\n  err /[Rr]ead-only/").failures


# --- what is left out


def test_rules_leave_out_change_and_take_keys_along(place: Stage) -> None:
    rules = (Rule("words", "other words", instead="letters"), Rule("never", "cannot be"))
    text = "$ echo words\n  out /letters/\n  ok never\ntty$ never\nkey$ ^C\n  exit 130\n$ true\n  exit 0"
    report = play(place, text, rules)
    assert not report.failures
    assert [line.split("  (")[0] for line in report.left_out] == [
        "line 2: changed: $ echo words",
        "line 4: left out: ok never",
        "line 5: left out: tty$ never",
        "line 6: left out: key$ ^C",
    ]


def test_the_demands_that_stay_are_the_day_s_own() -> None:
    choice = choose([one("$ a\n  exit 0\n  ok kubectl get x")], left_out.LOCAL)
    assert [each.text for each in choice.steps[0].expectations] == ["exit 0"]


# --- set-up


def test_ageing_moves_every_time_and_forgets_the_index(place: Stage) -> None:
    state = place.root / "state"
    run = state / "runs" / "f-7k3f"
    run.mkdir(parents=True)
    (state / "runs" / "f-x-7k3f").mkdir()
    (state / "index.sqlite").touch()
    for name in ("state.json", "job.json"):
        (run / name).write_text('{"endedAt": "2026-03-01T00:30:00.123456Z", "name": "f"}')
    age(state, "f", 3600)
    assert (run / "state.json").read_text() == '{"endedAt": "2026-02-28T23:30:00.123456Z", "name": "f"}'
    assert not (state / "index.sqlite").exists()


def test_times_keep_their_form() -> None:
    text = '{"a": "2026-01-01T00:00:00Z", "b": ["2026-01-01T00:00:00.5Z"], "c": "2026-01-01"}'
    assert shift_times(text, 86400) == text.replace("01T", "02T")


# --- a notebook


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_cells(place: Stage) -> None:
    text = """py> import os, asyncio; os.getcwd()
  val _.endswith("/alice")
  time < 20s
py> x = [n for n in range(3)]; x
  val len(_) == 3 and {y for y in _} == set(x)
py> import sys; [m for m in ("sqlite3", "httpx") if m in sys.modules]
  val _ == []
py> y = 1
  val _ is None
py> asyncio.get_running_loop().is_running()
  val _
py> 1 / 0
  raises ZeroDivisionError /division/
py> print("to stdout")
  out /^to stdout$/
py> import time; time.sleep(600)
key$ ^C
  raises KeyboardInterrupt //
  time < 1s
py> x
  val _ == [0, 1, 2]
key$ ^C
key$ restart
py> "x" in globals()
  val not _"""
    assert not play(place, text).failures


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_demands_on_cells_can_fail(place: Stage) -> None:
    text = """py> 1
  val _ == 2
py> 1
  val nothing
py> 1 / 0
  raises ValueError /division/
py> 1 / 0
  raises ZeroDivisionError /other/
py> 1
  raises ValueError //
py> 1 / 0
py> print("secret1")"""
    failures = play(place, text).failures
    assert [failure.step.line for failure in failures] == [2, 4, 6, 8, 10, 12, 13]
    assert "_ is 1" in failures[0].why


def test_a_traceback_of_the_program_is_its_own() -> None:
    programs = 'Traceback (most recent call last)\n  File "/arena/code/fail37.py", line 18\n'
    ours = 'Traceback (most recent call last)\n  File "/lib/arena/client.py", line 18\n'
    logs, listing = parse_step(1, "$ arena logs wide"), parse_step(1, "$ arena list")
    assert not is_traceback(logs, "out", programs)
    assert is_traceback(logs, "out", ours)
    assert is_traceback(logs, "err", programs)
    assert is_traceback(listing, "out", programs)
