"""Run files: read as typed, refused with the line where they could mean two things, dumped to be read back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given

from arena import runfile
from arena.declared import to_plain
from arena.errors import BackendError, NotFoundError, SpecError
from arena.job import Job, Role
from arena.jobs.plain import PlainJob
from arena.jobs.tensorflow import TensorFlowJob
from plugins.strategies import any_job, patient, same, words


def job_of(text: str, **given_: object) -> Job:
    return runfile.read(text, "job.yaml").job(given_)


def refused(text: str, **given_: object) -> str:
    with pytest.raises(SpecError) as caught:
        job_of(text, **given_)
    return str(caught.value)


# What was typed is what is read


@pytest.mark.parametrize(
    "word", ["no", "on", "y", "0644", "1e3", "1_000", "12:30:45", "1.10", "0x1f", ".inf", "2026-01-01", "true", "1.0"]
)
def test_words_are_not_guessed_at(word: str) -> None:
    job = job_of(f"command: [echo, {word}]\nenv: {{A: {word}, {word}: B}}\nimage: {word}")
    assert job.command == ("echo", word)
    assert job.env == {"A": word, word: "B"}
    assert job.image == word


def test_a_name_that_yaml_takes_for_a_truth_value() -> None:
    assert job_of("name: no\ncommand: t.py").name == "no"


@pytest.mark.parametrize(
    "word", ["1e3", "0644", "0o17", "0x10", "1_000", "2.0", "-1", "9" * 4000, "no", "'2 '", "~", ""]
)
def test_numbers_are_whole_and_plain(word: str) -> None:
    message = refused(f"command: t.py\nworkers: {word}")
    assert message.startswith("job.yaml:2: workers: ")
    assert len(message) < 200


@pytest.mark.parametrize("word", ["yes", "on", "no", "1", "y"])
def test_truth_values_are_true_and_false_only(word: str) -> None:
    assert "job.yaml:2: snapshot: must be true or false" in refused(f"command: t.py\nsnapshot: {word}")


def test_the_default_type_is_a_plain_job() -> None:
    found = runfile.read("command: t.py", "job.yaml")
    assert (found.type, found.values, found.lines) == ("job", {"command": "t.py"}, {"command": 1})


def test_a_command_is_a_list_of_words_or_a_shell_line() -> None:
    assert job_of("command: [sh, -c, 'echo hello; sleep 1']").command == ("sh", "-c", "echo hello; sleep 1")
    assert job_of("command: echo a | tr a b").command == ("echo a | tr a b",)
    assert job_of("command:\n- train.py\n- --lr\n- 0.1").command == ("train.py", "--lr", "0.1")
    assert job_of("command: |\n  nosuch\n  echo done\n").argv()[:2] == ("sh", "-ec")


def test_roles_are_nested() -> None:
    job = job_of("type: tf\ncommand: t.py\nps: {cpu: 2, count: 1}\nchief: 1")
    assert job == TensorFlowJob(command=("t.py",), ps=Role(cpu="2", count=1), chief=Role(count=1))


def test_json_is_yaml_too() -> None:
    values = {"type": "job", "command": ["echo", "\U0001f600", "\\ud83d\\ude00", "a/b"], "workers": 2, "snapshot": True}
    assert same(job_of(json.dumps(values, indent="\t")), job_of(json.dumps(values, ensure_ascii=False)))
    assert job_of(json.dumps(values)).command[1:3] == ("\U0001f600", "\\ud83d\\ude00")


def test_values_given_elsewhere_win() -> None:
    text = "command: t.py\nworkers: 4\nenv: {A: 1, B: 2}\nname: base"
    job = job_of(text, workers="2", env={"B": "3"}, name="ci-41")
    assert (job.workers, job.env, job.name, job.command) == (2, {"A": "1", "B": "3"}, "ci-41", ("t.py",))
    assert job_of("workers: 2", command=["t.py"]).command == ("t.py",)


# What is refused


def test_everything_is_told_at_once_with_its_line() -> None:
    text = "\n".join(
        [
            "# a run file with everything wrong",
            "type: tensorflow",
            "name: Upper_Case",
            "workers: -3",
            "working-dir: src",
            "command: [t.py, {a: b}]",
            "env:",
            "  A: 1",
            "  HF_TOKEN: '***'",
            "  A: 2",
            "  B:",
            "ps:",
            "  cpu: 1GGi",
            "  gpu: 1",
            "memory: lots",
            "workers: 2",
        ]
    )
    lines = refused(text).splitlines()
    assert lines[0] == "10 things are wrong with the job"
    found = [line.removeprefix("  Why:").strip() for line in lines[1:]]
    assert [":".join(line.split(":")[:3]) for line in found] == [
        "job.yaml:3: name",
        "job.yaml:4: workers",
        "job.yaml:4: workers",
        "job.yaml:5: working-dir",
        "job.yaml:6: command",
        "job.yaml:8: env.A",
        "job.yaml:9: env.HF_TOKEN",
        "job.yaml:11: env.B",
        "job.yaml:14: ps.gpu",
        "job.yaml:15: memory",
    ]
    assert "did you mean 'working_dir'?" in found[3]
    assert "is set again in line 16" in found[1]
    assert "is set again in line 10" in found[5]
    assert "did you mean 'gpus'?" in found[8]


def test_what_no_key_is_to_blame_for_names_the_file() -> None:
    assert refused("workers: 2").startswith("job.yaml: command: what should run?")


def test_a_wrong_flag_is_not_blamed_on_the_file() -> None:
    assert refused("command: t.py\nworkers: 2", workers="x").startswith("--workers: must be")
    message = refused("command: t.py\nenv:\n  A: '***'\n  B: '***'", env={"A": "1"})
    assert message == "job.yaml:4: env.B: the value is masked (***); give it: --env B=VALUE"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("command: &c [a]\nenv: {A: *c}", "job.yaml:1: anchors and aliases (&, *) are not possible"),
        ("command: *.sh", "job.yaml:1: "),
        ("command: !!python/object:os.system x", "job.yaml:1: tags are not possible"),
        ("command: t.py\nworkers: !!int 2", "job.yaml:2: tags are not possible"),
        ("command: a\n---\ncommand: b", "job.yaml:2: one file is one job"),
        ("- a\n- b", "job.yaml:1: a run file is a mapping"),
        ("train.py", "job.yaml:1: a run file is a mapping"),
        ("[a]: b", "job.yaml:1: a key is one word"),
        ("command: t.py\n\tworkers: 2", "job.yaml:2: is not YAML"),
        ("a: {b: [1, 2}", "job.yaml:1: is not YAML"),
        ('command: python t.py --note "lr: 0.1": x', "job.yaml:1: is not YAML"),
        ("command: a\x07b", "job.yaml: is not YAML"),
        ("command: \udcff", "job.yaml is not UTF-8"),
        ('command: "a\\0b"', "job.yaml:1: command: 'a\\x00b' holds a NUL byte"),
        ("command: t.py\n<<: {a: b}", "job.yaml:2: <<: there is no such key"),
        ("command: t.py\ntype: pytoch", "job.yaml:2: type: there is no job type 'pytoch'"),
        ("command: t.py\ntype: [a]", "job.yaml:2: type: must be the name of a job type"),
        ("type: os:system\ncommand: t.py", "there is no job type 'os:system'"),
        ("", "job.yaml: command: what should run?"),
        ("# nothing", "job.yaml: command: what should run?"),
        ("apiVersion: v1\nkind: Pod", "job.yaml is a Kubernetes object (Pod), not a run file"),
    ],
)  # fmt: skip
def test_what_yaml_can_do_and_a_run_file_cannot(text: str, words: str) -> None:
    assert words in refused(text)


def test_an_alias_bomb_is_refused_before_it_is_built() -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    assert "job.yaml:1: anchors and aliases" in refused("\n".join(lines))


def test_deep_nesting_is_refused_before_it_is_built() -> None:
    for opening in ("[", "{a: "):
        assert "job.yaml:1: is nested deeper than 8 levels" in refused("command: " + opening * 20)
        assert "nest" in refused("command: " + opening * 20_000)


def test_a_file_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_bytes(b"\xef\xbb\xbfcommand: t.py\r\nworkers: 2\r\n")
    assert runfile.load(file, {"name": "a"}) == PlainJob(command=("t.py",), workers=2, name="a")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    with pytest.raises(NotFoundError, match=r"there is no file .*job\.yaml"):
        runfile.load(file)
    file.write_bytes(b"command: t.py\nname: \xff\n")
    with pytest.raises(SpecError, match=r"job\.yaml:2: is not UTF-8 \(byte 0xff\)"):
        runfile.load(file)
    file.write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(SpecError, match="larger than 1 MiB"):
        runfile.load(file)
    with pytest.raises(BackendError, match="cannot be read: Is a directory"):
        runfile.load(tmp_path)
    with pytest.raises(BackendError, match="cannot be read"):
        runfile.load("a\0b")


# There and back


@patient
@given(any_job)
def test_dump_is_read_as_the_same_job(job: Job) -> None:
    assert same(job_of(runfile.dump(job, masked=False)), job)


@patient
@given(any_job)
def test_a_reader_of_yaml_sees_texts_as_texts(job: Job) -> None:
    plain = to_plain(job)
    words_ = plain["command"]
    if isinstance(words_, list) and len(words_) == 1:
        plain["command"] = words_[0]
    assert yaml.safe_load(runfile.dump(job, masked=False)) == plain


@given(words.filter(str.strip))
def test_a_command_of_any_text_comes_back(word: str) -> None:
    for command in ((word,), ("sh", "-c", word)):
        assert job_of(runfile.dump(PlainJob(command=command), masked=False)).command == command


@pytest.mark.parametrize(
    "line",
    [
        'python t.py --note "lr: 0.1"',
        "python t.py # quick",
        "*.sh",
        "true",
        "{ a; b; }",
        "one\ntwo",
        "on",
        "0644",
        "1e3",
    ],
)
def test_exported_commands_read_back(line: str) -> None:
    assert job_of(runfile.dump(PlainJob(command=(line,)))).command == (line,)


@pytest.mark.parametrize(
    "word", ["no", "on", "y", "0644", "1e3", "1_0", "12:30", "0o17", ".inf", "2026-01-01", "~", "="]
)
def test_what_any_reader_could_misread_is_quoted(word: str) -> None:
    assert f'image: "{word}"' in runfile.dump(PlainJob(command=("t.py",), image=word))


def test_a_dump_is_made_for_people() -> None:
    job = TensorFlowJob(
        command=("sh", "-c", "set -x\npython t.py\n"),
        name="mnist",
        workers=2,
        env={"A": "1"},
        ps=Role(count=1, cpu="500m"),
    )
    assert runfile.dump(job) == (
        "type: tensorflow\n"
        "name: mnist\n"
        "command:\n- sh\n- -c\n- |\n  set -x\n  python t.py\n"
        "workers: 2\n"
        'env:\n  A: "1"\n'
        "ps:\n  count: 1\n  cpu: 500m\n"
    )
    assert 'command: [train.py, --lr, "0.1"]\n' in runfile.dump(PlainJob(command=("train.py", "--lr", "0.1")))


# Secrets


def test_secrets_are_masked_and_asked_for() -> None:
    job = PlainJob(command=("t.py",), env={"HF_TOKEN": "abc1", "MODE": "fast"})
    text = runfile.dump(job)
    assert "abc1" not in text
    assert "HF_TOKEN" in text
    assert "MODE: fast" in text
    assert refused(text) == "job.yaml:4: env.HF_TOKEN: the value is masked (***); give it: --env HF_TOKEN=VALUE"
    assert same(job_of(text, env={"HF_TOKEN": "abc1"}), job)
    assert same(job_of(runfile.dump(job, masked=False)), job)


def test_a_masked_command_must_be_given_anew() -> None:
    text = runfile.dump(PlainJob(command=("t.py", "--api-key", "abc1"), workers=2))
    assert "abc1" not in text
    assert refused(text) == "job.yaml:2: command: holds masked values (***); give it anew"
    assert job_of(text, command=["t.py"]).workers == 2


def test_stars_of_the_users_own_are_nobodys_secret() -> None:
    job = PlainJob(command=("echo", "***"))
    assert job_of(runfile.dump(job)) == job
