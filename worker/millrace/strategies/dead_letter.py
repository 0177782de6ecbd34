"""Dead letters: written to their topic at the end of the chain, in the transaction that commits their offsets, in both
kinds of delivery; so each is there once, and none is missing below a committed offset.

A dead letter has the source record's key, bytes and headers as they were, and in front of them:

millrace-origin     the source record, as <partition>:<offset>:<index>@<writer> (`ownership.provenance`); index: which dead
                    letter of it
millrace-reason     why, one line of UTF-8
millrace-stage      name of the stage that could not process it; `decode` for the source's format
millrace-topic      source topic
millrace-partition  source partition, decimal
millrace-offset     source offset, decimal
millrace-timestamp  the source record's, milliseconds since the Unix epoch, decimal; absent if it had none

Its own timestamp is that of writing: retention of the dead-letter topic counts from when the letter came about, not from
when a message years old was first produced.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from millrace.clock import Clock
from millrace.connectivity.ports import Record, Row
from millrace.engine.batch import Batch, DeadLetter
from millrace.engine.outbox import Outbox
from millrace.engine.stats import StageStats
from millrace.engine.strategy import Strategy
from millrace.ownership.provenance import Header, origin_headers
from millrace.strategies.produce import WriteInTransaction

DEAD_LETTER_STAGE = "dead-letter"


def write_dead_letters(
    next_: Strategy, outbox: Outbox, topic: str, stats: StageStats, clock: Clock
) -> WriteInTransaction:
    """The stage that writes `Batch.dead` to `topic`."""
    return WriteInTransaction(
        next_, outbox, partial(_letters, outbox, topic), DEAD_LETTER_STAGE, stats, clock
    )


def _letters(outbox: Outbox, topic: str, batch: Batch) -> tuple[Batch, Sequence[Record], Iterable[Row]]:
    records = [letter.record for letter in batch.dead]
    offsets = [record.offset() for record in records]
    origins = origin_headers(outbox.writer, batch.partition, offsets) if records else ()
    return batch, records, list(map(partial(_row, topic), batch.dead, origins))


def _row(topic: str, letter: DeadLetter, origin: Header) -> Row:
    record = letter.record
    headers: list[tuple[str, bytes | None]] = [
        origin,
        ("millrace-reason", letter.reason.encode("utf-8", "replace")),
        ("millrace-stage", letter.stage.encode()),
        ("millrace-topic", record.topic().encode()),
        ("millrace-partition", b"%d" % record.partition()),
        ("millrace-offset", b"%d" % record.offset()),
    ]
    kind, milliseconds = record.timestamp()
    if kind:
        headers.append(("millrace-timestamp", b"%d" % milliseconds))
    headers.extend(record.headers() or ())
    return topic, record.value(), record.key(), headers, -1, 0
