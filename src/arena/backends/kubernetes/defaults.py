"""What a namespace sets for everybody: its ConfigMap `arena-defaults`, one more layer of settings.

Reading it costs a round trip, so it is remembered on disk, by user and namespace, and looked at again beside the
questions that every submit asks.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from arena.errors import ForbiddenError, NotFoundError
from arena.settings import SETTINGS, Settings

if TYPE_CHECKING:
    from arena.kube.api import Api

NAME = "arena-defaults"
PATH = "/api/v1/namespaces/{}/configmaps/" + NAME
# Where a namespace is reached, and what is on the user's own machine, is none of its business.
NOT_ITS = ("backend", "namespace", "context", "kubeconfig", "user", "state_dir", "lease_dir")
KEYS = {setting.key for setting in SETTINGS if setting.key not in NOT_ITS and not setting.key.startswith("local.")}

Values = Mapping[str, str]


def read(api: Api, namespace: str) -> Values:
    """The settings in the namespace's ConfigMap; none where it is not there or may not be read."""
    try:
        data = api.get(PATH.format(namespace)).get("data") or {}
    except (NotFoundError, ForbiddenError):
        return {}
    return {str(key): str(value).strip() for key, value in data.items()}


def layered(settings: Settings, namespace: str, values: Values) -> Settings:
    """The settings with those of the namespace; a value that cannot be is a SpecError that names the ConfigMap."""
    own = {key: value for key, value in values.items() if key in KEYS}
    return settings.with_layer("namespace", f"ConfigMap {namespace}/{NAME}", own)


def strangers(namespace: str, values: Values) -> list[str]:
    """A line about each key that is no setting a namespace can have."""
    return [f"ConfigMap {namespace}/{NAME}: {key!r} is no setting of a namespace" for key in values if key not in KEYS]


class Memory:
    """The defaults as they were last time, in a file per asker and namespace; without a folder, none."""

    def __init__(self, folder: Path | None, asker: str, namespace: str) -> None:
        self.file = folder / "defaults" / asker / f"{namespace}.json" if folder else None

    def recall(self) -> Values | None:
        """What was remembered; None where nothing was."""
        try:
            found = json.loads(self.file.read_bytes()) if self.file else None
        except (OSError, ValueError):
            return None
        return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else None

    def keep(self, values: Values) -> None:
        """Remember these; a disk that takes nothing is no reason to fail."""
        if self.file is None:
            return
        with contextlib.suppress(OSError):
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.file.parent, prefix=".new-")
            with open(handle, "w", encoding="utf-8") as stream:
                json.dump(dict(values), stream)
            os.replace(temporary, self.file)
