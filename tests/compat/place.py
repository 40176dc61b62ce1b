"""`arena submit …` in this process, with a kubeconfig whose server nobody asks."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import yaml

from arena.cli import main

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: nowhere
contexts: [{name: nowhere, context: {cluster: nowhere, user: someone, namespace: default}}]
clusters: [{name: nowhere, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: someone, user: {token: x}}]
"""


class Said(NamedTuple):
    """How a command ended, the objects it printed, and what it said beside them."""

    code: int
    objects: list[dict[str, Any]]
    stderr: str

    @property
    def by_kind(self) -> dict[str, Any]:
        """The objects by their kinds."""
        return {one["kind"]: one for one in self.objects}

    @property
    def names(self) -> list[str]:
        """`Kind/name` of each object."""
        return [f"{one['kind']}/{one['metadata']['name']}" for one in self.objects]


class Place:
    """A folder with a kubeconfig, in which commands are dry runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "kubeconfig").write_text(KUBECONFIG)

    def __call__(self, *words: str) -> Said:
        """The objects that a dry run of these words prints."""
        out, err = io.StringIO(), io.StringIO()
        place = words.index("submit") + 2
        dry = [*words[:place], "--dry-run", "-o", "yaml", *words[place:]]
        with self._here(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main.run(["-b", "kubernetes", *dry])
        text = out.getvalue() if code == 0 else ""
        return Said(code, [one for one in yaml.safe_load_all(text) if one], err.getvalue())

    @contextlib.contextmanager
    def _here(self) -> Iterator[None]:
        home = str(self.folder)
        env = {"HOME": home, "KUBECONFIG": f"{home}/kubeconfig", "PATH": os.defpath, "ARENA_STATE_DIR": f"{home}/state"}
        with mock.patch.dict(os.environ, env, clear=True), contextlib.chdir(self.folder):
            yield
