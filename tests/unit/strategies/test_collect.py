"""The collect stage: rows as they are written, what does not fit, and marks."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from chain_fakes import FakeProducer, FakeRecord, Produced
from chain_pipelines import pipeline_of
from millrace.chain import Functions, build, stage_stats
from millrace.channel.progress import Note
from millrace.channel.wire import END, Mark, MarkKind, Row, parse
from millrace.clock import VirtualClock
from millrace.engine.batch import Batch
from millrace.engine.marks import End, Marks
from millrace.engine.outbox import Outbox
from millrace.errors import StageFailed
from millrace.strategies import Function
from millrace.strategies.marker import IDLE_AFTER

pytestmark = pytest.mark.unit

COLLECT = {
    "name": "by-key",
    "collect": {
        "schema": "k string, t timestamp, n int",
        "groupBy": ["k"],
        "window": {"size": "1h", "time": "t", "lateness": "1h"},
        "aggregate": {"count": "count(*)"},
        "sink": {"parquet": {"path": "results"}},
    },
}
CHANNEL = "default.test.by-key.channel"
OF = "by-key.t"
T0 = 1_357_036_800_000_000  # 2013-01-01T10:40:00Z


def event(n: object, time: str = "2013-01-01T10:40:00Z") -> bytes:
    return f'{{"t":"{time}","n":{n},"other":1}}'.encode()


class Rig:
    def __init__(self, *stages: Mapping[str, object], **spec: object) -> None:
        self.clock, self.producer, self.plain = VirtualClock(), FakeProducer(), FakeProducer()
        self.outbox, self.done = Outbox(), list[tuple[int, int, int]]()
        self.outbox.attach(self.producer)
        pipeline = pipeline_of(*stages, COLLECT, **spec)
        self.stats = stage_stats(pipeline)
        functions = Functions({"twice": Function(lambda value: [value, {**value, "n": value["n"] + 1}])})
        self.chain = build(
            pipeline,
            functions,
            self.outbox,
            self.plain,
            lambda *done: self.done.append(done),
            self.stats,
            self.clock,
        )

    @property
    def marks(self) -> Marks:
        assert self.outbox.marks is not None
        return self.outbox.marks

    def submit(self, *values: bytes | None, partition: int = 2, start: int = 5) -> None:
        records = [FakeRecord(start + n, value, partition, b"key", (), 7) for n, value in enumerate(values)]
        self.chain.submit(Batch(partition, start, start + len(values), records, records, records))
        self.chain.poll()

    def rows(self) -> list[Row]:
        return [found for found in self.parsed() if isinstance(found, Row)]

    def marked(self) -> list[tuple[int, Mark]]:
        channel = [p for p in self.producer.produced if p.topic == CHANNEL]
        parsed = [(p.partition, parse(p.value, p.headers)) for p in channel]
        return [
            (partition, found)
            for partition, found in parsed
            if isinstance(found, Mark) and found.kind != MarkKind.PROGRESS
        ]

    def progress(self) -> list[tuple[int, int]]:
        """Partition and time of each progress mark."""
        channel = [p for p in self.producer.produced if p.topic == CHANNEL]
        parsed = [(p.partition, parse(p.value, p.headers)) for p in channel]
        return [
            (partition, found.time)
            for partition, found in parsed
            if isinstance(found, Mark) and found.kind == MarkKind.PROGRESS
        ]

    def parsed(self) -> list[Row | Mark]:
        return [parse(p.value, p.headers) for p in self.producer.produced if p.topic == CHANNEL]


def noted(rig: Rig, partition: int) -> Note | None:
    note = Note.decode(rig.marks.note(partition))
    assert note is not None
    assert note.of == OF
    return msgspec.structs.replace(note, of="")


def test_a_value_becomes_a_row_in_the_partition_of_its_source() -> None:
    rig = Rig()
    rig.submit(event(1))
    assert rig.producer.produced == [
        Produced(
            CHANNEL,
            b'{"k":null,"t":"2013-01-01T10:40:00.000000Z","n":1}',
            b"key",
            [
                ("millrace-time", b"1357036800000000"),
                ("millrace-origin", b"2:5:0@fake"),
            ],
            2,
            7,
        )
    ]
    assert rig.done == [(2, 5, 6)]
    assert (rig.stats["by-key"].received, rig.stats["by-key"].emitted) == (1, 1)


def test_values_made_of_one_message_are_told_apart_by_their_index() -> None:
    rig = Rig({"name": "twice", "flatMap": {"function": "m:f"}})
    rig.submit(event(1), event(10))
    assert [str(row.origin) for row in rig.rows()] == ["2:5:0", "2:5:1", "2:6:0", "2:6:1"]


def test_what_does_not_fit_is_a_dead_letter_that_names_the_column() -> None:
    rig = Rig(deadLetter={"topic": "dead"})
    rig.submit(event(1), event('"x"'), event(2), None)
    assert [str(row.origin) for row in rig.rows()] == ["2:5:0", "2:7:0"]
    letters = [dict(p.headers or ()) for p in rig.producer.produced if p.topic == "dead"]
    assert [(letter["millrace-stage"], letter["millrace-reason"]) for letter in letters] == [
        (b"by-key", b"column n: expected int, found 'x' (str)"),
        (b"by-key", b"a row has to be a mapping of columns to values, found null"),
    ]
    assert rig.done == [(2, 5, 9)]


def test_without_dead_letters_it_stops_the_worker_after_what_was_before() -> None:
    rig = Rig()
    with pytest.raises(StageFailed, match="column n: expected int") as caught:
        rig.submit(event(1), event('"x"'), event(2))
    assert (caught.value.stage, caught.value.partition, caught.value.offset) == ("by-key", 2, 6)
    assert [str(row.origin) for row in rig.rows()] == ["2:5:0"]
    assert rig.done == [(2, 5, 6)]


def test_a_row_larger_than_a_producer_takes_does_not_fit() -> None:
    rig = Rig(deadLetter={"topic": "dead"})
    rig.submit(b'{"t":"2013-01-01T10:40:00Z","k":"' + b"x" * 1_000_000 + b'"}')
    assert rig.rows() == []


@pytest.mark.parametrize("delivery", ["AtLeastOnce", "ExactlyOnce"])
def test_produce_and_collect_get_the_same_values(delivery: str) -> None:
    rig = Rig({"name": "out", "produce": {"topic": "out"}}, delivery=delivery, deadLetter={"topic": "dead"})
    rig.submit(event(1), event('"x"'), event(2))
    rig.chain.poll()
    producer = rig.producer if delivery == "ExactlyOnce" else rig.plain
    assert [p.value for p in producer.produced if p.topic == "out"] == [event(1), event(2)]
    assert [row.value for row in rig.rows()] == [
        b'{"k":null,"t":"2013-01-01T10:40:00.000000Z","n":%d}' % n for n in (1, 2)
    ]
    assert rig.done == [(2, 5, 8)]


class TestProgressMarks:
    def test_say_with_each_commit_how_far_the_rows_have_come_and_are_its_last_records(self) -> None:
        rig = Rig()
        rig.submit(event(1), event(2, "2013-01-01T10:41:00Z"), event(3))
        rig.submit(event(1, "2013-01-01T10:42:00Z"), partition=1)
        rig.marks.write({1: None, 2: None})
        assert sorted(rig.progress()) == [(1, T0 + 120_000_000), (2, T0 + 60_000_000)]
        assert all(isinstance(found, Mark) for found in rig.parsed()[-2:])
        assert not rig.marks.due({1: None, 2: None})

    def test_are_not_written_where_nothing_has_come_further(self) -> None:
        rig = Rig()
        for start in (5, 6):
            rig.submit(event(1), start=start)
            rig.marks.write({2: None})
        assert rig.progress() == [(2, T0)]

    def test_are_written_for_a_partition_that_is_just_being_passed_on(self) -> None:
        rig = Rig()
        rig.submit(event(1))
        rig.marks.write({})
        assert rig.progress() == [(2, T0)]

    def test_wait_for_room(self) -> None:
        rig = Rig()
        rig.submit(event(1))
        rig.producer.fullness = 1.0
        rig.marks.write({2: None})
        assert rig.marks.due({2: None})
        rig.producer.fullness = 0.0
        rig.marks.write({2: None})
        assert rig.progress() == [(2, T0)]

    def test_say_nothing_beside_an_end_mark(self) -> None:
        rig = Rig()
        rig.submit(event(1))
        rig.marks.write({2: End.BOUND})
        assert rig.progress() == []


class TestEndMarks:
    def test_are_written_once_for_each_partition_at_its_bound(self) -> None:
        rig = Rig()
        ends = {0: End.BOUND, 1: None, 2: End.BOUND}
        assert rig.marks.due(ends)
        assert rig.marks.write(ends) == {0, 2}
        assert rig.marked() == [(0, Mark(MarkKind.END, END)), (2, Mark(MarkKind.END, END))]
        assert noted(rig, 0) == Note(None, "end", END)
        assert noted(rig, 1) == Note()
        assert not rig.marks.due(ends)
        assert rig.marks.write(ends) == set()
        assert len(rig.marked()) == 2

    def test_wait_for_room(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rig = Rig()
        rig.producer.fullness = 1.0
        assert rig.marks.write({0: End.BOUND}) == set()
        assert noted(rig, 0) == Note()
        assert rig.marks.due({0: End.BOUND})
        rig.producer.fullness = 0.0
        assert rig.marks.write({0: End.BOUND}) == {0}

    def test_are_written_again_by_the_next_holder_term(self) -> None:
        rig = Rig()
        rig.marks.write({0: End.BOUND})
        rig.marks.write({})
        rig.marks.write({0: End.BOUND})
        assert [mark.kind for _, mark in rig.marked()] == [MarkKind.END] * 2


class TestIdleMarks:
    """Partition 2 has rows up to T0; partition 3 is read to its end and has none."""

    def rig(self) -> Rig:
        rig = Rig()
        rig.marks.hear({2: None, 3: None})
        rig.submit(event(1))
        rig.marks.write({2: None, 3: End.LOG})
        return rig

    def rest(self, rig: Rig, seconds: float = IDLE_AFTER) -> None:
        rig.clock.advance(seconds)

    def test_are_not_written_before_the_partition_has_rested(self) -> None:
        rig = self.rig()
        self.rest(rig, IDLE_AFTER - 0.1)
        assert not rig.marks.due({2: None, 3: End.LOG})
        rig.marks.write({2: None, 3: End.LOG})
        assert rig.marked() == []

    def test_promise_what_those_that_are_read_have_come_to(self) -> None:
        rig = self.rig()
        self.rest(rig)
        assert rig.marks.due({2: None, 3: End.LOG})
        assert rig.marks.write({2: None, 3: End.LOG}) == {3}
        assert rig.marked() == [(3, Mark(MarkKind.IDLE, T0))]
        assert noted(rig, 2) == Note(T0, told=T0)
        assert noted(rig, 3) == Note(None, "idle", T0)
        assert not rig.marks.due({2: None, 3: End.LOG}), "there is nothing new to say"

    def test_follow_the_others_but_not_at_every_step(self) -> None:
        rig = self.rig()
        self.rest(rig)
        rig.marks.write({2: None, 3: End.LOG})
        for n in range(1, 30):
            self.rest(rig, 1.0)
            rig.submit(event(1, f"2013-01-01T11:{n:02}:00Z"), start=5 + n)
            rig.marks.write({2: None, 3: End.LOG})
        promises = [mark.time - T0 for _, mark in rig.marked()]
        assert promises == [0, 25 * 60_000_000, 35 * 60_000_000], "one in ten seconds, of ten seconds before"

    def test_a_partition_whose_messages_are_all_filtered_out_is_idle_whenever_it_is_at_its_end(self) -> None:
        rig = self.rig()
        for _ in range(12):
            self.rest(rig, 1.0)
            rig.marks.write({2: None, 3: None})
        rig.marks.write({2: None, 3: End.LOG})
        assert rig.marked() == [(3, Mark(MarkKind.IDLE, T0))]

    def test_when_all_rest_the_one_that_came_furthest_is_what_the_others_promise(self) -> None:
        rig = self.rig()
        rig.submit(event(1, "2013-01-01T10:00:00Z"), partition=3)
        self.rest(rig)
        rig.marks.write({2: End.LOG, 3: End.LOG})
        assert rig.marked() == [(3, Mark(MarkKind.IDLE, T0))]

    def test_what_other_workers_have_noted_counts(self) -> None:
        rig = self.rig()
        rig.marks.hear({2: None, 3: None, 4: Note(T0 - 5, of=OF).encode()})
        self.rest(rig)
        rig.marks.write({2: None, 3: End.LOG})
        assert rig.marked() == [], "it was not heard of ten seconds ago"
        self.rest(rig)
        rig.marks.write({2: None, 3: End.LOG})
        assert rig.marked() == [(3, Mark(MarkKind.IDLE, T0 - 5))]

    def test_nothing_is_promised_while_a_partition_elsewhere_has_not_been_heard_of(self) -> None:
        rig = self.rig()
        rig.marks.hear({2: None, 3: None, 4: None})
        self.rest(rig)
        assert rig.marks.write({2: None, 3: End.LOG}) == {3}, "but that it is idle is told"
        assert rig.marked() == []
        assert not rig.marks.due({2: None, 3: End.LOG})

    def test_a_worker_that_starts_anew_knows_the_times_from_the_notes(self) -> None:
        rig = Rig()
        rig.marks.adopt(3, Note(None, "idle", of=OF).encode())
        rig.marks.adopt(2, Note(T0, told=T0, of=OF).encode())
        rig.marks.hear({2: None, 3: None})
        rig.marks.write({2: None, 3: End.LOG})
        self.rest(rig)
        rig.marks.write({2: None, 3: End.LOG})
        assert rig.marked() == [(3, Mark(MarkKind.IDLE, T0))]
