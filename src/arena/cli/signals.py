"""Ctrl-C and other signals: the first detaches, `--rm` ties the job to the command."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

KINDS = ("SIGINT", "SIGTERM", "SIGHUP")


class Interrupt(KeyboardInterrupt):
    """A signal that ends the command; its exit code is 128 + the signal's number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def exit_code(self) -> int:
        return 128 + self.number


class Signals:
    """Turns the first signal into `Interrupt`; others, and all while something must be whole, are only remembered."""

    def __init__(self) -> None:
        self.held: int | None = None
        self.holding = False

    def __enter__(self) -> Signals:
        self.before: dict[int, object] = {}
        if threading.current_thread() is threading.main_thread():
            for name in KINDS:
                if number := getattr(signal, name, None):
                    self.before[number] = signal.signal(number, self._came)
        return self

    def __exit__(self, *exc: object) -> None:
        self.holding = True
        for number, action in self.before.items():
            signal.signal(number, action)  # type: ignore[arg-type]

    @contextlib.contextmanager
    def hold(self) -> Iterator[Callable[[], None]]:
        """From the call of what it gives on nothing interrupts the block; what came meanwhile comes after it."""

        def begin() -> None:
            self.holding = True

        try:
            yield begin
        finally:
            self.holding = False
        if self.held is not None:
            self._raise(self.held)

    def again(self, seconds: float) -> bool:
        """After an interrupt: whether one more comes, now or within so many seconds."""
        deadline = time.monotonic() + seconds
        while self.held is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.held is not None

    def _came(self, number: int, _: FrameType | None) -> None:
        if self.holding:
            self.held = number
        else:
            self._raise(number)

    def _raise(self, number: int) -> None:
        self.held, self.holding = None, True
        raise Interrupt(number)
