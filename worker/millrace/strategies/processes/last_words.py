"""The stack of a process of a pool, on demand: its parent sends SIGUSR1, and Python's own handler in C, which needs neither
the interpreter nor memory, writes the stacks of all threads to a file that both have open.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Callable

from millrace.clock import Deadline

REQUEST = signal.SIGUSR1
WITHIN = 2.0  # s that a process has to answer; it does in a few ms unless it is stopped, or in the kernel
_LOOK = 0.01  # s between two looks; what has not grown between two is complete
_MOST = 64 * 2**10  # bytes


def answer_into(fd: int) -> None:
    """In the process: from now on it answers."""
    faulthandler.register(REQUEST, file=fd, all_threads=True)


def ask(fd: int, send: Callable[[signal.Signals], None], deadline: Deadline) -> str:
    """In the parent: the stacks; "" if it does not answer. One caller at a time."""
    os.ftruncate(fd, 0)
    os.lseek(fd, 0, os.SEEK_SET)  # the place to write at is shared, as the open file is
    send(REQUEST)
    before, size = -1, 0
    while not deadline.expired() and (size == 0 or size != before):
        deadline.clock.sleep(_LOOK)
        before, size = size, os.fstat(fd).st_size
    return os.pread(fd, _MOST, 0).decode(errors="replace")
