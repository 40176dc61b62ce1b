"""What looks secret reaches the replica and nothing else: no output, no file, no command line of a process of ours."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

TOKEN, KEY, OWN = "hf_ThisIsTheTokenOfMine0123", "wandb-key-of-mine-4567", "own-password-of-mine-89"
SECRETS = (TOKEN, KEY, OWN)
WORDS = ["--env", f"HF_TOKEN={TOKEN}", "--env", "WANDB_API_KEY", "--env", "PLAIN=plain-value-of-mine"]
ENV = {"WANDB_API_KEY": KEY, "DB_PASSWORD": OWN}
LENGTHS = f"{len(TOKEN)} {len(KEY)} {len(OWN)}\n"
SHOW = "echo ${#HF_TOKEN} ${#WANDB_API_KEY} ${#DB_PASSWORD}"


def leaks(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret in text]


def files(folder: Path) -> Iterator[tuple[str, bytes]]:
    for place, _, names in os.walk(folder):
        paths = [Path(place, name) for name in names]
        yield from ((path.name, path.read_bytes()) for path in paths if path.is_file())


def test_nothing_shows_or_keeps_them(arena: Any, here: Any) -> None:
    ran = arena("--loglevel", "debug", "run", "--name", "a", *WORDS, "--", "sh", "-c", f"{SHOW}; exit 3", env=ENV)
    assert (ran.exit_code, ran.stdout) == (3, LENGTHS)
    shown = [ran.stderr]
    for words in (
        ("get", "a"), ("get", "a", "-o", "wide"), ("get", "a", "-o", "json"), ("get", "a", "-o", "yaml"), ("why", "a"),
        ("list", "-o", "json"), ("history", "-o", "json"), ("export", "a"), ("logs", "a", "-o", "json"),
        ("run", "--dry-run", *WORDS, "true"), ("run", "--dry-run", "-o", "json", *WORDS, "true"),
        ("wait", "a", "-o", "json", "--record", "out"), ("run", "--name", "a", *WORDS, "true"),
        ("run", "--name", "B", *WORDS, "true"), ("run", "--workers", "x", *WORDS, "true"), ("config", "show"),
    ):  # fmt: skip
        done = here(*words, env=ENV)
        shown.append(done.stdout + done.stderr)
    assert [leaks(text) for text in shown if leaks(text)] == []
    assert "HF_TOKEN: '***'" in arena("export", "a").stdout
    kept = [(name, data) for folder in (arena.state, arena.cwd / "out") for name, data in files(folder)]
    assert len(kept) > 5
    assert [name for name, data in kept if leaks(data.decode(errors="replace"))] == []


def test_command_lines_of_our_processes_hold_no_values(arena: Any) -> None:
    arena("run", "-d", "--name", "a", *WORDS, "--", "sh", "-c", f"{SHOW}; sleep 60", env=ENV)
    arena.running("a")
    mark = arena.env["TEST_OF"]
    lines = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TEST_OF") == mark:
                lines.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    assert len(lines) >= 3, lines  # the supervisor, the keeper, the replica
    assert [line for line in lines if leaks(line) or "plain-value-of-mine" in line] == []


def test_a_restarted_replica_has_them_too(arena: Any) -> None:
    script = f"{SHOW}; [ $ARENA_ATTEMPT = 2 ]"
    assert arena("run", "--name", "a", "--retry", "1", *WORDS, "--", "sh", "-c", script, env=ENV).exit_code == 0
    assert arena("logs", "a", "--attempt", "2").stdout == LENGTHS
    assert [name for name, data in files(arena.state) if leaks(data.decode(errors="replace"))] == []
