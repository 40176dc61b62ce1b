"""What a job needs beside it: made before it, owned by it, taken back where there is no job."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import convert

from arena.backends.kubernetes import fitting
from arena.backends.kubernetes.paths import BUILT_IN, Paths
from arena.backends.kubernetes.stored import Store, is_code
from arena.engines.base import MANAGED_BY, RUN_LABEL, Manifest
from arena.engines.patching import apply_patch
from arena.errors import AlreadyExistsError, ArenaError, NotFoundError
from arena.kube.api import Meta, together
from arena.kube.errors import ConflictError

if TYPE_CHECKING:
    from arena.kube.api import Api


class Helpers:
    """The objects that one submit makes for its job, and what became of each.

    `created` are there because of this submit, `owned` go with the job, `taken` were there from one that was killed,
    `shared` is code, `unowned` that code which this submit brought.
    """

    def __init__(self, api: Api, paths: Paths, wanted: Sequence[Manifest], run_id: str, store: Store) -> None:
        self.api = api
        self.paths = paths
        self.wanted = wanted
        self.run_id = run_id
        self.store = store
        self.created: list[str] = []
        self.owned: list[str] = []
        self.taken: set[str] = set()
        self.shared: dict[str, Manifest] = {}
        self.unowned: list[Manifest] = []

    def make(self) -> None:
        """The helpers, side by side; those that are there already from a submit that was killed are taken over."""
        going = self.store.room_for(self.wanted, datetime.now(UTC))
        calls: list[Callable[[], Any]] = [partial(self.store.remove, one) for one in going]
        calls += [self._share(one) if is_code(one) else partial(self._make, one) for one in self.wanted]
        raise_first(together(calls))

    def _share(self, helper: Manifest) -> Callable[[], None]:
        """Code is there already or it is made; it belongs to no run alone, so none takes it over."""
        path, name = self.paths.of(helper), helper["metadata"]["name"]

        def share() -> None:
            if name not in self.store.found:
                with suppress(AlreadyExistsError):
                    self.unowned.append(self.api.create(path, helper)["metadata"])
            self.shared[f"{path}/{name}"] = helper

        return share

    def _make(self, helper: Manifest) -> None:
        path = self.paths.at(helper)
        try:
            self.api.create(self.paths.of(helper), helper)
        except AlreadyExistsError:
            if not self._take_over(path, helper):
                return
            self.taken.add(path)
        self.created.append(path)
        if is_ours(helper):
            self.owned.append(path)

    def _take_over(self, path: str, helper: Manifest) -> bool:
        """Whether what is there is this job's now: an own helper is, another's is used where it is as it should be."""
        there = self.api.get(path)
        if is_ours(helper) and is_ours(there):
            self.api.patch(path, {"metadata": {"labels": helper["metadata"]["labels"]}})
            return True
        what = f"{helper['kind']} {helper['metadata']['name']!r} exists"
        if is_ours(helper):
            raise AlreadyExistsError(f"{what} and is not arena's", hint="another --name")
        if differing := next(differences(_stored(helper), there), ""):
            raise AlreadyExistsError(f"{what} and has another {differing}", hint="kubectl apply -f, or another name")
        return False

    def give(self, thing: Mapping[str, Any]) -> list[str]:
        """Make the job the owner of its helpers: whoever deletes it deletes them; what is to be said of that."""
        patch = {"metadata": {"ownerReferences": [owner_of(thing)]}}
        own = [self._give(path, patch) for path in self.owned]
        answers = together(own + [self._join(path, patch) for path in self.shared])
        refused = [answer.what for answer in answers if isinstance(answer, ArenaError)]
        return [f"not all it needs goes when it is deleted: {refused[0]}"] if refused else []

    def _give(self, path: str, patch: Manifest) -> Callable[[], Any]:
        """An owner more; of a kind of an operator's, which knows no such patch, the only one."""
        known = any(path.startswith(one.format(self.paths.namespace)) for one in BUILT_IN.values())
        return lambda: self.api.patch(path, patch, how="strategic" if known else "merge")

    def _join(self, path: str, patch: Manifest) -> Callable[[], Any]:
        """One more owner of shared code; it is made again when its last other owner took it away meanwhile."""

        def join() -> Any:
            try:
                return self.api.patch(path, patch, how="strategic")
            except NotFoundError:
                helper = self.shared[path]
                return self.api.create(self.paths.of(helper), apply_patch(helper, patch))

        return join

    def undo(self) -> list[str]:
        """Remove the helpers that were made for a job that is not; what could not be removed, and why."""
        calls: list[Callable[[], Any]] = [partial(self.store.remove, convert(one, Meta)) for one in self.unowned]
        answers = together(calls + [self._remove(path) for path in self.created if path not in self.taken])
        return [error.what for error in answers if isinstance(error, ArenaError)]

    def _remove(self, path: str) -> Callable[[], None]:
        """Remove a helper, unless it is gone or another submit of that name has taken it over."""

        def remove() -> None:
            with suppress(NotFoundError, ConflictError):
                there = self.api.get(path)["metadata"]
                if (there.get("labels") or {}).get(RUN_LABEL, self.run_id) == self.run_id:
                    self.api.delete(path, uid=there["uid"], version=there["resourceVersion"])

        return remove


def is_ours(manifest: Mapping[str, Any]) -> bool:
    """Whether arena made an object, or rendered it."""
    return bool((manifest["metadata"].get("labels") or {}).get(MANAGED_BY) == "arena")


def differences(wanted: Any, there: Any, path: str = "") -> Iterator[str]:
    """The paths at which an object is not as a file has it; what else it has does not count.

    >>> list(differences({"data": {"a": "1"}}, {"data": {"a": "2", "b": "3"}}))
    ['data.a']
    """
    if isinstance(wanted, Mapping) and isinstance(there, Mapping):
        for key, value in wanted.items():
            yield from differences(value, there.get(key), f"{path}.{key}".lstrip("."))
    elif isinstance(wanted, list) and isinstance(there, list) and len(wanted) == len(there):
        for number, (one, other) in enumerate(zip(wanted, there, strict=True)):
            yield from differences(one, other, f"{path}[{number}]")
    elif wanted != there and not (".resources." in path and fitting.amount(wanted) == fitting.amount(there or 0)):
        yield path


def _stored(helper: Manifest) -> Manifest:
    """A helper as the server keeps it: the words of a Secret as bytes."""
    words = helper.get("stringData") or {}
    coded = {key: b64encode(str(value).encode()).decode() for key, value in words.items()}
    kept = {key: value for key, value in helper.items() if key != "stringData"}
    return {**kept, "data": {**(helper.get("data") or {}), **coded}} if words else kept


def owner_of(thing: Mapping[str, Any]) -> Manifest:
    """The reference that makes this object an owner; nothing blocks its deletion."""
    metadata = thing["metadata"]
    return {
        "apiVersion": thing["apiVersion"],
        "kind": thing["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def raise_first(answers: Iterable[object]) -> None:
    """The first refusal among the answers, raised."""
    for answer in answers:
        if isinstance(answer, ArenaError):
            raise answer
