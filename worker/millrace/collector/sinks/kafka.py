"""Results to a topic: each batch in one transaction, once.

Beside its records a transaction has the batch's number, as an offset of a consumer group that serves nothing else:

    group      <groupId>.<stage>.sink
    offset     of partition 0 of the topic: the batch's number + 1
    metadata   {"version": 1, "query": "..."}: what the number counts in

So a batch that is run again after a kill is recognised: its number is there if and only if its records are. Whether a
transaction whose reply was lost has been committed is never guessed: the attempt ends, and the next one's init settles
it (docs/adr/0004), for the transactional id, the same as the group, is one for all attempts and versions. It also fences
whatever is left of an attempt before.

The number lives and dies with the topic: to a topic that was made anew all that comes is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from millrace.clock import Clock, Deadline
from millrace.collector.sinks import settings
from millrace.collector.sinks.protocol import Batch
from millrace.collector.sinks.rows import pairs
from millrace.connectivity.ports import (
    BufferFull,
    Cluster,
    DeliveryFailed,
    OffsetAndMetadata,
    RecordTooLarge,
    TopicMissing,
    TransactionAborted,
    TransactionalProducer,
    Unstable,
)
from millrace.errors import ExitCode, ManifestError, MillraceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

TRANSACTION_SECONDS = 300.0
"""The longest that a batch's transaction may be open, for it also lasts while Spark computes what comes next."""
_BATCH = "millrace-batch"
"""Header of each record: the batch's name."""
_SECONDS = 60.0
_WAIT = 0.02  # seconds, while the buffer is full


class _Done(msgspec.Struct, frozen=True):
    """Metadata of the offset that records how far batches are written."""

    version: int
    query: str


class KafkaByBatch:
    """Implements `protocol.Sink`.

    Args:
        cluster: its transactions may last TRANSACTION_SECONDS.
        group: of the collector.
        where: path of the sink in the manifest.
    """

    def __init__(self, what: settings.Kafka, cluster: Cluster, group: str, clock: Clock, where: str) -> None:
        self._topic, self._key, self._cluster, self._clock = what.topic, what.key, cluster, clock
        self._id, self._where = f"{group}.sink", f"{where}.kafka"
        self._producer: TransactionalProducer | None = None
        self._done: tuple[int, int] = (0, -1)  # version and number of the last batch written

    def check(self, columns: StructType) -> None:
        names = [field.name for field in columns.fields]
        for index, name in enumerate(self._key):
            if name not in names:
                raise ManifestError(
                    f'"{name}" is not a column of the result',
                    where=f"{self._where}.key[{index}]",
                    remedy=f"use one of {', '.join(names)}",
                )

    def open(self, version: int, query: str | None) -> None:
        admin = self._cluster.admin()
        try:
            if admin.describe_topic(self._topic, _SECONDS) is None:
                raise TopicMissing(
                    f"topic {self._topic} does not exist",
                    where=f"{self._where}.topic",
                    remedy=f"create it, or add `create: {{partitions: N}}` to {self._where} to have it created",
                )
            # first: it ends what a former attempt left open, so that what is read next is settled
            self._producer = self._cluster.transactional_producer(self._id)
            self._producer.init(_SECONDS)
            deadline = Deadline.after(self._clock, _SECONDS)
            while True:
                try:
                    found = admin.group_offsets(self._id, self._topic, [0], deadline.remaining(), stable=True)
                    break
                except Unstable:
                    if deadline.expired():
                        raise
                    self._clock.sleep(_WAIT)
        finally:
            admin.close()
        if 0 in found:
            self._resume(found[0], version, query)

    def former(self, version: int) -> tuple[int, int] | None:
        return self._done if 0 < self._done[0] < version else None

    def write(self, rows: DataFrame, batch: Batch) -> int:
        if self._done >= (batch.version, batch.number):
            rows.write.format("noop").mode("overwrite").save()  # read all the same, for Spark's state
            return 0
        try:
            count = self._send(pairs(rows, self._key), batch)
        except TransactionAborted as error:
            raise _for_good(error, self._where) from error
        if count:
            self._done = (batch.version, batch.number)
        return count

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()

    def _resume(self, found: OffsetAndMetadata, version: int, query: str | None) -> None:
        try:
            done = msgspec.json.decode(found.metadata or "", type=_Done)
        except msgspec.DecodeError as error:
            raise MillraceError(
                f"group {self._id} has offsets that the collector did not write: {found.metadata!r}",
                where=f"{self._where}.topic",
                remedy="the group is the collector's own: delete its offsets, or choose another spec.source.groupId",
                code=ExitCode.TOPIC,
            ) from error
        if done.version > version or (done.version == version and done.query != query):
            raise MillraceError(
                f"topic {self._topic} has results of another checkpoint of {self._id.removesuffix('.sink')}",
                where=f"{self._where}.topic",
                remedy="choose another topic, or another spec.source.groupId; or delete the consumer group "
                f"{self._id}, to add the results to those that are there",
                code=ExitCode.TOPIC,
            )
        self._done = (done.version, found.offset - 1)

    def _send(self, records: Iterator[tuple[bytes | None, bytes]], batch: Batch) -> int:
        """Nothing is begun before there is a record, which is when Spark has done most of its work."""
        producer = self._producer
        assert producer is not None
        headers = [(_BATCH, batch.name.encode())]
        count = 0
        for key, value in records:
            if not count:
                producer.begin()
            count += 1
            while True:
                try:
                    producer.produce(self._topic, value, key, headers)
                    break
                except BufferFull:
                    producer.poll()
                    self._clock.sleep(_WAIT)
            if count % 1000 == 0:
                producer.poll()
        if count:
            done = msgspec.json.encode(_Done(batch.version, batch.query)).decode()
            mark = OffsetAndMetadata(batch.number + 1, done)
            producer.send_offsets(self._id, self._topic, {0: mark}, _SECONDS)
            producer.commit(_SECONDS)
        return count


def _for_good(error: TransactionAborted, where: str) -> MillraceError:
    """Of an aborted transaction: the reason, if the next attempt would fail at it too."""
    cause = error.__cause__
    if not isinstance(cause, DeliveryFailed | RecordTooLarge):
        return error
    code = cause.code if cause.code is not ExitCode.BROKER_UNREACHABLE else ExitCode.TOPIC
    return MillraceError(cause.what, where=where, remedy=cause.remedy, code=code)
