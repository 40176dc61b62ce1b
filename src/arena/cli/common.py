"""What commands share: the client of a command line, its common options, and how errors and notes are said."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from arena.client import Client, Handle
    from arena.errors import ArenaError
    from arena.settings import Settings
    from arena.status import Seen

F = TypeVar("F", bound=Callable[..., Any])

META = "arena.place"
OVERRULED = "arena.overruled"
FLAGS = ("backend", "namespace", "context", "kubeconfig", "as", "as_group", "request_timeout")
STATES = ("PENDING", "QUEUED", "RUNNING", "SUSPENDED", "SUCCEEDED", "FAILED", "CANCELLED", "UNKNOWN")


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Keep the value for `client`, apart from the command's own parameters."""
    if value:
        ctx.meta.setdefault(META, {})[param.name] = value


def _place(*spellings: str, help: str = "", metavar: str = "NAME", is_flag: bool = False, **more: Any) -> click.Option:
    return click.Option(
        spellings,
        metavar=None if is_flag else metavar,
        help=help,
        is_flag=is_flag or None,
        expose_value=False,
        callback=_keep,
        **more,
    )


PLACE = (
    _place("-b", "--backend", help="Where jobs run: local or kubernetes."),
    _place("-n", "--namespace", help="Namespace of the jobs."),
    _place("--context", help="Context of the kubeconfig.", hidden=True),
    _place("--kubeconfig", "--config", metavar="FILE", help="The kubeconfig file.", hidden=True),
    _place("--as", "as", help="User on whose behalf the cluster is asked.", hidden=True),
    _place("--as-group", multiple=True, help="A group of that user; several times.", hidden=True),
    _place("--request-timeout", metavar="DURATION", help="How long an answer may take.", hidden=True),
    _place("--loglevel", hidden=True),
    _place("--traceback", is_flag=True, hidden=True),
    _place("--arena-namespace", hidden=True),
    _place("--helm-binary", is_flag=True, hidden=True),
    _place("--pprof", is_flag=True, hidden=True),
    _place("--trace", is_flag=True, hidden=True),
)


def placed(command: click.Command) -> click.Command:
    """The command with the options that say where: they stand before or after the command's name."""
    taken = {name for param in command.params for name in param.opts}
    command.params += [option for option in PLACE if not taken & set(option.opts)]
    return command


def place(ctx: click.Context) -> dict[str, Any]:
    """What was typed of where, before the command and after it."""
    return {**(ctx.find_root().obj or {}), **ctx.meta.get(META, {})}


def client(ctx: click.Context) -> Client:
    """The client for this command line; options after the command win over those before it."""
    import os
    from pathlib import Path

    from arena.client import Client
    from arena.errors import SpecError
    from arena.settings import Settings

    given = place(ctx)
    flags = {key: given[key] for key in FLAGS if given.get(key)}
    try:
        cwd = Path(os.getcwd())
    except FileNotFoundError as error:
        raise SpecError("the folder you are in does not exist any more", hint="cd to another one") from error
    settings = Settings.load(flags, os.environ, cwd)
    say_overruled(ctx, settings, "flag")
    return Client(settings=settings, cwd=cwd)


def say_overruled(ctx: click.Context, settings: Settings, layer: str) -> None:
    """Say, once, which words of a layer have no effect, as the site has locked what they set."""
    said = ctx.meta.setdefault(OVERRULED, set())
    for line in settings.overruled(layer):
        if line not in said:
            say(f"Warning: {line}")
        said.add(line)


