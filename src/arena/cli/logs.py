"""`arena logs`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from arena.cli import common

if TYPE_CHECKING:
    from arena.backends.base import LogQuery
    from arena.client import Handle
    from arena.status import Seen

EPILOG = """\b
Examples:
  arena logs mnist                 all replicas (of a big gang: rank 0 and the one that failed)
  arena logs mnist -f --rank 0     what rank 0 writes, as it comes
  arena logs mnist --failed        the replica that failed first
"""


class Choice(NamedTuple):
    """What is asked for, the names of the replicas it may show, and whether a big gang's others are left out."""

    query: LogQuery
    names: list[str]
    few: bool = False


@click.command(epilog=EPILOG)
@click.argument("name", shell_complete=common.complete_names)
@common.type_option()
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option("--rank", metavar="RANKS", help="Ranks: 0, 0,37, 0-7 or last.")
@click.option("--replica", "--instance", "-i", metavar="NAMES", help="Replicas: worker-3, or several with commas.")
@click.option("--role", metavar="ROLE", help="All replicas of a role.")
@click.option("--tail", "-t", type=int, metavar="N", help="The last N lines of each replica.")
@click.option("--since", metavar="DURATION", help="Lines of the last 5s, 2m, 3h.")
@click.option("--since-time", metavar="TIME", help="Lines since a time, as 2026-01-31T10:00:00Z.")
@click.option("--grep", metavar="TEXT", help="Only lines in which this regular expression is found.")
@click.option(
    "--failed", is_flag=False, flag_value="first", metavar="[all]", help="The replica that failed (all: each)."
)
@click.option("--all", "show_all", is_flag=True, help="All replicas, however many.")
@click.option(
    "--attempt", type=click.IntRange(min=1), metavar="N", help="An earlier attempt of a job that was restarted."
)
@click.option("--timestamps", is_flag=True, help="The time before each line.")
@click.option("--raw", is_flag=True, help="No prefix.")
@click.option("--prefix", is_flag=True, help="The prefix also when one replica is shown.")
@click.option("--no-wait", is_flag=True, help="Do not wait for a job that has not started.")
@click.option("--exit-code", is_flag=True, help="End with the job's exit code.")
@common.output_option("text", "json")
@click.pass_context
def logs(ctx: click.Context, /, name: str, kind: str, fmt: str, **asked: Any) -> int:
    """Print the logs of a job's replicas, each line once and in order; of a deleted job from its record."""
    from arena.cli import follow
    from arena.cli.signals import Interrupt, Signals

    job = common.named(common.client(ctx), name, kind, gone=True)
    seen = job.get()
    common.say_recorded(job, seen)
    choice = _choose(seen, asked, job.where.now)
    if not seen.begun and (asked["no_wait"] or not asked["follow"]):
        common.say(follow.told_line(job, seen))
        return 0
    forced = True if asked["prefix"] else False if asked["raw"] or common.compat() else None
    printer = follow.Printer(choice.names, prefix=forced, as_json=fmt == "json", timestamps=asked["timestamps"])
    with Signals():
        try:
            _print(job, choice.query, printer, asked)
            _print_rest(job, choice, printer, asked)
        except Interrupt as stop:
            seen = job.get()
            if not seen.state.final:
                common.say(follow.told_line(job, seen))
                common.say(f"{job.name} goes on: arena logs {job.name} -f, arena delete {job.name}")
            return stop.exit_code
    common.say_notes(job)
    return _code(job) if asked["exit_code"] else 0


def _print(job: Handle, query: LogQuery, printer: Any, asked: dict[str, Any]) -> None:
    from msgspec.structs import replace

    from arena.cli import follow

    lines = job.raw_logs(replace(query, pieces=printer.pieces and not asked["grep"]))
    lines = follow.grep(lines, asked["grep"]) if asked["grep"] else lines
    if asked["follow"]:
        with follow.narrated(job):
            printer.lines(lines)
    else:
        printer.lines(lines)


def _print_rest(job: Handle, choice: Choice, printer: Any, asked: dict[str, Any]) -> None:
    """The end of a replica that failed while others were followed; the last start of one whose first log is lost."""
    from msgspec.structs import replace

    from arena.cli import follow

    query = choice.query
    if choice.few and asked["follow"] and query.replicas:
        follow.last_words(job, job.get(), printer, query.replicas)
    elif asked["failed"] == "first" and query.attempt and not (printer.wrote or asked["attempt"]):
        replicas = [r for r in job.get().observed.replicas if r.name in (query.replicas or ())]
        if any(r.attempt > query.attempt for r in replicas):
            common.say(f"nothing is left of attempt {query.attempt}, which failed first: this is the last one")
            _print(job, replace(query, attempt=None), printer, asked)


def _code(job: Handle) -> int:
    seen = job.get()
    code = seen.exit_code
    return code if code is not None else int(seen.state.final)


def _choose(seen: Seen, asked: dict[str, Any], now: Callable[[], datetime]) -> Choice:
    """What the words mean: all replicas of a small gang, those that were named, or few of a big one."""
    from arena import showing
    from arena.backends.base import LogQuery
    from arena.cli import follow, output

    names, ranks = showing.choose(seen, replica=asked["replica"] or (), rank=asked["rank"], role=asked["role"] or "")
    attempt, few = asked["attempt"], None
    if asked["failed"]:
        names, attempt = _failed(seen, asked["failed"], attempt)
    elif names is None and common.compat() and not asked["show_all"]:
        names = frozenset({first.name} if (first := output.chief(seen)) else ())
    elif names is None and not asked["show_all"]:
        names = few = follow.few(seen)
        if few is not None:
            common.say(f"{len(seen.observed.replicas) - len(few)} more: --all")
    every = few is not None and asked["follow"]
    shown = [r.name for r in seen.observed.replicas if names is None or every or r.name in names]
    tail = asked["tail"] if asked["tail"] is not None and asked["tail"] >= 0 else None
    query = LogQuery(
        follow=asked["follow"], tail=tail, since=_since(asked, now), replicas=names, ranks=ranks, attempt=attempt
    )
    return Choice(query, shown, few is not None)


def _failed(seen: Seen, which: str, attempt: int | None) -> tuple[frozenset[str], int | None]:
    failure = seen.first_failure
    if failure is None:
        common.say(f"no replica of {seen.name} failed")
        return frozenset(), attempt
    if which == "all":
        return frozenset(r.name for r in seen.observed.replicas if r.failed), attempt
    return frozenset({failure.name}), attempt or failure.attempt


def _since(asked: dict[str, Any], now: Callable[[], datetime]) -> datetime | None:
    """From when on lines are asked for: a duration counts back by the clock of where the job runs."""
    from arena.errors import SpecError
    from arena.quantity import parse_duration

    if asked["since"] and asked["since_time"]:
        raise SpecError("--since and --since-time exclude each other")
    try:
        if asked["since"]:
            return now() - timedelta(seconds=parse_duration(asked["since"]))
        if asked["since_time"]:
            return datetime.fromisoformat(asked["since_time"]).astimezone(UTC)
    except ValueError as error:
        raise SpecError(f"{'--since' if asked['since'] else '--since-time'}: {error}") from error
    return None


common.placed(logs)
