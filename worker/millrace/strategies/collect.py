"""Collect: the values of a batch become rows of the stage's channel, in the transaction that commits their offsets.

`Check` makes rows of values, and `collect_rows` writes those that are not late. What comes from source partition p goes
to channel partition p.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from operator import itemgetter, not_

from millrace.channel.lateness import Lateness, rule
from millrace.channel.progress import Progress
from millrace.channel.schema import RowEncoder
from millrace.channel.wire import row_headers
from millrace.clock import Clock
from millrace.connectivity.ports import Record, Row
from millrace.engine.batch import Batch, DeadLetter
from millrace.engine.outbox import Outbox
from millrace.engine.stats import StageStats
from millrace.engine.strategy import Strategy
from millrace.engine.tracing import context_headers
from millrace.message import Invalid
from millrace.ownership.provenance import origin_headers
from millrace.strategies.each import Outcome, as_they_are, attempt, conclude
from millrace.strategies.formats import Beside
from millrace.strategies.judge import Judge
from millrace.strategies.produce import WriteInTransaction

_HEADERS = 400  # bytes: more than a row's own headers and the record's frame have

_TIME = itemgetter(1)

Rowed = tuple[bytes, int]
"""A row of the channel: its JSON, and its event time in microseconds since the Unix epoch."""


@dataclass(frozen=True, slots=True)
class Check:
    """Make a `Rowed` of each value. One that does not fit the columns is Invalid, as is one that is larger than a producer
    takes: `limit` bytes of key and value together.

    Attributes:
        beside: the values are `Beside`: what a produce stage before this one writes stays with each.
    """

    encoder: RowEncoder
    judge: Judge
    limit: int = 1_000_000
    beside: bool = False

    def __call__(self, batch: Batch) -> Outcome:
        check = _checked_beside if self.beside else _checked
        calls = map(partial(check, self.encoder, self.limit - _HEADERS), batch.values, batch.records)
        made = attempt(calls, batch.records, self.judge.judge)
        return conclude(batch, made, as_they_are)


def collect_rows(
    next_: Strategy,
    outbox: Outbox,
    topic: str,
    progress: Progress,
    lateness: Lateness,
    stage: str,
    stats: StageStats,
    clock: Clock,
    *,
    beside: bool = False,
    contexts: bool = False,
) -> WriteInTransaction:
    """The stage that writes what `Check` has made to the channel `topic`, but for late rows. It is the only one that
    can tell them: it gets the rows in the order of the source, and what it has taken is complete with the next commit,
    or forgotten. So their dead letters are made after the limits on dead letters, and don't count there: the messages
    are sound, and nothing can be mended by stopping at them. A produce stage before this one has passed them on.
    contexts: rows carry the contexts of their messages (traces).
    """
    rows = _Rows(outbox, topic, progress, lateness, stage, stats, clock, beside, contexts)
    return WriteInTransaction(next_, outbox, rows, stage, stats, clock, forget=progress.forget)


@dataclass(frozen=True, slots=True)
class _Rows:
    outbox: Outbox
    topic: str
    progress: Progress
    lateness: Lateness
    stage: str
    stats: StageStats
    clock: Clock
    beside: bool
    contexts: bool

    def __call__(self, batch: Batch) -> tuple[Batch, Sequence[Record], Iterable[Row]]:
        """The batch without late rows, and what is to be written of it."""
        records, values = batch.records, batch.values
        if not records:
            return batch, (), ()
        rows: Sequence[Rowed] = [value.kept for value in values] if self.beside else values  # type: ignore
        times = list(map(_TIME, rows))
        progress, now = self.progress, self.clock.monotonic()
        ruling = rule(progress.latest(batch.partition), times, self.lateness, map(_offset, records))
        progress.ruled(batch.partition, batch.start, batch.end, records, times, ruling, now)
        written = _records(self.topic, self.outbox.writer, batch.partition, records, rows)
        if self.contexts:
            written = map(_with_context, written, records)
        if ruling.out is not None:
            counting = list(map(not_, ruling.out))
            written = compress(written, counting)
            records, values = list(compress(records, counting)), list(compress(values, counting))
            late = {record.offset(): record for record in batch.records}
            letters = [
                one
                for offset, reason in ruling.reasons.items()
                for one in DeadLetter(late[offset], self.stage, reason).apart()
            ]
            dead = (*batch.dead, *letters)
            self.stats.late += sum(ruling.late or ())
            self.stats.dead += len(letters)
            if letters:
                dead = tuple(sorted(dead, key=lambda letter: letter.record.offset()))
            batch = replace(batch, records=records, values=values, dead=dead)
        self.stats.emitted += len(records)
        return batch, records, written


def _checked(encoder: RowEncoder, limit: int, value: object, record: Record) -> Rowed:
    row = encoder(value)
    if len(row[0]) + len(record.key() or b"") > limit:
        raise Invalid(
            f"too large to pass on: a row of {len(row[0])} bytes, at most {limit} are taken with the key"
        )
    return row


def _checked_beside(encoder: RowEncoder, limit: int, value: Beside, record: Record) -> Beside:
    return Beside(value.output, _checked(encoder, limit, value.kept, record))


def _offset(record: Record) -> int:
    return record.offset()


def _records(
    topic: str, writer: str, partition: int, records: Sequence[Record], rows: Sequence[Rowed]
) -> Iterable[Row]:
    origins = origin_headers(writer, partition, list(map(_offset, records)))
    for record, (value, time), origin in zip(records, rows, origins, strict=True):
        known, milliseconds = record.timestamp()
        headers = row_headers(time, origin)
        yield topic, value, record.key(), headers, partition, milliseconds if known else 0


def _with_context(row: Row, record: Record) -> Row:
    topic, value, key, headers, partition, timestamp = row
    return topic, value, key, [*(headers or ()), *context_headers(record.headers())], partition, timestamp
