"""The outbox: one transaction at a time, never with half a batch in it."""

from __future__ import annotations

import pytest

from chain_fakes import FakeProducer, FakeRecord, batch_of
from millrace.clock import Deadline, VirtualClock
from millrace.connectivity.ports import OffsetAndMetadata, TransactionAborted
from millrace.engine.outbox import Outbox, OutboxError

pytestmark = pytest.mark.unit

OFFSETS = {"g": {0: OffsetAndMetadata(5)}, "g.claims": {0: OffsetAndMetadata(5, "mine")}}


@pytest.fixture
def deadline() -> Deadline:
    return Deadline.after(VirtualClock(), 10.0)


@pytest.fixture
def producer() -> FakeProducer:
    return FakeProducer()


@pytest.fixture
def outbox(producer: FakeProducer) -> Outbox:
    outbox = Outbox()
    outbox.attach(producer)
    return outbox


def test_a_transaction_begins_with_the_first_record(outbox: Outbox, producer: FakeProducer) -> None:
    assert not outbox.dirty
    outbox.produce("out", b"1")
    outbox.produce("out", b"2")
    assert outbox.dirty
    assert producer.log == ["begin"]


def test_a_commit_carries_the_offsets_of_every_group_and_ends_the_transaction(
    outbox: Outbox, producer: FakeProducer, deadline: Deadline
) -> None:
    outbox.produce("out", b"1")
    outbox.commit(OFFSETS, "source", deadline)
    assert producer.log == ["begin", "offsets g source {0: 5}", "offsets g.claims source {0: 5}", "commit"]
    assert not outbox.dirty


def test_offsets_alone_are_a_transaction_too(
    outbox: Outbox, producer: FakeProducer, deadline: Deadline
) -> None:
    outbox.commit(OFFSETS, "source", deadline)
    assert producer.log[0] == "begin"
    assert producer.log[-1] == "commit"


def test_half_a_batch_is_never_committed(outbox: Outbox, producer: FakeProducer, deadline: Deadline) -> None:
    batch = batch_of([FakeRecord(0, of=3), FakeRecord(1, of=3)])
    outbox.begin_batch(batch)
    outbox.produce("out", b"1")
    assert outbox.open == {3}
    with pytest.raises(OutboxError, match="3"):
        outbox.commit(OFFSETS, "source", deadline)
    assert "commit" not in producer.log
    outbox.produce("out", b"2")
    outbox.end_batch(batch)
    outbox.commit(OFFSETS, "source", deadline)
    assert outbox.open == set()


def test_a_batch_written_by_several_stages_is_open_until_its_end(outbox: Outbox) -> None:
    first, second = batch_of([FakeRecord(0)]), batch_of([FakeRecord(1)])
    outbox.begin_batch(first)
    outbox.begin_batch(second)
    outbox.begin_batch(first)
    outbox.end_batch(first)
    assert outbox.open == {0}
    outbox.end_batch(second)
    assert outbox.open == set()


def test_the_end_of_a_batch_without_effects_is_no_matter(outbox: Outbox) -> None:
    outbox.end_batch(batch_of([FakeRecord(0)]))
    assert not outbox.dirty


def test_an_abort_forgets_what_was_partly_written(
    outbox: Outbox, producer: FakeProducer, deadline: Deadline
) -> None:
    outbox.begin_batch(batch_of([FakeRecord(0)]))
    outbox.produce("out", b"1")
    outbox.abort(deadline)
    assert outbox.open == set()
    assert not outbox.dirty
    assert producer.log[-1] == "abort"


def test_without_a_transaction_an_abort_asks_nothing_of_the_broker(
    outbox: Outbox, producer: FakeProducer, deadline: Deadline
) -> None:
    outbox.abort(deadline)
    assert producer.log == []


def test_a_refused_commit_leaves_a_transaction_to_be_aborted(
    outbox: Outbox, producer: FakeProducer, deadline: Deadline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: float) -> None:
        raise TransactionAborted("coordinator timed it out")

    monkeypatch.setattr(producer, "commit", refuse)
    with pytest.raises(TransactionAborted):
        outbox.commit(OFFSETS, "source", deadline)
    assert outbox.dirty


def test_a_new_producer_starts_clean_after_detach(outbox: Outbox) -> None:
    outbox.produce("out", b"1")
    with pytest.raises(OutboxError):
        outbox.attach(FakeProducer())
    outbox.detach()
    assert not outbox.dirty
    with pytest.raises(OutboxError):
        outbox.produce("out", b"1")
    outbox.attach(FakeProducer())
    outbox.produce("out", b"1")
