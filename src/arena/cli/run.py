"""`arena run` and `arena submit`: from words to a job, and the job to its end."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from msgspec import structs

from arena import declared, jobs
from arena.cli import common
from arena.cli.options import JobCommand, JobOption, program_note, values
from arena.job import Job, shorten

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from arena.backends.base import Plan
    from arena.client import Client, Handle
    from arena.runfile import RunFile
    from arena.status import Seen

OBJECT = "object"  # the type of `submit -f` where the file holds an operator's own object
AGAIN = 0.8  # seconds in which a second Ctrl-C deletes the job


class Limits(NamedTuple):
    """How many seconds a command waits for the end and for the start of its job."""

    end: float | None
    start: float | None


RUN_EPILOG = """\b
Examples:
  arena run train.py --lr 0.1                  one process, followed to its end; its exit code is passed on
  arena run -w 2 --name mnist train.py         two workers that find each other by MASTER_ADDR, RANK, WORLD_SIZE
  arena run 'python prep.py | gzip > out.gz'   one quoted string is a shell line
"""

SUBMIT_EPILOG = """\b
Examples:
  arena submit pytorch -b local -w 2 train.py
  arena submit -f job.yaml --name again
  arena submit job --wait -- sh -c 'exit 3'
"""


# kubectl's words, and those of Arena (Go)'s switch.
DRY_RUN = {"client": "client", "server": "server", "true": "client", "none": "", "false": ""}


def dry_run_word(_ctx: click.Context, _param: click.Parameter, word: str | None) -> str:
    """What a word after --dry-run means: client, server, or nothing."""
    return DRY_RUN[word] if word else ""


def making() -> list[click.Option]:
    """The options that `run`, `submit` and `rerun` share beside those of the job."""
    return [
        JobOption(["-f", "--file"], metavar="FILE", common=True, help="A run file, - is stdin; flags win over it."),
        JobOption(["--replace"], is_flag=True, common=True, help="Replace my finished job of that name."),
        JobOption(["--force"], is_flag=True, help="With --replace: also a running one."),
        JobOption(["--strict"], is_flag=True, help="What has no effect here is an error."),
        JobOption(["--dry-run"], metavar="client|server", bare="client", common=True, callback=dry_run_word,
                  type=click.Choice([*DRY_RUN]), help="Print what would be made, do nothing."),
        JobOption(["--served"], metavar="FILE", help="With --dry-run: the kinds that the cluster serves, by a file."),
        JobOption(["--show-secrets"], is_flag=True, help="With --dry-run: print the Secret of the job too."),
        JobOption(["--set", "sets"], metavar="PATH=VALUE", multiple=True,
                  help="Change the object a cluster gets: spec.template.spec.priorityClassName=high; several times."),
        JobOption(["--patch"], metavar="FILE", help="A YAML file that is merged into that object, before --set."),
        JobOption(["--timeout"], metavar="DURATION", help="Stop waiting after 90s, 5m, 2h (exit 124)."),
        JobOption(["--start-timeout"], metavar="DURATION", help="Fail (exit 125) when it does not start in time."),
        JobOption(["--rm"], is_flag=True, help="Delete the job when this command is interrupted, and at its end."),
        JobOption(["-o", "fmt"], metavar="FORMAT", type=click.Choice(["text", "json", "yaml", "name"]),
                  default="text", help="Format of what is printed: text, json, yaml, name."),
    ]  # fmt: skip


RUN_OPTIONS = [
    JobOption(["-d", "--detach"], is_flag=True, common=True, help="Submit, print the name, do not follow."),
    JobOption(
        ["--fetch"],
        metavar="PATH",
        multiple=True,
        common=True,
        help="Bring a file or folder of rank 0 here at the end; several times.",
    ),
    JobOption(["--result"], metavar="FILE", help="Write the closing summary as JSON."),
    JobOption(["--all", "show_all"], is_flag=True, help="Show all replicas, however many."),
    JobOption(["--raw"], is_flag=True, help="No prefix before the lines."),
    JobOption(["--prefix"], is_flag=True, help="The prefix also for one replica."),
]


@click.pass_context
def _run(ctx: click.Context, /, **given: Any) -> int:
    """Run a script or command, here or on a cluster, and follow it to its end; the exit code is its own.

    x.py and -m pkg run with the active environment's Python; everything after the program is the program's.
    """
    if note := program_note(ctx):
        common.say(f"Note: {note}")
    file = _file(given)
    job = _job(file.type if file else "job", file, given)
    _check_result(given["result"])
    return _make(ctx, job, given, creates="run", attached=not given["detach"])


def _check_result(path: str | None) -> None:
    """SpecError where the summary could not be written: that is told before the job starts, not after its end."""
    from arena.errors import SpecError

    if path == "-":
        raise SpecError("--result: stdout is the job's; name a file")
    folder = os.path.dirname(path or "") or "."
    if path and (os.path.isdir(path) or not os.access(folder, os.W_OK)):
        raise SpecError(f"--result: {path} cannot be written")


run = JobCommand(
    "run", kind="job", callback=_run, params=[*making(), *RUN_OPTIONS], help=_run.__doc__, epilog=RUN_EPILOG
)
common.placed(run)


class Submit(click.Group):
    """`submit TYPE` for every job type there is, and `submit -f FILE`, whose type stands in the file."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return jobs.names()

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name == OBJECT:
            from arena.cli import objects

            return objects.submit
        kind = jobs.load(name)
        text = (kind.__doc__ or "").partition("\n")[0]
        command = JobCommand(
            name,
            kind=kind,
            interspersed=True,
            callback=_submit,
            params=[
                *making(),
                JobOption(["--wait"], is_flag=True, common=True, help="Wait for its end; its exit code."),
            ],
            help=text,
            epilog=SUBMIT_EPILOG,
        )
        return common.placed(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        return args[0], self.get_command(ctx, args[0]), args[1:]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Types"):
            formatter.write_dl([(name, _what(name)) for name in jobs.names()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(name) for name in jobs.names() if name.startswith(incomplete)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args[:1] == [OBJECT]:
            raise click.UsageError(f"{OBJECT} is no type: arena submit -f FILE sends an operator's own object")
        flags_first = not args or (args[0].startswith("-") and args[0] not in ("-h", "--help"))
        if flags_first and not ctx.resilient_parsing:
            args = _type_first(args)
        return super().parse_args(ctx, args)


def _what(name: str) -> str:
    """A line about a type, also about one whose package is broken."""
    from arena.errors import UnsupportedError

    try:
        return (jobs.load(name).__doc__ or "").partition("\n")[0]
    except UnsupportedError as error:
        return error.what


def _type_first(args: list[str]) -> list[str]:
    """The words with the type in front: the first that is no flag's, else that of the run file."""
    place = _any_type().first_word(args)
    if place is not None and args[place] in (*jobs.names(), *jobs.ALIASES):
        return [args[place], *args[:place], *args[place + 1 :]]
    return [_type_of(args), *args]


def _any_type() -> JobCommand:
    """The flags that every type has, for words in which the type does not come first."""
    command = JobCommand("submit", kind="job", interspersed=True, params=making())
    common.placed(command)
    return command


def _type_of(args: list[str]) -> str:
    """The type of a `submit` that names none: it stands in its run file, or the file holds an operator's object."""
    from arena import runfile
    from arena.cli.objects import is_object

    own = args[: args.index("--")] if "--" in args else args
    for word, following in zip(own, [*own[1:], ""], strict=False):
        file = following if word in ("-f", "--file") else word[7:] if word.startswith("--file=") else ""
        file = file or (word[2:] if re.match("-f.", word) else "")
        if file:
            text = runfile.read_text(file)
            return OBJECT if is_object(text) else runfile.read(text, file).type
    raise click.UsageError("which type? arena submit TYPE, or -f FILE; types: " + ", ".join(jobs.names()))


submit = Submit("submit", help="Submit a job of a type, or of a run file (-f).", epilog=SUBMIT_EPILOG)


@click.pass_context
def _submit(ctx: click.Context, /, **given: Any) -> int:
    file = _file(given)
    kind = ctx.command.kind if isinstance(ctx.command, JobCommand) else "job"
    _same_type(kind, file)
    return _make(ctx, _job(kind, file, given), given, creates="type", attached=given["wait"])


def _same_type(kind: type[Job] | str, file: RunFile | None) -> None:
    """The type that was typed must be that of the run file."""
    from arena.errors import SpecError

    if file is not None and declared.job_class(kind) is not declared.job_class(file.type):
        raise SpecError(
            f"{file.file}: type is {file.type}, not {declared.job_class(kind).type_name}",
            hint=f"arena submit -f {file.file} takes the file's",
        )


def submit_file_again(ctx: click.Context, path: Path, words: list[str]) -> int:
    """`rerun` of a run file or a record folder's: masked variables come from the environment."""
    from arena import runfile

    file = runfile.read(runfile.read_text(path), str(path))
    below = common.client(ctx).unmasked(file.values, {})
    return submit_again(ctx, file._replace(masked=()).job({"env": below["env"]} if "env" in below else {}), words)


def submit_again(ctx: click.Context, job: Job, words: list[str], parent: Seen | None = None) -> int:
    """`rerun`: the job under the flags and words given, with the parent's code unless `--code here`.

    What changed the parent's object changes this one, too: a new --patch instead of the old, each new --set after them.
    """
    code_option = JobOption(
        ["--code"],
        metavar="recorded|here",
        type=click.Choice(["recorded", "here"]),
        default="recorded",
        common=True,
        help="The recorded code, or what is here now.",
    )
    command = JobCommand(
        "rerun",
        kind=type(job),
        interspersed=True,
        callback=_again,
        params=[*(one for one in making() if one.name != "file"), code_option],
        help="Run a job again with its recorded code; words after -- replace the program's.",
    )  # fmt: skip
    common.placed(command)
    with command.make_context("rerun", words, parent=ctx.parent) as inner:
        inner.meta["arena.again"] = (job, parent)
        code: int = command.invoke(inner)
        return code


@click.pass_context
def _again(ctx: click.Context, /, code: str, **given: Any) -> int:
    job, parent = ctx.meta["arena.again"]
    client = common.client(ctx)
    again = client.changed(job, values(type(job), given))
    context = client.parentage(parent, code) if parent else {}
    return _make(ctx, again, given, creates="name", attached=False, context=context, client=client)


def _file(given: Mapping[str, Any]) -> RunFile | None:
    if not given["file"]:
        return None
    from arena import runfile
    from arena.cli.objects import is_object
    from arena.errors import SpecError

    file = given["file"]
    text = runfile.read_text(file)
    if is_object(text):
        what = f"{runfile.label(file)} holds a Kubernetes object, not a run file"
        raise SpecError(what, hint=f"arena submit -f {file}")
    return runfile.read(text, file)


def _job(kind: type[Job] | str, file: RunFile | None, given: Mapping[str, Any]) -> Job:
    from arena import choice

    above = values(kind, given)
    if above.get("name") == "":
        raise click.UsageError("--name: the name is empty (is a variable of the script empty?)")
    command = above.get("command")
    if isinstance(command, list) and len(command) == 1 and " " in command[0] and os.path.isfile(command[0]):
        above["command"] = choice.file_words(Path(command[0]), Path.cwd(), os.environ)
    return file.job(above) if file else declared.build(kind, above)


def _make(
    ctx: click.Context,
    job: Job,
    given: Mapping[str, Any],
    *,
    creates: Any,
    attached: bool,
    context: Mapping[str, Any] | None = None,
    client: Client | None = None,
) -> int:
    """Plan, say what was chosen, and do it."""
    if not given["dry_run"]:
        can_act(given, attached=attached, followed=creates == "run")
    client = client or common.client(ctx)
    job = structs.replace(job, name=_lasting_name(job)) if given["dry_run"] and not job.name else job
    paths = tuple(given.get("fetch") or ())
    before = context or {}
    more = {**before, **changes(given, before), "dry": given["dry_run"], "fetch": paths}
    plan = client.plan(job, creates=creates, typed=("arena", *sys.argv[1:]), **more)
    return carry_out(client, plan, given, attached=attached, followed=creates == "run")


def carry_out(client: Client, plan: Plan, given: Mapping[str, Any], *, attached: bool, followed: bool) -> int:
    """Print a plan where that was asked for, else submit it and see it to its end; the exit code."""
    from arena.cli.signals import Interrupt, Signals
    from arena.errors import ArenaError

    if given["dry_run"]:
        return _dry_run(client, plan, given)
    limits, paths = limits_of(given), tuple(given.get("fetch") or ())
    _say_plan(client, plan, given)
    with Signals() as signals:
        handle = None
        try:
            with signals.hold() as begin:
                handle = client.submit(plan, replace=given["replace"], force=given["force"], committed=begin)
                _say_notes(handle)
                submitted(handle, given, attached=attached, followed=followed)
            ended = partial(finish, handle, given, limits, followed=followed)
            return (_fetched(handle, paths, ended) if paths else ended()) if attached else 0
        except Interrupt as stop:
            return _interrupted(handle, stop, signals, given) if handle else stop.exit_code
        except BrokenPipeError:
            _left(handle, given)
            raise
        except ArenaError as error:
            if not (handle and given["rm"]):
                raise
            handle.delete(force=True)
            what = f"job {handle.name!r} was deleted: its time was over" if error.exit_code == 124 else error.what
            raise type(error)(what, why=error.why or "--rm ties it to this command") from error


def _fetched(job: Handle, paths: Sequence[str], ended: Callable[[], int]) -> int:
    from arena.cli.copy import fetched

    return fetched(job, paths, ended)


def limits_of(given: Mapping[str, Any]) -> Limits:
    """How long the command line says to wait."""
    return Limits(
        common.seconds("--timeout", given["timeout"]), common.seconds("--start-timeout", given["start_timeout"])
    )


def can_act(given: Mapping[str, Any], *, attached: bool, followed: bool) -> None:
    """Refuse what would do nothing: what waits where nobody does, and data on a stdout that is the job's."""
    from arena.errors import SpecError

    waits = [
        flag
        for flag in ("--rm", "--result", "--fetch", "--timeout", "--start-timeout")
        if given.get(flag[2:].replace("-", "_"))
    ]
    if waits and not attached:
        raise SpecError(
            f"{waits[0]} does nothing here: this command does not wait for the job",
            hint="arena run, submit --wait, or arena wait",
        )
    if attached and followed and given["fmt"] != "text":
        raise SpecError(
            f"-o {given['fmt']}: stdout is the job's output",
            hint="--result FILE writes the closing summary; --detach prints the job",
        )


def _lasting_name(job: Job) -> str:
    """A name like those that are made up, but the same each time: a dry run gives the same bytes everywhere."""
    import hashlib

    stem = os.path.splitext(os.path.basename(next((word for word in job.command if word != "-m"), "")))[0]
    letters = hashlib.sha256(repr(job).encode(errors="surrogateescape")).hexdigest()[:4]
    return f"{shorten(stem, 40)}-{letters}"


def _left(handle: Handle | None, given: Mapping[str, Any]) -> None:
    """Whoever read our output has gone: the job goes on, unless it is tied to this command."""
    if handle and given["rm"]:
        handle.delete(force=True)
    elif handle and not handle.get().state.final:
        common.say(f"{handle.name} goes on: arena logs {handle.name} -f, arena delete {handle.name}")


def changes(given: Mapping[str, Any], before: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """What `--patch` and `--set` do to the object, after what did `before`, for the context of a plan."""
    if not given["patch"] and not given["sets"]:
        return _served(given)
    from arena import runfile
    from arena.engines import patching

    file = given["patch"]
    return {
        **_served(given),
        "patch": patching.read_patch(runfile.read_text(file), file) if file else before.get("patch", {}),
        "sets": (*before.get("sets", ()), *(patching.read_setting(one) for one in given["sets"])),
    }


def _served(given: Mapping[str, Any]) -> dict[str, Any]:
    """The kinds that a dry run takes for served, where a file names them."""
    if not given.get("served"):
        return {}
    from arena import runfile
    from arena.engines.served import read_served
    from arena.errors import SpecError

    if not given["dry_run"]:
        raise SpecError("--served: only a dry run can be told what is served", hint="--dry-run")
    return {"served": read_served(runfile.read_text(given["served"]), given["served"])}


def _dry_run(client: Client, plan: Plan, given: Mapping[str, Any]) -> int:
    notes = [*plan.notes, *_unused(plan)]
    if given["dry_run"] == "server":
        place = client.backend(plan.backend)
        plan = place.asked(plan)
        notes += place.notes.lines
    return show(plan.steps, notes, given)


def show(objects: Sequence[Mapping[str, Any]], notes: Sequence[str], given: Mapping[str, Any]) -> int:
    """Print the objects of a dry run, without Secrets unless they are asked for."""
    from arena.cli import output

    hidden = [one for one in objects if one["kind"] == "Secret" and not given["show_secrets"]]
    output.emit_objects([one for one in objects if one not in hidden], given["fmt"])
    for note in (*notes, *(_hidden(one) for one in hidden)):
        common.say(f"Note: {note}")
    return 0


def _hidden(secret: Mapping[str, Any]) -> str:
    return f"Secret {secret['metadata']['name']!r} is left out: what it holds is secret; --show-secrets prints it"


def _unused(plan: Plan) -> tuple[str, ...]:
    """What was said about the object, where there is none."""
    if plan.backend != "local" or not (plan.context.patch or plan.context.sets):
        return ()
    return ("--set and --patch change a cluster's object; they have no effect on this machine",)


def _say_plan(client: Client, plan: Plan, given: Mapping[str, Any]) -> None:
    from arena.cli import output
    from arena.errors import SpecError

    notes = (*plan.notes, *_unused(plan))
    if notes and given["strict"]:
        raise SpecError("; ".join(notes), why="--strict makes notes errors")
    common.say(output.plan_line(plan))
    for note in (*client.notices(plan.backend), *notes):
        common.say(f"Note: {note}")


def _say_notes(job: Handle) -> None:
    """What whoever took the job had to say: that no node fits today."""
    for line in job.where.notes.lines:
        common.say(f"Warning: {line}")
    job.where.notes.lines.clear()


def submitted(job: Handle, given: Mapping[str, Any], *, attached: bool, followed: bool) -> None:
    """Say that a job was accepted; its name or itself as data where that was asked for."""
    from arena.cli import output

    fmt = given["fmt"]
    if followed:
        common.say(f"job {job.name} (run {job.run_id})")
    else:
        common.say(f"The Job {job.name} has been submitted successfully")
        common.say(f"You can run `arena get {job.name}` to check the job status")
    if fmt in ("json", "yaml") and not attached:
        output.emit(output.job_json(job.get()), fmt)
    elif fmt == "name" or (followed and not attached):
        output.emit([job.name], "name")
    sys.stdout.flush()


def finish(job: Handle, given: Mapping[str, Any], limits: Limits, *, followed: bool) -> int:
    """Follow (or only wait for) a job to its end; its exit code."""
    from arena.cli import output, wait

    seen = _to_its_end(job, given, limits, followed=followed)
    if given.get("result"):
        _write_result(seen, given["result"])
    if not followed and given["fmt"] in ("json", "yaml"):
        output.emit(output.job_json(seen), given["fmt"])
    code = wait.ended(seen)
    if given["rm"]:
        job.delete()
    return code


def _to_its_end(job: Handle, given: Mapping[str, Any], limits: Limits, *, followed: bool) -> Seen:
    from arena.cli import follow, wait

    if not followed:
        return wait.waited(job, *limits)
    prefix = True if given["prefix"] else False if given["raw"] else None
    return follow.follow(job, show_all=given["show_all"], prefix=prefix, timeout=limits.end, start_timeout=limits.start)


def _write_result(seen: Seen, path: str) -> None:
    from arena.cli import output

    with common.naming(path), open(path, "w", encoding="utf-8") as file:
        output.emit(output.job_json(seen), "json", file)


def _interrupted(job: Handle, stop: Any, signals: Any, given: Mapping[str, Any]) -> int:
    """The first signal detaches; `--rm`, or a second one at once, deletes the job."""
    if not given["rm"] and job.get().state.final:
        return int(stop.exit_code)
    if not given["rm"]:
        common.say(f"\n{job.name} goes on: arena logs {job.name} -f   to follow it")
        now = " (or Ctrl-C again, now)" if _by_hand(stop) else ""
        common.say(f"{' ' * len(job.name)}          arena delete {job.name}    to end it{now}")
    if given["rm"] or signals.again(AGAIN if _by_hand(stop) else 0):
        job.delete(force=True, wait=False)
        common.say(f"job {job.name} was deleted")
    return int(stop.exit_code)


def _by_hand(stop: Any) -> bool:
    import signal

    return bool(stop.number == signal.SIGINT and sys.stderr.isatty())
