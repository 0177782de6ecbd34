"""Strikes a run that is at work: workers with SIGKILL, also two at once, its broker once; and stops a worker for seconds.

How quick the machine is does not matter. The flights are fed into the topic while the run is at work, a portion for each
blow, and the next portion comes only when the last blow has been got over; so the run can't be done before the last one.
Each blow falls in mid-backlog: a victim has messages before it, fed a moment ago, that it has not committed yet.
"""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import psutil
from progress import total
from striking import BROKER, Strikes, rest

BEFORE = 0.25  # of the flights are in the topic before the run begins
LAST = 0.75  # of the flights are there when the last blow falls
LONGEST_PAUSE = 0.8  # seconds; commits are one second apart
SLICE = 500  # flights that are fed in addition, when a victim has nothing to do
STANDSTILL = (4.0, 6.0)  # seconds of a stopped worker; its transaction would be aborted after 10
LONGEST_STANDSTILL = 8.0  # seconds, if others are slow
STANDSTILLS = 3  # that the collector may sleep through
LEAST = 2_000  # flights of a portion: some of them for each worker
LOOK_EVERY = 0.02  # seconds
SELDOM = 0.2  # seconds; to look for processes takes much longer than to ask for offsets
DRIB, DRIB_EVERY = (
    100,
    2.0,
)  # one in so many of the flights to spare, so many seconds apart, while some are needed
KEPT = 60_000  # flights that can't be spared as long as there are blows to come


@dataclass(frozen=True)
class Blow:
    """`portion`: up to which part of the flights there are when it falls; it falls `pause` seconds after they came.
    `workers`: which ones are struck; none: the broker, with this signal. SIGSTOP: for `seconds`, then SIGCONT.
    """

    portion: float
    pause: float
    workers: Sequence[int]
    signal: signal.Signals = signal.SIGKILL
    seconds: float = 0.0


def plan(seed: int, workers: int) -> Sequence[Blow]:
    """Eight blows: four at one worker, two at two at once, one at the broker, and one that stops a worker; in which
    order and when is the seed's.
    """
    seeded = random.Random(seed)
    kill, stop = signal.SIGKILL, signal.SIGSTOP
    broker = (0, seeded.choice([signal.SIGKILL, signal.SIGTERM]))
    kinds = [(1, kill), (1, kill), (1, kill), (1, kill), (2, kill), (2, kill), broker, (1, stop)]
    seeded.shuffle(kinds)
    portions = sorted(seeded.uniform(BEFORE, LAST) for _ in kinds)
    return [
        Blow(
            portion,
            seeded.uniform(0, LONGEST_PAUSE),
            sorted(seeded.sample(range(workers), count)),
            number,
            seeded.uniform(*STANDSTILL) if number == stop else 0.0,
        )
        for portion, (count, number) in zip(portions, kinds, strict=True)
    ]


class Feeds(Protocol):
    """What is used of load.Feed."""

    total: int
    fed: int
    ends: list[int]

    def advance(self, to: int, waiting: Callable[[], None] = ...) -> None: ...


class Processes(Protocol):
    """What is used of victims.Victims."""

    def workers(self) -> Mapping[int, psutil.Process]: ...
    def broker(self) -> psutil.Process | None: ...


class Collector(Protocol):
    """The collector, as far as it matters for a worker that stands still while others go on.

    works: whether it has done a batch since its start. committed: its newest batch. truce: nothing is done to it.
    """

    def works(self) -> bool: ...
    def committed(self) -> int: ...
    def truce(self) -> AbstractContextManager[None]: ...


class Victim(NamedTuple):
    name: str
    process: psutil.Process
    partitions: Sequence[int]


