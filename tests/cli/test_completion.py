"""Completion as a shell asks for it: commands, flags, values, names of live jobs."""

import shutil
import subprocess
from typing import Any

import pytest


def complete(arena: Any, *words: str) -> list[str]:
    """What bash would offer for the last word, by the real function in a real bash."""
    quoted = " ".join(f"'{word}'" for word in ("arena", *words))
    script = f"""
eval "$(arena completion bash)"
COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; COMP_LINE="${{COMP_WORDS[*]}}"; COMP_POINT=${{#COMP_LINE}}
_arena_completion arena
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    tool = arena.file("bin/arena", '#!/bin/sh\nexec {} "$@"\n'.format(" ".join(f"'{word}'" for word in arena.words)))
    tool.chmod(0o755)
    env = {**arena.env, "PATH": f"{tool.parent}:{arena.env['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=env, cwd=arena.cwd, capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout.split()


pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="other system: no bash")


def test_words_of_arena(arena: Any) -> None:
    assert complete(arena, "ru") == ["run"]
    assert {"run", "submit", "list", "logs", "why"} <= set(complete(arena, ""))
    assert complete(arena, "run", "--wor") == ["--workers", "--working-dir"]
    assert complete(arena, "run", "-w", "2", "--nproc") == ["--nproc-per-node"]
    assert complete(arena, "submit", "py") == ["pytorch"]
    assert "--ps-cpu" in complete(arena, "submit", "tf", "--ps")
    assert complete(arena, "run", "--restart-policy", "On") == ["OnFailure"]
    assert complete(arena, "list", "--state", "FA") == ["FAILED"]
    assert complete(arena, "list", "-o", "j") == ["json"]
    assert complete(arena, "completion", "z") == ["zsh"]
    assert not arena.state.exists()


def test_settings_and_types(arena: Any) -> None:
    assert complete(arena, "config", "set", "local.g") == ["local.gpus", "local.grace"]
    assert complete(arena, "schema", "p") == ["pytorch"]


def test_what_cannot_be_completed_is_silent(arena: Any) -> None:
    assert complete(arena, "nosuch", "") == []
    assert complete(arena, "submit", "nosuch", "") == []


def test_names_of_live_jobs(arena: Any) -> None:
    for name in ("mnist", "bert"):
        arena("run", "-d", "--name", name, "sleep", "60")
    arena("delete", "bert")
    for command in ("logs", "get", "why", "wait", "stop", "delete", "exec", "export", "attach", "history"):
        assert complete(arena, command, "") == ["mnist"], command
    assert complete(arena, "rerun", "m") == ["mnist"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts(here: Any, shell: str) -> None:
    done = here("completion", shell)
    assert done.exit_code == 0
    assert f"{shell}_complete" in done.stdout
    assert done.stderr == ""
    if shutil.which(shell) and shell != "fish":
        assert subprocess.run([shell, "-n"], input=done.stdout, text=True).returncode == 0
