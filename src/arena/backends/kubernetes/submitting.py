"""A submit: asked first, then helpers, the job, and owners; at most four round trips one after another."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from arena.backends.base import Plan, Ref, unheard
from arena.backends.kubernetes import refusals
from arena.backends.kubernetes.asking import Asking, Defaults, place_of
from arena.backends.kubernetes.helping import Helpers
from arena.backends.kubernetes.paths import Paths
from arena.backends.kubernetes.planning import Made
from arena.backends.kubernetes.stored import Store
from arena.engines.base import RUN_LABEL, Manifest
from arena.errors import AlreadyExistsError, ArenaError, NotFoundError
from arena.kube.errors import UnknownOutcomeError

if TYPE_CHECKING:
    from arena.kube.api import Api

UNSEEN = 10.0  # seconds that an operator has to see what was made before its job


class Submission:
    """One submit of one plan; what it has made is undone when it fails before its job is there."""

    def __init__(
        self, api: Api, plan: Plan, defaults: Defaults | None = None, committed: Callable[[], None] = unheard
    ) -> None:
        made = plan.data
        assert isinstance(made, Made)
        self.api = api
        self.plan = plan
        self.made = made
        self.committed = committed
        self.unsure = False
        self.warnings: list[str] = []
        self.paths = Paths(api, made.namespace, made.engine)
        store = Store(api, made.namespace)
        self.asking = Asking(api, made, self.paths, store, defaults)
        self.helpers = Helpers(api, self.paths, made.helpers, plan.run_id, store)

    def carry_out(self) -> Ref:
        """Ask, make the helpers, make the job, give it its helpers."""
        self.ask()
        try:
            self.helpers.make()
            self.committed()
            thing = self._make_job()
        except BaseException as error:
            left = [] if self.unsure and not isinstance(error, AlreadyExistsError) else self.helpers.undo()
            if isinstance(error, ArenaError):
                raise _with_left(refusals.told(error, place_of(self.made)), left) from error.__cause__
            raise
        self.warnings += self.helpers.give(thing)
        metadata = thing["metadata"]
        return Ref(
            name=metadata["name"],
            run_id=self.plan.run_id or metadata["uid"],
            namespace=self.made.namespace,
            kind=self.made.engine.name,
            uid=metadata["uid"],
        )

    def ask(self) -> Manifest:
        """The job as the server would make it; nothing is written."""
        thing, self.warnings = self.asking.ask(self.plan.name)
        return thing

    def _make_job(self) -> Manifest:
        """The job as it was made; where the connection broke it is sent again, as only one of that name can be."""
        path = self.paths.of(self.made.thing)
        try:
            return self._make_seen(path)
        except UnknownOutcomeError:
            self.unsure = True  # what a job may need is not undone
            if not self.plan.run_id:  # nothing tells this job from another of its name
                raise
        try:
            made = self.api.create(path, self.made.thing)
        except (AlreadyExistsError, UnknownOutcomeError):
            found = self._mine(path)
            if found is None:
                raise
            made = found
        self.unsure = False
        return made

    def _make_seen(self, path: str) -> Manifest:
        """The job as it was made, asked for again while its operator has not yet seen what was made before it."""
        end = time.monotonic() + UNSEEN
        while True:
            try:
                return self.api.create(path, self.made.thing)
            except ArenaError as error:
                if not refusals.is_unseen(error, self.made.helpers) or time.monotonic() > end:
                    raise
            time.sleep(0.1)

    def _mine(self, path: str) -> Manifest | None:
        """The job of this very run, if the server has it."""
        try:
            found = self.api.get(f"{path}/{self.plan.name}")
        except NotFoundError:
            return None
        return found if (found["metadata"].get("labels") or {}).get(RUN_LABEL) == self.plan.run_id else None


def _with_left(error: ArenaError, left: Sequence[str]) -> ArenaError:
    """The error, and what its submit could not take back."""
    if left:
        error.hint = "; ".join(filter(None, [error.hint, f"what was made for it was not removed: {left[0]}"]))
    return error