class Chaos:
    """`carry_out` feeds and strikes.

    Args:
        owners: the worker of each partition.
        committed: offsets by partition.
        watch: called often while something is waited for; raises Over when nothing is to be waited for any more.
    """

    def __init__(
        self,
        blows: Sequence[Blow],
        owners: Sequence[int],
        feed: Feeds,
        processes: Processes,
        committed: Callable[[], Sequence[int]],
        collector: Collector,
        watch: Callable[[], None],
        strikes: Strikes,
    ) -> None:
        self._blows, self._feed, self._processes = blows, feed, processes
        self._committed, self._collector = committed, collector
        self._watch, self._strikes = watch, strikes
        self._of = [[p for p, owner in enumerate(owners) if owner == w] for w in range(max(owners) + 1)]

    def carry_out(self) -> None:
        """All blows. Raises Over."""
        nothing = [0] * len(self._feed.ends)
        self._await(lambda: self._all_go_on(nothing))
        for at, blow in enumerate(self._blows):
            following = self._blows[at + 1].portion if at + 1 < len(self._blows) else 1.0
            between = min((blow.portion + following) / 2, blow.portion + 0.05)
            if blow.signal == signal.SIGSTOP:
                before = self._stop_for_a_while(blow, between)
            else:
                self._feed_to(blow.portion)
                self._rest(blow.pause)
                before, _ = self._strike(blow)
                self._feed_to(between)
            self._await(lambda before=before: self._all_go_on(before))

    def feed_until(self, done: Callable[[], bool]) -> None:
        """Feed a little now and then until it is done, and then the rest. Raises Over."""
        self._drib_until(done, kept=0)
        self._feed_to(1.0)

    def _drib_until(self, condition: Callable[[], bool], kept: int) -> None:
        """There is always something left to feed, as each time it is a part of what is left."""
        due = 0.0
        while not condition():
            if time.monotonic() >= due:
                due = time.monotonic() + DRIB_EVERY
                spare = max(0, self._feed.total - self._feed.fed - kept)
                self._feed.advance(self._feed.fed + spare // DRIB, self._watch)
            self._rest(SELDOM)

    def _stop_for_a_while(self, blow: Blow, meanwhile: float) -> Sequence[int]:
        """Until others have gone on meanwhile, and, if that is to be had, the collector too. Returns what was committed
        when the victim had stopped.
        """
        attempts = 0
        while True:
            # a collector that is new has nothing to do else
            self._drib_until(self._collector.works, KEPT)
            with self._collector.truce():
                if self._collector.works():
                    attempts += 1
                    before, others, collector = self._stand_still(blow, meanwhile)
                    if others and (collector or attempts >= STANDSTILLS):
                        self._strikes.stops += 1
                        return before

    def _stand_still(self, blow: Blow, meanwhile: float) -> tuple[Sequence[int], bool, bool]:
        """Returns what was committed as it began, and whether all other workers and the collector went on."""
        self._feed_to(blow.portion)
        self._rest(blow.pause)
        before, victims = self._strike(blow)
        begun, batch = time.monotonic(), self._collector.committed()
        shares = [share for index, share in enumerate(self._of) if index not in blow.workers]
        others = collector = False
        try:
            self._feed_to(meanwhile)
            while (stood := time.monotonic() - begun) < LONGEST_STANDSTILL:
                others = others or self._grown(before, shares)
                collector = collector or self._collector.committed() > batch
                if others and collector and stood >= blow.seconds:
                    break
                self._rest(LOOK_EVERY)
        finally:
            for victim in victims:
                with contextlib.suppress(psutil.NoSuchProcess):
                    victim.process.resume()
        return before, others, collector

    def _strike(self, blow: Blow) -> tuple[Sequence[int], Sequence[Victim]]:
        """Returns what was committed as it fell, and who was struck."""
        while True:
            victims = self._victims(blow)
            committed = self._committed()
            backlogs = [self._backlog(committed, victim.partitions) for victim in victims]
            if not all(backlogs):  # as it may be on a quick machine
                self._feed.advance(self._feed.fed + SLICE, self._watch)
            else:
                struck = [
                    victim
                    for victim, backlog in zip(victims, backlogs, strict=True)
                    if self._strikes.hit(
                        victim.process, victim.name, blow.signal, f"{backlog:,} messages before it"
                    )
                ]
                self._strikes.pairs += len(struck) == 2
                if struck:
                    return committed, struck
            self._rest(LOOK_EVERY)

    def _victims(self, blow: Blow) -> Sequence[Victim]:
        """None unless they are all there."""
        if not blow.workers:
            broker = self._processes.broker()
            return [Victim(BROKER, broker, range(len(self._feed.ends)))] if broker else []
        workers = self._processes.workers()
        if not workers.keys() >= set(blow.workers):
            return []
        return [Victim(f"worker {index}", workers[index], self._of[index]) for index in blow.workers]

    def _backlog(self, committed: Sequence[int], partitions: Sequence[int]) -> int:
        return total(self._feed.ends, partitions) - total(committed, partitions)

    def _all_go_on(self, before: Sequence[int]) -> bool:
        """Whether each worker has committed more than there was before."""
        return self._grown(before, self._of)

    def _grown(self, before: Sequence[int], shares: Sequence[Sequence[int]]) -> bool:
        now = self._committed()
        return all(total(now, partitions) > total(before, partitions) for partitions in shares)

    def _feed_to(self, portion: float) -> None:
        """And enough for each worker to have something to commit."""
        self._feed.advance(max(round(portion * self._feed.total), self._feed.fed + LEAST), self._watch)

    def _await(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._rest(LOOK_EVERY)

    def _rest(self, seconds: float) -> None:
        rest(seconds, self._watch)
