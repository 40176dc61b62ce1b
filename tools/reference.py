"""Writes docs/reference: a page per command and per job type, and the lists of settings, variables, codes and states.

Everything comes from where it is declared: click's commands, the fields of the job types, `SETTINGS`, the tree of
errors, the states. `make reference` writes the pages, `tests/test_docs.py` holds them to the code.
"""

import contextlib
import inspect
import io
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from arena import declared, errors, jobs, settings
from arena.backends.local import layout
from arena.cli import run
from arena.cli.main import ALIASES, COMMANDS, arena
from arena.cli.options import LOCAL_NOTES, JobCommand, JobOption
from arena.declared import Field
from arena.job import Job, Role
from arena.status import FINAL, WORDS, State

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
MADE = "<!-- Made by tools/reference.py from the code: make reference -->\n\n"

STATES = {
    State.PENDING: "submitted, and not yet in the queue or started; or no machine fits (`Unschedulable`)",
    State.QUEUED: "waits for its turn or for GPUs; `arena why` names what it waits for",
    State.RUNNING: "its replicas run, or are being started again",
    State.SUSPENDED: "its replicas were taken away and may come back; clusters only",
    State.SUCCEEDED: "all that had to end well did",
    State.FAILED: "a replica failed, a time was over, or nobody saw the end (`Lost`)",
    State.CANCELLED: "somebody stopped it",
    State.UNKNOWN: "an operator's word that this arena does not know; the reason is that word",
}

JOB_CODES = {
    "0": "the job succeeded",
    "the job's own": "of the replica that failed first; those that arena ended because of it do not count",
    "1": "the job has no code: stopped, deleted or evicted while waited for, over its time, Lost",
    "124": "the `--timeout` of the wait is over; the job goes on",
    "125": "arena itself failed, whatever it is: wrong words, a taken name, a quota, no cluster, not started in time",
    "126": "the program cannot be executed",
    "127": "there is no such program",
    "128 + n": "the program, or arena's command, was ended by signal n: 130 after Ctrl-C, 137 after a KILL",
}

OTHER_ENV = {
    "VIRTUAL_ENV, CONDA_PREFIX, PATH": "whose Python starts `x.py`: that of the active environment, else the first one",
    "HOME, XDG_STATE_HOME, TMPDIR": "where the state of local jobs is, when `ARENA_STATE_DIR` does not say",
    "XDG_CONFIG_HOME, XDG_CONFIG_DIRS": "where the user's and the site's settings are",
    "SHELL": "what `arena exec NAME` starts",
    "NO_COLOR": "no colours, as everywhere",
}

# The variable, what it says, and where it is set: on this machine, on a cluster.
JOB_ENV = (
    ("ARENA_RUN_ID", "the run's id; on this machine arena finds the job's processes by it", "yes", "yes"),
    ("ARENA_JOB_NAME", "the job's name", "yes", "yes"),
    ("ARENA_REPLICA", "the replica's name, as `worker-1`", "yes", "no: by `RANK`, or the pod's name"),
    ("ARENA_ATTEMPT", "1, and more after each restart of the gang", "yes", "no"),
    ("ARENA_OUTPUT_DIR", "where results are kept", "the working folder", "with `--output`"),
    ("ARENA_INDEX", "which pod of a Job this is; ranks are made of it", "no", "in a Job"),
    ("PYTHONUNBUFFERED", "1, so that lines arrive when they are written", "yes", "yes"),
    ("CUDA_VISIBLE_DEVICES", "the replica's GPUs; empty without `--gpus`", "yes", "by the device plug-in"),
    ("CUDA_DEVICE_ORDER", "PCI_BUS_ID, so that numbers mean the same everywhere", "yes", "no"),
    ("NVIDIA_VISIBLE_DEVICES", "`void` without `--gpus`, as Arena (Go) has it", "no", "`submit TYPE`"),
    ("workers, gpus", "their numbers, as Arena (Go) has them", "no", "`submit TYPE`"),
)


