"""Words to values: where arena's flags end, what is refused, and the same job as from Python and a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.cli.options import JobCommand, JobOption, after_program, params, program_note, values
from arena.declared import build, fields, leaves
from arena.errors import SpecError
from arena.job import Job, Role
from plugins.strategies import KINDS, any_job, patient, same

EXAMPLES = "\b\nExamples:\n  arena run train.py\n  arena run -w 2 train.py\n  arena run -m pkg.train\n"


def command(kind: str = "job", *, interspersed: bool = False) -> JobCommand:
    own = [
        JobOption(["-d", "--detach"], is_flag=True, common=True, help="do not follow"),
        JobOption(["--dry-run"], bare="client", metavar="client|server", help="only show"),
    ]
    settings = {"help_option_names": ["-h", "--help"]}
    return JobCommand(
        "run", kind=kind, interspersed=interspersed, params=own, context_settings=settings, epilog=EXAMPLES
    )


RUN, SUBMIT = command(), command("tensorflow", interspersed=True)


def typed(words: list[str], made: JobCommand = RUN) -> dict[str, Any]:
    ctx = made.make_context("run", list(words))
    given_ = {name: value for name, value in ctx.params.items() if name in ("detach", "dry_run") and value}
    return {**values(made.kind, ctx.params, {"HERE": "yes"}), **given_}


def refused(words: list[str], made: JobCommand = RUN) -> str:
    with pytest.raises(SpecError) as caught:
        build(made.kind, typed(words, made))
    return str(caught.value)


def note(*words: str) -> str:
    return program_note(RUN.make_context("run", list(words)))


def shown(*words: str, made: JobCommand = RUN, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit):
        made.main(list(words), prog_name="arena run")
    return capsys.readouterr().out


# Where arena's flags end


@pytest.mark.parametrize(
    ("words", "command_"),
    [
        (["run.sh"], ["run.sh"]),
        (["cd /data", "&&", "python t.py"], ["cd /data && python t.py"]),
        (["cd /data\n", "python t.py"], ["cd /data\n python t.py"]),
        (["t.py", "a b"], ["t.py", "a b"]),
        (["--", "echo", "a b"], ["echo", "a b"]),
        (["echo", "--", "a b"], ["echo", "a b"]),
    ],
)
def test_words_before_two_dashes_are_one_line_where_arena_go_has_the_type(
    words: list[str], command_: list[str]
) -> None:
    assert typed(words, SUBMIT)["command"] == command_
    assert typed(words, command(interspersed=True))["command"] == [word for word in words if word != "--"]


@pytest.mark.parametrize(("words", "count"), [("--chief", "1"), ("--chief=true", "1"), ("--chief=false", "0")])
def test_a_role_of_one_is_a_switch(words: str, count: str) -> None:
    assert typed([words, "t.py"], SUBMIT)["chief"] == {"count": count}


@pytest.mark.parametrize(
    ("old", "field"),
    [("--workerImage", "worker.image"), ("--psCpu", "ps.cpu"), ("--ChiefMemory", "chief.memory"),
     ("--work-image", "worker.image"), ("--dataDir", "data_dir"), ("--syncSource", "sync_source"),
     ("--image-pull-secrets", "image_pull_secret"), ("--workingDir", "working_dir")],
)  # fmt: skip
def test_old_spellings_are_taken_and_not_shown(old: str, field: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, _, part = field.partition(".")
    found = typed([old, "x", "t.py"], SUBMIT)[name]
    assert (found[part] if part else found) in ("x", ["x"])
    assert old not in shown("--help-all", made=SUBMIT, capsys=capsys).split()


@pytest.mark.parametrize(
    ("words", "program"),
    [
        (["train.py", "--lr", "0.1"], ["train.py", "--lr", "0.1"]),
        (["-w", "2", "train.py", "-w", "3"], ["train.py", "-w", "3"]),
        (["-w2", "train.py", "--", "--name", "x"], ["train.py", "--", "--name", "x"]),
        (["--", "-x"], ["-x"]),
        (["--", "a", "--", "b"], ["a", "--", "b"]),
        (["-m", "pkg.mod", "--workers", "2"], ["-m", "pkg.mod", "--workers", "2"]),
        (["-w", "2", "-mpkg", "-w"], ["-m", "pkg", "-w"]),
        (["-dw", "2", "-m", "pkg"], ["-m", "pkg"]),
        (["--snapshot", "train.py"], ["train.py"]),
        (["--dry-run", "train.py"], ["train.py"]),
        (["echo a | tr a b"], ["echo a | tr a b"]),
        (["-", "x"], ["-", "x"]),
        (["papermill", "in 01 A.ipynb", "out.ipynb"], ["papermill", "in 01 A.ipynb", "out.ipynb"]),
        (["sh", "-c", 'echo "a b$$c" "$1"', "x", "$(Y)", ""], ["sh", "-c", 'echo "a b$$c" "$1"', "x", "$(Y)", ""]),
    ],
)
def test_in_run_they_end_at_the_first_word_that_is_no_flag(words: list[str], program: list[str]) -> None:
    assert typed(words)["command"] == program


@given(st.lists(st.text(), min_size=1))
def test_all_words_after_two_dashes_arrive_as_they_were_typed(words: list[str]) -> None:
    for made in (RUN, SUBMIT):
        assert typed(["-w", "2", "--", *words], made) == {"workers": "2", "command": words}


@given(st.lists(st.text()))
def test_all_words_after_the_program_arrive_as_they_were_typed(words: list[str]) -> None:
    assert typed(["-w", "2", "train.py", *words]) == {"workers": "2", "command": ["train.py", *words]}


def test_in_submit_flags_stand_anywhere_before_two_dashes() -> None:
    words = ["--name", "t1", "train.py", "--ps=2", "--", "--epoch", "30", "--name", "other", "-e", "5"]
    assert typed(words, SUBMIT) == {
        "command": ["train.py", "--epoch", "30", "--name", "other", "-e", "5"],
        "name": "t1",
        "ps": {"count": "2"},
    }


def test_flags_of_arena_after_the_program_are_noted() -> None:
    assert note("train.py", "--workers", "2") == "--workers belongs to the program (it stands after train.py)"
    assert note("-m", "pkg", "--name=a", "--gpus") == "--name, --gpus belong to the program (they stand after -m pkg)"
    assert note("train.py", "--lr", "-w") == ""
    assert note("--", "train.py", "--workers", "2") == ""
    assert note("train.py", "--", "--workers") == ""


def test_after_program_names_each_flag_once() -> None:
    assert after_program(["--name", "--name", "--gpus=1", "--gpus"], {"--name", "--gpus"}) == ["--name", "--gpus"]
    assert after_program([], {"--name"}) == []


# Values


def test_only_what_was_typed_is_a_value() -> None:
    assert typed(["train.py"]) == {"command": ["train.py"]}
    assert typed([]) == {}


def test_every_shape() -> None:
    words = ["-w", "2", "-e", "A=b,c=d", "--env", "B==x", "-e", "HERE", "--toleration", "a,b", "--toleration", "c"]
    words += ["--labels", "team=a", "--ps-cpu", "500m", "--snapshot", "--cpu", "1e3", "t.py"]
    assert typed(words, SUBMIT) == {
        "command": ["t.py"],
        "workers": "2",
        "cpu": "1e3",
        "env": {"A": "b,c=d", "B": "=x", "HERE": "yes"},
        "label": {"team": "a"},
        "toleration": ["a,b", "c"],
        "snapshot": True,
        "ps": {"cpu": "500m"},
    }


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["--snapshot"], True),
        (["--snapshot=true"], True),
        (["--snapshot=1"], True),
        (["--snapshot=f"], False),
        (["--snapshot=false"], False),
        (["--no-snapshot"], False),
        (["--snapshot", "--snapshot=false"], False),
    ],
)
def test_truth_values_are_spelled_as_in_go(words: list[str], value: bool) -> None:
    assert typed([*words, "t.py"])["snapshot"] is value


def test_a_switch_of_the_command_itself_is_spelled_so_too() -> None:
    assert typed(["--detach=true", "t.py"])["detach"] is True
    assert "detach" not in typed(["--detach=false", "t.py"])


def test_a_flag_with_a_bare_value_never_takes_the_next_word() -> None:
    assert typed(["--dry-run", "t.py"]) == {"dry_run": "client", "command": ["t.py"]}
    assert typed(["--dry-run=server", "t.py"])["dry_run"] == "server"


def test_an_env_file_stands_below_env(tmp_path: Path) -> None:
    one, two = tmp_path / "one.env", tmp_path / "two.env"
    one.write_text("A=1\nB=1\nC=1\n")
    two.write_text("export B='2 2'\n")
    words = ["--env", "C=3", "--env-file", str(one), "--env-file", str(two), "t.py"]
    assert typed(words)["env"] == {"A": "1", "B": "2 2", "C": "3"}
    two.write_text("A=1\nB\n")
    assert refused(words) == f"{two}:2: 'B' is not KEY=VALUE"


def test_flags_and_python_make_the_same_job() -> None:
    words = ["-w", "2", "-e", "A=1", "--ps", "1", "--ps-memory", "1Gi", "--restart-policy", "OnFailure", "t.py"]
    job = build("tensorflow", typed(words, SUBMIT))
    python = {"workers": 2, "env": {"A": "1"}, "ps": Role(count=1, memory="1Gi"), "restart_policy": "OnFailure"}
    assert same(job, build("tensorflow", {"command": ("t.py",), **python}))


COMMANDS = {(kind, way): command(kind, interspersed=way) for kind in KINDS for way in (False, True)}


@patient
@given(any_job, st.booleans())
def test_any_job_can_be_typed(job: Job, interspersed: bool) -> None:
    made = COMMANDS[job.type_name, interspersed]
    words = [*words_of(job), "--", *job.command]
    assert same(build(job.type_name, typed(words, made)), job)


def words_of(job: Job) -> list[str]:
    """The flags that say this job."""
    found: list[str] = []
    for field in leaves(type(job)):
        name, _, part = field.name.partition(".")
        value = getattr(getattr(job, name), part) if part else getattr(job, name)
        if field.flag and value != field.default:
            found += _flag_words(field.flag, value)
    return found


def _flag_words(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [f"{name}={str(value).lower()}"]
    if isinstance(value, dict):
        return [word for key, one in value.items() for word in (name, f"{key}={one}")]
    if isinstance(value, tuple):
        return [word for one in value for word in (name, one)]
    return [name, str(value)]


# Refusals


def test_an_unknown_flag_names_the_nearest_and_the_dashes() -> None:
    message = refused(["--worker", "2", "train.py"])
    assert message.startswith("there is no flag --worker; did you mean --workers?")
    assert "after the program, or after --" in message
    message = refused(["--name", "t1", "train.py", "--epoch", "30"], SUBMIT)
    assert message.startswith("there is no flag --epoch\n")
    assert "-- PROGRAM --epoch" in message
    for odd in ("-q", "--lr", "--bogus"):
        assert f"there is no flag {odd}\n" in refused([odd, "train.py"])


def test_what_is_no_number_is_told_by_its_flag_and_all_at_once() -> None:
    message = refused(["-w", "1e3", "-g", "-1", "--retry", "9" * 5000, "--name", "A_b", "--memory", "1GGi", "t.py"])
    assert message.startswith("5 things are wrong")
    for flag in ("--workers", "--gpus", "--retry", "--name", "--memory"):
        assert f"{flag}: " in message
    assert len(message) < 1000


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--env", "DEBUG", "t.py"], "--env: 'DEBUG' has no value, and there is no such variable here"),
        (["--label", "team", "t.py"], "--label: 'team' has no value: team=VALUE is expected"),
        (["--snapshot=yes", "t.py"], "--snapshot: must be true or false, not 'yes'"),
        (["--restart-policy", "never", "t.py"], "did you mean 'Never'?"),
        (["a\0b"], "command: 'a\\x00b' holds a NUL byte"),
        (["\udcff"], "command: '\\udcff' is not UTF-8"),
        (["--image", "\udcff", "t.py"], "--image: '\\udcff' is not UTF-8"),
        ([], "command: what should run?"),
        ([""], "command: what should run?"),
        (["-m"], "command: -m: which module"),
        (["-m", ""], "command: -m: which module"),
    ],
)
def test_what_cannot_be_is_refused_by_its_flag(words: list[str], message: str) -> None:
    assert message in refused(words)


def test_a_flag_without_its_value_is_an_error_of_usage() -> None:
    with pytest.raises(click.UsageError, match="--workers"):
        typed(["--workers"])


# Help


def test_help_shows_the_common_flags_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown("--help", capsys=capsys)
    assert "PROGRAM|-m MODULE [ARGS]..." in text
    assert "-w, --workers N" in text
    assert "arena run -m pkg.train" in text
    assert "--toleration" not in text
    assert text.count("\n  -") <= 15
    more = sum(1 for field in fields("job") if field.flag and not field.common) + len(["--env-file", "--dry-run"])
    assert f"--help-all: {more} more flags" in text


def test_help_all_shows_every_flag_by_group_and_what_it_means_here(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown("--help-all", made=SUBMIT, capsys=capsys)
    for field in leaves("tensorflow"):
        assert field.flag in text
        assert f"\n{field.group}:\n" in text or not field.flag
    plain = " ".join(text.split())
    assert "taint to tolerate, or all; several times (no effect on this machine)" in plain
    assert "(not possible on this machine)" in plain
    assert "--dry-run[=client|server]" in plain
    assert "--retries" not in plain
    assert "--labels" not in plain


def test_help_after_the_program_is_the_programs() -> None:
    assert typed(["train.py", "--help"])["command"] == ["train.py", "--help"]


# Completion


@pytest.mark.parametrize("kind", KINDS)
def test_a_choice_is_completed(kind: str) -> None:
    option = next(option for option in params(kind) if option.name == "restart_policy")
    ctx = click.Context(RUN)
    assert [item.value for item in option.shell_complete(ctx, "O")] == ["OnFailure"]


def test_half_a_command_line_can_be_completed() -> None:
    for words in (["--snapshot"], ["--workers"], ["-w", "2", "--nam"], ["--dry-run", "tra"]):
        assert RUN.make_context("run", list(words), resilient_parsing=True).command is RUN
