"""`arena`: the commands by name, loaded when they are used, and the one place where errors become exit codes.

Only click and the version are imported here, so that help, version and completion answer at once.
"""

from __future__ import annotations

import contextlib
import difflib
import gc
import importlib
import itertools
import os
import re
import signal
import sys
from collections.abc import Sequence
from typing import Any

import click

from arena._version import __version__

COMMANDS = {
    "run": ("arena.cli.run", "run", "Run a script or command, here or on a cluster, and follow it."),
    "submit": ("arena.cli.run", "submit", "Submit a job of a type: job, pytorch, mpi, jax, tensorflow."),
    "list": ("arena.cli.look", "list_", "List the jobs that exist now."),
    "get": ("arena.cli.look", "get", "Show one job."),
    "logs": ("arena.cli.logs", "logs", "Print the logs of a job's replicas."),
    "wait": ("arena.cli.wait", "wait", "Wait until jobs have ended; the exit code is the job's."),
    "why": ("arena.cli.look", "why", "Say why a job waits or failed, and what to do next."),
    "cp": ("arena.cli.copy", "cp", "Copy files of a job's replica here."),
    "exec": ("arena.cli.execute", "execute", "Run a command with a replica's folder and environment."),
    "stop": ("arena.cli.end", "stop", "End a job and keep it in the list."),
    "delete": ("arena.cli.end", "delete", "End jobs and take them from the list; their record stays."),
    "prune": ("arena.cli.end", "prune", "Delete finished jobs of a certain age."),
    "history": ("arena.cli.look", "history", "List all runs that are remembered."),
    "export": ("arena.cli.again", "export", "Print the run file of a job."),
    "rerun": ("arena.cli.again", "rerun", "Run a job again with its recorded code."),
    "doctor": ("arena.cli.doctor", "doctor", "Say which cluster, rights, kinds and limits there are."),
    "config": ("arena.cli.config", "config", "Show the settings and where they come from, or set one."),
    "schema": ("arena.cli.config", "schema", "Print the JSON Schema of run files."),
    "completion": ("arena.cli.completion", "completion", "Print the completion script of a shell."),
    "version": ("arena.cli.version", "version", "Print the version."),
}

ALIASES = {"attach": "exec", "ls": "list", "del": "delete"}
JOB_CODES = ("run", "wait")
WITH_PROGRAM = ("run", "submit", "rerun", "exec")  # read their words themselves, as some are a program's
OWN_FAILURE = 125
INTERRUPTED = 130
COMPLETE = "_ARENA_COMPLETE"


