"""The pages as examples: their fenced blocks, and a fresh user who types them.

A block's info string says what it is: `sh` is run and must end well, `console` is run and shows its output, `python` is
run as a script, `yaml` is read as a run file. Further words: `file=NAME` writes the block beside the others instead,
`exit=N` is the code it ends with, `config` is a settings file, `cluster` makes it a part of a second session, of
somebody who has a cluster, and one of REASONS says why it is not run. A line `...` stands for any lines.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from arena import runfile
from arena.settings import Settings

ROOT = Path(__file__).parents[2]
EXECUTED = ("sh", "console", "python", "yaml", "toml")
REASONS = {
    "elsewhere": "needs what neither this machine nor the test bed has",
    "testbed": "starts a test bed, or needs one of its own",
    "frameworks": "needs the big frameworks (make frameworks)",
    "network": "downloads something",
    "terminal": "needs somebody at a terminal",
    "fragment": "is a part of something larger",
}
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = "@@ ended with"
ELSE = "..."
LAPTOP = "laptop"  # the machine's name on the pages
CLUSTER = "cluster"
IMAGE = "registry.example.com/work:1"  # what a namespace names as everyone's, on the pages
SERVER = "https://k8s.example.com:6443"
STATE = ".local/state/arena"
FOLDER = "/home/ada/mnist"  # the working folder on the pages
# What a slow machine says on top: what a job waits for meanwhile, and whose pod was gone before anybody read it.
PASSING = re.compile(
    r"[a-z][-a-z0-9]*: (PENDING|QUEUED|RUNNING)\b.*|worker-\d+: its log was not seen: the pod was deleted"
)
CHANGING = (
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?( UTC|Z)?"), "TIME"),
    (re.compile(r"(PENDING|RUNNING) \d\d:\d\d\b"), r"\1 TIME"),
    (re.compile(r"\b\d+(\.\d+)? ?s\b"), "N s"),
    (re.compile(r"-{3,}"), "---"),
    (re.compile(r"\b\d+ (min|h) ago"), "N s ago"),
    (re.compile(r"\bv\d+\.\d+\.\d+\b"), "VERSION"),
    (re.compile(r"\b\d+ cores\b"), "N cores"),
    (re.compile(r"\b\d+(Ki|Mi|Gi)? used\b"), "N used"),
    (re.compile(r"[ \t]+"), " "),
)


class Block(NamedTuple):
    """One fenced block of a page."""

    page: str
    line: int
    words: tuple[str, ...]
    text: str

    @property
    def kind(self) -> str:
        return self.words[0] if self.words else ""

    @property
    def reason(self) -> str:
        """Why it is not run; empty where it is."""
        return next((word for word in self.words if word in REASONS), "")

    @property
    def runs(self) -> bool:
        """Whether it is a part of a session."""
        return self.kind in EXECUTED and not self.reason

    @property
    def on_cluster(self) -> bool:
        """Whether it is for somebody who has a cluster."""
        return CLUSTER in self.words

    def option(self, name: str, default: str = "") -> str:
        found = [word.partition("=")[2] for word in self.words if word.startswith(f"{name}=")]
        return found[0] if found else default

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """README and what lies in docs, without the reference, whose examples are those of `--help`."""
    found = [path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "reference"]
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "README.md", *found))


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        Block(page, text[: found.start()].count("\n") + 1, tuple(found[1].split()), found[2])
        for found in FENCE.finditer(text)
    ]


def session(page: str, *, cluster: bool = False) -> list[Block]:
    """What somebody types who reads a page, without a cluster or with one; the files are everybody's."""
    found = [block for block in blocks(page) if block.runs]
    if cluster and not any(block.on_cluster for block in found):
        return []
    return [block for block in found if block.on_cluster is cluster or (cluster and block.option("file"))]


