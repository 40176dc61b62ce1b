"""What a child of a fork cannot take over is made anew in it: locks, whose holders stay in the parent, and connections.

A fork copies every lock as it is and only the thread that forks: what another thread held nobody would ever give back.
"""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType
from typing import Protocol


class Renewed(Protocol):
    """An object with something in it that a child cannot take over."""

    def after_fork(self) -> None:
        """Make that anew, in the child; its other threads are not there."""


_RENEWED: weakref.WeakSet[Renewed] = weakref.WeakSet()


def renew(one: Renewed) -> None:
    """Have an object made anew in each child that is forked while it lives."""
    _RENEWED.add(one)


class Lock:
    """A lock that is free in a child, whoever holds it in the parent; its holder may take it again."""

    def __init__(self) -> None:
        self.after_fork()
        renew(self)

    def after_fork(self) -> None:
        """A lock that nobody holds."""
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


def _after_fork() -> None:
    for one in list(_RENEWED):
        one.after_fork()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_after_fork)