def pages() -> dict[str, str]:
    """Every page by its file name."""
    found = {"README.md": index()}
    for name in COMMANDS:
        found[f"{name}.md"] = command_page(name)
    for name in jobs.BUILT_IN:
        found[f"type-{name}.md"] = type_page(name)
    lists = {"settings.md": settings_page, "environment.md": environment_page, "exit-codes.md": exit_codes_page}
    found |= {name: page() for name, page in lists.items()}
    found["states.md"] = states_page()
    return {name: MADE + text.rstrip() + "\n" for name, text in found.items()}


def write() -> None:
    """Write the pages, and remove those that are none any more."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    made = pages()
    for path in FOLDER.glob("*.md"):
        if path.name not in made:
            path.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


# --- pages ---------------------------------------------------------------------------------------------------


def index() -> str:
    """Where to find what."""
    commands = [(f"[arena {name}]({name}.md)", text) for name, (_, _, text) in COMMANDS.items()]
    types = [(f"[{name}](type-{name}.md)", _first_line(jobs.load(name))) for name in jobs.BUILT_IN]
    lists = [
        ("[settings](settings.md)", "every setting: key, variable, default, and who decides"),
        ("[environment](environment.md)", "variables that arena reads, and those it sets in jobs"),
        ("[exit codes](exit-codes.md)", "of commands, and of those that pass a job's on"),
        ("[states](states.md)", "the eight states; reasons and causes stand in [why](../why.md)"),
    ]
    return "\n".join(
        [
            "# Reference",
            "",
            "What `--help-all` says, as pages. The flags of a job type are also the keys of its run files and the",
            "arguments in Python.",
            "",
            "## Commands",
            "",
            *table(("command", "what it does"), commands),
            "",
            _old_names(),
            "",
            "## Job types",
            "",
            *table(("type", "what it is"), types),
            "",
            "## Lists",
            "",
            *table(("page", "what it holds"), lists),
        ]
    )


def command_page(name: str) -> str:
    """One command: usage, text, flags, examples; a group's commands one below the other."""
    command, ctx = found(name)
    parts = [f"# arena {name}", *_body(command, ctx)]
    if name == "submit":
        parts += _submit_flags(ctx)
    elif name == "rerun":
        parts += ["## Flags", "", f"```\n{rerun_help()}\n```"]
    elif isinstance(command, click.Group):
        for sub in command.list_commands(ctx):
            inner = command.get_command(ctx, sub)
            assert inner is not None
            parts += [f"## arena {name} {sub}", *_body(inner, _context(inner, sub, ctx))]
    return "\n".join(parts)


def type_page(name: str) -> str:
    """One job type: its text, its fields by group, and what one of its processes finds in its environment."""
    kind = jobs.load(name)
    spellings = [alias for alias, meant in jobs.ALIASES.items() if meant == name]
    also = f" Also spelled {_code(spellings)}." if spellings else ""
    parts = [f"# Job type {name}", "", _text(kind.__doc__ or ""), ""]
    parts += [f"`arena submit {name} [FLAGS] [--] PROGRAM [ARGS]...`, in run files `type: {name}`, in Python", ""]
    parts[-2] += f" `arena.{kind.__name__}(...)`.{also}"
    own = {field.name for field in declared.fields("job")}
    mine = [field for field in declared.leaves(kind) if field.name.partition(".")[0] not in own]
    if mine:
        parts += ["## Its own fields", "", *fields_table(mine), ""]
    parts += ["## Fields that all types have" if mine else "## Fields", ""]
    parts += [*fields_table(field for field in declared.leaves(kind) if field not in mine), ""]
    parts += ["## How its processes meet", "", *_peers(kind)]
    return "\n".join(parts)


