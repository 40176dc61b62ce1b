"""What an engine is: one kind that a cluster serves, rendered from a job and read back, in one file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct, field

from arena.engines.objects import Pod, Thing
from arena.job import Env, Job, Role
from arena.status import Observed

Manifest = dict[str, Any]

RUN_LABEL = "arena.kubeflow.org/run-id"
NAME_LABEL = "arena.kubeflow.org/job"
PART_LABEL = "arena.kubeflow.org/part"
MANAGED_BY = "app.kubernetes.io/managed-by"
RUN_ANNOTATION = "arena.kubeflow.org/run"
STOPPED_ANNOTATION = "arena.kubeflow.org/stopped"
ROLES_ANNOTATION = "arena.kubeflow.org/roles"


def escaped(text: str) -> str:
    """A user's text as Kubernetes must be told it, so that it arrives unchanged: `$(X)` and `$$` mean something there.

    >>> escaped("$(HOME) costs 5$$")
    '$$(HOME) costs 5$$$'
    """
    return re.sub(r"\$(?=[$(])", "$$", text)


class Kind(Struct, frozen=True):
    """A served kind: its version, and the properties of its spec by which generations are told apart."""

    version: str
    properties: frozenset[str] = frozenset()


Served = Mapping[str, Kind]  # by `PyTorchJob.kubeflow.org`


class Code(Struct, frozen=True, kw_only=True):
    """The code of a run as it travels: a ConfigMap's name, the hash of what it holds, and where it is laid."""

    config_map: str
    sha256: str
    key: str = "code.tgz"
    folder: str = "/arena/code"


class Work(Struct, frozen=True, kw_only=True):
    """A planned job, with everything that had to be decided before it can be rendered.

    `labels` and `annotations` are those of the job object; `secret` names the Secret that holds the values of
    `secret_env`; `upstream` tells that Arena (Go) must be able to see the job.
    """

    job: Job
    name: str
    namespace: str
    run_id: str
    roles: tuple[Role, ...]
    image: str
    labels: Env = field(default_factory=dict)
    annotations: Env = field(default_factory=dict)
    secret: str = ""
    secret_env: tuple[str, ...] = ()
    code: Code | None = None
    working_dir: str = ""
    keep_failed: bool = False
    fetch: bool = False
    upstream: bool = False
    served: Served = field(default_factory=dict)


class Engine(Protocol):
    """One kind a cluster serves. `name` is its word in `engines:` and the trainer that lists show."""

    name: str
    kind: str
    group: str
    version: str
    operator: str
    types: tuple[str, ...]
    pod_label: str
    container: str
    thing: type[Thing]

    def problems(self, work: Work) -> Sequence[str]:
        """Why this kind cannot carry the job: names too long for its children, settings it has no place for."""

    def render(self, work: Work) -> Manifest:
        """The job object."""

    def helpers(self, work: Work) -> Sequence[Manifest]:
        """What the job object needs beside it: made before it, owned by it."""

    def read(self, thing: Any, pods: Sequence[Pod]) -> Observed:
        """What is seen of a job in its object and its pods."""

    def stopped(self) -> Manifest:
        """The merge patch that ends the job and keeps its object."""
