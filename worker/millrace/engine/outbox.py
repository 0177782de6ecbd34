"""The way out for what a chain writes inside the transaction that commits its offsets.

A batch's outputs and dead letters must be in the very transaction that commits its offsets, whole. Writing a batch may
be interrupted by a full producer buffer, and several stages write for the same batch, so the stages say where a batch
begins and the end of the chain says where it ends; in between the transaction can't be committed.

The producer comes and goes: whoever owns the transactional id makes a new one after an outcome that is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from millrace.clock import Deadline
from millrace.connectivity.ports import Headers, OffsetAndMetadata, TransactionalProducer
from millrace.engine.batch import Batch
from millrace.engine.marks import Marks


class OutboxError(RuntimeError):
    """The outbox was misused: a bug in the engine or in a strategy."""


class Outbox:
    """One transaction at a time, begun by the first thing that goes into it.

    Whatever the producer raises passes through; after Fenced or OutcomeUnknown only `detach` makes sense, after
    TransactionAborted only `abort` or `detach`.

    Attributes:
        marks: what has something to add to each commit; set by a strategy as it is made, None if there is none.
    """

    def __init__(self) -> None:
        self._producer: TransactionalProducer | None = None
        self.marks: Marks | None = None
        self._begun = False
        self._open: set[tuple[int, int]] = set()  # (partition, start) of the batches that are partly written

    def attach(self, producer: TransactionalProducer) -> None:
        """Write through this producer, on which `init` was called, from now on."""
        if self._producer is not None:
            raise OutboxError("a producer is attached already")
        self._producer = producer

    def detach(self) -> None:
        """Forget the producer, its transaction and what was partly written; closing it is the caller's affair."""
        self._producer = None
        self._forget()

    @property
    def writer(self) -> str:
        """The transactional id: what is written says it of itself (`ownership.provenance`)."""
        return self._attached().transactional_id

    @property
    def dirty(self) -> bool:
        """Whether a transaction has begun that is neither committed nor aborted."""
        return self._begun

    @property
    def open(self) -> Set[int]:
        """Partitions with a batch that is only partly written: no commit before it ends. A batch that was abandoned in
        this state stays here until the transaction is aborted.
        """
        return {partition for partition, _ in self._open}

    def begin_batch(self, batch: Batch) -> bool:
        """Something of this batch is about to be written. Each stage that writes says so; saying it twice is fine.

        Returns whether it is the first to say so: if not, an earlier stage has written all of the batch.
        """
        name = (batch.partition, batch.start)
        first = name not in self._open
        self._open.add(name)
        return first

    def end_batch(self, batch: Batch) -> None:
        """All of this batch is written; fine also if nothing of it had to be."""
        if self.marks is not None:
            self.marks.complete(batch)
        self._open.discard((batch.partition, batch.start))

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers | None = None,
        partition: int = -1,
        timestamp_ms: int = 0,
    ) -> None:
        """As TransactionalProducer.produce, in a transaction that is begun where there is none. Its headers have to tell
        origin and writer. Raises BufferFull: nothing was taken, go on after `poll`.
        """
        self._begin().produce(topic, value, key, headers, partition, timestamp_ms)

    def opened(self) -> TransactionalProducer:
        """What to write many records through, for as long as no commit or abort comes between: the producer itself, in a
        transaction that is begun where there is none.
        """
        return self._begin()

    def poll(self) -> None:
        """Serve delivery reports without waiting."""
        if self._producer is not None:
            self._producer.poll()

    def commit(
        self, offsets: Mapping[str, Mapping[int, OffsetAndMetadata]], topic: str, deadline: Deadline
    ) -> None:
        """Commit what was written together with `offsets`: for each consumer group, those of partitions of `topic`.

        Raises OutboxError while a batch is partly written, and what TransactionalProducer.send_offsets and commit
        raise.
        """
        if self._open:
            raise OutboxError(f"batches of partitions {sorted(self.open)} are only partly written")
        producer = self._begin()
        for group, positions in offsets.items():
            producer.send_offsets(group, topic, positions, deadline.remaining())
        producer.commit(deadline.remaining())
        self._begun = False

    def abort(self, deadline: Deadline) -> None:
        """Abort the transaction, if there is one: nothing that was written since the last commit counts."""
        if self._begun:
            self._attached().abort(deadline.remaining())
        self._forget()

    def _forget(self) -> None:
        self._begun = False
        self._open.clear()

    def _begin(self) -> TransactionalProducer:
        producer = self._attached()
        if not self._begun:
            producer.begin()
            self._begun = True
        return producer

    def _attached(self) -> TransactionalProducer:
        if self._producer is None:
            raise OutboxError("no producer is attached")
        return self._producer
