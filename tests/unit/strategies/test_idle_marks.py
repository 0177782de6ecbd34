"""Idle marks as a collector sees them: real replicas on the in-memory broker, and a model of the collector that keeps one
watermark a partition, which marks alone carry on, and the smallest of which closes windows. It never finds a late row:
those are told, and left out, by the workers.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from channel_worlds import CHANNEL, LATENESS, STEP
from millrace.channel.progress import Note, Progress
from millrace.channel.wire import Mark, Row, parse
from millrace.clock import VirtualClock
from millrace.engine.batch import Batch
from millrace.engine.outbox import Outbox
from millrace.engine.replica import Replica
from millrace.engine.session import ChainFactory, OnComplete
from millrace.engine.stats import StageStats
from millrace.engine.strategy import Strategy
from millrace.ownership.control_rules import Fleet
from millrace.strategies import Commit, Inline, Marker, Outcome, collect_rows
from replica_stage import SOURCE, Stage

pytestmark = pytest.mark.unit

MINUTE = STEP


class Collector:
    """Event times in microseconds."""

    def __init__(self, partitions: int) -> None:
        self.furthest: dict[int, int | None] = dict.fromkeys(range(partitions))
        self.rows: list[Row] = []

    @property
    def watermark(self) -> int | None:
        times = list(self.furthest.values())
        return None if None in times else min(time for time in times if time is not None) - LATENESS.micros

    def take(self, partition: int, found: Row | Mark) -> None:
        if isinstance(found, Row):
            assert self.watermark is None or found.time >= self.watermark, f"{found} would be dropped"
            self.rows.append(found)
            return
        known = self.furthest[partition]
        self.furthest[partition] = found.time if known is None else max(known, found.time)


def chain(clock: VirtualClock) -> ChainFactory:
    def rowed(batch: Batch) -> Outcome:
        """The message's value is its event time."""
        values = [(b"{}", int(record.value() or b"0")) for record in batch.records]
        made = Batch(batch.partition, batch.start, batch.end, batch.source, batch.records, values)
        return Outcome(made)

    def make(outbox: Outbox, on_complete: OnComplete) -> Strategy:
        progress = Progress()
        outbox.marks = Marker(outbox, CHANNEL, progress, clock)
        end = Commit(on_complete, outbox)
        return Inline(
            collect_rows(end, outbox, CHANNEL, progress, LATENESS, "by", StageStats(), clock),
            rowed,
            None,
            clock,
        )

    return make


