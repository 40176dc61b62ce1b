"""The pages are true: their examples run, their links lead somewhere, the reference is the code's."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import os
import pkgutil
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest
from testbed.bed import Bed

import arena
from arena import declared, jobs
from arena.cli import options
from arena.cli.main import COMMANDS
from arena.cli.main import arena as group
from docs import pages
from docs.member import member

ROOT = pages.ROOT
BLOCKS = [block for page in pages.pages() for block in pages.blocks(page)]
LINK = re.compile(r"(?<!!)\[[^]\n]*\]\(([^)\s]+)\)")


# --- examples of the pages -----------------------------------------------------------------------------------


@pytest.fixture
def reader_env(job_env: dict[str, str]) -> dict[str, str]:
    """The environment of a reader, whose jobs the tests' end finds."""
    job_env["ARENA_STATE_DIR"] = f"{job_env['HOME']}/{pages.STATE}"
    return job_env


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", [page for page in pages.pages() if pages.session(page)])
def test_what_a_page_says_happens(page: str, reader_env: dict[str, str]) -> None:
    reader = pages.Reader(reader_env)
    for block in pages.session(page):
        reader.follow(block)


@pytest.mark.kubelet
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", [page for page in pages.pages() if pages.session(page, cluster=True)])
def test_what_a_page_says_of_a_cluster_happens(
    page: str, reader_env: dict[str, str], tmp_path: Path, node: Bed
) -> None:
    with member(node, reader_env, tmp_path) as reader:
        for block in pages.session(page, cluster=True):
            reader.follow(block)


@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.parametrize("block", [block for block in BLOCKS if block.reason == "frameworks"], ids=str)
def test_what_needs_frameworks_happens(block: pages.Block, reader_env: dict[str, str]) -> None:
    pages.Reader(reader_env, pages.frameworks()).follow(block)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_is_run_or_says_why_not(block: pages.Block) -> None:
    known = {*pages.REASONS, "config", pages.CLUSTER}
    if block.words:
        assert block.kind in pages.EXECUTED
        assert all(word in known or word.startswith(("file=", "exit=")) for word in block.words[1:])
    assert block.words or not re.search(r"^(\$ )?arena \w", block.text, re.MULTILINE), "a command that nobody runs"


# --- links ---------------------------------------------------------------------------------------------------


def linking() -> list[Path]:
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    return [*found, *(ROOT / "tests").rglob("*.md")]


def anchors(page: Path) -> set[str]:
    """What GitHub makes of a page's headings."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", linking(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = pages.FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in LINK.findall(text):
        name, _, anchor = target.partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        place = page.parent / name if name else page
        assert place.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(place), f"{page.name} links to {target}"


# --- the reference -------------------------------------------------------------------------------------------


def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "tools" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_what_the_code_says() -> None:
    tool = reference()
    written = {path.name: path.read_text(encoding="utf-8") for path in tool.FOLDER.glob("*.md")}
    made = tool.pages()
    assert written.keys() == made.keys()
    stale = [name for name in made if written[name] != made[name]]
    assert not stale, "make reference"


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command and command of a group, with the page it belongs on."""
    top = click.Context(group, info_name="arena")
    for name in COMMANDS:
        command = group.get_command(top, name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            ctx = click.Context(command, info_name=name, parent=top)
            for sub in command.list_commands(ctx):
                inner = command.get_command(ctx, sub)
                assert inner is not None
                yield name, inner


def test_every_flag_stands_on_a_page() -> None:
    folder = ROOT / "docs" / "reference"
    types = "".join((folder / f"type-{name}.md").read_text(encoding="utf-8") for name in jobs.BUILT_IN)
    for page, command in commands():
        text = (folder / f"{page}.md").read_text(encoding="utf-8") + (types if page == "submit" else "")
        spellings = [name for param in command.params for name in (*param.opts, *param.secondary_opts)]
        missing = [name for name in spellings if name.startswith("-") and name not in text]
        assert not [name for name in missing if not name.startswith("--no-")], f"{page} {command.name}"


def test_every_variable_of_arena_stands_on_a_page() -> None:
    text = (ROOT / "docs" / "reference" / "environment.md").read_text(encoding="utf-8")
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src" / "arena").rglob("*.py"))
    missing = [
        name for name in set(re.findall(r"""["'](ARENA_[A-Z][A-Z_]{2,})["']""", source)) if f"`{name}`" not in text
    ]
    assert not missing


# --- examples of the code ------------------------------------------------------------------------------------


def modules() -> list[str]:
    found = pkgutil.walk_packages(arena.__path__, "arena.")
    return ["arena", *(module.name for module in found if not module.name.endswith("__main__"))]


@pytest.mark.parametrize("name", modules())
def test_examples_in_docstrings(name: str, reader_env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("HOME", "ARENA_STATE_DIR", "TEST_OF"):
        monkeypatch.setenv(key, reader_env[key])
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert not failed


def examples() -> list[str]:
    """The lines below `Examples:` of every help, without what they say about them; each command in a pipe alone."""
    texts = {command.epilog or "" for _, command in commands()} | {group.epilog or ""}
    lines = [line.strip() for text in texts for line in text.partition("Examples:\n")[2].splitlines()]
    typed = [re.split(r" {2,}", line)[0] for line in lines if line]
    return sorted({found for line in typed for found in _commands_in(line)})


def _commands_in(line: str) -> list[str]:
    inner = re.findall(r"\$\((arena [^)]*)\)", line)
    words = shlex.split(line, comments=True)
    if inner or words[0] != "arena":
        return inner
    ends = [number for number, word in enumerate(words) if word in ("|", ">")]
    return [shlex.join(words[: ends[0]] if ends else words)]


def test_there_are_examples() -> None:
    assert len(examples()) > 20


@pytest.mark.parametrize("line", examples())
def test_an_example_of_a_help_can_be_typed(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("job.yaml", "mnist.yaml"):
        Path(name).write_text("type: pytorch\ncommand: train.py\n", encoding="utf-8")
    parse(group, shlex.split(line), None)


def parse(command: click.Command, words: list[str], parent: click.Context | None) -> None:
    """Read the words as the command would, down to its values, and do nothing."""
    ctx = command.make_context(words[0], words[1:], parent=parent)
    if isinstance(command, click.Group):
        _, inner, rest = command.resolve_command(ctx, [*ctx._protected_args, *ctx.args])
        assert inner is not None
        parse(inner, [inner.name or "", *rest], ctx)
    elif isinstance(command, options.JobCommand) and not ctx.params.get("file"):
        declared.build(command.kind, options.values(command.kind, ctx.params))


def test_pages_are_found() -> None:
    assert {"README.md", "docs/first-day.md"} <= {*pages.pages()}
    assert os.path.exists(ROOT / "docs" / "reference" / "README.md")
