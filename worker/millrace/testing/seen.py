"""What a harness shows of a topic: the records that a read_committed reader sees, decoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec

from millrace.channel import wire
from millrace.connectivity.memory import MemoryRecord

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OWN = "millrace-"  # headers of this name say where a record comes from


@dataclass(frozen=True, slots=True)
class Output:
    """A record that a `produce` stage has written.

    Attributes:
        value: decoded by the stage's format.
        headers: without those that Millrace adds; of equal names the last.
        timestamp: milliseconds since the Unix epoch.
        partition, offset: in the output topic. Offsets have gaps where transactions end.
    """

    value: object
    key: bytes | None
    headers: Mapping[str, bytes | None]
    timestamp: int
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that could not be processed.

    Attributes:
        stage: that could not process it; `decode` for the source's format.
        value: the source message's bytes.
        headers: the source message's.
        partition, offset: in the source.
    """

    stage: str
    reason: str
    value: bytes | None
    key: bytes | None
    headers: Mapping[str, bytes | None]
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Row:
    """A row that a `collect` stage has written to its channel, for the collector.

    Attributes:
        columns: as JSON has them: a timestamp is text.
        time: event time; of a stage without a window 1970.
        partition, offset: of the source message.
        index: which of the values made of that message, from 0.
    """

    columns: Mapping[str, object]
    time: datetime
    partition: int
    offset: int
    index: int


def output_of(record: MemoryRecord, form: str) -> Output:
    value: object = record.value()
    if isinstance(value, bytes) and form != "bytes":
        value = msgspec.json.decode(value) if form == "json" else value.decode()
    return Output(
        value, record.key(), _of_the_user(record), record.timestamp()[1], record.partition(), record.offset()
    )


def letter_of(record: MemoryRecord) -> DeadLetter:
    # of a message that was an output or a dead letter before, our headers stand before its own
    headers = {name: value or b"" for name, value in reversed(record.headers() or [])}
    return DeadLetter(
        stage=headers["millrace-stage"].decode(),
        reason=headers["millrace-reason"].decode(),
        value=record.value(),
        key=record.key(),
        headers=_of_the_user(record),
        partition=int(headers["millrace-partition"]),
        offset=int(headers["millrace-offset"]),
    )


def row_of(record: MemoryRecord) -> Row | None:
    """None: it is a mark."""
    found = wire.parse(record.value(), record.headers())
    if not isinstance(found, wire.Row):
        return None
    origin = found.origin
    return Row(
        msgspec.json.decode(found.value),
        _EPOCH + timedelta(microseconds=found.time),
        origin.partition,
        origin.offset,
        origin.index,
    )


def _of_the_user(record: MemoryRecord) -> Mapping[str, bytes | None]:
    return {name: value for name, value in record.headers() or () if not name.startswith(_OWN)}
