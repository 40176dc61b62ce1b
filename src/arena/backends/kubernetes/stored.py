"""The code that a namespace holds: whose it is, how much there may be, and what goes first when there is no room."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from arena import engines, status
from arena.backends.kubernetes.travel import PART, SIZE_ANNOTATION
from arena.engines.base import MANAGED_BY, PART_LABEL, Manifest
from arena.errors import ArenaError, BackendError, ForbiddenError, NotFoundError
from arena.quantity import format_bytes

if TYPE_CHECKING:
    from arena.kube.api import Api, Meta, Owner

PATH = "/api/v1/namespaces/{}/configmaps"
LABELS = f"{MANAGED_BY}=arena,{PART_LABEL}={PART}"
MOST = 10_000_000  # bytes of code in one namespace: more loads the API server and its memory
YOUNG = timedelta(minutes=10)  # code without an owner belongs to a submit that is still going on


def is_code(manifest: Manifest) -> bool:
    """Whether an object carries code, which several runs may share."""
    return bool(manifest["metadata"].get("labels", {}).get(PART_LABEL) == PART)


class Store:
    """The ConfigMaps of code in one namespace, as they were when `read` was called; where it may not look, none."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.path = PATH.format(namespace)
        self.namespace = namespace
        self.found: dict[str, Meta] = {}

    def read(self) -> None:
        """Look, in one request; metadata only."""
        try:
            self.found = {one.name: one for one in self.api.metadata(self.path, labels=LABELS).items}
        except ForbiddenError:  # whoever may not list them may still be allowed to make one
            self.found = {}

    def orphans(self, now: datetime) -> list[Meta]:
        """Code that a submit left when it was killed."""
        return [one for one in self.found.values() if not one.owner_references and created(one) < now - YOUNG]

    def room_for(self, helpers: Sequence[Manifest], now: datetime) -> list[Meta]:
        """What is to be removed before these objects are made; BackendError where that is not enough."""
        names = {helper["metadata"]["name"] for helper in helpers if is_code(helper)}
        going = [one for one in self.orphans(now) if one.name not in names]
        gone = {one.name for one in going}
        kept = [one for one in self.found.values() if one.name not in gone | names]
        much = sum(map(size_of, kept)) + sum(int(size(helper)) for helper in helpers if is_code(helper))
        if names and much > MOST:
            going += self._ended(kept, much - MOST)
        return going

    def _ended(self, kept: Sequence[Meta], too_much: int) -> list[Meta]:
        """The oldest code that only ended runs have, as much of it as has to go."""
        going = []
        for one in sorted(kept, key=created):
            if too_much > 0 and one.owner_references and all(map(self.has_ended, one.owner_references)):
                going.append(one)
                too_much -= size_of(one)
        if too_much > 0:
            raise BackendError(
                f"namespace {self.namespace!r} holds {format_bytes(MOST)} of code, more is not sent",
                why=f"{len(kept)} folders of jobs that have not ended; {format_bytes(too_much)} too much with this one",
                hint="delete jobs that nobody needs, or put the code into the image (--image)",
            )
        return going

    def has_ended(self, owner: Owner) -> bool:
        """Whether the job that owns code has ended or is gone; of a kind that is not known nothing is said."""
        kinds = {engine.kind: engine for engine in map(engines.load, engines.ENGINES)}
        engine = kinds.get(owner.kind)
        resource = self.api.discovery.find(engine.kind, engine.group) if engine else None
        if engine is None or resource is None:
            return False
        try:
            thing: Any = self.api.get(resource.path(self.namespace, owner.name), engine.thing)
        except NotFoundError:
            return True
        except ArenaError:
            return False
        return bool(thing.metadata.uid != owner.uid or status.decide(engine.read(thing, ())).state.final)

    def remove(self, one: Meta) -> None:
        """Remove code that nobody needs, unless a run has come to own it; others may have done so, or be allowed to."""
        try:
            self.api.delete(f"{self.path}/{one.name}", uid=one.uid, version=one.resource_version)
        except ArenaError:
            return


def created(one: Meta) -> datetime:
    """When an object was made."""
    try:
        return datetime.fromisoformat(one.creation_timestamp)
    except ValueError:
        return datetime.now(UTC)


def size_of(one: Meta) -> int:
    """How much code it holds."""
    text = one.annotations.get(SIZE_ANNOTATION, "")
    return int(text) if text.isdecimal() else 0


def size(helper: Manifest) -> str:
    """The same of one that is still to be made."""
    return str(helper["metadata"]["annotations"][SIZE_ANNOTATION])
