"""`arena stop`, `delete`, `prune`: ending jobs and clearing the list."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from arena.cli import common

if TYPE_CHECKING:
    from arena.client import Client, Handle

T = TypeVar("T")
SIDE_BY_SIDE = 8


@click.command()
@click.argument("names", nargs=-1, required=True, shell_complete=common.complete_names)
@click.option("--force", is_flag=True, help="Also running jobs of others.")
@common.type_option()
@click.pass_context
def stop(ctx: click.Context, names: tuple[str, ...], force: bool, kind: str) -> int:
    """End jobs and keep them in the list."""
    client = common.client(ctx)
    return _each(lambda name: _stop(client, name, kind, force=force), names)


def _stop(client: Client, name: str, kind: str, *, force: bool) -> int:
    """Stop one job, saying what happened; its exit code, so that the others are stopped all the same."""
    from arena.errors import ArenaError

    try:
        job = common.named(client, name, kind)
        seen = job.stop(force=force)
        common.say_notes(job)
    except ArenaError as error:
        common.print_error(error, as_json=False)
        return error.exit_code
    common.say(f"{seen.name} is {seen.state.name}")
    return 0


def _each(act: Callable[[T], int], jobs: Iterable[T]) -> int:
    """The first exit code that is not 0, of all jobs, each acted on beside the others; 1 for Arena (Go)'s scripts."""
    chosen = list(dict.fromkeys(jobs))
    if len(chosen) > 1:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
            codes = list(threads.map(act, chosen))
    else:
        codes = [act(one) for one in chosen]
    code = next((code for code in codes if code), 0)
    return min(code, 1) if common.compat() else code


@click.command(
    epilog="""\b
Examples:
  arena delete mnist                       end it if it runs; its record stays
  arena delete -l team=vision --state FAILED
  arena list -o name --state FAILED | xargs -r arena delete
"""
)
@click.argument("names", nargs=-1, shell_complete=common.complete_names)
@click.option("-l", "--selector", "--label", "labels", multiple=True, metavar="KEY=VALUE", help="All jobs of a label.")
@common.state_option("All jobs in this state.")
@click.option("--all", "everything", is_flag=True, help="All my jobs.")
@click.option("--must-exist", is_flag=True, help="A name that is not there is an error (exit 3).")
@click.option("--force", is_flag=True, help="Also running jobs of others.")
@click.option("--no-wait", is_flag=True, help="Do not wait until its pods are gone.")
@click.option("--timeout", metavar="DURATION", help="Give up after 90s, 5m; the end of the job goes on (exit 124).")
@common.type_option()
@click.pass_context
def delete(
    ctx: click.Context, /, names: tuple[str, ...], kind: str, must_exist: bool, force: bool, **asked: Any
) -> int:
    """End jobs and take them from the list; returns when nothing of them lives."""
    client = common.client(ctx)
    found = common.chosen(client, kind, asked["labels"], asked["state"], everything=asked["everything"])
    chosen: list[str | Handle] = [*names, *(job for job in found if job.name not in names)]
    if not chosen and not (asked["labels"] or asked["state"] or asked["everything"]):
        raise click.UsageError("which jobs? Give names, -l, --state or --all", ctx)
    if asked["no_wait"] and asked["timeout"]:
        raise click.UsageError("--timeout is the time of a wait, and --no-wait does not wait", ctx)
    how = {"force": force, "wait": not asked["no_wait"], "timeout": common.seconds("--timeout", asked["timeout"])}
    return _each(lambda one: _delete(client, one, kind, must_exist=must_exist, **how), chosen)


def _delete(client: Client, one: str | Handle, kind: str, *, must_exist: bool, **how: Any) -> int:
    """Delete one job, saying what happened; its exit code, so that the others are deleted all the same."""
    from arena.errors import ArenaError, NotFoundError

    try:
        job = common.named(client, one, kind) if isinstance(one, str) else one
        job.delete(**how)
        common.say_notes(job)
    except NotFoundError as error:
        if not must_exist:
            where = f" ({error.hint})" if "--context" in error.hint else ""
            name = one if isinstance(one, str) else one.name
            common.say(f"Warning: job {name!r} does not exist, nothing to delete{where}")
            return 0
        common.print_error(error, as_json=False)
        return error.exit_code
    except ArenaError as error:
        common.print_error(error, as_json=False)
        return error.exit_code
    common.say(f"The job {job.name} has been deleted successfully")
    return 0


@click.command(
    epilog="""\b
Examples:
  arena prune --since 7d --dry-run    what would go
  arena prune --since 7d              my finished jobs that ended more than a week ago
"""
)
@click.option("-s", "--since", metavar="DURATION", help="Jobs that ended longer ago than 30m, 3h, 7d.")
@click.option("--all-users", is_flag=True, help="Also jobs of others.")
@click.option("--dry-run", is_flag=True, help="Only print them.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def prune(ctx: click.Context, since: str | None, all_users: bool, dry_run: bool, yes: bool) -> int:
    """Delete finished jobs of a certain age, mine only; their records stay."""
    if since is None:
        raise click.UsageError("--since is needed: how long ago must a job have ended? As 7d", ctx)
    client = common.client(ctx)
    found = client.prunable(common.seconds("--since", since) or 0.0, all_users=all_users)
    for job in found:
        click.echo(_line(job))
    if not found:
        common.say("No job need to be deleted")
    if dry_run or not found or not (yes or _agreed(len(found))):
        return 0
    return _each(_prune, found)


def _prune(job: Handle) -> int:
    """Delete one finished job; one that has gone meanwhile is no failure."""
    from arena.errors import ArenaError, NotFoundError

    try:
        job.delete(force=True)
    except NotFoundError:
        return 0
    except ArenaError as error:
        common.print_error(error, as_json=False)
        return error.exit_code
    common.say(f"The job {job.name} has been deleted successfully")
    return 0


def _line(job: Handle) -> str:
    seen = job.seen or job.get()
    return f"{seen.name}  {seen.state.name}  {seen.user}  {seen.run_id}"


def _agreed(count: int) -> bool:
    """Asked once on a terminal; without one it is agreed."""
    if not (sys.stdin and sys.stdin.isatty()):
        return True
    sys.stdout.flush()
    return click.confirm(f"Delete {count} job{'s' * (count != 1)}?", default=False, err=True)


for command in (stop, delete, prune):
    common.placed(command)
