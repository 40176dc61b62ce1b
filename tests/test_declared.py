"""Plain values to a checked job and back: the same job from Python, a file and flags; nothing lost, all errors told."""

from __future__ import annotations

from typing import Annotated, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.declared import (
    Problem,
    build,
    examine,
    fields,
    label_of,
    leaves,
    merged,
    parse_pairs,
    read_env_file,
    to_plain,
)
from arena.errors import SpecError
from arena.job import Job, Role, flag
from arena.jobs.plain import PlainJob
from arena.jobs.tensorflow import TensorFlowJob
from plugins.strategies import KINDS, any_job, patient, same, words


def refused(kind: str, **values: object) -> str:
    with pytest.raises(SpecError) as caught:
        build(kind, {"command": ["t.py"], **values})
    return str(caught.value)


# Declarations


def test_each_field_has_its_flag() -> None:
    found = {field.name: field.flags for field in fields("job")}
    assert found["working_dir"] == ("--working-dir",)
    assert found["workers"] == ("-w", "--workers")
    assert found["command"] == ()


def test_parts_of_a_role_have_flags_of_their_own() -> None:
    ours = {field.name: field.flag for field in leaves("tf") if field.name.startswith("ps.")}
    assert ours == {
        "ps.count": "--ps",
        "ps.cpu": "--ps-cpu",
        "ps.cpu_limit": "--ps-cpu-limit",
        "ps.memory": "--ps-memory",
        "ps.memory_limit": "--ps-memory-limit",
        "ps.gpus": "--ps-gpus",
        "ps.image": "--ps-image",
        "ps.port": "--ps-port",
        "ps.selector": "--ps-selector",
        "ps.affinity_policy": "--ps-affinity-policy",
        "ps.affinity_constraint": "--ps-affinity-constraint",
    }


@pytest.mark.parametrize("kind", KINDS)
def test_no_spelling_is_taken_twice(kind: str) -> None:
    spellings = [spelling for field in leaves(kind) for spelling in (*field.flags, *field.aliases)]
    assert len(spellings) == len(set(spellings))
    assert all(field.help for field in leaves(kind))


