"""Chains as awkward as a seed wants them: slow, buffering, interrupted by full buffers."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Set
from dataclasses import replace
from itertools import chain as chained

from millrace.clock import Clock, Deadline
from millrace.connectivity.ports import Producer
from millrace.engine.batch import Batch
from millrace.engine.outbox import Outbox
from millrace.engine.session import ChainFactory, OnComplete
from millrace.engine.stats import StageStats
from millrace.engine.strategy import MessageRejected, Strategy
from millrace.strategies import (
    Commit,
    Fill,
    Gather,
    Inline,
    Listed,
    Outcome,
    Produce,
    Room,
    produce_in_transaction,
)
from replica_stage import OUTPUT, valued


class Lingering(Strategy):
    """Keeps each batch for a while, as a pool of threads does, and hands them on in order."""

    def __init__(self, next_: Strategy, clock: Clock, seconds: Callable[[], float], capacity: int) -> None:
        self._next, self._clock, self._seconds, self._capacity = next_, clock, seconds, capacity
        self._kept: deque[tuple[float, Batch]] = deque()

    def submit(self, batch: Batch) -> None:
        if len(self._kept) >= self._capacity:
            raise MessageRejected
        self._kept.append((self._clock.monotonic() + self._seconds(), batch))

    def poll(self) -> None:
        self._next.poll()
        while self._kept and self._kept[0][0] <= self._clock.monotonic():
            try:
                self._next.submit(self._kept[0][1])
            except MessageRejected:
                return
            self._kept.popleft()

    def drain(self, partitions: Set[int]) -> None:
        self._next.drain(partitions)

    def abandon(self, partitions: Set[int]) -> None:
        self._kept = deque((due, batch) for due, batch in self._kept if batch.partition not in partitions)
        self._next.abandon(partitions)

    def close(self) -> None:
        """What is kept is handed on by join."""

    def join(self, deadline: Deadline) -> bool:
        while self._kept:
            if deadline.expired():
                return False
            self.poll()
            if self._kept:
                self._clock.sleep(min(0.05, deadline.remaining()))
        self._next.close()
        return self._next.join(deadline)

    def terminate(self) -> None:
        self._kept.clear()
        self._next.terminate()


def chain(clock: Clock, rng: random.Random, plain: Producer | None) -> ChainFactory:
    """A chain that copies source to output, drawn from `rng`; plain: by this producer (AtLeastOnce)."""
    lingers, slow = rng.random() < 0.5, rng.random() < 0.3
    longest = rng.choice([0.05, 0.5, 4.0])
    fill = rng.choice([None, None, Fill(rng.randint(1, 10), None, rng.choice([0.05, 1.0, 20.0]))])

    def work(batch: Batch) -> Outcome:
        if slow and rng.random() < 0.1:
            clock.sleep(rng.uniform(0, 2))
        return Outcome(valued(batch))

    def make(outbox: Outbox, on_complete: OnComplete) -> Strategy:
        made: Strategy = Commit(on_complete, outbox)
        if plain is None:
            made = produce_in_transaction(made, outbox, OUTPUT, "copy", StageStats(), clock)
        else:
            made = Produce(made, plain, OUTPUT, "copy", StageStats(), clock)
        if fill is not None:
            made = Inline(made, _apart, None, clock)
            made = Gather(made, fill, lambda: Listed(fill.count), Room(), StageStats(), clock)
        if lingers:
            made = Lingering(made, clock, lambda: rng.uniform(0, longest), rng.choice([1, 4]))
        return Inline(made, work, None, clock)

    return make


def _apart(batch: Batch) -> Outcome:
    """Of each list its values, all with the records that the list is of."""
    lists: list[list[object]] = list(batch.values)  # type: ignore[arg-type]
    records = [record for record, values in zip(batch.records, lists, strict=True) for _ in values]
    return Outcome(replace(batch, records=records, values=list(chained.from_iterable(lists))))