def settings_page() -> str:
    """Every setting, and who decides."""
    rows = [
        (
            f"`{one.key}`",
            f"`{one.env}`",
            one.type.replace("|", " or "),
            "" if one.default is None else f"`{str(one.default).lower() if one.default is True else one.default}`",
            "yes" if one.project_may_set else "",
            one.help,
        )
        for one in settings.SETTINGS
    ]
    return "\n".join(
        [
            "# Settings",
            "",
            "`arena config show` tells each value and where it came from; `arena config set KEY VALUE` writes yours.",
            "The first of these layers that knows a setting wins: " + ", ".join(settings.LAYERS) + ".",
            "",
            *table(("key", "variable", "value", "built-in", "arena.yaml may set it", "what it is"), rows),
            "",
            "## Files",
            "",
            *table(("layer", "where"), SETTINGS_FILES),
            "",
            "All are YAML with the keys above, dotted (`local.grace: 30s`) or nested. What stands below `locked:` in a",
            "site file wins over everything; of several site files the first wins, but nothing unlocks what the last",
            "one locks. `arena.yaml` may come from a cloned repository, so it may set only the keys marked above.",
            "`namespace` is also taken from Arena (Go)'s own file (`~/.arena/config`, or `$ARENA_CONFIG`).",
        ]
    )


SETTINGS_FILES = (
    ("project", "the nearest `arena.yaml`, from the current folder up to the git root"),
    ("user", "`$XDG_CONFIG_HOME/arena/config.yaml`, else `~/.config/arena/config.yaml`"),
    (
        "site",
        "`$ARENA_SITE_CONFIG`, `arena/config.yaml` in each of `$XDG_CONFIG_DIRS`, `/etc/arena/config.yaml`",
    ),
)


def environment_page() -> str:
    """The variables arena reads, and those it sets."""
    read = [(f"`{one.env}`", f"the setting `{one.key}`: {one.help}") for one in settings.SETTINGS]
    read += [(f"`{name}`", text) for name, text in settings.KNOWN_ENV.items() if not text.startswith("set in jobs")]
    read += [(_code(name.split(", ")), text) for name, text in OTHER_ENV.items()]
    in_jobs = [(_code(name.split(", ")), *rest) for name, *rest in JOB_ENV]
    types = ", ".join(f"[{name}](type-{name}.md)" for name in jobs.BUILT_IN)
    return "\n".join(
        [
            "# Environment variables",
            "",
            "## Read by arena",
            "",
            *table(("variable", "what it says"), read),
            "",
            "A variable `ARENA_…` that is not in this list is named by `arena config show`, and means nothing.",
            "",
            "## Set in jobs",
            "",
            "On this machine a program finds the environment of the command that submitted it, without its `ARENA_…`;",
            "in a pod that of its image. Over it:",
            "",
            *table(("variable", "what it says", "on this machine", "on a cluster"), in_jobs),
            "",
            f"How it finds its peers depends on the type: {types}.",
            "Operators write the same names. `--env` wins over all but `ARENA_RUN_ID` and `ARENA_REPLICA`: those it",
            "cannot set.",
        ]
    )


def exit_codes_page() -> str:
    """The codes a job gives, and those of the tree of errors."""
    kinds = [kind for kind in _tree(errors.ArenaError) if kind is not errors.JobFailedError]
    rows = [(str(kind.exit_code), f"`{kind.__name__}`", _first_line(kind)) for kind in kinds]
    return "\n".join(
        [
            "# Exit codes",
            "",
            "## `run`, `wait`, `submit --wait`: the job's",
            "",
            *table(("code", "when"), JOB_CODES.items()),
            "",
            "`wait` of several jobs ends with the code of the first, as they were named, that did not succeed.",
            "",
            "## All other commands",
            "",
            "0 when it was done, `logs -f` too, and these:",
            "",
            *table(("code", "exception in Python", "when"), rows),
            "",
            "On a cluster the job's code is that of a container, and the same rules hold: 126 and 127 where its",
            "runtime could not start the program, 137 where it was killed for memory. A job whose end nobody could",
            "see, as its object was deleted by somebody, has none.",
            "",
            "`logs --exit-code` passes the job's code on, `exec` that of the command it ran. After a signal a command",
            "ends with 128 + n. With `ARENA_COMPAT=go` every failure of arena's own is 1, as in Arena (Go).",
        ]
    )


