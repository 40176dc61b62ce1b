"""Notices a peer that is gone without a word: a machine that lost its power, a firewall that forgot the connection.

A followed log may be silent for hours, so its reader has no time limit; the kernel asks whether the other end is there.
"""

from __future__ import annotations

import contextlib
import socket

IDLE = 30  # seconds of silence before the first question
BETWEEN = 10  # and the next ones
QUESTIONS = 3
GONE = IDLE + QUESTIONS * BETWEEN  # what was sent may stay unread as long; a shorter time would end the questions, too


def options() -> list[tuple[int, int, int]]:
    """The options of a socket whose peer is given up after a minute without a sign of life."""
    found = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    idle = "TCP_KEEPIDLE" if hasattr(socket, "TCP_KEEPIDLE") else "TCP_KEEPALIVE"  # the latter is macOS' word
    wanted = {idle: IDLE, "TCP_KEEPINTVL": BETWEEN, "TCP_KEEPCNT": QUESTIONS, "TCP_USER_TIMEOUT": GONE * 1000}
    return found + [
        (socket.IPPROTO_TCP, getattr(socket, name), v) for name, v in wanted.items() if hasattr(socket, name)
    ]


def watch_peer(connected: socket.socket) -> None:
    """Set them on a socket that is connected."""
    for option in options():
        with contextlib.suppress(OSError):
            connected.setsockopt(*option)
