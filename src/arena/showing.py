"""Choosing replicas and telling about a job, for whoever shows it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from arena.errors import ArenaError, NotFoundError, SpecError
from arena.status import Replica, Seen, State

if TYPE_CHECKING:
    from arena.client import Handle
    from arena.waits import Facts
    from arena.why import Why

Chosen = tuple[frozenset[str] | None, frozenset[int] | None]


def choose(
    seen: Seen, *, replica: Sequence[str] | str = (), rank: Sequence[int] | int | str | None = None, role: str = ""
) -> Chosen:
    """The names and ranks that the words mean; None where nothing was said. NotFoundError where there is no such."""
    replicas = seen.observed.replicas
    names = frozenset(r.name for r in replicas)
    ranks: frozenset[int] | None = None
    if replica:
        words = replica.split(",") if isinstance(replica, str) else replica
        names &= {_replica(seen, word).name for word in words}
    if role:
        names &= _of_roles(seen, role.lower().split(","))
    if rank is not None:
        ranks = frozenset(_ranks(rank, seen))
        names &= {r.name for r in replicas if r.rank is not None and ranks & set(_range(r))}
    return (names if replica or role or rank is not None else None), ranks


def _range(replica: Replica) -> range:
    return range(replica.rank or 0, (replica.rank or 0) + replica.nproc)


def _replica(seen: Seen, word: str) -> Replica:
    replicas = seen.observed.replicas
    if word == "last" and replicas:
        return replicas[-1]
    for replica in replicas:
        if word in (replica.name, replica.pod):
            return replica
    known = f"{replicas[0].name} to {replicas[-1].name}" if replicas else "none"
    raise NotFoundError(f"job {seen.name!r} has no replica {word!r}", why=f"it has {known}")


def _of_roles(seen: Seen, roles: Sequence[str]) -> frozenset[str]:
    known = sorted({r.role for r in seen.observed.replicas})
    if missing := [role for role in roles if role not in known]:
        raise NotFoundError(f"job {seen.name!r} has no role {missing[0]!r}", why=f"it has {', '.join(known)}")
    return frozenset(r.name for r in seen.observed.replicas if r.role in roles)


def _ranks(rank: Sequence[int] | int | str, seen: Seen) -> list[int]:
    """`0,37`, `0-7`, `last`; each checked against what there is."""
    known = [r for replica in seen.observed.replicas if replica.rank is not None for r in _range(replica)]
    if not known:
        raise NotFoundError(f"the ranks of job {seen.name!r} are not known", why="its launcher starts them, in one log")
    if isinstance(rank, int):
        wanted = [rank]
    else:
        words = rank.split(",") if isinstance(rank, str) else [str(one) for one in rank]
        wanted = [number for word in words for number in _span(word, known[-1])]
    if missing := [number for number in wanted if number not in known]:
        raise NotFoundError(
            f"job {seen.name!r} has no rank {missing[0]}", why=f"its ranks are {known[0]} to {known[-1]}"
        )
    return wanted


def _span(word: str, last: int) -> range:
    if word == "last":
        return range(last, last + 1)
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", word.strip())
    if match is None:
        raise SpecError(f"--rank: {word!r} is no rank", hint="0, 0,37, 0-7 or last")
    first = int(match[1])
    return range(first, int(match[2] or first) + 1)


def why(job: Handle) -> str:
    """The cause, evidence and next step of a job, as text."""
    seen = job.get()
    return why_text(seen, whys_of(job, seen))


def why_text(seen: Seen, found: Why | None) -> str:
    """Why a job is as it is, else its state; below it what is odd about it all the same."""
    from arena import why as whys

    text = whys.render(found) if found else f"{seen.name} is {seen.state.name}"
    return "\n".join([text, *(f"Warning: {line}" for line in seen.warnings)])


def whys_of(job: Handle, seen: Seen, facts: Facts | None = None) -> Why | None:
    """Why a job, seen so, waits or failed; the cluster is asked for what it knows where nobody did."""
    from arena import why as whys

    if seen.deleted and seen.cause and seen.why:
        return whys.Why(cause=seen.cause, text=seen.why)
    told = seen.deleted or seen.recorded or seen.state.final
    facts = facts or (None if told else job.where.facts(job.ref))
    last = tails(job, seen, whys.TAIL)
    return whys.explain(seen.observed, seen.state, last, seen.waits_for, name=seen.name, facts=facts)


def with_why(job: Handle, seen: Seen, facts: Facts | None = None) -> Seen:
    """The job with its cause and one line of why; as it is where that is known, or where all is well."""
    from msgspec.structs import replace

    from arena import why as whys

    if seen.backend != "local" and not seen.warnings:
        seen = replace(seen, warnings=tuple(whys.warnings_of(seen.observed)))
    if seen.why or seen.state.name in ("SUCCEEDED", "UNKNOWN"):
        return seen
    if seen.state.name == "RUNNING" and not facts and not whys.fails_again(seen.observed):
        return seen
    found = whys_of(job, seen, facts)
    return replace(seen, cause=found.cause, why=whys.one_line(found)) if found else seen


def with_cause(seen: Seen) -> Seen:
    """The job with its cause, where no log is needed to tell it: somebody ended the job."""
    if seen.cause or seen.state is not State.CANCELLED:
        return seen
    from msgspec.structs import replace

    from arena import why as whys

    found = whys.explain(seen.observed, seen.state, name=seen.name)
    return replace(seen, cause=found.cause, why=whys.one_line(found)) if found else seen


def tails(job: Handle, seen: Seen, lines: int) -> dict[str, list[str]]:
    """The last lines of the replicas that failed first in their attempt."""
    failure = seen.first_failure
    if failure is None:
        return {}
    from arena.backends.base import LogQuery

    query = LogQuery(tail=lines, replicas=frozenset({failure.name}), attempt=failure.attempt)
    try:
        return {failure.name: [line.text for line in job.raw_logs(query)]}
    except ArenaError:  # the pod is gone, or its log may not be read: its last words stand in its status
        return {}


def mimebundle(seen: Seen) -> dict[str, str]:
    """A job for a notebook: text and HTML."""
    import html

    line = f"{seen.name}: {seen.state.name} {seen.reason}".rstrip()
    cells = [
        (r.name, r.state.name, "" if r.exit_code is None else str(r.exit_code)) for r in seen.observed.replicas[:64]
    ]
    rows = "".join(f"<tr>{''.join(f'<td>{html.escape(text)}</td>' for text in row)}</tr>" for row in cells)
    table = f"<table><tr><th>replica</th><th>state</th><th>code</th></tr>{rows}</table>"
    return {"text/plain": line, "text/html": f"<b>{html.escape(line)}</b>{table}"}
