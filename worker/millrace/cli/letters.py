"""Dead letters as they are read back: their headers say where they came from (see strategies.dead_letter)."""

from __future__ import annotations

import msgspec

from millrace.clock import Deadline, SystemClock
from millrace.connectivity.ports import Cluster, Record, TimedOut, TopicMissing

_PATIENCE = 30.0  # seconds for the whole reading


class Letter(msgspec.Struct, frozen=True, rename="camel"):
    """`partition`, `offset`: in the dead-letter topic. `value`: the original bytes as text, shortened."""

    partition: int
    offset: int
    source_topic: str
    source_partition: int | None
    source_offset: int | None
    stage: str
    reason: str
    key: str | None
    value: str | None


def read_letters(cluster: Cluster, topic: str, limit: int) -> list[Letter]:
    """The oldest letters, at most `limit`, by partition and offset.

    Raises: TopicMissing, TimedOut, and what the clients raise.
    """
    deadline = Deadline.after(SystemClock(), _PATIENCE)
    admin = cluster.admin()
    try:
        described = admin.describe_topic(topic, deadline.remaining())
        if described is None:
            raise TopicMissing(
                f"topic {topic} does not exist",
                where="spec.deadLetter.topic",
                remedy="nothing has run yet, or it was deleted; check --kafka",
            )
        spans = admin.spans(topic, range(described.partitions), deadline.remaining())
    finally:
        admin.close()
    open_ended = {p: span for p, span in spans.items() if span.end > span.beginning}
    letters: list[Letter] = []
    consumer = cluster.consumer(topic, group="millrace-dlq")
    try:
        consumer.assign({p: span.beginning for p, span in open_ended.items()})
        while open_ended and len(letters) < limit:
            for record in consumer.fetch(500, 0.5):
                letters.append(_letter(record))
                if record.offset() + 1 >= spans[record.partition()].end:
                    open_ended.pop(record.partition(), None)
            for partition, offset in consumer.ends().items():
                if offset >= spans[partition].end:
                    open_ended.pop(partition, None)
            if deadline.expired():
                raise TimedOut(f"the dead letters of {topic} could not be read within {_PATIENCE:.0f} s")
    finally:
        consumer.close()
    return sorted(letters, key=lambda letter: (letter.partition, letter.offset))[:limit]


def _letter(record: Record) -> Letter:
    headers = {name: value for name, value in reversed(record.headers() or []) if value is not None}
    return Letter(
        partition=record.partition(),
        offset=record.offset(),
        source_topic=_text(headers.get("millrace-topic")) or "",
        source_partition=_number(headers.get("millrace-partition")),
        source_offset=_number(headers.get("millrace-offset")),
        stage=_text(headers.get("millrace-stage")) or "",
        reason=_text(headers.get("millrace-reason")) or "",
        key=_text(record.key()),
        value=_text(record.value()),
    )


def _text(value: bytes | None) -> str | None:
    return None if value is None else value[:500].decode("utf-8", "backslashreplace")


def _number(value: bytes | None) -> int | None:
    return int(value) if value is not None and value.isdigit() else None
