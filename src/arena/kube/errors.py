"""What the server says when it refuses, and what it means when it says nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from arena.errors import AlreadyExistsError, ArenaError, BackendError, ForbiddenError, NotFoundError, SpecError

if TYPE_CHECKING:
    from arena.kube.config import Access

LOCAL = "-b local runs it here"
LONGEST = 600  # characters kept of an answer that is no Status


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
    """A Status of the API server: its code, its reason, its words."""

    code: int = 0
    reason: str | None = ""
    message: str | None = ""
    details: Details | None = None


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


class ExpiredError(Answered, BackendError):
    """410: the version asked for is too old; list again."""


class ServerError(Answered, BackendError):
    """Any other refusal: the server, or something behind it, has a problem."""


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
    """The Status in an answer's body; what a proxy or load balancer says is kept as its message.

    >>> read_answer(502, b"<html>Bad Gateway").message
    '<html>Bad Gateway'
    """
    try:
        answer = msgspec.json.decode(body, type=Answer)
    except msgspec.DecodeError:
        return Answer(code, message=body[:LONGEST].decode(errors="replace").strip())
    return answer if answer.code else msgspec.structs.replace(answer, code=code)


def refusal(answer: Answer, access: Access) -> ArenaError:
    """The error for what the server said, in its own words."""
    said = answer.message or answer.reason or f"HTTP {answer.code}"
    if answer.code == 401:
        error: ArenaError = _unknown_user(said, access)
    elif (answer.code, answer.reason) == (409, "AlreadyExists"):
        error = TakenError(said)
    else:
        error = BY_CODE.get(answer.code, ServerError)(said, why=_where(answer, access))
    if isinstance(error, Answered):
        error.answer = answer
    return error


def silent(access: Access, why: str) -> SilentError:
    """The error for a server that is not there."""
    return SilentError(f"no answer from {access.server}", why=why, hint=LOCAL)


def _unknown_user(said: str, access: Access) -> ArenaError:
    hint = f"get a new kubeconfig or token for user {access.user!r}" + (f" ({access.source})" if access.source else "")
    if access.exec:
        hint = f"log in again with {access.exec.command!r}, which makes the credentials of user {access.user!r}"
    return UnknownUserError("the server does not know you", why=f"{access.server} says: {said}", hint=hint)


def _where(answer: Answer, access: Access) -> str:
    return f"{access.server} answers {answer.code} {answer.reason or ''}".rstrip() if answer.code >= 500 else ""
