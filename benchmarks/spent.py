"""What a program costs with all the processes that it starts, exactly: CPU as the system accounts for it, memory sampled.

A program that starts a JVM is often gone before it, and what a process spent can be asked only by the one that reaps
it. So a process is made that starts nothing else, inherits orphans (PR_SET_CHILD_SUBREAPER, Linux) and reaps all; its own
cost is not counted.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

_PR_SET_CHILD_SUBREAPER = 36
_EVERY = 0.2  # s between samples of memory


@dataclass(frozen=True, slots=True)
class Spent:
    """
    Attributes:
        seconds: from start to the end of the last process.
        cpu: user and system, s, of all processes; start_cpu: of it, until the program had begun its work.
        start_seconds: until then.
        memory: the largest sum of resident memory of all processes, bytes.
    """

    seconds: float
    cpu: float
    memory: int
    start_seconds: float
    start_cpu: float


def measured_here(begun: Path, run: Callable[[], None]) -> Spent:
    """What `run` spends in processes that it starts. Call it once in a process that does nothing else.

    begun: a file whose appearance says that the start is over and the work begins.
    Raises: RuntimeError if the work never begins.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    began = time.monotonic()
    watch = _Watch(begun, began)
    watch.start()
    run()
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()  # orphans
    seconds = time.monotonic() - began
    watch.stop()
    if watch.begun_seconds is None:
        raise RuntimeError(f"the work never began: there is no {begun}")
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = usage.ru_utime + usage.ru_stime
    return Spent(seconds, cpu, watch.memory, watch.begun_seconds, watch.begun_cpu)


class _Watch:
    """Looks at the processes below this one while they live."""

    def __init__(self, begun: Path, began: float) -> None:
        self._begun, self._began = begun, began
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)
        self.memory = 0
        self.begun_seconds: float | None = None
        self.begun_cpu = 0.0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _look_on(self) -> None:
        due, known = 0.0, set[int]()
        while not self._stopped.wait(0.02):
            now = time.monotonic()
            if self.begun_seconds is None and self._begun.exists():
                self.begun_seconds = now - self._began
                reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
                below = psutil.Process().children(recursive=True)
                self.begun_cpu = reaped.ru_utime + reaped.ru_stime + _sum(below, _cpu)
            if now >= due:
                due = now + _EVERY
                below = psutil.Process().children(recursive=True)
                # a process that was forked just now seems to have all the memory of the one that forked it
                old = [process for process in below if process.pid in known]
                known = {process.pid for process in below}
                self.memory = max(self.memory, int(_sum(old, lambda process: process.memory_info().rss)))


def _sum(processes: Sequence[psutil.Process], figure: Callable[[psutil.Process], float]) -> float:
    total = 0.0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            total += figure(process)
    return total


def _cpu(process: psutil.Process) -> float:
    """Of a process and of those that it has reaped."""
    times = process.cpu_times()
    return times.user + times.system + times.children_user + times.children_system