class Run:
    """Two workers with four partitions."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.stage = Stage(self.clock, partitions=4, messages=0)
        self.stage.broker.create_topic(CHANNEL, 4)
        plane = self.stage.plane()
        for _ in range(4):
            plane.reconcile(2, Fleet(2, frozenset({0, 1}), frozenset({0, 1}), frozenset()))
        self.replicas = [self.replica(0), self.replica(1)]
        self.collector, self._taken = Collector(4), dict.fromkeys(range(4), -1)

    def replica(self, index: int) -> Replica:
        return self.stage.replica(index, chain=chain(self.clock))

    def late(self) -> dict[int, int]:
        """Late rows, by partition, as the claims have it."""
        notes = {p: Note.decode(claim.note) for p, claim in self.stage.claims().items()}
        return {p: note.late for p, note in notes.items() if note is not None and note.late}

    def event(self, partition: int, time: int) -> None:
        self.stage.broker.append(SOURCE, partition, [b"%d" % time])

    def go_on(self, seconds: float, each: Callable[[], None] = lambda: None) -> None:
        """Let time pass, calling `each` about once a second; the collector reads along."""
        until = self.clock.monotonic() + seconds
        tick = self.clock.monotonic()
        while self.clock.monotonic() < until:
            if self.clock.monotonic() >= tick:
                tick += 1.0
                each()
            for replica in self.replicas:
                replica.step(0.1)
            for record in self.stage.broker.records(CHANNEL):
                if record.offset() > self._taken[record.partition()]:
                    self._taken[record.partition()] = record.offset()
                    self.collector.take(record.partition(), parse(record.value(), record.headers()))


def moving(run: Run, *partitions: int) -> Callable[[], None]:
    """Event time goes on by a minute with each call."""
    now = iter(range(0, 10**6 * MINUTE, MINUTE))

    def each() -> None:
        time = next(now)
        for partition in partitions:
            run.event(partition, time)

    return each


def test_partitions_without_a_record_hold_nothing_back_whichever_worker_has_them() -> None:
    run = Run()
    run.go_on(120, moving(run, 2))
    assert run.collector.watermark is not None
    assert run.collector.watermark > 50 * MINUTE - LATENESS.micros
    assert run.late() == {}


def test_a_partition_that_lags_is_waited_for() -> None:
    run = Run()
    run.go_on(60, moving(run, 0, 1, 2, 3))
    run.event(3, 100)  # of long ago, and from now on partition 3 is read slowly
    slow = run.replicas.pop()
    run.go_on(120, moving(run, 0, 1, 2))
    run.replicas.append(slow)
    before = run.collector.watermark
    run.go_on(5)
    assert before is not None
    assert before <= 60 * MINUTE - LATENESS.micros


def test_old_records_after_an_idle_mark_count_up_to_the_lateness_and_no_further() -> None:
    run = Run()
    run.go_on(120, moving(run, 0, 1, 2))
    watermark = run.collector.watermark
    assert watermark is not None, "partition 3, which is empty, has promised something"
    run.event(3, watermark + LATENESS.micros - 1)
    run.event(3, watermark)
    run.event(3, watermark - 1)
    run.go_on(5)
    assert [row.origin.offset for row in run.collector.rows if row.origin.partition == 3] == [0, 1]
    assert run.late() == {3: 1}


def test_what_is_late_after_an_idle_mark_is_so_for_the_next_holder_too() -> None:
    run = Run()
    run.go_on(120, moving(run, 0, 1, 2))
    watermark = run.collector.watermark
    assert watermark is not None
    for index in range(2):
        run.replicas[index] = run.replica(index)  # the former ones are dead
    run.event(3, watermark - 1)
    run.go_on(5)
    assert run.late() == {3: 1}


def test_late_rows_are_no_sign_of_life() -> None:
    """A device whose clock is years behind would hold back all windows for ever."""
    run = Run()
    run.go_on(60, moving(run, 0, 1, 2, 3))
    go_on = moving(run, 0, 1, 2)
    for _ in range(60):
        go_on()

    def each() -> None:
        go_on()
        run.event(3, -(10**12))

    run.go_on(60, each)
    assert run.collector.watermark is not None
    assert run.collector.watermark > 80 * MINUTE - LATENESS.micros
    assert run.late()[3] > 50


def test_when_all_rest_they_come_to_the_furthest_of_all_and_then_nothing_more_is_written() -> None:
    run = Run()
    run.event(0, 500 * MINUTE)
    run.event(1, 300 * MINUTE)
    run.go_on(80)
    assert run.collector.watermark == 500 * MINUTE - LATENESS.micros
    written = len(run.stage.broker.records(CHANNEL))
    run.go_on(200)
    assert len(run.stage.broker.records(CHANNEL)) == written


def test_what_comes_at_once_after_a_rest_of_all_is_late_nowhere() -> None:
    """One partition is read to the end of many lateness's worth before the next one's rows are there."""
    run = Run()
    run.go_on(30, moving(run, 0, 1, 2, 3))
    run.go_on(60)
    times = range(30 * MINUTE, 30 * MINUTE + 20 * LATENESS.micros, LATENESS.micros // 4)
    for partition in range(4):
        for time in times:
            run.event(partition, time)
        run.go_on(2.5)
    assert run.late() == {}
    run.go_on(60)
    assert run.late() == {}
    assert len(run.collector.rows) == 4 * (30 + len(times))
    assert run.collector.watermark == times[-1] - LATENESS.micros


def test_a_group_without_any_record_marks_nothing_so_that_a_load_may_begin_anywhere() -> None:
    run = Run()
    run.go_on(60)
    assert run.stage.broker.records(CHANNEL) == []
    run.event(1, 7)
    run.go_on(5)
    assert [row.time for row in run.collector.rows] == [7]


def test_a_worker_that_starts_anew_keeps_the_promises_and_goes_on() -> None:
    run = Run()
    run.go_on(60, moving(run, 2))
    for index in range(2):
        run.replicas[index] = run.replica(index)  # the former ones are dead
    run.go_on(60)
    assert run.collector.watermark == 59 * MINUTE - LATENESS.micros


@pytest.mark.parametrize("seed", range(20))
def test_no_record_is_late_that_is_not_older_than_the_lateness(seed: int) -> None:
    """Whatever rests and comes back: records trail the group's event time by at most the lateness, and none is lost."""
    chance, run, now = random.Random(seed), Run(), 0
    awake = {p: chance.random() < 0.5 for p in range(4)}
    events = 0

    def each() -> None:
        nonlocal now, events
        now += chance.choice([0, 1, 30]) * MINUTE
        for partition in awake:
            if chance.random() < 0.05:
                awake[partition] = not awake[partition]
            if awake[partition]:
                run.event(partition, now - chance.randrange(LATENESS.micros))
                events += 1

    run.go_on(150, each)
    run.go_on(5)
    assert run.late() == {}
    assert len(run.collector.rows) == events
