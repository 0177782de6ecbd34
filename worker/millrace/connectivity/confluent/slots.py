"""What librdkafka says of one partition among several: its metadata, and what its errors mean."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import KafkaError as Native
from confluent_kafka import TopicPartition

from millrace.connectivity.ports import KafkaError, TimedOut, TopicDescription, TopicMissing

_NOT_LED = frozenset(
    {
        Native._NOENT,
        Native.LEADER_NOT_AVAILABLE,
        Native.NOT_LEADER_FOR_PARTITION,
        Native.OFFSET_NOT_AVAILABLE,
        Native.KAFKA_STORAGE_ERROR,
        Native.REPLICA_NOT_AVAILABLE,
        Native.FENCED_LEADER_EPOCH,
        Native.UNKNOWN_LEADER_EPOCH,
    }
)


class NotLed(TimedOut):
    """The partition is there and nobody leads it, for the moment."""


def metadata_of(slot: TopicPartition) -> str | None:
    """A NUL at the end is an artefact of the wire; a commit without metadata reads as None or ""."""
    return (slot.metadata or "").rstrip("\0") or None


def not_led(
    slot: TopicPartition, error: Native, described: Callable[[str], TopicDescription | None]
) -> KafkaError | None:
    """librdkafka says of a partition that is not there only that it has no leader. One that is there gets a leader, or
    the one that it has gets ready: ask again. None: the error is another one.
    """
    if error.code() not in _NOT_LED:
        return None
    found = described(slot.topic)
    if found is not None and slot.partition < found.partitions:
        where = f"topic {slot.topic}, partition {slot.partition}"
        return NotLed(f"{where} has no leader that answers now: {error.str()}", where=where)
    what = f"topic {slot.topic}" if found is None else f"partition {slot.partition} of topic {slot.topic}"
    return TopicMissing(
        f"there is no {what}", where=f"topic {slot.topic}", remedy="create it, or let it grow"
    )
