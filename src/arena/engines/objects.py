"""The parts of Kubernetes objects that arena reads: partial structs, everything else is skipped while decoding."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar, get_type_hints

import msgspec
from msgspec import Raw, Struct, field

T = TypeVar("T")
EMPTY = Raw(b"{}")


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
    deletion_grace_period_seconds: int | None = None
    owner_references: list[Owner] = field(default_factory=list)
    finalizers: list[str] = field(default_factory=list)
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

    @property
    def is_unseen(self) -> bool:
        """Whether nobody saw the end: the node could not find the container any more, and its code is made up."""
        return self.reason == "ContainerStatusUnknown"

    @property
    def has_run(self) -> bool:
        """Whether it is the end of a program, and not of a container that had not been made yet."""
        return not self.is_unseen or "used to be Running" in self.message


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

    @property
    def is_between_starts(self) -> bool:
        """Whether its last start has ended and the next has not begun: `last_state` is then the end of that start.

        While it runs, and once it has ended for good, `last_state` is the end of the start before. `restart_count`
        counts up when it starts again, not before.
        """
        last = self.last_state.terminated
        return self.state.waiting is not None and last is not None and last.has_run


class PodSpec(Part, frozen=True):
    """`spec` of a pod or of its template."""

    node_name: str = ""
    containers: list[Container] = field(default_factory=list)
    init_containers: list[Container] = field(default_factory=list)
    scheduler_name: str = ""
    node_selector: dict[str, str] = field(default_factory=dict)


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

    @property
    def turn(self) -> tuple[str, bool]:
        """What orders the pods of one replica: stamps are whole seconds, and one can follow another in the same."""
        metadata = self.metadata
        over = metadata.deletion_timestamp is not None or self.status.phase in ("Succeeded", "Failed")
        return str(metadata.creation_timestamp), not over


class Template(Part, frozen=True):
    """A pod template."""

    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()


class Thing(Part, frozen=True):
    """Any job object: what all kinds have. Each engine's own struct adds `spec` and `status`."""

    api_version: str = ""
    kind: str = ""
    metadata: Meta = Meta()


def loosely(raw: Raw, kind: type[T]) -> T:
    """The value as this struct; parts of a wrong type, which old schemas let through, get their defaults.

    >>> loosely(Raw(b'{"exitCode": 3, "reason": 7}'), Terminated)
    Terminated(exit_code=3, signal=0, reason='', message='', started_at=None, finished_at=None)
    """
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError:
        found: T = _fitting(msgspec.json.decode(raw), kind)
        return found


def _fitting(value: Any, kind: Any) -> Any:
    """What of a value fits the type."""
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        pass
    arguments: Any = getattr(kind, "__args__", ())
    if isinstance(kind, type) and issubclass(kind, Struct):
        return _fitting_struct(value if isinstance(value, dict) else {}, kind)
    origin = getattr(kind, "__origin__", None)
    if origin is list:
        return [found for one in _listed(value) if (found := _fitting(one, arguments[0])) is not None]
    if origin is dict:
        pairs = value.items() if isinstance(value, dict) else ()
        return {key: found for key, one in pairs if (found := _fitting(one, arguments[1])) is not None}
    return None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _fitting_struct(value: dict[str, Any], kind: type[Struct]) -> Struct:
    hints = get_type_hints(kind)
    fits = {}
    for name, key in zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True):
        found = _fitting(value[key], hints[name]) if key in value else None
        if found is not None:
            fits[name] = found
    return kind(**fits)
