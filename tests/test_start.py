"""What the quick commands load: nothing heavy, and job types one by one."""

import os
import subprocess
import sys

import pytest

HEAVY = ["asyncio", "httpx2", "numpy", "psutil", "rich", "socketserver", "sqlite3", "ssl", "tomllib", "xml", "yaml"]


def loaded(code: str, **env: str) -> set[str]:
    """The modules that are there when this code has run, without those of a bare interpreter."""
    program = (
        f"import os, sys\nbefore = set(sys.modules)\nout, sys.stdout = sys.stdout, open(os.devnull, 'w')\n{code}\n"
    )
    program += "print(*sorted(set(sys.modules) - before), file=out)"
    found = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **env}, capture_output=True, text=True, check=True
    )
    return set(found.stdout.split())


@pytest.mark.parametrize("words", [["--help"], ["version"], ["list", "--help"], ["logs", "--help"]], ids=" ".join)
def test_help_and_version_load_nothing_heavy(words: list[str]) -> None:
    modules = loaded(f"from arena.cli.main import run\nrun({words})")
    assert not modules & {*HEAVY}
    assert not any(name.startswith(("arena.backends", "arena.jobs.")) for name in modules)


def test_the_help_of_one_type_loads_no_other() -> None:
    modules = loaded("from arena.cli.main import run\nrun(['submit', 'mpi', '--help'])")
    assert "arena.jobs.mpi" in modules
    assert not modules & {"arena.jobs.pytorch", "arena.jobs.jax", "arena.jobs.tensorflow", *HEAVY}


@pytest.mark.parametrize("typed", ["arena l", "arena run --na"])
def test_completion_of_a_word_loads_nothing_heavy(typed: str) -> None:
    code = "from arena.cli.main import arena\ntry: arena.main(prog_name='arena')\nexcept SystemExit: pass"
    words = {"_ARENA_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    modules = loaded(code, **words)
    assert "click.shell_completion" in modules
    assert not modules & ({*HEAVY})


def test_importing_the_library_loads_little() -> None:
    modules = loaded("import arena")
    assert {name for name in modules if name.startswith("arena")} == {"arena", "arena._version"}
    assert not modules & {*HEAVY, "msgspec", "click", "threading"}
