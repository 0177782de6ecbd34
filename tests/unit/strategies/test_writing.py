"""Outputs and dead letters: what is written, and that a full producer changes nothing of it."""

from __future__ import annotations

import pytest

from chain_fakes import FakeProducer, FakeRecord, Produced
from millrace.clock import Deadline, VirtualClock
from millrace.connectivity.ports import DeliveryFailed, RecordTooLarge
from millrace.engine.batch import Batch, DeadLetter
from millrace.engine.outbox import Outbox
from millrace.engine.stats import StageStats
from millrace.engine.strategy import MessageRejected, Strategy
from millrace.errors import StageFailed
from millrace.strategies import Commit, Produce, produce_in_transaction, write_dead_letters
from millrace.strategies.produce import SETTLE_AFTER

pytestmark = pytest.mark.unit


class Rig:
    def __init__(self) -> None:
        self.clock, self.producer, self.outbox = VirtualClock(), FakeProducer(), Outbox()
        self.outbox.attach(self.producer)
        self.completed: list[tuple[int, int, int]] = []
        self.end = Commit(lambda *range_: self.completed.append(range_), self.outbox)

    def in_transaction(self) -> Strategy:
        return produce_in_transaction(self.end, self.outbox, "out", "write", StageStats(), self.clock)

    def plain(self) -> Strategy:
        return Produce(self.end, self.producer, "out", "write", StageStats(), self.clock)

    def dead_letters(self) -> Strategy:
        return write_dead_letters(self.end, self.outbox, "dead", StageStats(), self.clock)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def outputs(*values: bytes | None, start: int = 0, partition: int = 0) -> Batch:
    records = [FakeRecord(start + n, b"", partition, b"key") for n in range(len(values))]
    return Batch(partition, start, start + len(values), records, records, list(values))


class Picky:
    """Makes a producer refuse one value as too large, or be full when told to."""

    def __init__(self, producer: FakeProducer, monkeypatch: pytest.MonkeyPatch, refused: bytes) -> None:
        produce = producer.produce

        def picky(topic: str, value: bytes | None, *rest: object) -> None:
            if value == refused:
                raise RecordTooLarge(f"{value!r} is too large")
            produce(topic, value, *rest)  # type: ignore[arg-type]

        monkeypatch.setattr(producer, "produce", picky)


def test_an_output_keeps_key_headers_and_timestamp_of_its_source_record(rig: Rig) -> None:
    record = FakeRecord(5, b"in", 2, b"key", (("h", b"1"),), 123)
    bare = FakeRecord(6, b"in", 2, None, (), None)
    rig.in_transaction().submit(Batch(2, 5, 7, [record, bare], [record, bare], [b"out", None]))
    assert rig.producer.produced == [
        Produced("out", b"out", b"key", [("millrace-origin", b"2:5:0@fake"), ("h", b"1")], -1, 123),
        Produced("out", None, None, [("millrace-origin", b"2:6:0@fake")], -1, 0),
    ]


def test_a_dead_letter_keeps_the_original_and_says_why_first(rig: Rig) -> None:
    record = FakeRecord(17, b"\xff{", 2, b"key", (("h", b"1"),), 123)
    batch = Batch(2, 17, 18, [record], [], [], (DeadLetter(record, "decode", "not JSON"),))
    rig.dead_letters().submit(batch)
    headers = [
        ("millrace-origin", b"2:17:0@fake"),
        ("millrace-reason", b"not JSON"),
        ("millrace-stage", b"decode"),
        ("millrace-topic", b"source"),
        ("millrace-partition", b"2"),
        ("millrace-offset", b"17"),
        ("millrace-timestamp", b"123"),
        ("h", b"1"),
    ]
    assert rig.producer.produced == [Produced("dead", b"\xff{", b"key", headers, -1, 0)]
    assert rig.completed == [(2, 17, 18)]


def test_a_reason_that_is_not_unicode_is_written_all_the_same(rig: Rig) -> None:
    record = FakeRecord(0)
    rig.dead_letters().submit(Batch(0, 0, 1, [record], [], [], (DeadLetter(record, "s", "\ud800"),)))
    assert rig.completed == [(0, 0, 1)]


def test_a_batch_without_effects_begins_no_transaction(rig: Rig) -> None:
    rig.dead_letters().submit(outputs(b"1"))
    assert not rig.outbox.dirty
    assert rig.completed == [(0, 0, 1)]


def test_a_full_producer_in_the_middle_of_a_batch_keeps_it_open_and_writes_nothing_twice(rig: Rig) -> None:
    strategy = rig.in_transaction()
    rig.producer.fullness = 0.6
    rig.producer.chance.seed(3)
    values = [b"%d" % n for n in range(50)]
    strategy.submit(outputs(*values))
    assert rig.outbox.open == {0}
    with pytest.raises(MessageRejected):
        strategy.submit(outputs(b"x", start=50))
    for _ in range(1000):
        strategy.poll()
    assert [p.value for p in rig.producer.produced] == values
    assert rig.outbox.open == set()
    assert rig.completed == [(0, 0, 50)]


