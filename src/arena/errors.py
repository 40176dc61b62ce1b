"""What can go wrong, in one tree.

    ArenaError
      SpecError            2   what was typed cannot be right
      NotFoundError        3   no such job, run, replica
      AlreadyExistsError   4   the name is taken
      UnsupportedError     5   not here, not with this backend, not yet
      BackendError         6   the backend failed
      ForbiddenError       7   not allowed
      WaitTimeoutError   124   the time given is over, what was waited for goes on
      NotStartedError    125   not running within the time given
      JobFailedError           the job's own code

`run`, `wait` and `submit --wait` turn 2 to 7 into 125, so that these stay the job's own codes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from arena.status import Seen


class ArenaError(Exception):
    """What happened, why, and what to do next; never shown with a traceback.

    >>> print(NotFoundError("job 'mnist' not found", hint="arena list"))
    job 'mnist' not found
      Try: arena list
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, why: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.hint = hint

    def __str__(self) -> str:
        more = [(word, text) for word, text in (("Why", self.why), ("Try", self.hint)) if text]
        return "\n".join([self.what, *(f"  {word}: {text}".replace("\n", "\n       ") for word, text in more)])

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.__dict__))


class SpecError(ArenaError):
    """What was typed cannot be right; nothing was done."""

    exit_code = 2


class NotFoundError(ArenaError):
    """There is no such job, run or replica."""

    exit_code = 3


class AlreadyExistsError(ArenaError):
    """The name is taken."""

    exit_code = 4


class UnsupportedError(ArenaError):
    """This backend, machine or version cannot do it."""

    exit_code = 5


class BackendError(ArenaError):
    """The backend failed or cannot be reached."""

    exit_code = 6


class ForbiddenError(ArenaError):
    """The caller may not do it."""

    exit_code = 7


class WaitTimeoutError(ArenaError, TimeoutError):
    """The time given to a wait is over; what it waited for goes on."""

    exit_code = 124


class NotStartedError(ArenaError):
    """The job was not RUNNING within the time given to its start."""

    exit_code = 125


class JobFailedError(ArenaError):
    """The job ended badly; `seen` tells how and `exit_code` is the job's own (1 if it has none)."""

    def __init__(self, seen: Seen) -> None:
        super().__init__(
            f"job {seen.name!r} is {seen.status.state.name}: {seen.status.reason or 'failed'}"
            + (f", exit code {seen.exit_code}" if seen.exit_code is not None else ""),
            why=seen.why or seen.status.message,
            hint=f"arena why {seen.name}",
        )
        self.seen = seen

    @property
    def job_code(self) -> int:
        """The code `run` and `wait` end with."""
        return self.seen.exit_code or 1


def _rebuild(kind: type[ArenaError], state: dict[str, object]) -> ArenaError:
    error = kind.__new__(kind)
    Exception.__init__(error, state["what"])
    error.__dict__.update(state)
    return error