class Reader:
    """Somebody who types what a page says, in a folder of his own.

    `real` has the real names of those on the pages, `shown` the pages' names of those that stand in outputs only.
    """

    def __init__(
        self,
        env: dict[str, str],
        active: Path | None = None,
        real: Mapping[str, str] = MappingProxyType({}),
        shown: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.home, self.real = Path(env["HOME"]), real
        self.shown = {**{real: word for word, real in real.items()}, **shown}
        self.folder = self.home / "mnist"
        self.folder.mkdir(parents=True)
        (self.folder / "train.py").write_bytes((ROOT / "tests" / "docs" / "train.py").read_bytes())
        (self.folder / "examples").symlink_to(ROOT / "examples")
        own = f"{self.home / 'bin'}:{Path(sys.executable).parent}"
        dropped = ("VIRTUAL_ENV", "KUBECONFIG", "CONDA_PREFIX", "ARENA_STATE_DIR")
        self.env = {key: value for key, value in env.items() if key not in dropped}
        self.env |= {"PATH": f"{own}:{env['PATH']}", "TZ": "UTC", "ARENA_USER": "ada"}
        if active:
            self.env |= {"VIRTUAL_ENV": str(active), "PATH": f"{active / 'bin'}:{self.env['PATH']}"}

    def follow(self, block: Block) -> None:
        """Do what the block says; AssertionError tells what it did instead."""
        if name := block.option("file"):
            self._write(name, self._really(block.text))
        else:
            getattr(self, f"_{block.kind}")(block)

    def _really(self, text: str) -> str:
        for word, real in self.real.items():
            text = re.sub(rf"\b{re.escape(word)}\b", real, text)
        return text

    def _write(self, name: str, text: str) -> None:
        path = self.folder / name.replace("~", str(self.home))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if text.startswith("#!"):
            path.chmod(0o755)
        if name == "pyproject.toml":
            self._install(text)

    def _install(self, text: str) -> None:
        """What `pip install --editable .` does, without a network: an environment that knows the package."""
        project = tomllib.loads(text)["project"]
        venv.create(self.home / "venv", with_pip=False)
        (packages,) = (self.home / "venv" / "lib").glob("python*/site-packages")
        ours = sysconfig.get_path("purelib")
        (packages / "here.pth").write_text(f"{self.folder}\nimport site; site.addsitedir({ours!r})\n")
        info = packages / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        )
        groups = project["entry-points"].items()
        lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in entries.items()) for group, entries in groups]
        (info / "entry_points.txt").write_text("".join(lines))
        program = self.home / "venv" / "bin" / "arena"
        program.write_text(f"#!{program.with_name('python')}\nfrom arena.cli.main import main\nmain()\n")
        program.chmod(0o755)
        self.env["PATH"] = f"{self.home / 'bin'}:{program.parent}:{self.env['PATH']}"

    def _sh(self, block: Block) -> None:
        self._ends(block, ["bash", "-e", "-c", self._really(block.text)])

    def _python(self, block: Block) -> None:
        self._ends(block, [sys.executable, "-c", self._really(block.text)])

    def _ends(self, block: Block, words: list[str]) -> None:
        code, said = self._run(words)
        assert code == int(block.option("exit", "0")), f"{block} ended with {code}:\n{said}"

    def _yaml(self, block: Block) -> None:
        if "config" in block.words:
            file = self.folder / "site.yaml"
            file.write_text(block.text, encoding="utf-8")
            Settings.load({}, {"ARENA_SITE_CONFIG": str(file)}, Path("/"))
        else:
            runfile.read(block.text, str(block)).job()

    def _console(self, block: Block) -> None:
        steps = console(block.text)
        script = "".join(f"{command}\n{{ __code=$?; echo '{MARK}'; (exit $__code); }}\n" for command, _ in steps)
        _, said = self._run(["bash", "-c", self._really(script)])
        answers = said.split(f"{MARK}\n")
        for (command, expected), answer in zip(steps, answers, strict=False):
            wanted, found = Counter(self.plain(expected)), Counter(self.plain(answer))
            right = wanted == found
            if ELSE in wanted:
                del wanted[ELSE]
                right = wanted <= found
            assert right, f"{block}: $ {command}\nthe page says\n{expected}\nbut it was\n{answer}"

    def plain(self, text: str) -> list[str]:
        """The lines in which two runs of the same commands agree; replicas may write in any order."""
        import socket

        text = text.replace(str(self.folder), FOLDER).replace(str(self.home), "/home/ada")
        text = re.sub(rf"\b{re.escape(socket.gethostname())}\b", LAPTOP, text)
        text = text.replace(str(Path(sys.executable).parent), "/home/ada/.venv/bin")
        for said, word in self.shown.items():
            text = re.sub(rf"\b{re.escape(said)}\b", word, text)
        for name in self._names():
            text = re.sub(rf"\b{name}-[a-z0-9]{{4}}\b", f"{name}-ID", text)
            text = re.sub(rf"\b({name}-(?:[a-z]+-)?\d+)-[a-z0-9]{{5}}\b", r"\1-POD", text)
        for pattern, word in CHANGING:
            text = pattern.sub(word, text)
        lines = [line.strip() for line in text.splitlines()]
        return sorted(line for line in lines if line and not PASSING.fullmatch(line))

    def _names(self) -> list[str]:
        folders = [self.home / STATE / name for name in ("runs", "cluster")]
        found = {path.name[:-5] for folder in folders if folder.is_dir() for path in folder.iterdir()}
        return sorted(found, key=len, reverse=True)

    def _run(self, words: list[str]) -> tuple[int, str]:
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=200 if self.real else 150,
            check=False,
        )
        return done.returncode, done.stdout


def console(text: str) -> list[tuple[str, str]]:
    """The commands after `$ ` (`> ` goes on with one), each with the output below it."""
    steps: list[tuple[str, str]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            steps.append((line[2:], ""))
        elif line.startswith("> ") and steps and not steps[-1][1]:
            steps[-1] = (f"{steps[-1][0]}\n{line[2:]}", "")
        else:
            command, output = steps[-1]
            steps[-1] = (command, f"{output}{line}\n")
    return steps


def frameworks() -> Path:
    """The environment of the big frameworks."""
    return ROOT / ".frameworks"


def user_env(tmp_path: Path) -> dict[str, str]:
    """A fresh home with a state of its own, for trying a page by hand."""
    return {**os.environ, "HOME": str(tmp_path / "ada")}
