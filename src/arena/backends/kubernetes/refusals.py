"""What the server says no with, in arena's words: which limit, what was asked, and the flag that changes it.

Pure: answers come in, one error goes out. The server's own words stay in it as the why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from arena.backends.kubernetes import fitting
from arena.backends.kubernetes.fitting import Asked, Quota
from arena.errors import (
    AlreadyExistsError,
    ArenaError,
    BackendError,
    ForbiddenError,
    NotFoundError,
    SpecError,
    UnsupportedError,
)
from arena.kube.errors import RIGHT, Answered, InvalidError, RefusedError, ServerError

FLAGS = {
    "cpu": "--cpu",
    "memory": "--memory",
    "nvidia.com/gpu": "--gpus",
    "pods": "--workers",
    "ephemeral-storage": "--set",
}
INSECURE = (("host namespaces", "no --host-network"), ("hostPath", "--data instead of --data-dir"))
NAMED = {
    "PersistentVolumeClaim": ("--data or --output", "claim"),
    "Secret": ("--image-pull-secret", "secret"),
    "ConfigMap": ("--patch", "ConfigMap"),
}


# What a user can do who may not make them.
AROUND = {"trainingruntimes": "engines: job makes a Job, which needs none"}
# Words about what a job, or a pod of it, names and nobody has seen yet.
UNSEEN = (
    re.compile(r'"(?P<name>[^"]+)" not found: specified (?P<kind>\w+) must be created before'),  # an operator's webhook
    re.compile(r'(?P<kind>serviceaccount) "(?P<name>[^"]+)" not found'),
    re.compile(r"no (?P<kind>PriorityClass) with name (?P<name>\S+) was found"),
)


class Place(Struct, frozen=True):
    """Where a submit goes, for whoever reads what was refused: namespace, kind of the job, its operator.

    `hidden` are the variables that a Secret carries; without `flags` the object is the caller's own, as a file has it.
    """

    namespace: str
    kind: str
    operator: str
    hidden: tuple[str, ...] = ()
    flags: bool = True


class Answers(Struct, frozen=True, kw_only=True):
    """All that was asked before a submit: each an object, or the error that came in its place.

    `counts` are the replicas of each pod, `named` what stands in the job by its kind and name.
    """

    thing: Any
    pods: Sequence[Any] = ()
    counts: Sequence[int] = ()
    named: Sequence[tuple[tuple[str, str], Any]] = ()
    quotas: Any = ()
    queued: bool = False


class PodSecurityError(ForbiddenError):
    """The namespace takes pods of a higher pod security level only; `level` says of which."""

    level = ""


def refusal(answers: Answers, place: Place) -> ArenaError | None:
    """Why the job cannot be made, most telling first; None where nobody is against it.

    What only may not be asked (a pod's dry run, a claim, the quotas) is nobody's refusal.
    """
    taken = answers.thing if isinstance(answers.thing, AlreadyExistsError) else None
    if isinstance(answers.thing, ArenaError) and not taken:
        return told(answers.thing, place)
    for (kind, name), answer in answers.named:
        if isinstance(answer, NotFoundError):
            return _missing(kind, name, place)
    for answer in (*answers.pods, *(answer for _, answer in answers.named)):
        if isinstance(answer, ArenaError) and not is_right(answer):
            return told(answer, place)
    if taken:  # last: who replaces it must know before that the new one can be; its quota may be the old one's
        return told(taken, place)
    return None if answers.queued else _over_quota(answers, place)


def told(error: ArenaError, place: Place) -> ArenaError:
    """The refusal in arena's words; one that no rule knows stays as it is."""
    if is_right(error):
        return _around(error, place)
    if not isinstance(error, Answered):
        return error
    found = next((found for rule in RULES if (found := rule(error.what, place))), None) or _of_kind(error, place)
    if found is not error:
        found.__cause__ = error
    return found


def is_unseen(answer: object, helpers: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a job is refused only because one of its helpers is not there, or its operator has not seen it yet."""
    said = answer.what if isinstance(answer, RefusedError) else ""
    match = next(filter(None, (one.search(said) for one in UNSEEN)), None)
    wanted = (match["kind"].lower(), match["name"]) if match else ()
    return any((one["kind"].lower(), one["metadata"].get("name")) == wanted for one in helpers)


def _around(error: ArenaError, place: Place) -> ArenaError:
    """A missing right, with the ways around it."""
    match = RIGHT.search(error.why)
    resource = match["resource"] if match else ""
    if resource in AROUND and place.flags:
        return ForbiddenError(error.what, why=error.why, hint=f"{AROUND[resource]}; or {error.hint}")
    return _in_clear(error, place) if resource == "secrets" and place.hidden else error


def _in_clear(error: ArenaError, place: Place) -> ArenaError:
    """A right that is missing for the Secret in which secret-looking values would travel."""
    flags = " ".join(f"--plain-env {name}" for name in place.hidden)
    what = f"{error.what}, and {', '.join(place.hidden)} looks secret"
    hint = f"{flags} sends it in clear, in the {place.kind} that others can read; or {error.hint}"
    return ForbiddenError(what, why=error.why, hint=hint)


def is_right(error: ArenaError) -> bool:
    """Whether it is a missing right, and not a quota, a limit or a webhook."""
    return isinstance(error, RefusedError) and RIGHT.search(error.why) is not None


def asked_of(answers: Answers) -> list[Asked]:
    """What each pod asks for, with the defaults that the server has put in, and how many there are of it."""
    pairs = zip(answers.pods, answers.counts, strict=True)
    return [fitting.asked_by(pod, count) for pod, count in pairs if not isinstance(pod, ArenaError)]


# --- rules ---------------------------------------------------------------------------------------------------


def _quota(said: str, place: Place) -> ArenaError | None:
    match = re.search(r"exceeded quota: (\S+), requested: (\S+), used: (\S+), limited: (\S+)", said)
    if match is None:
        return None
    asked, used, hard = (
        dict(pair.split("=", 1) for pair in part.split(",") if "=" in pair) for part in match.groups()[1:]
    )
    what = "; ".join(f"{name}: {asked[name]} asked, {used.get(name, 0)} used of {hard.get(name)}" for name in asked)
    flags = " ".join(_ways(asked, place))
    later = all(fitting.amount(asked[name]) <= fitting.amount(hard.get(name, 0)) for name in asked)
    ways = [f"lower {flags}"] if flags else []
    return ForbiddenError(
        f"quota {match[1]!r} of namespace {place.namespace!r} does not allow it: {what}",
        why="the quota counts what all jobs of the namespace ask for",
        hint=", or ".join(ways + ["wait until others have ended"] * later),
    )


def _quota_needs(said: str, place: Place) -> ArenaError | None:
    match = re.search(r"failed quota: ([^:]+): must specify (\S+)", said)
    if match is None:
        return None
    names = [part.partition(" ")[0].rstrip(":") for part in match[2].split(",")]
    flags = " and ".join(_ways(names, place))
    what = f"quota {match[1]!r} of namespace {place.namespace!r} needs {' and '.join(names)} to be told"
    return ForbiddenError(what, why=said, hint=f"add {flags}" if flags else "")


def _limits(said: str, place: Place) -> ArenaError | None:
    found = re.findall(
        r"((?:maximum|minimum) (\S+) usage per \w+ is \S+?(?:, but \w+ is \S+?|\.  No \w+ is specified)?"
        r"|(\S+) max limit to request ratio per \w+ is \S+?, but \S+ ratio is \S+?)(?=[,\].]|$)",
        said,
    )
    if not found:
        return None
    flags = " ".join(_ways([one or other for _, one, other in found], place))
    what = "; ".join(text for text, *_ in found)
    hint = f"change {flags}" if flags else ""
    return ForbiddenError(f"the limits of namespace {place.namespace!r} do not allow it: {what}", why=said, hint=hint)


def _security(said: str, place: Place) -> ArenaError | None:
    match = re.search(r'violates PodSecurity "([^":]+)(?::[^"]*)?": (.*)', said)
    if match is None:
        return None
    fields = re.findall(r"(\S+(?: volumes)?)(?: [!=]= \S+)? \(", match[2])
    hint = "a patch that sets the securityContext (--patch FILE)"
    if not place.flags:
        hint = "set them in the file"
    elif flag := next((flag for word, flag in INSECURE if word in match[2]), ""):
        hint = flag
    what = f"namespace {place.namespace!r} takes {match[1]} pods only: {', '.join(dict.fromkeys(fields)) or match[2]}"
    error = PodSecurityError(what, why=match[2], hint=hint)
    error.level = match[1]
    return error


def _webhook_down(said: str, place: Place) -> ArenaError | None:
    match = re.search(r'failed calling webhook "([^"]+)"', said)
    if match is None:
        return None
    service = re.search(r"https?://([\w-]+)\.([\w-]+)\.svc", said)
    who = f"{service[1]} in namespace {service[2]}" if service else match[1]
    return BackendError(
        f"{place.operator} does not answer: its webhook {match[1]} is down",
        why=said.partition(": ")[2] or said,
        hint=f"tell an administrator to look at {who}",
    )


def _webhook_against(said: str, _: Place) -> ArenaError | None:
    match = re.search(r'(?s)admission webhook "([^"]+)" denied the request:? ?(.*)', said)
    return SpecError(f"{match[1]} is against it: {match[2] or 'it gives no reason'}") if match else None


def _priority(said: str, place: Place) -> ArenaError | None:
    match = re.search(r"no PriorityClass with name (\S+) was found", said)
    what = f"there is no PriorityClass {match[1]!r}" if match else ""
    return NotFoundError(f"--priority: {what}" if place.flags else what, why=said) if match else None


def _account(said: str, place: Place) -> ArenaError | None:
    match = re.search(r'serviceaccount "([^"]+)" not found', said)
    what = f"there is no ServiceAccount {match[1]!r} in namespace {place.namespace!r}" if match else ""
    return NotFoundError(what, why=said) if match else None


def _namespace(said: str, _: Place) -> ArenaError | None:
    match = re.search(r'^namespaces "([^"]+)" not found', said)
    what = f"there is no namespace {match[1]!r}" if match else ""
    return NotFoundError(what, why=said, hint="-n NAMESPACE") if match else None


def _ending(said: str, place: Place) -> ArenaError | None:
    if "because it is being terminated" not in said:
        return None
    what = f"namespace {place.namespace!r} is being deleted: nothing can be made in it"
    return ForbiddenError(what, why=said, hint="-n NAMESPACE, or wait until it is gone and made anew")


def _unknown_field(said: str, place: Place) -> ArenaError | None:
    fields = re.findall(r'unknown field "([^"]+)"', said)
    if not fields:
        return None
    what = f"{place.kind} has no field {', '.join(dict.fromkeys(fields))}"
    return SpecError(what, why=said, hint="see --set and --patch, or the site's patch" if place.flags else "")


def _name(said: str, place: Place) -> ArenaError | None:
    match = re.search(r"metadata\.(?:generateN|n)ame: Invalid value: (\"[^\"]*\"|\S+): (.*)", said)
    what = f"{match[1]} is no name for a {place.kind}: {match[2]}" if match else ""
    return SpecError(f"--name: {what}" if place.flags else what) if match else None


RULES: tuple[Callable[[str, Place], ArenaError | None], ...] = (
    _quota,
    _quota_needs,
    _security,
    _webhook_down,
    _webhook_against,
    _priority,
    _account,
    _namespace,
    _ending,
    _unknown_field,
    _name,
    _limits,
)


def _of_kind(error: ArenaError, place: Place) -> ArenaError:
    """By the code alone."""
    if isinstance(error, InvalidError):
        return SpecError(f"the server does not take this {place.kind}: {_without_head(error.what)}")
    if isinstance(error, NotFoundError) and "requested resource" in error.what:
        return UnsupportedError(f"this cluster serves no {place.kind}", why=f"{place.operator} is not installed")
    if isinstance(error, ServerError):
        return BackendError(error.what, why=error.why, hint=error.hint)
    return error


def _without_head(said: str) -> str:
    """The server's words without the object's name in front."""
    return re.sub(r'^\S+ "[^"]*" is invalid: ', "", said)


def _missing(kind: str, name: str, place: Place) -> ArenaError:
    flag, word = NAMED.get(kind, ("", kind))
    what = f"there is no {word} {name!r} in namespace {place.namespace!r}"
    return NotFoundError(f"{flag}: {what}" if flag and place.flags else what, why="the pods would wait for it for ever")


def _over_quota(answers: Answers, place: Place) -> ArenaError | None:
    if isinstance(answers.quotas, ArenaError):
        return None
    found = list(fitting.over_quota(_known(answers.quotas), asked_of(answers)))
    if not found:
        return None
    what = "; ".join(_excess(one) for one in found)
    flags = " or ".join(_ways(["pods", *(one.name for one in found)], place))
    wait = ", or wait until others have ended" if all(one.asked <= one.hard for one in found) else ""
    return ForbiddenError(
        f"quota {found[0].quota!r} of namespace {place.namespace!r} does not allow it: {what}",
        why="the replicas are counted together",
        hint=f"lower {flags}{wait}",
    )


def _known(quotas: Iterable[Any]) -> list[Quota]:
    return [one for one in quotas if isinstance(one, Quota)]


def _excess(one: fitting.Excess) -> str:
    asked, used, hard = (fitting.shown(one.name, number) for number in (one.asked, one.used, one.hard))
    return f"{one.name}: {asked} asked, {used} used of {hard}"


def _ways(resources: Iterable[str], place: Place) -> list[str]:
    """What changes how much of these is asked for, each once: flags, or the words to look for in the file."""
    ways = [flag_of(one) if place.flags else _word(one) for one in resources]
    return list(dict.fromkeys(filter(None, ways)))


def flag_of(resource: str) -> str:
    """The flag that says how much of it is asked for.

    >>> flag_of("requests.nvidia.com/gpu"), flag_of("limits.cpu"), flag_of("count/jobs.batch")
    ('--gpus', '--cpu', '')
    """
    name = _word(resource)
    return FLAGS.get(name) or ("--device" if "/" in name else "")


def _word(resource: str) -> str:
    """A resource as a container asks for it: `cpu` of `requests.cpu`; nothing for a number of objects."""
    name = re.sub(r"^(?:requests|limits)\.|^count/(?=pods)", "", resource)
    return "" if name.startswith("count/") else name