def test_a_type_of_a_plugin_is_read_like_ours() -> None:
    class LightningJob(PlainJob, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
        type_name: ClassVar[str] = "lightning"
        devices: Annotated[int | None, flag("devices")] = None
        head: Annotated[Role, flag("the head")] = Role(count=1, cpu="2")

    job = build(LightningJob, {"command": "t.py", "devices": "2", "head": {"memory": "1Gi"}, "type": "lightning"})
    assert job == LightningJob(command=("t.py",), devices=2, head=Role(count=1, cpu="2", memory="1Gi"))
    assert to_plain(job)["head"] == {"memory": "1Gi"}
    assert build(LightningJob, to_plain(job)) == job


def test_a_field_of_no_known_shape_is_told_to_its_author() -> None:
    class OddJob(Job, frozen=True, kw_only=True):
        rate: Annotated[complex, flag("rate")] = 1j

    class BoundJob(Job, frozen=True, kw_only=True):
        devices: Annotated[int | None, flag("devices", ge=1)] = None

    with pytest.raises(TypeError, match="rate: a field is bool"):
        fields(OddJob)
    with pytest.raises(TypeError, match="devices: ge and le"):
        fields(BoundJob)


def test_a_field_without_default_must_be_given() -> None:
    class NeedyJob(PlainJob, frozen=True, kw_only=True):
        project: Annotated[str, flag("project")]

    assert examine(NeedyJob, {"command": "t.py"}) == (None, [Problem("project", "must be given")])


# The way there and back


@patient
@given(any_job)
def test_plain_values_make_the_same_job_again(job: Job) -> None:
    assert same(build(job.type_name, to_plain(job)), job)


@patient
@given(any_job)
def test_texts_make_the_same_job(job: Job) -> None:
    assert same(build(job.type_name, texts_of(to_plain(job))), job)  # type: ignore[arg-type]


def texts_of(value: object) -> object:
    if isinstance(value, dict):
        return {key: texts_of(one) for key, one in value.items()}
    if isinstance(value, list):
        return [texts_of(one) for one in value]
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_only_what_differs_from_the_default_is_plain() -> None:
    assert to_plain(PlainJob(command=("t.py",), workers=1, env={})) == {"type": "job", "command": ["t.py"]}


@pytest.mark.parametrize(
    ("plain", "role"),
    [(2, Role(count=2)), ({"cpu": "2"}, Role(cpu="2")), ({"count": 1, "gpus": 2}, Role(count=1, gpus=2))],
)
def test_a_role_is_its_count_or_its_parts(plain: object, role: Role) -> None:
    job = TensorFlowJob(command=("t.py",), ps=role)
    assert to_plain(job)["ps"] == plain
    assert build("tensorflow", {"command": "t.py", "ps": plain}) == job
    assert build("tensorflow", {"command": "t.py", "ps": role}) == job


@pytest.mark.parametrize(
    "line",
    ['python t.py --note "lr: 0.1"', "python t.py # quick", "*.sh", "true", "{ a; b; }", "nosuch\necho done"],
)
def test_a_command_as_one_text_is_one_word(line: str) -> None:
    assert build("job", {"command": line}).command == (line,)
    assert build("job", {"command": [line]}).command == (line,)


def test_words_with_blanks_stay_words() -> None:
    assert build("job", {"command": ["papermill", "in 01 A.ipynb", "out.ipynb"]}).command[1] == "in 01 A.ipynb"


def test_a_script_of_lines_stops_at_the_first_error_and_a_single_line_does_not() -> None:
    assert build("job", {"command": "nosuch\necho done"}).argv()[:2] == ("sh", "-ec")
    assert build("job", {"command": "nosuch; echo done"}).argv()[:2] == ("sh", "-c")


# Refusals


@pytest.mark.parametrize(
    "value",
    [
        "1e3",
        "1_000",
        "0644",
        "0x10",
        " 2",
        "2 ",
        "",
        "two",
        "²",
        "-1",
        -1,
        0,
        1.0,
        True,
        "9" * 5000,
        pytest.param(10**5000, id="huge"),
    ],
)
def test_what_is_no_whole_number_within_its_bounds(value: object) -> None:
    message = refused("job", workers=value)
    assert message.startswith("--workers: must be a whole number from 1 to 10000, not")
    assert len(message) < 200


@pytest.mark.parametrize("value", ["yes", "on", "1", 1, "no", "", "tRUE"])
def test_what_is_not_true_or_false(value: object) -> None:
    assert "--snapshot: must be true or false" in refused("job", snapshot=value)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("name", True, "--name: must be a text, not True"),
        ("name", None, "--name: has no value"),
        ("image", ["a"], "--image: must be a text, not a list"),
        ("env", "A=1", "--env: must be pairs of key and value"),
        ("env", {"A": None}, "--env A: has no value"),
        ("env", {"A": ["x"]}, "--env A: must be a text, not a list"),
        ("env", {"HF_TOKEN": "***"}, "--env HF_TOKEN: the value is masked (***); give it: --env HF_TOKEN=VALUE"),
        ("env", {"A=B": "x"}, "--env: 'A=B' is no name"),
        ("env", {"A": "a\0b"}, "NUL"),
        ("env", {"A": "\udcff"}, "--env A: '\\udcff' is not UTF-8"),
        ("image", "a\0b", "--image: 'a\\x00b' holds a NUL byte"),
        ("toleration", ["a", {"b": 1}], "--toleration: word 2: must be a text, not a mapping"),
        ("command", {"a": "b"}, "command: must be a list of words, not a mapping"),
        ("command", ["t.py", "\udcff"], "command: '\\udcff' is not UTF-8"),
        ("command", [], "command: what should run?"),
        ("restart_policy", "onfailure", "did you mean 'OnFailure'?"),
        ("memory", "1GGi", "--memory: '1GGi'"),
        ("memory", "-1Gi", "--memory: "),
        ("running_timeout", "soon", "--running-timeout: "),
        ("type", "mpi", "type: is 'mpi' here, but the job is of type 'job'"),
    ],
)
def test_a_wrong_value_is_refused_by_its_flag(key: str, value: object, words: str) -> None:
    assert words in refused("job", **{key: value})


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("working-dir", "did you mean 'working_dir'?"),
        ("workerss", "did you mean 'workers'?"),
        ("node-selector", "did you mean 'selector'?"),
        ("labels", "did you mean 'label'?"),
        ("ps-cpu", "write ps: {cpu: …}"),
        ("zzz", "known: name, command, workers"),
    ],
)
def test_an_unknown_key_names_the_right_one(key: str, words: str) -> None:
    message = refused("tensorflow", **{key: "x"})
    assert message.startswith(f"{key}: there is no such key")
    assert words in message


def test_parts_of_a_role_are_named_by_their_flags() -> None:
    message = refused("tensorflow", ps={"cpu": "1GGi", "gpus": -1, "cout": 1}, chief=-2, evaluator={"memory": "x"})
    assert "--ps-gpus: must be a whole number from 0 to 1024, not -1" in message
    assert "--ps cout: there is no such key; did you mean 'count'?" in message
    assert "--chief: must be a whole number" in message
    assert "--evaluator-memory: " in message
    assert "--ps-cpu: '1GGi'" in refused("tensorflow", ps={"cpu": "1GGi"})


