"""Dead letters as they are read back: their headers say where they came from (see strategies.dead_letter)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Final

import msgspec

from millrace.clock import Clock, Deadline
from millrace.connectivity.ports import Cluster, Record, Span, TimedOut, TopicMissing
from millrace.ownership.provenance import without

PATIENCE: Final = 30.0  # s without an answer
REPLAYED: Final = "millrace-replayed"
"""Header of a message that was sent again: the dead letter that it was, as <topic>/<partition>:<offset>."""

# In front of the headers that the message had, each once.
_OWN: Final = frozenset(
    f"millrace-{name}" for name in ("origin", "reason", "stage", "topic", "partition", "offset", "timestamp")
)
Headers = Sequence[tuple[str, bytes | None]]


class Letter(msgspec.Struct, frozen=True, rename="camel"):
    """`partition`, `offset`: in the dead-letter topic. `timestamp`: when it was written, milliseconds since the Unix epoch.
    `value`: the original bytes as text, shortened.
    """

    partition: int
    offset: int
    timestamp: int | None
    source_topic: str
    source_partition: int | None
    source_offset: int | None
    source_timestamp: int | None
    stage: str
    reason: str
    key: str | None
    value: str | None


def spans(cluster: Cluster, topic: str, clock: Clock) -> Mapping[int, Span]:
    """What each partition of the topic holds. Raises TopicMissing."""
    deadline = Deadline.after(clock, PATIENCE)
    with closing(cluster.admin()) as admin:
        described = admin.describe_topic(topic, deadline.remaining())
        if described is None:
            raise TopicMissing(
                f"topic {topic} does not exist",
                where="spec.deadLetter.topic",
                remedy="nothing has run yet, or it was deleted, or this is another broker",
            )
        return admin.spans(topic, range(described.partitions), deadline.remaining())


def scan(cluster: Cluster, topic: str, within: Mapping[int, Span], clock: Clock) -> Iterator[Record]:
    """The records within these spans, in offset order within a partition.

    Raises TimedOut when nothing comes for PATIENCE seconds, and what the clients raise.
    """
    left = {p: span for p, span in within.items() if span.end > span.beginning}
    deadline = Deadline.after(clock, PATIENCE)
    with closing(cluster.consumer(topic, group="millrace-dlq")) as consumer:
        consumer.assign({p: span.beginning for p, span in left.items()})
        while left:
            for record in consumer.fetch(500, 0.5):
                deadline = Deadline.after(clock, PATIENCE)
                span = left.get(record.partition())
                if span is not None and record.offset() < span.end:
                    yield record
                if span is not None and record.offset() + 1 >= span.end:
                    left.pop(record.partition(), None)
            for partition, offset in consumer.ends().items():
                if partition in left and offset >= left[partition].end:
                    left.pop(partition)
            if deadline.expired():
                raise TimedOut(
                    f"the dead letters of {topic} could not be read: nothing came for {PATIENCE:.0f} s"
                )


def letter_of(record: Record) -> Letter:
    headers = {name: value for name, value in reversed(record.headers() or []) if value is not None}
    kind, milliseconds = record.timestamp()
    return Letter(
        partition=record.partition(),
        offset=record.offset(),
        timestamp=milliseconds if kind else None,
        source_topic=_text(headers.get("millrace-topic")) or "",
        source_partition=_number(headers.get("millrace-partition")),
        source_offset=_number(headers.get("millrace-offset")),
        source_timestamp=_number(headers.get("millrace-timestamp")),
        stage=_text(headers.get("millrace-stage")) or "",
        reason=_text(headers.get("millrace-reason")) or "",
        key=_text(record.key()),
        value=_text(record.value()),
    )


def original_headers(record: Record) -> Headers:
    """The headers that the message had, but for those that say who wrote it and from what: somebody else does now."""
    headers = record.headers() or []
    seen: set[str] = set()
    after = len(headers)
    for index, (name, _) in enumerate(headers):
        if name not in _OWN or name in seen:
            after = index
            break
        seen.add(name)
    return without(headers[after:])


def _text(value: bytes | None) -> str | None:
    return None if value is None else value[:500].decode("utf-8", "backslashreplace")


def _number(value: bytes | None) -> int | None:
    return int(value) if value is not None and value.isdigit() else None
