"""The options of a job type, from its declarations, and how the words of `run` and `submit` are read.

Words are handed on as they were typed, all as text: `declared.build` reads numbers, names the flag in what it refuses,
and tells everything at once. Only what was typed is a value; defaults stay on the field.
"""

from __future__ import annotations

import contextlib
import difflib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from arena import declared
from arena.declared import Field
from arena.errors import SpecError
from arena.job import Job, is_python_file

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

LOCAL_NOTES = {"used": "", "noted": "no effect on this machine", "refused": "not possible on this machine"}
ENV_FILE = "--env-file"

# What Go's flags take after `--flag=`.
_TRUE = {"1", "t", "T", "true", "TRUE", "True"}
_FALSE = {"0", "f", "F", "false", "FALSE", "False"}
_AFTER_PROGRAM = "arena.after_program"


class JobOption(click.Option):
    """An option that knows its place in the help. With `bare`, `--flag` alone means `--flag=BARE`, never the next word.

    `group` and `common` serve a command's own options too: `JobOption(["--rm"], is_flag=True, common=True)`.
    """

    def __init__(
        self,
        decls: Sequence[str],
        *,
        group: str = "Command",
        common: bool = False,
        note: str = "",
        shown: Sequence[str] = (),
        bare: str | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(decls, **attributes)
        self.group = group
        self.common = common
        self.note = note
        self.shown = tuple(shown) or tuple(sorted(self.opts, key=len))
        self.bare = bare

    @property
    def takes_word(self) -> bool:
        """Whether the next word is its value."""
        return _takes_word(self)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        if self.hidden:
            return None
        metavar = "" if self.is_flag or self.count else f" {self.metavar or self.name}"
        metavar = f"[={self.metavar or self.bare}]" if self.bare else metavar
        return ", ".join(self.shown) + metavar, self.help or ""

    def help_with_note(self, ctx: click.Context) -> tuple[str, str] | None:
        """The line of `--help-all`: what it means on this machine too."""
        record = self.get_help_record(ctx)
        return (record[0], f"{record[1]} ({self.note})") if record and self.note else record


class JobCommand(click.Command):
    """`run` or `submit TYPE`: the flags of a job, then a program and its words.

    `--help` shows the common flags and the epilog's examples, `--help-all` every flag by group. With `interspersed`
    flags stand anywhere before `--`; without it they end at the first word that is none, or at `-m`.
    """

    allow_interspersed_args = False  # what the context of a command takes over

    def __init__(self, name: str, *, kind: type[Job] | str, interspersed: bool = False, **attributes: Any) -> None:
        super().__init__(name, **attributes)
        self.allow_interspersed_args = interspersed
        self.kind = kind
        self.interspersed = interspersed
        taken = {spelling for param in self.params for spelling in param.opts}
        self.params = [*self.params, *(_without(option, taken) for option in params(kind)), _help_all(), program()]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = list(_Walk(self, ctx).words(args))
        joined = self.one_line and "--" not in words
        try:
            rest = super().parse_args(ctx, words)
        except click.NoSuchOption as error:
            raise self._unknown(ctx, error.option_name) from None
        if joined:
            ctx.params[declared.POSITIONAL] = one_line(ctx.params[declared.POSITIONAL])
        return rest

    @property
    def one_line(self) -> bool:
        """Whether words before `--` are one line for a shell: in the commands that Arena (Go) has, too."""
        return self.interspersed and declared.job_class(self.kind).one_line

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """What click offers, without old spellings."""
        options = [param for param in self.get_params(ctx) if isinstance(param, JobOption)]
        old = {spelling for option in options for spelling in option.opts if spelling not in option.shown}
        return [item for item in super().shell_complete(ctx, incomplete) if item.value not in old]

    def own_words(self, args: Sequence[str]) -> list[str]:
        """The words that are arena's, as far as they can be told: those before the program."""
        own: list[str] = []
        with contextlib.suppress(SpecError):
            own += itertools.takewhile(lambda word: word != "--", _Walk(self, click.Context(self)).words(args))
        return own

    def first_word(self, args: Sequence[str]) -> int | None:
        """The place of the first word that is neither a flag nor the value of one; a type must stand there."""
        walk = _Walk(self, click.Context(self))
        rest = list(args)
        while rest and rest[0] != "--":
            if not rest[0].startswith("-"):
                return len(args) - len(rest)
            walk.flag(rest.pop(0), rest)
        return None

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter, everything: bool = False) -> None:
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        (self._format_groups if everything else self._format_common)(ctx, formatter)
        self.format_epilog(ctx, formatter)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[FLAGS]", "[--] PROGRAM [ARGS]..." if self.interspersed else "PROGRAM|-m MODULE [ARGS]..."]

    def _format_common(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [option for option in self._shown(ctx) if _is_common(option)]
        with formatter.section("Flags"):
            formatter.write_dl([record for option in options if (record := option.get_help_record(ctx))])
        more = len(self._shown(ctx)) - len(options)
        formatter.write_paragraph()
        formatter.write_text(f"--help-all: {more} more flags")

    def _format_groups(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[click.Option]] = {}
        for option in self._shown(ctx):
            groups.setdefault(getattr(option, "group", "Command"), []).append(option)
        for group, options in groups.items():
            with formatter.section(group):
                formatter.write_dl([record for option in options if (record := _full_record(option, ctx))])

    def _shown(self, ctx: click.Context) -> list[click.Option]:
        return [param for param in self.get_params(ctx) if isinstance(param, click.Option) and not param.hidden]

    def _unknown(self, ctx: click.Context, name: str) -> SpecError:
        known = [spelling[2:] for option in self._shown(ctx) for spelling in option.opts if spelling.startswith("--")]
        near = difflib.get_close_matches(name.lstrip("-"), known, 1, 0.7)
        place = "after --" if self.interspersed else "after the program, or after --"
        return SpecError(
            f"there is no flag {name}" + (f"; did you mean --{near[0]}?" if near else ""),
            why=f"a flag of the program stands {place}",
            hint=f"{ctx.command_path} … -- PROGRAM {name} …, or {ctx.command_path} --help-all",
        )


def params(kind: type[Job] | str) -> list[click.Option]:
    """The options of a job type, in the order of its fields; `--env-file` stands beside `--env`.

    >>> [option.opts for option in params("job")][:2]
    [['--name'], ['-w', '--workers']]
    """
    options = [_option(field) for field in declared.leaves(kind) if field.flag]
    place = next((number for number, option in enumerate(options, 1) if option.name == "env"), 0)
    return [*options[:place], _env_file(), *options[place:]]


def _without(option: click.Option, taken: set[str]) -> click.Option:
    """The option without the spellings that the command itself needs, as `run -d`."""
    option.opts = [spelling for spelling in option.opts if spelling not in taken]
    if isinstance(option, JobOption):
        option.shown = tuple(spelling for spelling in option.shown if spelling not in taken)
    return option


def program() -> click.Argument:
    """The program and its words, as typed."""
    return click.Argument([declared.POSITIONAL], nargs=-1, type=click.UNPROCESSED)


def values(
    kind: type[Job] | str, given: Mapping[str, Any], environ: Mapping[str, str] | None = None
) -> dict[str, object]:
    """What was typed, of the parameters click has read, as plain values for `declared.merged` and `build`.

    >>> values("tensorflow", {"workers": "2", "ps__cpu": "1", "env": ("A=b,c",), "cpu": None, "command": ("t.py",)})
    {'command': ['t.py'], 'workers': '2', 'env': {'A': 'b,c'}, 'ps': {'cpu': '1'}}
    """
    found: dict[str, Any] = {}
    for field in declared.leaves(kind):
        typed = given.get(_parameter(field.name))
        if typed is not None and typed != ():
            _put(found, field, _value(field, typed, os.environ if environ is None else environ))
    if files := given.get("env_file"):
        found["env"] = {**_read_files(files), **found.get("env", {})}
    return found


def one_line(words: Sequence[str]) -> tuple[str, ...]:
    """The words joined by a blank, to be run by a shell as Arena (Go) does; a Python file keeps its words.

    >>> one_line(("cd /data", "&& python train.py"))
    ('cd /data && python train.py',)
    """
    return tuple(words) if len(words) < 2 or is_python_file(tuple(words)) else (" ".join(words),)


def after_program(words: Sequence[str], flags: Iterable[str]) -> list[str]:
    """The words after the program that are also flags of arena, each once, up to a `--`.

    >>> after_program(["train.py", "--workers=2", "--lr", "1", "--", "--name"], ["--workers", "--name"])
    ['--workers']
    """
    known = set(flags)
    own = list(words[1:])
    own = own[: own.index("--")] if "--" in own else own
    return list(dict.fromkeys(name for word in own if (name := word.partition("=")[0]) in known))


def program_note(ctx: click.Context) -> str:
    """One line when flags of arena stand after the program, where they are the program's; else nothing."""
    found, name = ctx.meta.get(_AFTER_PROGRAM, ([], ""))
    if not found:
        return ""
    verb, stands = ("belongs", "it stands") if len(found) == 1 else ("belong", "they stand")
    return f"{', '.join(found)} {verb} to the program ({stands} after {name})"


# Reading words


class _Walk:
    """One way over the words before click's own: it finds where the program begins, and spells flags as click does."""

    def __init__(self, command: JobCommand, ctx: click.Context) -> None:
        self.interspersed = command.interspersed
        self.ctx = ctx
        self.options: dict[str, click.Option] = {}
        for param in command.get_params(ctx):
            if isinstance(param, click.Option):
                self.options |= dict.fromkeys([*param.opts, *param.secondary_opts], param)

    def words(self, args: Sequence[str]) -> Iterator[str]:
        """The words for click."""
        rest = list(args)
        while rest:
            word = rest.pop(0)
            if word == "--":
                yield from ["--", *rest]
                return
            if self._is_flag(word):
                yield from self.flag(word, rest)
            elif self.interspersed:
                yield word
            else:
                yield from self._program([*_module(word), *rest])
                return

    def _is_flag(self, word: str) -> bool:
        module = not self.interspersed and word.startswith("-m") and "-m" not in self.options
        return word.startswith("-") and word != "-" and not module

    def _program(self, words: list[str]) -> list[str]:
        long = [name for name, option in self.options.items() if name.startswith("--") and not option.hidden]
        name = " ".join(words[:2]) if words[0] == "-m" else words[0]
        self.ctx.meta[_AFTER_PROGRAM] = (after_program(words, long), name)
        return ["--", *words]

    def flag(self, word: str, rest: list[str]) -> list[str]:
        """The flag as click spells it, with its value taken from the rest."""
        name, equals, value = word.partition("=")
        option = self.options.get(name)
        if option is None:
            return [word, *self._value_of_cluster(word, rest)]
        if option.is_flag and equals:
            return _switched(option, name, value)
        bare = getattr(option, "bare", None)
        if bare == "1" and value in _TRUE | _FALSE:
            return [f"{name}={int(value in _TRUE)}"]
        if bare == "1" and not equals and rest and rest[0].isdigit():
            return [word, *_next(rest)]
        if bare is not None and not equals:
            return [f"{name}={bare}"] if name.startswith("--") else [f"{name}{bare}"]
        if _takes_word(option) and value and not name.startswith("--"):
            return [name + value]
        return [word, *_next(rest)] if _takes_word(option) and not equals else [word]

    def _value_of_cluster(self, word: str, rest: list[str]) -> list[str]:
        """The value of `-w` in `-w 2` or `-dw 2`; in `-w2` it is there already."""
        if word.startswith("--"):
            return []
        for number, letter in enumerate(word[1:], 1):
            option = self.options.get(f"-{letter}")
            if option is None or _takes_word(option):
                last = number == len(word) - 1
                return _next(rest) if option is not None and last else []
        return []


def _next(rest: list[str]) -> list[str]:
    return [rest.pop(0)] if rest else []


def _takes_word(option: click.Option) -> bool:
    return not option.is_flag and not option.count and getattr(option, "bare", None) is None


def _module(word: str) -> list[str]:
    """`-mpkg` is `-m pkg`, as Python reads it."""
    return ["-m", word[2:]] if word.startswith("-m") and len(word) > 2 else [word]


def _switched(option: click.Option, name: str, value: str) -> list[str]:
    """`--flag=true` and `--flag=false`, as Go's flags have them."""
    if value not in _TRUE | _FALSE:
        raise SpecError(f"{name}: must be true or false, not {value!r}")
    if option.secondary_opts:
        return [option.opts[0] if value in _TRUE else option.secondary_opts[0]]
    return [name] if value in _TRUE else []


# Options


def _option(field: Field) -> JobOption:
    decls = [_parameter(field.name), *field.flags, *field.aliases]
    attributes: dict[str, Any] = {
        "group": field.group,
        "common": field.common,
        "note": LOCAL_NOTES[field.local],
        "shown": field.flags,
        "help": _help(field),
        "default": None,
        "shell_complete": _choices_of(field),
    }
    if field.shape == "bool":
        decls[1:] = [f"{flag}/--no-{flag[2:]}" if flag == field.flag else flag for flag in decls[1:]]
        return JobOption(decls, is_flag=True, **attributes)
    metavar = "|".join(field.choices) if field.choices else field.metavar
    bare = "1" if field.name.endswith(".count") else None
    return JobOption(decls, metavar=metavar, multiple=field.several, type=click.UNPROCESSED, bare=bare, **attributes)


def _choices_of(field: Field) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    def complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(choice) for choice in field.choices if choice.startswith(incomplete)]

    return complete


