"""Channels for tests: rows and marks, written as the chain writes them, in transactions."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from millrace.channel import wire
from millrace.channel.wire import MarkKind
from millrace.ownership.provenance import origin_header

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(moment: datetime) -> int:
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def rfc3339(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Channel:
    """A topic of its own. Offsets have gaps, as transactions leave them."""

    def __init__(self, bootstrap: str, partitions: int) -> None:
        self.bootstrap, self.partitions = bootstrap, partitions
        self.topic = f"t-{uuid.uuid4().hex[:8]}.collect.channel"
        self.group = self.topic.removesuffix(".channel")
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(self.topic, partitions, 1)])[self.topic].result(20)
        self._count = 0
        self._latest: dict[int, int] = {}
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": self.topic,
                "queue.buffering.max.messages": 1_000_000,
                "compression.type": "lz4",
                "linger.ms": 20,
                "topic.metadata.refresh.interval.ms": 200,  # sees partitions that are added
            }
        )
        self._producer.init_transactions(20)

    def write(self, partition: int, rows: Iterable[Mapping[str, object]], column: str | None) -> None:
        """Rows with datetimes among their values; `column` is that of event time, None: they have none. One transaction,
        which ends with a mark if they carry the partition's event time further.
        """
        latest = self._latest.get(partition)
        self._producer.begin_transaction()
        for row in rows:
            moment = row[column] if column is not None else _EPOCH
            assert isinstance(moment, datetime)
            value = {name: rfc3339(of) if isinstance(of, datetime) else of for name, of in row.items()}
            self._count += 1
            headers = wire.row_headers(micros(moment), origin_header("tests", partition, self._count))
            self._producer.produce(
                self.topic, json.dumps(value).encode(), partition=partition, headers=list(headers)
            )
            self._producer.poll(0)
            latest = micros(moment) if latest is None else max(latest, micros(moment))
        if latest is not None and latest != self._latest.get(partition):
            self._latest[partition] = latest
            self._mark(partition, MarkKind.PROGRESS, latest)
        self._producer.commit_transaction(60)

    def mark(self, partition: int, kind: MarkKind, moment: int) -> None:
        """A mark that promises `moment`, in microseconds."""
        self._producer.begin_transaction()
        self._mark(partition, kind, moment)
        self._producer.commit_transaction(20)

    def end(self, *partitions: int) -> None:
        """End marks in these partitions, in all if none is named."""
        for partition in partitions or range(self.partitions):
            self.mark(partition, MarkKind.END, wire.END)

    def grow(self, partitions: int) -> None:
        """Add partitions, so that there are so many; returns when they can be written to."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_partitions([NewPartitions(self.topic, partitions)])[self.topic].result(20)
        deadline = time.monotonic() + 20
        while len(self._producer.list_topics(self.topic, 20).topics[self.topic].partitions) < partitions:
            assert time.monotonic() < deadline, "the partitions are not there"
        self.partitions = partitions

    def beginnings(self) -> dict[int, int]:
        """The first offset of each partition."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        asked = {TopicPartition(self.topic, p): OffsetSpec.earliest() for p in range(self.partitions)}
        return {slot.partition: found.result(20).offset for slot, found in admin.list_offsets(asked).items()}

    def _mark(self, partition: int, kind: MarkKind, moment: int) -> None:
        headers = wire.mark_headers(kind, moment, "tests", partition)
        self._producer.produce(self.topic, None, partition=partition, headers=list(headers))
