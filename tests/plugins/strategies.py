"""Jobs of every built-in type, at random: what hypothesis draws from, by the declared fields themselves."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from arena import jobs
from arena.declared import Field, fields
from arena.errors import SpecError
from arena.job import Job, Role, check
from arena.secrets import MASK

KINDS = sorted(jobs.BUILT_IN)

# Everything that can travel: no NUL, no halves of a character.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
surprises = st.sampled_from(
    ["no", "on", "y", "~", "null", "0644", "1e3", "1_000", "12:30", ".inf", "0x1f", "*.sh", "&a", "!x", "# c", "a: b",
     "{ a; b; }", "- x", "true", "", " ", "a\nb", "a\n\n", "\tx", "<<", "=", "%x", "@x", "`x`", "2026-01-01", "'", '"',
     "x #y", "a\r\nb", "\u2028", "\ufeff", "\x85", "\x07", "\U0001f600", "$$ $(X) ${Y}", "a  \nb", "|", ">-", "? a"]
)  # fmt: skip
words = texts | surprises
sizes = st.sampled_from(["2", "500m", "1.5", "4Gi", "64Mi"])
durations = st.sampled_from(["90s", "2h", "1h30m", "1d"])
pairs = st.dictionaries(words.filter(lambda key: bool(key) and "=" not in key), words.filter(lambda v: v != MASK))
FIXED = {
    "cpu_limit": sizes,
    "memory_limit": sizes,
    "share_memory": sizes | st.just("0"),
    "starting_timeout": durations,
    "role_sequence": st.sampled_from(["w,p", "Worker,PS,Chief,Evaluator"]),
    "toleration": st.lists(
        st.sampled_from(["all", "a", "a:NoExecute", "a=b", "a=:NoSchedule", "x/y=z:NoSchedule,Equal"]), max_size=3
    ).map(tuple),
    "device": st.sampled_from([(), ("amd.com/gpu=1",), ("a=2", "b.c/d=3")]),
    "data": st.sampled_from([(), ("claim:/a",), ("one:/a", "two.x:/b/c d")]),
    "data_dir": st.sampled_from([(), ("/a1",), ("/x:/y", "/z:/no")]),
    "config_file": st.sampled_from([(), ("a.json:/etc/a.json",), ("~/x:y:/q", "/etc/hosts")]),
    "priority": st.sampled_from(["", "high", "system-node-critical"]),
    "scheduler": st.sampled_from(["", "volcano"]),
    "queue_name": st.sampled_from(["", "no", "q1"]),
    "image_pull_secret": st.sampled_from([(), ("null",), ("a", "b.c")]),
    "plain_env": st.just(()),  # names what stands in env
    "image": st.sampled_from(["", "busybox", "reg.example:5000/a/b:1.2@sha256:0a", "no"]),
    "sync_image": st.sampled_from(["", "git-sync:v4"]),
    "tensorboard_image": st.sampled_from(["", "tb:1"]),
    "output": st.sampled_from(["", "claim:/", "claim:/a b"]),
    "logdir": st.sampled_from(["", "/logs", "/a/ b"]),
    "name": st.from_regex(r"\A[a-z]([-a-z0-9]{0,10}[a-z0-9])?\Z") | st.sampled_from(["no", "y", "on", "null", ""]),
    "cpu": sizes,
    "memory": sizes,
    "running_timeout": durations,
    "ttl_after_finished": durations,
}


def values(field: Field) -> st.SearchStrategy[Any]:
    """Values of one declared field, as Python has them."""
    name = field.name.rpartition(".")[2]
    if field.name in ("chief.count", "evaluator.count"):
        return st.integers(0, 1)
    if name == "command":
        return st.lists(words, min_size=1, max_size=5).map(tuple).filter(lambda found: bool(found[0]))
    if name == "nproc_per_node":
        return st.just(1)
    if name in FIXED:
        return FIXED[name]
    by_shape = {
        "int": st.integers(field.ge, field.le),
        "text": words,
        "bool": st.booleans(),
        "choice": st.sampled_from(field.choices or [""]),
        "list": st.lists(words, max_size=3).map(tuple),
        "mapping": pairs,
        "role": st.fixed_dictionaries(
            {}, optional={part.name.partition(".")[2]: values(part) for part in field.parts}
        ).map(lambda parts: Role(**parts)),
    }
    return by_shape[field.shape]


def jobs_of(kind: str) -> st.SearchStrategy[Job]:
    """Valid jobs of a type, built in Python, with a few of its fields set."""
    found = {field.name: values(field) for field in fields(kind)}
    command = found.pop("command")
    some = st.lists(st.sampled_from(sorted(found)), unique=True, max_size=8)
    made = some.flatmap(
        lambda names: st.fixed_dictionaries({"command": command, **{name: found[name] for name in names}})
    )
    return made.map(completed).map(lambda given: jobs.load(kind)(**given)).filter(is_valid)


def completed(given: dict[str, Any]) -> dict[str, Any]:
    """The values with what some of them need beside them."""
    if any(given.get(name) for name in ("sync_mode", "sync_source", "sync_image")):
        given |= {"sync_mode": given.get("sync_mode") or "git", "sync_source": given.get("sync_source") or "x"}
    if given.get("model_source"):
        given["model_name"] = given.get("model_name") or "m"
    if given.get("shell"):
        given["command"] = given["command"][:1]
    return given


def is_valid(job: Job) -> bool:
    """Whether the one check has nothing against it."""
    try:
        return bool(check(job))
    except SpecError:
        return False


# A busy machine says nothing about the code.
patient = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)

any_job = st.sampled_from(KINDS).flatmap(jobs_of)


def same(one: Job, other: Job) -> bool:
    """Equal, and of the same type down to the last value: no list where a tuple was."""
    return one == other and msgspec.json.encode(one) == msgspec.json.encode(other) and repr(one) == repr(other)