def states_page() -> str:
    """The states, and the words they are made from."""
    rows = [(f"`{state.name}`", "yes" if state in FINAL else "", STATES[state], _words(state)) for state in State]
    return "\n".join(
        [
            "# States",
            "",
            "One function, `arena.status.decide`, says which state a job is in. Each comes with a reason in the words",
            "of whoever runs the job, and the time since when.",
            "",
            *table(("state", "final", "when", "words that mean it"), rows),
            "",
            "Only a cluster's object can be `UNKNOWN`; a local job whose end nobody saw is `FAILED`, reason `Lost`.",
        ]
    )


# --- parts of pages ------------------------------------------------------------------------------------------


def found(name: str) -> tuple[click.Command, click.Context]:
    """A command and a context in which it speaks of itself."""
    top = click.Context(arena, info_name="arena", terminal_width=118, max_content_width=118, **arena.context_settings)
    command = arena.get_command(top, name)
    assert command is not None
    return command, _context(command, name, top)


def _context(command: click.Command, name: str, parent: click.Context) -> click.Context:
    return click.Context(command, info_name=name, parent=parent)


def _body(command: click.Command, ctx: click.Context) -> Iterator[str]:
    yield from ("", f"```\n{command.get_usage(ctx).removeprefix('Usage: ')}\n```", "")
    yield from (_text(command.help), "") if command.help else ()
    options = [param for param in command.get_params(ctx) if isinstance(param, click.Option)]
    shown = [option for option in options if not option.hidden]
    if isinstance(command, JobCommand):
        own = [option for option in shown if getattr(option, "group", "Command") == "Command"]
        yield from ("## Flags", "", *flags_table(own, ctx), "", "## Flags of the job", "")
        yield from (*flags_table([option for option in shown if option not in own], ctx), "")
    elif any("--help" not in option.opts for option in shown):
        yield from ("### Flags" if ctx.parent and ctx.parent.parent else "## Flags", "", *flags_table(shown, ctx), "")
    yield from _hidden(options)
    if examples := (command.epilog or "").partition("Examples:\n")[2].rstrip():
        yield from ("## Examples", "", f"```\n{inspect.cleandoc(examples)}\n```", "")


def _hidden(options: Iterable[click.Option]) -> Iterator[str]:
    """What is taken and not shown: rarely used, or kept for scripts written for Arena (Go)."""
    if hidden := [spelling for option in options if option.hidden for spelling in option.opts]:
        yield from (f"Accepted too: {_code(hidden)}.", "")


def _submit_flags(ctx: click.Context) -> Iterator[str]:
    """What `submit` has beside the fields of the type."""
    command = ctx.command.get_command(ctx, "job") if isinstance(ctx.command, click.Group) else None
    assert isinstance(command, JobCommand)
    fields = {flag for field in declared.leaves("job") for flag in field.flags}
    options = [param for param in command.get_params(ctx) if isinstance(param, click.Option)]
    own = [option for option in options if not option.hidden and not fields & {*option.opts}]
    yield from ("## Flags", "", *flags_table(own, ctx), "", *_hidden(options), "## Types", "")
    types = ", ".join(f"[{name}](type-{name}.md)" for name in jobs.BUILT_IN)
    yield f"Beside these stand the flags of the type: {types}."


