"""The contract between bench-engine and the programs that it measures, ours and the peers'.

A program is started with one argument, what it has to do as JSON (`Work`): it consumes `messages` messages of `topic`
from offset 0 on, does with each what `case` says, commits every `interval` seconds as consumer group `group`, and ends
when all are done. Its last line on stdout is what that cost as JSON (`Meter.end`), from when it had taken its first
messages until the last was done:

    {"messages": n, "cpu": s, "own_cpu": s, "seconds": s, "memory": bytes, "early": bytes, "late": bytes}

`cpu` is user and system time of all threads of the program and of its processes, `own_cpu` without those. `memory` is the
most that was resident; `early` and `late` the most within the first and the last third of the time, sampled, if
`Work.watch_memory`.

Standard library only: peers run in environments of their own, in which nothing of Millrace is installed.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_EVERY = 0.05  # s between two samples of memory
_LOOK = 0.01  # s between two looks at how far a program is that we can't ask after each message
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Work:
    """
    Attributes:
        case: what to do with each message, see peers/functions.py.
        way: which of its ways the program takes, where it has several.
        output: the topic to produce to, None: none.
        consumer, producer, transactional: settings of librdkafka, the same for all that use it.
        interval: s between commits.
        processes: how many, where functions run in processes.
    """

    case: str
    way: str
    bootstrap: str
    topic: str
    partitions: int
    messages: int
    group: str
    output: str | None
    consumer: dict[str, str | int | bool]
    producer: dict[str, str | int | bool]
    transactional: dict[str, str | int | bool]
    interval: float
    processes: int
    watch_memory: bool


def work() -> Work:
    """What the program that runs was told to do."""
    return Work(**json.loads(sys.argv[1]))


class Meter:
    """What the program that runs spends between `begin` and `end`; between `end` and `tell` it may close what it has.

    CPU of its processes is known where there is /proc, in ticks of 10 ms; elsewhere it is left out.
    """

    def __init__(self, *, watch_memory: bool = False) -> None:
        self.began = False
        self._watch_memory = watch_memory
        self._samples: list[int] = []
        self._over = threading.Event()
        self._figures: dict[str, float] = {}

    def begin(self, taken: int) -> None:
        """`taken` messages are done already, or will be: they, and what it took to get here, do not count."""
        self.began, self._taken = True, taken
        if self._watch_memory:
            threading.Thread(target=self._watch, daemon=True).start()
        self._processes, self._cpu, self._since = _cpu_below(), time.process_time(), time.monotonic()

    def end(self, done: int) -> None:
        seconds, own = time.monotonic() - self._since, time.process_time() - self._cpu
        below = _cpu_below() - self._processes
        self._over.set()
        third = max(1, len(self._samples) // 3)
        self._figures = {
            "messages": done - self._taken,
            "cpu": own + below,
            "own_cpu": own,
            "seconds": seconds,
            "memory": _most_resident(),
            "early": max(self._samples[:third], default=0),
            "late": max(self._samples[-third:], default=0),
        }

    def tell(self) -> None:
        sys.stdout.write(json.dumps(self._figures) + "\n")
        sys.stdout.flush()

    def _watch(self) -> None:
        while not self._over.wait(_EVERY):
            self._samples.append(_resident())


def watched(
    meter: Meter,
    messages: int,
    taken: Callable[[], int],
    done: Callable[[], int],
    over: Callable[[], None],
) -> None:
    """For a framework that owns the loop and tells nobody how far it is, at no cost per message: a thread looks at how
    many messages it has taken, to begin the meter at the first ones, and at how many are done, to call `over`.
    """

    def look() -> None:
        while not meter.began:
            if (first := taken()) > 0:
                meter.begin(first)
            time.sleep(_LOOK)
        while done() < messages:
            time.sleep(_LOOK)
        over()

    threading.Thread(target=look, daemon=True).start()


def _cpu_below() -> float:
    """User and system time of all processes below this one that live, s."""
    if not Path("/proc/self/stat").exists():
        return 0.0
    spent, children = {}, dict[int, list[int]]()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(") ")[2].split()
        except OSError:
            continue  # it has ended
        children.setdefault(int(fields[1]), []).append(int(entry))
        spent[int(entry)] = (int(fields[11]) + int(fields[12])) / _TICKS
    total, below = 0.0, list(children.get(os.getpid(), ()))
    while below:
        process = below.pop()
        total += spent[process]
        below += children.get(process, ())
    return total


def _most_resident() -> int:
    """Bytes. Not ru_maxrss, which a program inherits from the one that started it."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def _resident() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