@pytest.mark.parametrize("kind", ["in_transaction", "plain"])
def test_a_record_that_is_too_large_stops_at_its_message_after_what_is_before(
    rig: Rig, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Picky(rig.producer, monkeypatch, b"2")
    strategy: Strategy = getattr(rig, kind)()

    def until_it_fails() -> None:
        strategy.submit(outputs(b"0", b"1", b"2", b"3"))
        for _ in range(10):
            strategy.poll()

    with pytest.raises(StageFailed) as raised:
        until_it_fails()
    assert (raised.value.stage, raised.value.offset) == ("write", 2)
    assert [p.value for p in rig.producer.produced] == [b"0", b"1"]
    assert rig.completed == [(0, 0, 2)]
    assert rig.outbox.open == set()
    strategy.poll()
    with pytest.raises(StageFailed):
        strategy.submit(outputs(b"4", start=2))


def test_if_half_of_a_messages_outputs_are_in_the_transaction_it_stays_open(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    Picky(rig.producer, monkeypatch, b"1b")
    records = [FakeRecord(0), FakeRecord(1), FakeRecord(1)]
    strategy = rig.in_transaction()
    with pytest.raises(StageFailed):
        strategy.submit(Batch(0, 0, 2, records[:2], records, [b"0", b"1a", b"1b"]))
    assert rig.outbox.open == {0}
    assert rig.completed == []
    strategy.close()
    assert strategy.join(Deadline.after(rig.clock, 1.0))


def test_what_an_earlier_stage_has_written_of_a_batch_is_not_committed_in_part(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The messages from the one that is too large on come again: what was written of them must not count."""
    Picky(rig.producer, monkeypatch, b"large")
    records = [FakeRecord(0), FakeRecord(1, b"large"), FakeRecord(2)]
    letter = DeadLetter(records[1], "check", "does not fit")
    letters = rig.dead_letters()
    strategy = produce_in_transaction(letters, rig.outbox, "out", "write", StageStats(), rig.clock)
    with pytest.raises(StageFailed):
        strategy.submit(Batch(0, 0, 3, records, [records[0], records[2]], [b"0", b"2"], (letter,)))
    assert rig.outbox.open == {0}
    assert rig.completed == []


def test_a_plain_output_completes_its_batch_only_when_it_is_acknowledged(rig: Rig) -> None:
    strategy = rig.plain()
    rig.producer.promptness = 0.0
    strategy.submit(outputs(b"0"))
    strategy.submit(outputs(b"1", start=1))
    strategy.poll()
    assert rig.completed == []
    rig.producer.promptness = 1.0
    strategy.poll()
    assert rig.completed == [(0, 0, 1), (0, 1, 2)]


def test_under_steady_load_it_stops_taking_now_and_then_until_all_is_acknowledged(rig: Rig) -> None:
    strategy = rig.plain()
    rig.producer.promptness = 0.0
    strategy.submit(outputs(b"0"))
    rig.clock.advance(SETTLE_AFTER - 0.01)
    strategy.submit(outputs(b"1", start=1))
    rig.clock.advance(0.01)
    with pytest.raises(MessageRejected):
        strategy.submit(outputs(b"2", start=2))
    rig.producer.promptness = 1.0
    strategy.poll()
    assert rig.completed == [(0, 0, 1), (0, 1, 2)]
    strategy.submit(outputs(b"2", start=2))


def test_to_drain_a_partition_it_waits_for_acknowledgements_at_once(rig: Rig) -> None:
    strategy = rig.plain()
    rig.producer.promptness = 0.0
    strategy.submit(outputs(b"0", partition=4))
    strategy.drain({9})
    strategy.submit(outputs(b"0", partition=5))
    strategy.drain({4})
    with pytest.raises(MessageRejected):
        strategy.submit(outputs(b"1", start=1, partition=5))
    rig.producer.promptness = 1.0
    strategy.poll()
    assert rig.completed == [(4, 0, 1), (5, 0, 1)]
    strategy.abandon({4})
    strategy.submit(outputs(b"1", start=1, partition=4))


def test_nothing_passes_for_acknowledged_once_a_record_failed_for_good(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = rig.plain()
    rig.producer.promptness = 0.0
    strategy.submit(outputs(b"0"))

    def fail_once() -> None:
        monkeypatch.undo()
        rig.producer.outstanding = 0
        raise DeliveryFailed("message timed out")

    monkeypatch.setattr(rig.producer, "poll", fail_once)
    with pytest.raises(DeliveryFailed):
        strategy.poll()
    strategy.close()
    assert strategy.join(Deadline.after(rig.clock, 1.0))
    assert rig.completed == []


def test_an_engines_empty_batch_is_completed_in_its_turn(rig: Rig) -> None:
    strategy = rig.plain()
    rig.producer.promptness = 0.0
    strategy.submit(outputs(b"0"))
    strategy.submit(Batch(0, 1, 5, [], [], []))
    strategy.poll()
    assert rig.completed == []
    rig.producer.promptness = 1.0
    strategy.poll()
    assert rig.completed == [(0, 0, 1), (0, 1, 5)]
