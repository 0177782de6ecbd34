"""Reads whole topics as any consumer would, with nothing of Millrace in it: read_committed, each partition to its end."""

from __future__ import annotations

import time
from operator import itemgetter
from typing import NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

DEADLINE = 90.0  # seconds for a topic
NOT_YET = (
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
)


class Record(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes | None]


def read(bootstrap: str, topic: str) -> list[Record]:
    """All committed records, by partition and offset. Waits for transactions that are still open, so that nothing
    behind one is overlooked; raises TimeoutError after DEADLINE.
    """
    ends = _ends(bootstrap, topic)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "flights-verify",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.queue.backoff.ms": 10,
            "log_level": 2,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
    records: list[Record] = []
    unread = {partition for partition, end in ends.items() if end}
    deadline = time.monotonic() + DEADLINE
    while unread:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"partitions {sorted(unread)} of {topic} are not read to their end after {DEADLINE:.0f} s"
            )
        for message in consumer.consume(5_000, 0.2):
            error = message.error()
            if error is None:
                place, headers = (message.partition(), message.offset()), message.headers()
                records.append(
                    Record(*place, message.key(), message.value(), dict(headers) if headers else {})
                )
            elif error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            elif message.offset() >= ends[message.partition()]:
                unread.discard(message.partition())
    consumer.close()
    records.sort(key=itemgetter(0, 1))
    return records


def _ends(bootstrap: str, topic: str) -> dict[int, int]:
    """The ends of the log, whatever is committed of it."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    known = admin.list_topics(topic, timeout=30).topics[topic]
    if known.error is not None:
        raise KafkaException(known.error)
    asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in known.partitions}
    deadline = time.monotonic() + DEADLINE
    while True:
        answers = admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=30
        )
        try:
            return {partition.partition: future.result(30).offset for partition, future in answers.items()}
        except (
            KafkaException
        ) as error:  # a broker that has just come back does not know all that it leads yet
            if error.args[0].code() not in NOT_YET or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
