"""What the server says when it refuses, and what it means when it says nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from arena.errors import AlreadyExistsError, ArenaError, BackendError, ForbiddenError, NotFoundError, SpecError

if TYPE_CHECKING:
    from arena.kube.config import Access

LOCAL = "-b local runs it here"
BETWEEN = f"look for a proxy, a VPN or a login page on the way; {LOCAL}"
ROLE = "arena doctor --role prints the Role that an administrator can grant"
LONGEST = 600  # characters kept of an answer that is no Status
NO_SUCH_PATH = "404 page not found"  # an API server's own words where it serves no such group
RIGHT = re.compile(
    r'cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]*)")?'
)


class Cause(Struct, frozen=True):
    """One thing that is wrong: where, and in whose words."""

    reason: str = ""
    message: str = ""
    field: str = ""


class Details(Struct, frozen=True, rename="camel"):
    """What the refusal is about."""

    kind: str = ""
    name: str = ""
    group: str = ""
    causes: tuple[Cause, ...] | None = ()
    retry_after_seconds: int = 0


class Answer(Struct, frozen=True):
    """A Status of the API server: its code, its reason, its words; what others say in its place has another `kind`."""

    code: int = 0
    reason: str | None = ""
    message: str | None = ""
    details: Details | None = None
    kind: str | None = ""


class Answered:
    """A mixin: the server was there and said no; `answer` has its words."""

    answer: Answer


class AbsentError(Answered, NotFoundError):
    """404: there is no such object, or no such kind."""


class TakenError(Answered, AlreadyExistsError):
    """409 AlreadyExists: an object of that name is there."""


class ConflictError(Answered, BackendError):
    """409 Conflict: the object is not (or no longer) what was assumed."""


class RefusedError(Answered, ForbiddenError):
    """403: rights, a quota or a webhook are against it."""


class UnknownUserError(Answered, ForbiddenError):
    """401: the server does not know who asks."""


class InvalidError(Answered, SpecError):
    """400, 413, 422: the object cannot be right."""


class UnpublishedError(BackendError):
    """The server publishes no schema of a version it serves: one it has just been given, or an aggregated one."""


class ExpiredError(Answered, BackendError):
    """410: the version asked for is too old; list again."""


class ServerError(Answered, BackendError):
    """Any other refusal: the server, or something behind it, has a problem."""


class StrangeError(ServerError):
    """What answers is no API server, but a proxy, a load balancer, a login page."""


class SilentError(BackendError):
    """The server cannot be reached, or says nothing; nothing was done."""


class UnknownOutcomeError(BackendError):
    """The connection broke after a write was sent: it was done, or it was not."""


class CutError(BackendError):
    """A stream ended in the middle."""


BY_CODE: Mapping[int, type[ArenaError]] = {
    400: InvalidError,
    401: UnknownUserError,
    403: RefusedError,
    404: AbsentError,
    409: ConflictError,
    410: ExpiredError,
    413: InvalidError,
    422: InvalidError,
}


def read_answer(code: int, body: bytes) -> Answer:
    """The Status in an answer's body; what a proxy or load balancer says is kept as its message, in one line.

    >>> read_answer(502, b"<html><h1>502 Bad\\nGateway</h1>").message
    '502 Bad Gateway'
    """
    try:
        answer = msgspec.json.decode(body, type=Answer)
    except msgspec.DecodeError:
        return Answer(code, message=plain(body))
    return msgspec.structs.replace(answer, code=answer.code or code)


def plain(body: bytes) -> str:
    """What a page says, without its tags, in one line."""
    words = re.sub(r"(?is)<(script|style)\b.*?</\1>|<[^>]*>", " ", body.decode(errors="replace"))
    return " ".join(words.split())[:LONGEST]


def refusal(answer: Answer, access: Access) -> ArenaError:
    """The error for what the server said, in its own words."""
    said = answer.message or answer.reason or f"HTTP {answer.code}"
    if answer.code == 401:
        error: ArenaError = _unknown_user(said, access)
    elif (answer.code, answer.reason) == (409, "AlreadyExists"):
        error = TakenError(said)
    elif is_strange(answer):
        error = strange(answer, access)
    elif answer.code == 403 and (match := RIGHT.search(said)):
        error = RefusedError(f"you may not {_deed(match)}", why=said, hint=ROLE)
    else:
        error = BY_CODE.get(answer.code, ServerError)(said, why=_where(answer, access), hint=_past(answer, access))
    if isinstance(error, Answered):
        error.answer = answer
    return error


def is_strange(answer: Answer) -> bool:
    """Whether these are not an API server's words: it makes no Status only where it is too busy or has no such path."""
    return answer.kind != "Status" and answer.code < 500 and answer.code != 429 and answer.message != NO_SUCH_PATH


def strange(answer: Answer, access: Access) -> StrangeError:
    """The error for an answer that is not an API server's."""
    return StrangeError(
        f"{access.server} does not answer as an API server does",
        why=f"it answers {answer.code}{through(access)}: {answer.message or answer.reason or 'nothing else'}",
        hint=way_out(access, BETWEEN),
    )


def silent(access: Access, why: str) -> SilentError:
    """The error for a server that is not there."""
    return SilentError(f"no answer from {access.server}", why=why, hint=way_out(access, LOCAL))


def through(access: Access) -> str:
    """`, through the proxy …` where there is one on the way."""
    return f", through {access.proxy}" if access.proxy else ""


def way_out(access: Access, otherwise: str) -> str:
    """What to do next: past the proxy, where the environment names one."""
    if not access.proxy.variable:
        return otherwise
    return f"if {_host(access)} is reached without a proxy, add it to NO_PROXY; {otherwise}"


def _host(access: Access) -> str:
    return urlsplit(access.server).hostname or access.server


def _deed(match: re.Match[str]) -> str:
    """What may not be done, and where: `list jobs.batch in namespace 'a'`."""
    kind = f"{match['resource']}.{match['group']}" if match["group"] else match["resource"]
    where = f"in namespace {match['namespace']!r}" if match["namespace"] else "in the cluster"
    return f"{match['verb']} {kind} {where}"


def _unknown_user(said: str, access: Access) -> ArenaError:
    hint = f"get a new kubeconfig or token for user {access.user!r}" + (f" ({access.source})" if access.source else "")
    if access.exec:
        hint = f"log in again with {access.exec.command!r}, which makes the credentials of user {access.user!r}"
    return UnknownUserError("the server does not know you", why=f"{access.server} says: {said}", hint=hint)


def _where(answer: Answer, access: Access) -> str:
    if answer.code < 500:
        return ""
    where = f"{access.server} answers {answer.code} {answer.reason or ''}".rstrip()
    return where if answer.kind == "Status" else where + through(access)


def _past(answer: Answer, access: Access) -> str:
    """A proxy may have said what is no Status: how to go without it."""
    return way_out(access, LOCAL) if answer.kind != "Status" and answer.code >= 500 and access.proxy.variable else ""