def say(text: str) -> None:
    """A line for people, on stderr."""
    print(f"{text}\n", end="", file=sys.stderr, flush=True)  # noqa: T201  (one write: threads say things side by side)


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """What the disk does not take, as on a full one, is told with the file's name."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, error.filename or path) from error


def say_recorded(job: Handle, seen: Seen) -> None:
    """Say that a job is told from its record, where it is."""
    if seen.recorded:
        say(f"{job.name}: {seen.recorded}")
    elif seen.deleted:
        say(f"{job.name} was deleted: this is from its record")


def say_notes(job: Handle) -> None:
    """Say, once, what could not be seen or kept of a job; what holds for many replicas is one line."""
    from arena.quantity import few

    lines, job.where.notes.lines = job.where.notes.lines, []
    by_text: dict[str, list[str]] = {}
    for line in lines:
        replica, _, text = line.partition(": ")
        by_text.setdefault(text, []).append(replica)
    for text, replicas in by_text.items():
        say(f"{few(replicas)}: {text}")


def print_error(error: ArenaError, *, as_json: bool) -> None:
    """What happened, why, and what to do next; as JSON where the data would have been."""
    if as_json:
        import json

        from arena.cli import output

        say(json.dumps(output.error_json(error)))
        return
    say(f"Error: {error}")


def print_warnings(made: Client, *, as_json: bool, strict: bool, said: int = 0) -> int:
    """Say what went half right, but for what was said before; the exit code that `--strict` makes of it."""
    lines = made.warnings.lines[said:]
    if not lines:
        return 0
    if as_json:
        import json

        from arena.cli import output

        say(json.dumps(output.warnings_json(lines)))
    else:
        for line in lines:
            say(f"Warning: {line}")
    return made.warnings.code if strict or made.warnings.failed else 0


def type_option() -> Callable[[F], F]:
    """`-T`, for a name that several jobs have."""
    return click.option(
        "-T", "--type", "kind", default="", metavar="TYPE", help="Type of the job, where several have that name."
    )


def named(made: Client, name: str, kind: str = "", *, gone: bool = False) -> Handle:
    """The job of this name (and type); where the cluster has none and this machine has, a line says so."""
    handle = made.get(f"{kind}/{name}" if kind and "/" not in name else name, gone=gone)
    if handle.where.name == "local" and _asks_a_cluster(made):
        say(f"{handle.name} is a job of this machine: the cluster has none of that name")
    return handle


def _asks_a_cluster(made: Client) -> bool:
    """Whether commands on a NAME ask a cluster first; records are read also where a kubeconfig is missing."""
    from arena.errors import BackendError

    try:
        return made.default != "local"
    except BackendError:
        return False


def output_option(*formats: str) -> Callable[[F], F]:
    """`-o`, with the formats a command has."""
    return click.option(
        "-o", "--output", "fmt", type=click.Choice(formats), default=formats[0], help="Format of the data."
    )


def state_option(help: str) -> Callable[[F], F]:
    """`--state`: several times, or several with commas."""

    def complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        return [state for state in STATES if state.startswith(incomplete.upper())]

    return click.option("--state", multiple=True, metavar="STATE", shell_complete=complete, help=help)


def states(words: Sequence[str]) -> tuple[str, ...]:
    """The states that were asked for, each a word that there is."""
    from arena.errors import SpecError

    found = tuple(part.strip().upper() for word in words for part in word.split(","))
    for state in found:
        if state not in STATES:
            raise SpecError(f"--state: there is no state {state!r}", why=f"known: {', '.join(STATES)}")
    return found


def chosen(
    client: Client, kind: str, labels: Sequence[str], state: Sequence[str], *, everything: bool = False
) -> list[Handle]:
    """The caller's jobs (of a type) that `-l`, `--state` or `--all` mean; none where nothing was asked for."""
    from arena.backends.base import Query

    if not (labels or state or everything):
        return []
    query = Query(states=states(state), labels=pairs("-l", labels), user=client.user)
    return [client.handle(seen) for seen in of_type(client.seen(query), kind)]


def of_type(seens: Iterable[Seen], kind: str) -> list[Seen]:
    """Those of the type that `-T` means; all where it was not given."""
    from arena import engines

    return [seen for seen in seens if seen.trainer == engines.trainer(kind)] if kind else list(seens)


def pairs(label: str, words: Sequence[str]) -> dict[str, str]:
    """`KEY=VALUE` words as a mapping; each must have its `=`."""
    from arena.errors import SpecError

    found = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise SpecError(f"{label}: {word!r} is not KEY=VALUE")
        found[key] = value
    return found


def seconds(label: str, text: str | None) -> float | None:
    """The seconds of a duration that was given."""
    from arena.errors import SpecError
    from arena.quantity import parse_duration

    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise SpecError(f"{label}: {error}") from error


def compat() -> bool:
    """Whether Arena (Go)'s manners are asked for: ARENA_COMPAT=go."""
    import os

    return os.environ.get("ARENA_COMPAT") == "go"


def complete_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The names of live jobs that begin so, read from the links of the state folder alone."""
    from arena.cli.completion import job_names

    return job_names(incomplete)