def test_everything_is_told_at_once() -> None:
    message = refused("job", workers="x", snapshot="yes", env={"A": None, "B": "***"}, name="A", memory="1GGi", foo=1)
    assert message.startswith("7 things are wrong with the job")
    for flag_name in ("--workers", "--snapshot", "--env A", "--env B", "--name", "--memory", "foo"):
        assert f"{flag_name}: " in message


def test_a_secret_is_not_shown_in_what_is_wrong_with_it() -> None:
    assert refused("job", env={"HF_TOKEN": "abc\0"}) == "--env HF_TOKEN: *** holds a NUL byte"


def test_a_field_is_blamed_once() -> None:
    assert refused("job", command=[None]).count("command") == 1


def test_labels_of_keys() -> None:
    assert [label_of("tf", key) for key in ("ps.cpu", "ps", "env.A.B", "command", "foo", "foo.bar")] == [
        "--ps-cpu", "--ps", "--env A.B", "command", "foo", "foo.bar",
    ]  # fmt: skip


# Two layers


def test_flags_win_over_a_file_key_by_key() -> None:
    below = {"env": {"A": "1", "B": "2"}, "ps": 2, "chief": {"cpu": "1"}, "toleration": ["a"], "workers": 3}
    above = {"env": {"B": "3"}, "ps": {"cpu": "2"}, "chief": 1, "toleration": ["b"]}
    assert merged("tensorflow", below, above) == {
        "env": {"A": "1", "B": "3"},
        "ps": {"count": 2, "cpu": "2"},
        "chief": {"cpu": "1", "count": 1},
        "toleration": ["b"],
        "workers": 3,
    }


@pytest.mark.parametrize("below", ["A=1", ["A"], None, 3])
def test_what_a_file_has_wrong_is_not_hidden_by_a_flag(below: object) -> None:
    assert merged("job", {"env": below}, {"env": {"B": "1"}}) == {"env": below}


# Pairs


@pytest.mark.parametrize(
    ("word", "pair"),
    [
        ("GIT_SYNC_PASSWORD=abc,def", ("GIT_SYNC_PASSWORD", "abc,def")),
        ("NCCL_IB_HCA==mlx5_0:1,mlx5_1:1", ("NCCL_IB_HCA", "=mlx5_0:1,mlx5_1:1")),
        ("A=", ("A", "")),
        ("A= b\n'c' ", ("A", " b\n'c' ")),
        ("A=$$ $(B)", ("A", "$$ $(B)")),
    ],
)
def test_a_pair_is_split_at_the_first_equals_sign_only(word: str, pair: tuple[str, str]) -> None:
    assert parse_pairs([word], "--env") == dict([pair])


@given(st.dictionaries(words.filter(lambda key: bool(key) and "=" not in key), words))
def test_pairs_lose_nothing(pairs: dict[str, str]) -> None:
    assert parse_pairs([f"{key}={value}" for key, value in pairs.items()], "--env") == pairs


def test_a_key_alone_takes_the_value_from_here() -> None:
    assert parse_pairs(["DEBUG"], "--env", {"DEBUG": "a=b"}) == {"DEBUG": "a=b"}


def test_what_is_no_pair_is_refused_all_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        parse_pairs(["A=1", "DEBUG", "=x", ""], "--env", {})
    assert str(caught.value).startswith("3 things")
    assert "--env: 'DEBUG' has no value, and there is no such variable here: DEBUG=VALUE" in str(caught.value)
    assert "--env: '=x' has no key" in str(caught.value)
    with pytest.raises(SpecError, match="--label: 'team' has no value: team=VALUE is expected"):
        parse_pairs(["team"], "--label")


def test_an_env_file() -> None:
    text = "\ufeff# mine\r\nA=1\r\n\n  export B = x\n".replace("B = x", "B=x y # not a comment")
    text += 'C=\' 1 \'\nD="it\'s"\nE=\nF==a,b=c\nG={"a": 1}\n'
    assert read_env_file(text) == {
        "A": "1",
        "B": "x y # not a comment",
        "C": " 1 ",
        "D": "it's",
        "E": "",
        "F": "=a,b=c",
        "G": '{"a": 1}',
    }


def test_an_env_file_tells_every_bad_line_and_no_value() -> None:
    text = 'A=1\nB\nC = 1\n=x\nD=\'tok\nE="a" "b"\nF=2\n'
    with pytest.raises(SpecError) as caught:
        read_env_file(text, "my.env")
    message = str(caught.value)
    assert [f"my.env:{line}: " in message for line in range(1, 8)] == [False, True, True, True, True, True, False]
    assert "tok" not in message
