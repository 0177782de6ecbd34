"""Bounded runs of a chain that collects, in the simulator's worlds."""

from __future__ import annotations

import random
from collections.abc import Sequence

from millrace.channel.lateness import Lateness
from millrace.channel.progress import Note, Progress
from millrace.channel.wire import END, Mark, MarkKind, Row, parse
from millrace.clock import Clock
from millrace.connectivity.ports import Producer
from millrace.engine.batch import Batch
from millrace.engine.bounds import Bounds
from millrace.engine.outbox import Outbox
from millrace.engine.replica import Replica
from millrace.engine.session import ChainFactory, OnComplete
from millrace.engine.stats import StageStats
from millrace.engine.strategy import Strategy
from millrace.strategies import (
    Commit,
    Inline,
    Marker,
    Outcome,
    Produce,
    collect_rows,
    produce_in_transaction,
)
from millrace.strategies.formats import Beside
from replica_stage import OUTPUT
from simulator.chains import Lingering
from simulator.checks import Violation
from simulator.world import World

CHANNEL = "g.by.channel"
PARTITIONS = 24  # of the channel: more than a world's source ever has
STEP = 60_000_000  # us of event time between two messages of a partition
LATENESS = Lateness(60 * STEP, "1h")
LITTLE = Lateness(2 * STEP, "2m")  # of a bounded world, so that some of its few messages are late


def time_of(partition: int, offset: int) -> int:
    """Event time of a bounded world's message: out of order, and always the same."""
    return (offset + random.Random(partition * 1_000_003 + offset).randrange(8)) * STEP


def collecting(clock: Clock, rng: random.Random, plain: Producer | None) -> ChainFactory:
    """A chain that copies source to output as the simulator's does, then collects; slow and buffering now and then."""
    lingers = rng.random() < 0.5

    def rowed(batch: Batch) -> Outcome:
        values = [
            Beside(b"%d:%d" % (r.partition(), r.offset()), (b"{}", time_of(r.partition(), r.offset())))
            for r in batch.records
        ]
        made = Batch(batch.partition, batch.start, batch.end, batch.source, batch.records, values, batch.dead)
        return Outcome(made)

    def make(outbox: Outbox, on_complete: OnComplete) -> Strategy:
        progress = Progress()
        outbox.marks = Marker(outbox, CHANNEL, progress, clock)
        made: Strategy = Commit(on_complete, outbox)
        made = collect_rows(made, outbox, CHANNEL, progress, LITTLE, "by", StageStats(), clock, beside=True)
        if plain is None:
            made = produce_in_transaction(made, outbox, OUTPUT, "copy", StageStats(), clock, beside=True)
        else:
            made = Produce(made, plain, OUTPUT, "copy", StageStats(), clock, beside=True)
        if lingers:
            made = Lingering(made, clock, lambda: rng.uniform(0, 2), rng.choice([1, 4]))
        return Inline(made, rowed, None, clock)

    return make


class BoundedWorld(World):
    """A world whose run ends at offsets that are drawn as it begins; messages go on coming in beyond them."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, replica=self._bounded)
        self.stage.broker.create_topic(CHANNEL, PARTITIONS)
        self.stage.written.append(CHANNEL)
        # not those of offsets: where what commits them then is struck too, the note is lost (docs/adr/0007, what is left)
        self.stage.broker.transactions.forgets_offsets = lambda _: False
        logs = self.stage.source.logs
        # some bounds are the end of the log, some lie before it
        self.bounds = Bounds({p: self.rng.choice([log.end, log.end // 2]) for p, log in enumerate(logs)})
        self.checks.at_the_end = self._verdict

    def _bounded(self, cluster: object, **given: object) -> Replica:
        plain = None if self.exactly_once else cluster.producer()
        given["chain"] = collecting(self.clock, random.Random(self.rng.random()), plain)
        return Replica(cluster, **given, bounds=self.bounds)

    def _finished(self) -> bool:
        """What the parent of a local run can see: every claim at its bound, every note says that the end is marked."""
        offsets, claims = self.stage.offsets(), self.stage.claims()
        newest = self.stage.epochs.newest()
        if newest is None or not self.settled or newest.partitions != len(self.stage.source.logs):
            return False
        return not self.stage.open() and all(
            offsets.get(p, -1) >= self.bounds.of(p)
            and (note := Note.decode(claims[p].note)) is not None
            and note.standing == "end"
            for p in range(newest.partitions)
        )

    def _verdict(self) -> None:
        self.stage.broker.settle()
        for partition in range(len(self.stage.source.logs)):
            found = self.channel(partition)
            rows = [row.origin.offset for row in found if isinstance(row, Row)]
            due, late = self._due(partition)
            if rows != due:
                raise Violation(
                    f"partition {partition} up to {self.bounds.of(partition)} has rows {rows}, not {due}"
                )
            note = Note.decode(self.stage.claims()[partition].note)
            if note is None or note.late != late:
                raise Violation(f"partition {partition} has {late} late rows, and notes {note}")
            if Mark(MarkKind.END, END) not in found:
                raise Violation(f"partition {partition} ends with {found[-1:]}, and has no end mark")
            first = found.index(Mark(MarkKind.END, END))
            if any(isinstance(after, Row) for after in found[first:]):
                raise Violation(f"partition {partition} has rows after its end mark")
            told = None
            for record in found:
                if isinstance(record, Mark):
                    told = record.time
                elif told is not None and record.time < told - LITTLE.micros:
                    raise Violation(f"partition {partition} has {record} after a mark of {told}")

    def _due(self, partition: int) -> tuple[list[int], int]:
        """Offsets whose rows are not late, and the number of those that are."""
        due, latest = list[int](), -LITTLE.micros
        for offset in range(self.bounds.of(partition)):
            if time_of(partition, offset) >= latest - LITTLE.micros:
                due.append(offset)
            latest = max(latest, time_of(partition, offset))
        return due, self.bounds.of(partition) - len(due)

    def channel(self, partition: int) -> Sequence[Row | Mark]:
        records = self.stage.broker.records(CHANNEL)
        return [parse(r.value(), r.headers()) for r in records if r.partition() == partition]