class LazyGroup(click.Group):
    """The group of commands: names and helps from the table, a command's module only when it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        name = ALIASES.get(name, name)
        if name not in COMMANDS:
            return plugin(name)
        module, attribute, _ = COMMANDS[name]
        found: click.Command = getattr(importlib.import_module(module), attribute)
        return found

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, attached(self, args, interspersed=False))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] == "help":
            args = [*args[1:], "--help"]
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            near = difflib.get_close_matches(name, [*COMMANDS, *ALIASES, *plugins()], 1)
            hint = f". Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"there is no command {name!r}{hint}", ctx)
        found, command, rest = super().resolve_command(ctx, args)
        own = ALIASES.get(name, name) in {*COMMANDS} - {*WITH_PROGRAM}
        return found, command, attached(command, rest) if command and own else rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry[2]) for name, entry in COMMANDS.items()])
        if own := plugins():
            with formatter.section("Programs arena-NAME on the PATH"):
                formatter.write_dl([(name, path) for name, path in own.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        names = [(name, entry[2]) for name, entry in COMMANDS.items() if name.startswith(incomplete)]
        return [CompletionItem(name, help=text) for name, text in names]


def attached(command: click.Command, args: Sequence[str], *, interspersed: bool = True) -> list[str]:
    """The words with `-ojson` for `-o=json`: Arena (Go) and kubectl take both."""
    valued = {name for param in command.params if not getattr(param, "is_flag", True) for name in param.opts}
    rest, found = list(args), []
    while rest and rest[0] != "--" and (interspersed or rest[0].startswith("-")):
        word = rest.pop(0)
        found.append(word[:2] + word[3:] if word[:2] in valued and re.match("-[^-]=.", word) else word)
        found += [rest.pop(0)] if word in valued and rest else []
    return found + rest


def plugins() -> dict[str, str]:
    """The programs `arena-NAME` on the PATH that are commands, each where it is found first."""
    found: dict[str, str] = {}
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        with contextlib.suppress(OSError):
            names = [entry for entry in os.listdir(folder or ".") if entry.startswith("arena-")]
            for name in sorted(names):
                path = os.path.join(folder, name)
                if os.access(path, os.X_OK) and name[6:] not in COMMANDS:
                    found.setdefault(name[6:], path)
    return found


def plugin(name: str) -> click.Command | None:
    """A program `arena-NAME` on the PATH, as a command."""
    import shutil

    program = shutil.which(f"arena-{name}") if name.replace("-", "").isalnum() else None
    if program is None:
        return None

    @click.command(name, context_settings={"ignore_unknown_options": True, "help_option_names": []})
    @click.argument("words", nargs=-1, type=click.UNPROCESSED)
    def call(words: tuple[str, ...]) -> None:
        try:
            os.execv(program, [program, *words])
        except OSError as error:
            raise OSError(error.errno, error.strerror, program) from error

    return call


EPILOG = """\b
Examples:
  arena run -w 2 train.py --lr 0.1     two workers, followed to their end
  arena list                           what there is
  arena why NAME                       why it waits or failed
"""


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-b", "--backend", metavar="NAME", help="Where jobs run: local or kubernetes.")
@click.option("-n", "--namespace", metavar="NAME", help="Namespace of the jobs.")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig.")
@click.option("--kubeconfig", "--config", metavar="FILE", help="The kubeconfig file.")
@click.option("--as", "as", metavar="NAME", help="User on whose behalf the cluster is asked.")
@click.option("--as-group", multiple=True, metavar="NAME", help="A group of that user; several times.")
@click.option("--request-timeout", metavar="DURATION", help="How long an answer of the cluster may take.")
@click.option("--loglevel", metavar="LEVEL", help="Say more: info, debug.")
@click.option("--traceback", is_flag=True, help="Show where in arena an error came from.")
@click.version_option(__version__, prog_name="arena", message="%(prog)s: v%(version)s", help="Print the version.")
@click.option("--arena-namespace", hidden=True)
@click.option("--helm-binary", is_flag=True, hidden=True)
@click.option("--pprof", is_flag=True, hidden=True)
@click.option("--trace", is_flag=True, hidden=True)
@click.pass_context
def arena(ctx: click.Context, /, **options: Any) -> None:
    """Train and serve models without learning Kubernetes: on this machine, or on any cluster."""
    ctx.obj = {key: value for key, value in options.items() if value}


def main(argv: Sequence[str] | None = None) -> None:
    """The program `arena`: ends the process with the command's exit code."""
    gc.set_threshold(100_000)  # a command makes many values and few cycles
    standard_files()
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = run(words)
        code = flushed(words) or code
    except KeyboardInterrupt:
        code = INTERRUPTED
    raise SystemExit(code)


