"""The parts of Kubernetes objects that arena reads: partial structs, everything else is skipped while decoding."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct, field


class Part(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """A part of an object; keys that are not declared are skipped."""


class Owner(Part, frozen=True):
    """Who an object belongs to."""

    kind: str = ""
    name: str = ""
    uid: str = ""


class Meta(Part, frozen=True):
    """`metadata`."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    owner_references: list[Owner] = field(default_factory=list)
    resource_version: str = ""


class Condition(Part, frozen=True):
    """One condition of a status."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    last_probe_time: datetime | None = None


class Variable(Part, frozen=True):
    """One environment variable of a container."""

    name: str = ""
    value: str = ""
    value_from: dict[str, Any] | None = None


class Resources(Part, frozen=True):
    """What a container asks for."""

    requests: dict[str, str | int] = field(default_factory=dict)
    limits: dict[str, str | int] = field(default_factory=dict)


class Container(Part, frozen=True):
    """A container of a template or pod."""

    name: str = ""
    image: str = ""
    command: list[str] = field(default_factory=list)
    args: list[str] = field(default_factory=list)
    env: list[Variable] = field(default_factory=list)
    working_dir: str = ""
    resources: Resources = Resources()


class Terminated(Part, frozen=True):
    """The end of a container."""

    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class Started(Part, frozen=True):
    """A running container."""

    started_at: datetime | None = None


class Waiting(Part, frozen=True):
    """A container that does not run yet."""

    reason: str = ""
    message: str = ""


class ContainerState(Part, frozen=True):
    """One of three."""

    waiting: Waiting | None = None
    running: Started | None = None
    terminated: Terminated | None = None


class ContainerStatus(Part, frozen=True):
    """A container as the kubelet saw it last."""

    name: str = ""
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    restart_count: int = 0
    ready: bool = False
    image: str = ""
    image_id: str = field(name="imageID", default="")


class PodSpec(Part, frozen=True):
    """`spec` of a pod or of its template."""

    node_name: str = ""
    containers: list[Container] = field(default_factory=list)
    init_containers: list[Container] = field(default_factory=list)
    scheduler_name: str = ""


class PodStatus(Part, frozen=True):
    """`status` of a pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[Condition] = field(default_factory=list)
    container_statuses: list[ContainerStatus] = field(default_factory=list)
    init_container_statuses: list[ContainerStatus] = field(default_factory=list)
    start_time: datetime | None = None


class Pod(Part, frozen=True):
    """A pod."""

    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Template(Part, frozen=True):
    """A pod template."""

    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()


class Thing(Part, frozen=True):
    """Any job object: what all kinds have. Each engine's own struct adds `spec` and `status`."""

    api_version: str = ""
    kind: str = ""
    metadata: Meta = Meta()
