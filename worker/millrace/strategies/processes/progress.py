"""How far a process of a pool is, in memory that its parent reads: which request it works on, in which stage, at which
message of the request.

The process writes it once a batch and stage. The message is found by a thread beside, which looks every second at how far
the other one is: nothing is paid for it by message. A function in C that keeps the interpreter to itself stops that thread
too; then the message just stays the same, which is what it says.
"""

from __future__ import annotations

import struct
import threading
from typing import NamedTuple

from millrace.strategies.each import record_at

PULSE = 8
"""Bytes at the beginning of the block that are not ours but the pulse's (`again`)."""

LOOK_EVERY = 1.0  # s

_PLACE = struct.Struct("<Qq")
_MESSAGE = struct.Struct("<q")
SIZE = PULSE + _PLACE.size + _MESSAGE.size


class Progress(NamedTuple):
    """Attributes:
    request: number of the request, from 1 on; 0: it has none to work on.
    stage: by its place among those of the process.
    message: index in the request; -1: not known.
    """

    request: int
    stage: int
    message: int


def read(content: bytes) -> Progress:
    """Of the first SIZE bytes of the block."""
    return Progress(*_PLACE.unpack_from(content, PULSE), *_MESSAGE.unpack_from(content, PULSE + _PLACE.size))


class Reporter:
    """In the process, made on the thread that works: writes to the block's first SIZE bytes."""

    def __init__(self, view: memoryview) -> None:
        self._view, self._thread, self._requests = view, threading.get_ident(), 0
        self._request = 0
        threading.Thread(target=self._look_on, name="progress", daemon=True).start()

    def began(self) -> None:
        """The next request."""
        self._requests += 1
        self._request = self._requests

    def stage(self, index: int) -> None:
        """Its work in this stage begins."""
        _MESSAGE.pack_into(self._view, PULSE + _PLACE.size, -1)
        _PLACE.pack_into(self._view, PULSE, self._request, index)

    def done(self) -> None:
        """With the request."""
        self._request = 0
        _PLACE.pack_into(self._view, PULSE, 0, 0)

    def _look_on(self) -> None:
        never = threading.Event()
        while not never.wait(LOOK_EVERY):
            index = getattr(record_at(self._thread), "index", -1)
            _MESSAGE.pack_into(self._view, PULSE + _PLACE.size, index)
