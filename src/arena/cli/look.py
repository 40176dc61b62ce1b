"""`arena list`, `get`, `why`, `history`: what there is and was."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from arena.cli import common

if TYPE_CHECKING:
    from arena.backends.base import Query
    from arena.client import Client


@click.command(
    "list",
    epilog="""\b
Examples:
  arena list                                    what there is now
  arena list --state FAILED -o name             names only, as for: | xargs arena delete
  arena list -o json                            all there is to know
""",
)
@common.state_option("Only jobs in this state.")
@click.option("-l", "--selector", "--label", "labels", multiple=True, metavar="KEY=VALUE", help="Only jobs of a label.")
@click.option("--mine", is_flag=True, help="Only jobs I submitted.")
@click.option("--user", metavar="NAME", help="Only jobs of this user.")
@click.option("-T", "--type", "kind", metavar="TYPE", help="Only jobs of a type.")
@click.option("-A", "--all-namespaces", is_flag=True, help="Jobs of all namespaces.")
@click.option("-w", "--watch", is_flag=True, help="Print again when something changes.")
@click.option("--strict", is_flag=True, help="What went half right is an error.")
@common.output_option("table", "wide", "json", "yaml", "name")
@click.pass_context
def list_(ctx: click.Context, /, fmt: str, watch: bool, strict: bool, **asked: Any) -> int:
    """List the jobs that exist now, newest first."""
    if watch:
        return _watch(ctx, fmt, asked)
    client = common.client(ctx)
    seens = common.of_type(client.seen(_query(client, asked)), asked["kind"])
    _print_list(seens, fmt, asked["all_namespaces"])
    if not seens and fmt in ("table", "wide"):
        narrowed = any(asked[key] for key in ("state", "labels", "mine", "user", "kind"))
        common.say("No such jobs." if narrowed else "No jobs. Start one with: arena run train.py")
    if fmt in ("table", "wide") and (others := _elsewhere(client)):
        common.say(others)
    return common.print_warnings(client, as_json=fmt == "json", strict=strict)


def _query(client: Client, asked: dict[str, Any]) -> Query:
    from arena.backends.base import Query

    user = asked["user"] or (client.user if asked["mine"] else "")
    return Query(
        states=common.states(asked["state"]),
        labels=common.pairs("-l", asked["labels"]),
        user=user,
        everywhere=asked["all_namespaces"],
    )


def _elsewhere(client: Any) -> str:
    """A line about the live jobs of this machine, below a list of the cluster's; nothing where nobody chose for it."""
    from arena.backends.base import Query, Warnings
    from arena.errors import ArenaError

    if client.settings.value("backend") is not None or client.default == "local":
        return ""
    try:
        live = [seen for seen in client.backend("local").list(Query(), Warnings()) if not seen.state.final]
    except ArenaError:
        return ""
    count = f"{len(live)} job{'s' * (len(live) > 1)}"
    return f"{count} on this machine too: arena -b local list" if live else ""


def _print_list(seens: list[Any], fmt: str, namespaces: bool = False) -> None:
    from arena.cli import output

    if fmt == "name":
        output.emit([seen.name for seen in seens], "name")
    elif fmt in ("json", "yaml"):
        output.emit([output.job_json(seen) for seen in seens], fmt)
    else:
        color = output.use_color(sys.stdout)
        output.write(output.list_table(seens, wide=fmt == "wide", namespaces=namespaces, color=color))


def _watch(ctx: click.Context, fmt: str, asked: dict[str, Any]) -> int:
    client, last, said = common.client(ctx), None, 0
    for found in client.changes(_query(client, asked)):
        seens = common.of_type(found, asked["kind"])
        now = [(seen.run_id, seen.state, seen.observed.attempt) for seen in seens]
        if now != last:
            if sys.stdout.isatty():
                click.echo("\033[H\033[J", nl=False)
            _print_list(seens, fmt, asked["all_namespaces"])
            sys.stdout.flush()
            last = now
        if len(client.warnings.lines) > said:
            common.print_warnings(client, as_json=fmt == "json", strict=False, said=said)
            said = len(client.warnings.lines)
    return 0


