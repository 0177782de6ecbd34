"""Produce: the values of a batch become records of a topic. Two ways, one for each delivery.

They keep key, headers and timestamp of the source record; the partition follows from the key, as Java's default
partitioner has it. What is written in a transaction has headers that tell where it comes from (`ownership.provenance`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence, Set
from functools import partial
from typing import TypeVar

from millrace.clock import Clock
from millrace.connectivity.ports import KafkaError, Producer, Record, RecordTooLarge, Row
from millrace.engine.batch import Batch
from millrace.engine.outbox import Outbox
from millrace.engine.stats import StageStats
from millrace.engine.strategy import MessageRejected, Strategy
from millrace.errors import StageFailed
from millrace.strategies.link import Link
from millrace.strategies.writing import Sink, Writing, output_rows

R = TypeVar("R")

SETTLE_AFTER = 0.5  # s: half a default commit interval, so that every commit finds something acknowledged


class _Writer(Link):
    """Writes one batch at a time; what comes while its sink is full is rejected. It adds only its seconds to the stage's
    figures: the messages were counted where they were encoded, or became dead letters.
    """

    def __init__(self, next_: Strategy, stage: str, stats: StageStats, clock: Clock) -> None:
        super().__init__(next_)
        self._stage, self._stats, self._clock = stage, stats, clock
        self._writing: Writing | None = None
        self._since_taken = 0.0  # when the batch being written came
        self._pending: StageFailed | None = None  # to be raised when what is before it has been handed on
        self._whole = False  # the batch being written can't be cut: an earlier stage has written all of it

    def _start(self, batch: Batch, records: Sequence[Record], rows: Iterable[Row]) -> None:
        now = self._since_taken = self._clock.monotonic()
        if self._stats.refused_at >= 0:
            self._stats.takes(now)
        self._writing = Writing(batch, records, rows)

    def _refuse(self) -> None:
        """What is written goes nowhere: the sink is full, or acknowledgements are waited for."""
        self._stats.refuses(self._clock.monotonic())
        raise MessageRejected

    def _write(self) -> Batch | None:
        """Go on writing. Returns the batch, or what is before a message that is too large, when it is written."""
        writing = self._writing
        if writing is None:
            return None
        began = self._clock.monotonic()
        try:
            if not writing.go_on(self._way_out()):
                return None
            written: Batch | None = writing.batch
        except RecordTooLarge as error:
            written, self._pending = writing.cut(self._stage, error)
            if written is None or self._whole:
                # it stays open in the outbox, so that this transaction is never committed
                self._writing = None
                self._raise_pending()
        finally:
            self._stats.seconds += self._clock.monotonic() - began
        self._writing = None
        return written

    @abstractmethod
    def _way_out(self) -> Sink:
        """Where rows go now."""

    def _raise_pending(self) -> None:
        if self._pending is not None:
            self._failed, self._pending = self._pending, None
            raise self._failed

    def abandon(self, partitions: Set[int]) -> None:
        if self._writing is not None and self._writing.batch.partition in partitions:
            self._writing = None
        super().abandon(partitions)


class WriteInTransaction(_Writer):
    """Writes through the Outbox, so that what it writes counts with the offset of the batch or not at all. A batch is
    handed on when all of it is in the transaction; waiting for acknowledgements is the commit's affair.

    Args:
        rows: the records to write for a batch, with the source record of each, and the batch as it is to be handed on.
        forget: told of partitions that are abandoned or released, for `rows` that remember something.
    """

    def __init__(
        self,
        next_: Strategy,
        outbox: Outbox,
        rows: Callable[[Batch], tuple[Batch, Sequence[Record], Iterable[Row]]],
        stage: str,
        stats: StageStats,
        clock: Clock,
        *,
        forget: Callable[[Set[int]], None] | None = None,
    ) -> None:
        super().__init__(next_, stage, stats, clock)
        self._outbox, self._rows, self._forget = outbox, rows, forget
        self._written: Batch | None = None

    def submit(self, batch: Batch) -> None:
        if self._failed is not None:
            raise self._failed
        if self._writing is not None:
            self._refuse()
        if self._written is not None:
            raise MessageRejected
        batch, records, rows = self._rows(batch)
        if records:
            self._whole = not self._outbox.begin_batch(batch)
            self._start(batch, records, rows)
        else:
            self._written = batch
        self._go_on()

    def poll(self) -> None:
        self._outbox.poll()
        super().poll()

    def abandon(self, partitions: Set[int]) -> None:
        if self._written is not None and self._written.partition in partitions:
            self._written = self._pending = None
        if self._forget is not None:
            self._forget(partitions)
        super().abandon(partitions)

    def terminate(self) -> None:
        self._writing = self._written = None
        super().terminate()

    def _go_on(self) -> None:
        if self._writing is not None:
            self._written = self._write()
            if self._written is not None:
                self._stats.took(self._clock.monotonic() - self._since_taken)
        written, self._written = self._written, None
        if written is None:
            return
        if self._hand_on(written):
            self._raise_pending()
        else:
            self._written = written

    def _way_out(self) -> Sink:
        return self._outbox.opened()

    def _busy(self) -> bool:
        return self._writing is not None or self._written is not None

    def _held(self) -> tuple[str, int]:
        writing = 0 if self._writing is None else self._writing.batch.count
        return self._stats.name, writing + (0 if self._written is None else self._written.count)


def produce_in_transaction(
    next_: Strategy,
    outbox: Outbox,
    topic: str,
    stage: str,
    stats: StageStats,
    clock: Clock,
    *,
    beside: bool = False,
) -> WriteInTransaction:
    """ExactlyOnce: outputs join the transaction that commits the offsets they were made of."""
    return WriteInTransaction(next_, outbox, partial(_outputs, outbox, topic, beside), stage, stats, clock)


def _outputs(
    outbox: Outbox, topic: str, beside: bool, batch: Batch
) -> tuple[Batch, Sequence[Record], Iterable[Row]]:
    return batch, batch.records, output_rows(topic, batch, beside=beside, writer=outbox.writer)


class Produce(_Writer):
    """AtLeastOnce: through a plain producer. A batch is handed on, and so may be committed, once every record of it is
    acknowledged by all in-sync replicas.

    The port says how many records are not acknowledged, not which (a call per record for that would cost more than
    the producing). So batches wait until that number is 0. Under steady load it never is by itself: when the first of
    them has waited SETTLE_AFTER seconds, or one of its partition is to be drained, nothing more is taken until it is;
    that costs a round trip or two each time.
    """

    def __init__(
        self,
        next_: Strategy,
        producer: Producer,
        topic: str,
        stage: str,
        stats: StageStats,
        clock: Clock,
        *,
        beside: bool = False,
    ) -> None:
        super().__init__(next_, stage, stats, clock)
        self._producer, self._topic, self._beside = producer, topic, beside
        self._unacknowledged: deque[tuple[Batch, float]] = deque()  # with the time at which each came
        self._acknowledged: deque[Batch] = deque()
        self._since = 0.0  # when the first of the unacknowledged was written
        self._leaving: set[int] = set()

    def submit(self, batch: Batch) -> None:
        if self._failed is not None:
            raise self._failed
        if self._acknowledged or self._pending is not None:
            raise MessageRejected
        if self._writing is not None or self._settling():
            self._refuse()
        self._start(batch, batch.records, output_rows(self._topic, batch, beside=self._beside))
        self._go_on()

    def poll(self) -> None:
        self._or_give_up(self._producer.poll)
        super().poll()

    def drain(self, partitions: Set[int]) -> None:
        self._leaving |= partitions
        super().drain(partitions)

    def abandon(self, partitions: Set[int]) -> None:
        self._leaving -= partitions
        self._unacknowledged = deque(
            one for one in self._unacknowledged if one[0].partition not in partitions
        )
        self._acknowledged = deque(one for one in self._acknowledged if one.partition not in partitions)
        super().abandon(partitions)

    def terminate(self) -> None:
        self._writing = None
        self._unacknowledged.clear()
        self._acknowledged.clear()
        super().terminate()

    def _settling(self) -> bool:
        waiting = self._unacknowledged
        if not waiting:
            return False
        if self._clock.monotonic() - self._since >= SETTLE_AFTER:
            return True
        return bool(self._leaving) and any(batch.partition in self._leaving for batch, _ in waiting)

    def _go_on(self) -> None:
        written = self._or_give_up(self._write)
        if written is not None:
            if not self._unacknowledged:
                self._since = self._clock.monotonic()
            self._unacknowledged.append((written, self._since_taken))
        if self._unacknowledged and self._producer.buffered() == 0:
            now = self._clock.monotonic()
            for batch, came in self._unacknowledged:
                self._stats.took(now - came)
                self._acknowledged.append(batch)
            self._unacknowledged.clear()
        while self._acknowledged:
            batch = self._acknowledged.popleft()
            if not self._hand_on(batch):
                self._acknowledged.appendleft(batch)
                return
        if not self._unacknowledged and self._writing is None:
            self._raise_pending()

    def _or_give_up(self, call: Callable[[], R]) -> R:
        """A record that failed for good is reported once. No batch that waits may pass for acknowledged after that."""
        try:
            return call()
        except KafkaError:
            self._writing = None
            self._unacknowledged.clear()
            raise

    def _way_out(self) -> Sink:
        return self._producer

    def _busy(self) -> bool:
        return self._writing is not None or bool(self._unacknowledged or self._acknowledged)

    def _held(self) -> tuple[str, int]:
        held = sum(batch.count for batch, _ in self._unacknowledged)
        held += sum(batch.count for batch in self._acknowledged)
        return self._stats.name, held + (0 if self._writing is None else self._writing.batch.count)
