"""Late rows: where they go, how they are counted, and that crashes change nothing of it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chain_fakes import FakeProducer, FakeRecord
from chain_pipelines import pipeline_of
from millrace.chain import Functions, build, stage_stats
from millrace.channel.progress import Note
from millrace.channel.wire import Row, parse
from millrace.clock import VirtualClock
from millrace.engine.batch import Batch
from millrace.engine.marks import Marks
from millrace.engine.outbox import Outbox
from millrace.engine.strategy import MessageRejected
from millrace.errors import StageFailed
from millrace.strategies import Function

pytestmark = pytest.mark.unit

CHANNEL = "default.test.by.channel"
START = datetime(2026, 1, 1, tzinfo=UTC)
TWICE = {"name": "twice", "flatMap": {"function": "m:f"}}
OUT = {"name": "out", "produce": {"topic": "out"}}


def at(minute: int) -> bytes:
    return b'{"t":"%s"}' % (START + timedelta(minutes=minute)).isoformat().encode()


class Rig:
    """A chain that collects with a lateness of ten minutes. Messages are event times in minutes."""

    def __init__(
        self,
        *stages: Mapping[str, object],
        late: str = "Drop",
        producer: FakeProducer | None = None,
        **spec: object,
    ) -> None:
        window = {"size": "1h", "time": "t", "lateness": "10m", "late": late}
        collect = {
            "schema": "t timestamp",
            "window": window,
            "aggregate": {"count": "count(*)"},
            "sink": {"parquet": {"path": "results"}},
        }
        spec = {"deadLetter": {"topic": "dead"}, **spec}
        self.producer, self.plain = producer or FakeProducer(), FakeProducer()
        self.outbox, self.position = Outbox(), 0
        self.outbox.attach(self.producer)
        pipeline = pipeline_of(*stages, {"name": "by", "collect": collect}, **spec)
        self.stats = stage_stats(pipeline)
        earlier = lambda value: [value, {"t": value.get("and", value["t"])}]  # noqa: E731
        functions = Functions({"twice": Function(earlier)})
        self.chain = build(
            pipeline, functions, self.outbox, self.plain, self._done, self.stats, VirtualClock()
        )

    def _done(self, _partition: int, _start: int, end: int) -> None:
        self.position = end

    @property
    def marks(self) -> Marks:
        assert self.outbox.marks is not None
        return self.outbox.marks

    def submit(self, *values: bytes | int, start: int = 0) -> None:
        bodies = [value if isinstance(value, bytes) else at(value) for value in values]
        records = [FakeRecord(start + n, body) for n, body in enumerate(bodies)]
        self.chain.submit(Batch(0, start, start + len(values), records, records, records))
        self.chain.poll()

    def origins(self) -> list[str]:
        found = [parse(p.value, p.headers) for p in self.producer.produced if p.topic == CHANNEL]
        return [f"{row.origin.offset}:{row.origin.index}" for row in found if isinstance(row, Row)]

    def letters(self) -> list[tuple[int, str]]:
        heads = [dict(p.headers or ()) for p in self.producer.produced if p.topic == "dead"]
        assert {head["millrace-stage"] for head in heads} <= {b"by"}
        return [
            (int(head["millrace-offset"] or b""), (head["millrace-reason"] or b"").decode()) for head in heads
        ]

    def late(self) -> int:
        note = Note.decode(self.marks.note(0))
        assert note is not None
        return note.late


def both(minute: int, other: int) -> bytes:
    """A message of which `twice` makes two rows."""
    return at(minute)[:-1] + b',"and":' + at(other)[5:]


def test_a_late_row_never_reaches_the_channel_and_is_counted() -> None:
    rig = Rig()
    rig.submit(100, 90, 89, 101)
    rig.submit(91, 90, start=4)
    assert rig.origins() == ["0:0", "1:0", "3:0", "4:0"]
    assert rig.late() == 2
    figures = rig.stats["by"]
    assert (figures.received, figures.emitted, figures.late, figures.dead) == (6, 4, 2, 0)
    assert rig.letters() == []
    assert rig.position == 6


def test_a_batch_of_late_rows_alone_is_complete_at_once() -> None:
    rig = Rig()
    rig.submit(100)
    rig.submit(1, 2, 3, start=1)
    assert rig.position == 4
    assert rig.late() == 3


def test_with_drop_the_other_rows_of_a_message_stay_and_keep_their_numbers() -> None:
    rig = Rig(TWICE)
    rig.submit(both(100, 100), both(50, 99), both(99, 50))
    assert rig.origins() == ["0:0", "0:1", "1:1", "2:0"]


def test_with_dead_letter_the_message_becomes_one_as_a_whole() -> None:
    rig = Rig(TWICE, late="DeadLetter")
    rig.submit(both(100, 100), both(50, 120), both(99, 50), both(95, 91))
    assert rig.origins() == ["0:0", "0:1", "3:0", "3:1"], (
        "what is in a dead letter carries event time no further"
    )
    came = "the partition had come to 2026-01-01T01:40:00.000000Z, lateness 10m"
    assert rig.letters() == [(n, f"late: event time 2026-01-01T00:50:00.000000Z, {came}") for n in (1, 2)]
    assert rig.late() == 2
    assert (rig.stats["by"].emitted, rig.stats["by"].dead, rig.stats["by"].late) == (4, 2, 2)


def test_late_dead_letters_keep_the_order_among_others() -> None:
    rig = Rig(late="DeadLetter")
    rig.submit(100, b"{}", 1, b"{}", 2)
    assert [offset for offset, _ in rig.letters()] == [1, 2, 3, 4]


def test_late_dead_letters_do_not_count_towards_the_limits() -> None:
    rig = Rig(late="DeadLetter", deadLetter={"topic": "dead", "maxConsecutive": 2, "maxRatio": 0})
    rig.submit(100, *range(50))
    assert len(rig.letters()) == 50


@pytest.mark.parametrize("late", ["Drop", "DeadLetter"])
@pytest.mark.parametrize("delivery", ["AtLeastOnce", "ExactlyOnce"])
def test_a_produce_stage_passes_late_messages_on(late: str, delivery: str) -> None:
    rig = Rig(OUT, late=late, delivery=delivery)
    rig.submit(100, 1, 100)
    rig.chain.poll()
    producer = rig.producer if delivery == "ExactlyOnce" else rig.plain
    assert [p.value for p in producer.produced if p.topic == "out"] == [at(100), at(1), at(100)]
    assert rig.origins() == ["0:0", "2:0"]
    assert len(rig.letters()) == (late == "DeadLetter")


def test_where_a_later_message_stops_the_worker_only_what_was_before_it_is_noted() -> None:
    rig = Rig(deadLetter=None)
    with pytest.raises(StageFailed):
        rig.submit(100, 1, b"{}", 500, 2)
    assert rig.position == 2
    note = Note.decode(rig.marks.note(0))
    assert note is not None
    assert note.late == 1
    assert note.time == 100 * 60_000_000 + int(START.timestamp()) * 1_000_000


def late_by_the_source(minutes: list[int]) -> set[int]:
    """The definition."""
    return {n for n, minute in enumerate(minutes) if minute < max(minutes[: n + 1]) - 10}


steps = st.lists(
    st.sampled_from(["submit", "submit", "commit", "crash", "full", "room"]), min_size=12, max_size=30
)


@given(
    st.lists(st.integers(0, 40), min_size=10, max_size=30),
    steps,
    st.sampled_from(["Drop", "DeadLetter"]),
    st.data(),
)
def test_the_same_messages_give_the_same_late_rows_whatever_happens(
    minutes: list[int], does: list[str], policy: str, data: st.DataObject
) -> None:
    producer = FakeProducer(chance=random.Random(data.draw(st.integers(0, 99), label="seed of the producer")))
    note: str | None = None
    committed = taken = 0
    rig = Rig(late=policy, producer=producer)
    rig.marks.adopt(0, None)
    kept = 0  # records of the producer that are committed
    for step in [*does, "room", *["submit", "commit"] * len(minutes)]:
        if step == "submit" and taken < len(minutes):
            count = data.draw(st.integers(1, 4), label="batch")
            try:
                rig.submit(*minutes[taken : taken + count], start=taken)
            except MessageRejected:
                rig.chain.poll()
                continue
            taken = min(taken + count, len(minutes))
        elif step == "commit" and not rig.outbox.open:
            rig.marks.write({0: None})
            note, committed, kept = rig.marks.note(0), rig.position, len(producer.produced)
        elif step == "crash":
            del producer.produced[kept:]
            rig = Rig(late=policy, producer=producer)
            rig.marks.adopt(0, note)
            rig.position = taken = committed
        elif step in ("full", "room"):
            producer.fullness = 0.5 if step == "full" else 0.0
            rig.chain.poll()
    late = late_by_the_source(minutes)
    assert committed == len(minutes)
    assert rig.origins() == [f"{n}:0" for n in range(len(minutes)) if n not in late]
    assert [offset for offset, _ in rig.letters()] == (sorted(late) if policy == "DeadLetter" else [])
    assert rig.late() == len(late)