def rerun_help() -> str:
    """The flags of `rerun`, which are those of the job it finds; here of a plain one."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
        file = Path(folder, "job.yaml")
        file.write_text("command: 'true'\n", encoding="utf-8")
        with contextlib.suppress(click.exceptions.Exit):
            run.submit_file_again(found("rerun")[1], file, ["--help-all"])
    return said.getvalue().partition("\n\n")[2].rstrip()


def flags_table(options: Iterable[click.Option], ctx: click.Context) -> Iterator[str]:
    """The flags with their words; what means something else on this machine says so."""
    rows = []
    for option in options:
        record = option.help_with_note(ctx) if isinstance(option, JobOption) else option.get_help_record(ctx)
        assert record is not None
        shown = record[0].replace(",", " ").replace("[=", " ").split()
        aliases = [name for name in option.opts if name not in shown]
        rows.append((f"`{record[0]}`", record[1] + (f" Also spelled {_code(aliases)}." if aliases else "")))
    return table(("flag", "what it does"), rows)


def fields_table(fields: Iterable[Field]) -> Iterator[str]:
    """Fields as flag, key and Python argument at once."""
    rows = [
        (
            ", ".join(f"`{flag}`" for flag in (*field.flags, *field.aliases)) or "the words",
            f"`{field.name}`",
            _kind(field),
            _default(field),
            " ".join(filter(None, (field.help, f"({LOCAL_NOTES[field.local]})" if LOCAL_NOTES[field.local] else ""))),
        )
        for field in fields
    ]
    return table(("flag", "key", "value", "default", "what it is"), rows)


def _peers(kind: type[Job]) -> Iterator[str]:
    """What the second process of two finds (the only one, where the type starts one)."""
    extra: dict[str, Any] = {"ps": Role(count=1)} if "ps" in kind.__struct_fields__ else {}
    job = kind(name="mnist", command=("train.py",), workers=2, **extra)
    roles = job.roles()
    ports = range(20_000, 20_000 + layout.port_count(job, roles))
    gang = [*layout.place(job, "mnist-7k3f", roles, ports, (), Path("/state/runs/mnist-7k3f/attempt-1"), 1)]
    placed = gang[-1]
    argv, env = placed.programs[0]
    common = {name for names, *_ in JOB_ENV for name in names.split(", ")}
    own = {key: value for key, value in env.items() if key not in common}
    yield f"`{placed.replica.name}` of two workers that run `train.py` starts `{' '.join(argv)}` and finds beside the"
    yield "[variables of every job](environment.md#set-in-jobs):"
    yield from ("", "```", *(f"{key}={value}" for key, value in own.items()), "```", "")
    for name, text in placed.files.items():
        yield from (f"and the file `{name}`:", "", f"```\n{text.rstrip()}\n```", "")


def _kind(field: Field) -> str:
    if field.choices:
        return ", ".join(field.choices)
    if field.shape == "int":
        low, high = ("" if bound is None else str(bound) for bound in (field.ge, field.le))
        return f"number {low} to {high}"
    return {"bool": "true or false", "list": "words", "mapping": "pairs"}.get(field.shape, field.shape)


def _default(field: Field) -> str:
    if field.default in ("", (), {}) or field.default is msgspec.NODEFAULT:
        return ""
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"


def _words(state: State) -> str:
    return ", ".join(word or "(none yet)" for word, meant in WORDS.items() if meant is state) or "any other"


def _tree(kind: type[errors.ArenaError]) -> Iterator[type[errors.ArenaError]]:
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield child
            yield from _tree(child)


def _old_names() -> str:
    return "Other names: " + ", ".join(f"`{old}` is `{new}`" for old, new in ALIASES.items()) + "."


def _first_line(kind: type) -> str:
    return (kind.__doc__ or "").partition("\n")[0]


def _text(help_text: str) -> str:
    """Help as paragraphs, without doctests."""
    parts = inspect.cleandoc(help_text).replace("\b\n", "").split("\n\n")
    return "\n\n".join(part for part in parts if not part.startswith(">>> "))


def _code(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table."""
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |"


if __name__ == "__main__":
    write()