def _help(field: Field) -> str:
    default = f" (default {field.default})" if field.shape in ("int", "choice") and field.default else ""
    return field.help + default + ("; several times" if field.several else "")


def _env_file() -> JobOption:
    words = "variables from a file of KEY=VALUE lines; --env wins; several times"
    return JobOption([ENV_FILE], metavar="FILE", multiple=True, type=click.UNPROCESSED, help=words, group="Job")


def _help_all() -> JobOption:
    return JobOption(
        ["--help-all"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        hidden=True,
        callback=_print_all,
        help="Every flag, by group.",
    )


def _print_all(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    formatter = ctx.make_formatter()
    assert isinstance(ctx.command, JobCommand)
    ctx.command.format_help(ctx, formatter, everything=True)
    click.echo(formatter.getvalue().rstrip("\n"), color=ctx.color)
    ctx.exit()


def _is_common(option: click.Option) -> bool:
    return option.common if isinstance(option, JobOption) else True


def _full_record(option: click.Option, ctx: click.Context) -> tuple[str, str] | None:
    return option.help_with_note(ctx) if isinstance(option, JobOption) else option.get_help_record(ctx)


# Values


def _parameter(name: str) -> str:
    return name.replace(".", "__")


def _value(field: Field, typed: Any, environ: Mapping[str, str]) -> object:
    if field.shape == "mapping":
        return declared.parse_pairs(typed, field.flag, environ if field.name == "env" else None)
    return list(typed) if field.shape == "list" else typed


def _put(found: dict[str, Any], field: Field, value: object) -> None:
    name, dot, part = field.name.partition(".")
    if dot:
        found.setdefault(name, {})[part] = value
    else:
        found[name] = value


def _read_files(files: Sequence[str]) -> dict[str, str]:
    from arena.runfile import label, read_text

    pairs: dict[str, str] = {}
    for file in files:
        pairs |= declared.read_env_file(read_text(file), label(file))
    return pairs