def standard_files() -> None:
    """Where stdin, stdout or stderr is closed, something stands in its place: no file of ours may get its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r+" if number else "r", encoding="utf-8"))  # noqa: SIM115


def run(words: list[str]) -> int:
    """Carry out one command line; its exit code."""
    from arena.errors import ArenaError

    try:
        return answer(words)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # click 8.2 and later; before it printed its help and went
            click.echo(error.format_message(), err=bool(words))
            return exit_code(2, words) if words else 0
        return report(usage_error(error), words)
    except click.ClickException as error:
        return report(usage_error(error), words)
    except ArenaError as error:
        return report(error, words)
    except BrokenPipeError:
        quiet_stdout()
        return 0
    except (click.Abort, EOFError, KeyboardInterrupt) as stop:
        return int(getattr(stop, "exit_code", INTERRUPTED))
    except UnicodeEncodeError as error:
        from arena.errors import SpecError

        return report(SpecError(f"{error.object!r} is not UTF-8"), words)
    except Exception as error:  # noqa: BLE001  (a mistake of ours is arena's failure, not the job's code 1)
        if isinstance(error, OSError) and not error.filename:
            quiet_stdout()  # what is still buffered would fail once more
        return report(unexpected(error), words)


def answer(words: list[str]) -> int:
    """What the command returns, or the completions a shell asks for; every exception comes through as it is."""
    if asked := os.environ.get(COMPLETE):
        from click.shell_completion import shell_complete

        with contextlib.suppress(Exception):  # a word that cannot be completed yet is no error to write into the line
            return shell_complete(arena, {}, "arena", COMPLETE, asked)
        return 1
    with arena.make_context("arena", list(words)) as ctx:
        result = arena.invoke(ctx)
    return result if isinstance(result, int) else 0


def unexpected(error: Exception) -> Any:
    """What the system refused, or a mistake of ours, in one line like all others."""
    from arena.errors import BackendError

    what = f"arena made a mistake: {type(error).__name__}: {error}"
    if isinstance(error, OSError):
        what = f"{error.filename or 'output'}: {error.strerror or error}"
    found = BackendError(what, hint="--traceback shows where")
    found.__cause__ = error
    return found


def usage_error(error: click.ClickException) -> Any:
    """A mistake in the words, as the tree's own error."""
    from arena.errors import SpecError

    ctx = getattr(error, "ctx", None)
    path = ctx.command_path if ctx else "arena"
    return SpecError(error.format_message(), hint=f"{path} --help")


def report(error: Any, words: list[str]) -> int:
    """Say what went wrong, on stderr; the exit code."""
    from arena.cli.common import print_error

    if "--traceback" in before_program(words):
        import traceback

        traceback.print_exception(error)
    print_error(error, as_json=wants_json(words))
    return exit_code(error.exit_code, words)


def exit_code(code: int, words: list[str]) -> int:
    """The code of arena's own failure for this command line: 125 where the job's codes are passed on."""
    command = ALIASES.get(command_word(words), command_word(words))
    if os.environ.get("ARENA_COMPAT") == "go":
        return 1 if code else 0
    waits = command in JOB_CODES or (command == "submit" and "--wait" in before_program(words))
    return OWN_FAILURE if waits and code not in (0, 124) else code


def before_program(words: list[str]) -> list[str]:
    """The words that are arena's own: those before `--`, in `run` those before the program."""
    words = words[: words.index("--")] if "--" in words else words
    if command_word(words) != "run":
        return words
    from arena.cli.run import run as command

    start = words.index("run") + 1
    return [*words[:start], *command.own_words(words[start:])]


def command_word(words: list[str]) -> str:
    """The command that was typed."""
    options = [param for param in arena.params if isinstance(param, click.Option) and not param.is_flag]
    valued = {spelling for option in options for spelling in option.opts}
    valued |= {"--as", "--as-group", "--request-timeout"}
    skip = False
    for word in words:
        if skip or word.startswith("-"):
            skip = word in valued and not skip
            continue
        return word
    return ""


def wants_json(words: list[str]) -> bool:
    """Whether errors are to be JSON, as the data would have been."""
    words = before_program(words)
    asked = any(first in ("-o", "--output") and second == "json" for first, second in itertools.pairwise(words))
    return asked or "-ojson" in words or "--output=json" in words or "-o=json" in words


def quiet_stdout() -> None:
    """After the reader of a pipe has gone: nothing more is said."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def flushed(words: list[str]) -> int:
    """Hand out what is buffered: a reader that has gone is no error, a full disk is."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        quiet_stdout()
    except OSError as error:
        quiet_stdout()
        return report(unexpected(error), words)
    return 0
