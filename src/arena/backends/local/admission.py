"""Whose turn it is: a queue that moves by itself, made of files that the kernel closes.

Each waiting and each running job has a FIFO in the queue folder and holds its writing end: a waiting one its
supervisor, a running one its supervisor and keepers. When the last holder dies, whoever reads the FIFO sees its end.
So a waiting supervisor sleeps until the one before it, or any running job, is gone; nobody polls and nothing is left
to clean up after a `kill -9`.

    1796062560123456-2-mnist-7k3f.waiting      when it was submitted, replicas, run
    1796062559000001-8-bert-x2p1.running
"""

from __future__ import annotations

import contextlib
import os
import select
from pathlib import Path

from msgspec import Struct

from arena import files

RECHECK = 5.0


class Ticket(Struct, frozen=True, order=True):
    """A place in the queue."""

    number: int
    count: int
    run_id: str
    kind: str

    @property
    def filename(self) -> str:
        return f"{self.number:016d}-{self.count}-{self.run_id}.{self.kind}"


def parse(filename: str) -> Ticket | None:
    """The ticket a file name says, or None for other files."""
    stem, _, kind = filename.rpartition(".")
    words = stem.split("-", 2)
    if kind not in ("waiting", "running") or len(words) != 3:
        return None
    return Ticket(int(words[0]), int(words[1]), words[2], kind)


def fits(count: int, running: list[Ticket], capacity: int) -> bool:
    """Whether a gang may start beside those that run: when there is room, or when it is alone."""
    return not running or count + sum(ticket.count for ticket in running) <= capacity


class Queue:
    """The queue of one machine and user, as one supervisor sees it."""

    def __init__(self, folder: Path, run_id: str, count: int, capacity: int, number: int) -> None:
        self.folder = folder
        self.number = number
        self.run_id = run_id
        self.count = count
        self.capacity = capacity
        self.ticket: Ticket | None = None
        self.held = -1

    def enter(self) -> None:
        """Take a place: behind those submitted before, whichever supervisor comes first, and after a kill the same."""
        for folder in (self.folder.parent.parent, self.folder.parent, self.folder):
            folder.mkdir(mode=0o700, exist_ok=True)
        with files.mutex(self.folder / "lock"):
            self.ticket = Ticket(self.number, self.count, self.run_id, "waiting")
            self.held = self._hold(self.ticket)

    def rejoin(self) -> bool:
        """Take part in the hold on the place of a job that already runs (its first supervisor is gone)."""
        for ticket in self._tickets():
            if ticket.run_id == self.run_id and ticket.kind == "running":
                self.ticket = ticket
                with contextlib.suppress(OSError):
                    self.held = self._hold(ticket)
                    return True
        return False

    def try_start(self) -> list[Ticket]:
        """Start if it is our turn and there is room: an empty list, else those we wait for."""
        assert self.ticket is not None
        with files.mutex(self.folder / "lock"):
            alive = self._living()
            before = [t for t in alive if t.kind == "waiting" and t.number < self.ticket.number]
            running = [t for t in alive if t.kind == "running"]
            if before:
                return [before[-1]]
            if not fits(self.count, running, self.capacity):
                return running
            self._become_running(self.ticket)
            return []

    def sleep(self, waits_for: list[Ticket], wake: list[int]) -> None:
        """Return when one of those is gone, or when one of the files in `wake` can be read."""
        doors = [door for ticket in waits_for if (door := self._open(ticket)) is not None]
        try:
            poll = select.poll()
            for file in [*doors, *wake]:
                poll.register(file, select.POLLIN)
            if len(doors) == len(waits_for) and all(_has_writer(door) for door in doors):
                poll.poll(RECHECK * 1000)
        finally:
            for door in doors:
                os.close(door)

    def leave(self) -> None:
        """Give the place up."""
        if self.ticket is not None:
            (self.folder / self.ticket.filename).unlink(missing_ok=True)
            self.ticket = None
        if self.held >= 0:
            os.close(self.held)
            self.held = -1

    def _become_running(self, waiting: Ticket) -> None:
        running = Ticket(waiting.number, waiting.count, waiting.run_id, "running")
        held = self._hold(running)
        self.leave()
        self.ticket, self.held = running, held

    def _hold(self, ticket: Ticket) -> int:
        path = self.folder / ticket.filename
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        finally:
            os.close(reading)

    def _tickets(self) -> list[Ticket]:
        return sorted(ticket for name in os.listdir(self.folder) if (ticket := parse(name)))

    def _living(self) -> list[Ticket]:
        """The tickets somebody holds; the others are removed."""
        living = []
        for ticket in self._tickets():
            door = self._open(ticket)
            if door is None:
                continue
            if _has_writer(door):
                living.append(ticket)
            else:
                (self.folder / ticket.filename).unlink(missing_ok=True)
            os.close(door)
        return living

    def _open(self, ticket: Ticket) -> int | None:
        try:
            return os.open(self.folder / ticket.filename, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None


def _has_writer(door: int) -> bool:
    try:
        return os.read(door, 1) != b""
    except BlockingIOError:
        return True