@click.command(
    epilog="""\b
Examples:
  arena get mnist               state, cause and replicas
  arena get mnist -o json       the same as data
"""
)
@click.argument("name", shell_complete=common.complete_names)
@common.type_option()
@click.option("-e", "--events", is_flag=True, help="Also the events of the job and its pods.")
@click.option("-g", "--gpu", is_flag=True, hidden=True)
@common.output_option("text", "wide", "json", "yaml", "name")
@click.pass_context
def get(ctx: click.Context, /, name: str, kind: str, fmt: str, events: bool, **_: Any) -> int:
    """Show one job: its state, why it is in it, and its replicas."""
    from arena import showing
    from arena.cli import output

    job = common.named(common.client(ctx), name, kind)
    seen = job.get()
    facts = job.where.facts(job.ref) if events else None
    seen = showing.with_why(job, seen, facts) if fmt != "name" else seen
    for note in facts.notes if facts else ():
        common.say(f"Note: {note}")
    if fmt == "name":
        output.emit([seen.name], "name")
    elif fmt in ("json", "yaml"):
        output.emit(output.job_json(seen), fmt)
    else:
        now, color = datetime.now(UTC), output.use_color(sys.stdout)
        shown = output.event_rows(facts.events, now) if events and facts else ()
        output.write(output.get_text(seen, now, events=shown, wide=fmt == "wide", color=color))
    return 0


@click.command()
@click.argument("name", shell_complete=common.complete_names)
@common.type_option()
@common.output_option("text", "json", "yaml")
@click.pass_context
def why(ctx: click.Context, name: str, kind: str, fmt: str) -> int:
    """Say why a job waits or failed: one cause, the evidence, the next step."""
    from arena import showing
    from arena.cli import output

    job = common.named(common.client(ctx), name, kind, gone=True)
    seen = job.get()
    common.say_recorded(job, seen)
    facts = None if seen.deleted or seen.recorded else job.where.facts(job.ref)
    found = showing.whys_of(job, seen, facts)
    for note in facts.notes if facts else ():
        common.say(f"Note: {note}")
    if fmt == "text":
        click.echo(output.why_text(seen, found))
    else:
        output.emit(output.why_json(seen, found), fmt)
    return 0


@click.command(
    epilog="""\b
Examples:
  arena history                 all runs, newest first
  arena history mnist           the runs of one name: mnist, mnist@2, …
"""
)
@click.argument("name", required=False, shell_complete=common.complete_names)
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="At most N runs.")
@common.output_option("table", "json", "yaml", "name")
@click.pass_context
def history(ctx: click.Context, name: str | None, limit: int | None, fmt: str) -> int:
    """List all runs that are remembered, deleted ones too."""
    from itertools import islice

    from arena import showing
    from arena.backends.base import Query
    from arena.cli import output
    from arena.errors import SpecError

    if name == "":
        raise SpecError("'' is no name of a job", why="is a variable of the script empty?")
    client = common.client(ctx)
    namespace = common.place(ctx).get("namespace")
    every = client.seen(Query(name=(name or "").partition("@")[0], gone=True))
    runs = (seen for seen in every if not namespace or seen.namespace == namespace)
    seens = [showing.with_cause(seen) for seen in islice(runs, limit)]
    if fmt == "name":
        output.emit([seen.run_id for seen in seens], "name")
    elif fmt == "table":
        output.write(output.history_table(seens, color=output.use_color(sys.stdout)))
        if not seens:
            where = f" of namespace {namespace}" if namespace else ""
            common.say(f"No run of {name!r}{where} is remembered." if name else f"No run{where} is remembered.")
    else:
        output.emit([output.job_json(seen) for seen in seens], fmt)
    return common.print_warnings(client, as_json=fmt == "json", strict=False)


for command in (list_, get, why, history):
    common.placed(command)
