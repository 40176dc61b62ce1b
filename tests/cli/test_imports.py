"""What may be imported for which command: that keeps the quick ones quick. Also without the modules Windows lacks."""

import subprocess
import sys
from typing import Any

import pytest

HEAVY = {
    "asyncio",
    "httpx2",
    "importlib.metadata",
    "msgspec",
    "psutil",
    "rich",
    "socket",
    "sqlite3",
    "ssl",
    "subprocess",
}
HEAVY |= {"tempfile", "urllib.request", "yaml", "concurrent.futures", "multiprocessing", "email.message"}

AFTER = """
import io, sys
out, sys.stdout = sys.stdout, io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
from arena.cli import main
try:
    main.main(sys.argv[1:])
finally:
    print(*sorted(sys.modules), file=out, flush=True)
"""

WITHOUT = """
import sys
MISSING = ("fcntl", "pwd", "termios", "resource", "grp")
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
for name in MISSING:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Blocker())
"""


def modules(arena: Any, *words: str, **env: str) -> set[str]:
    """All modules there are after a command."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", AFTER, *words],
        env={**arena.env, **env},
        cwd=arena.cwd,
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return set(done.stdout.split())


def ours(found: set[str]) -> set[str]:
    return {name.removeprefix("arena.") for name in found if name.startswith("arena.")}


@pytest.mark.parametrize(
    ("words", "may"),
    [
        (["--help"], {"_version", "cli", "cli.main", "errors"}),
        ([], {"_version", "cli", "cli.main", "errors"}),
        (["--version"], {"_version", "cli", "cli.main", "errors"}),
        (["version"], {"_version", "cli", "cli.main", "cli.version", "errors"}),
        (
            ["no-such-command"],
            {"_version", "cli", "cli.main", "cli.common", "cli.output", "errors", "secrets", "status"},
        ),
    ],
    ids=["--help", "nothing", "--version", "version", "unknown"],
)
def test_the_quick_commands(arena: Any, words: list[str], may: set[str]) -> None:
    found = modules(arena, *words)
    assert ours(found) <= may
    assert found & HEAVY == set()
    assert len(found) < 190


@pytest.mark.parametrize("words", ["arena ru", "arena "])
def test_completing_a_command_word(arena: Any, words: str) -> None:
    found = modules(arena, COMP_WORDS=words, COMP_CWORD="1", _ARENA_COMPLETE="bash_complete")
    assert ours(found) <= {"_version", "cli", "cli.common", "cli.main", "errors"}
    assert found & HEAVY == set()


def test_completing_a_flag_reads_no_file_and_starts_nothing(arena: Any) -> None:
    found = modules(arena, COMP_WORDS="arena run --wo", COMP_CWORD="2", _ARENA_COMPLETE="bash_complete")
    assert found & (HEAVY - {"msgspec"}) == set()
    assert not any(name.startswith(("backends", "client")) for name in ours(found))


@pytest.mark.parametrize(
    ("words", "types"),
    [
        (["run", "--help"], {"plain"}),
        (["run", "--help-all"], {"plain"}),
        (["submit", "pytorch", "--help"], {"pytorch"}),
        (["submit", "tf", "--help"], {"tensorflow"}),
        (["schema", "mpi"], {"mpi"}),
    ],
    ids=["run", "run all", "pytorch", "tf", "schema"],
)
def test_job_types_load_one_by_one(arena: Any, words: list[str], types: set[str]) -> None:
    found = modules(arena, *words)
    loaded = {name.removeprefix("jobs.") for name in ours(found) if name.startswith("jobs.")} - {"peers"}
    assert types <= loaded <= types | {"plain"}
    assert found & (HEAVY - {"msgspec"}) == set()


def test_import_arena_starts_and_prints_nothing(arena: Any) -> None:
    text = (
        "import sys, threading, os; import arena\n"
        "heavy = ('arena', 'msgspec', 'click', 'yaml', 'ssl')\n"
        "names = sorted(name for name in sys.modules if name.partition('.')[0] in heavy)\n"
        "print(names, threading.active_count())\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", text], env=arena.env, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("['arena', 'arena._version'] 1\n", "")
    assert not arena.state.exists()


def without(arena: Any, text: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-P", "-c", WITHOUT + text], env=arena.env, cwd=arena.cwd, capture_output=True, text=True
    )


def test_a_client_without_the_modules_windows_lacks(arena: Any) -> None:
    text = "import arena; client = arena.Client(); print(arena.PyTorchJob(command=('t.py',), workers=2).workers)"
    assert without(arena, text).stdout == "2\n"


@pytest.mark.parametrize("words", [["--help"], ["version"], ["schema"], ["run", "--help-all"], ["config", "show"]])
def test_commands_without_them(arena: Any, words: list[str]) -> None:
    done = without(arena, f"from arena.cli.main import main; main({words})")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", [["run", "true"], ["list"], ["submit", "pytorch", "-b", "local", "true"]])
def test_local_jobs_are_refused_in_one_line_without_them(arena: Any, words: list[str]) -> None:
    done = without(arena, f"from arena.cli.main import main; main({words})")
    assert done.returncode == (125 if words[0] == "run" else 5)
    assert done.stderr.splitlines()[0] == "Error: jobs cannot run on this machine"
