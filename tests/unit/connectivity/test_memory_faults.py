"""What the in-memory broker can be made to do beside what the contract suite asks of both."""

from __future__ import annotations

import pytest

from millrace.clock import VirtualClock
from millrace.connectivity.memory import Call, Fate, MemoryBroker, Phase
from millrace.connectivity.ports import (
    Fenced,
    OffsetAndMetadata,
    OutcomeUnknown,
    TimedOut,
    TransactionAborted,
    TransactionalProducer,
    Unstable,
)

pytestmark = pytest.mark.unit


class Crash(BaseException):
    """The end of the calling process."""


def world(marker_delay: float | None = 0.0) -> MemoryBroker:
    broker = MemoryBroker(VirtualClock(), marker_delay=marker_delay)
    broker.create_topic("in", 2)
    broker.create_topic("out", 1)
    return broker


def open_transaction(broker: MemoryBroker, offset: int = 1, name: str = "id") -> TransactionalProducer:
    producer = broker.cluster(client_id="worker").transactional_producer(name)
    producer.init(1)
    producer.begin()
    producer.produce("out", b"%d" % offset)
    producer.send_offsets("g", "in", {0: OffsetAndMetadata(offset)}, 1)
    return producer


def committed(broker: MemoryBroker, *, stable: bool = True) -> int | None:
    found = broker.cluster(client_id="asker").admin().group_offsets("g", "in", [0], 1, stable=stable)
    return found[0].offset if found else None


@pytest.mark.parametrize(
    ("fate", "offset", "outputs"),
    [(Fate.LOST, None, []), (Fate.LATE, None, []), (Fate.REPLY_LOST, 1, [b"1"])],
)
def test_a_commit_without_a_reply_is_unknown_and_may_have_been_carried_out(
    fate: Fate, offset: int | None, outputs: list[bytes]
) -> None:
    broker = world()
    producer = open_transaction(broker)
    broker.faults.plan("commit", fate)
    with pytest.raises(OutcomeUnknown):
        producer.commit(1)
    assert committed(broker, stable=False) == offset
    assert [r.value() for r in broker.records("out")] == outputs
    with pytest.raises(OutcomeUnknown):
        producer.begin()


def test_a_late_end_commits_what_nobody_waits_for_any_more() -> None:
    broker = world()
    producer = open_transaction(broker)
    broker.faults.plan("commit", Fate.LATE)
    with pytest.raises(OutcomeUnknown):
        producer.commit(1)
    with pytest.raises(Unstable):
        committed(broker)
    assert broker.land(broker.late[0])
    assert committed(broker) == 1


def test_a_late_end_is_refused_after_the_next_init() -> None:
    broker = world()
    producer = open_transaction(broker)
    broker.faults.plan("commit", Fate.LATE)
    with pytest.raises(OutcomeUnknown):
        producer.commit(1)
    open_transaction(broker, 7)
    assert not broker.land(broker.late[0])
    with pytest.raises(Unstable):
        committed(broker)


def test_a_refused_commit_has_to_be_aborted_and_the_next_one_counts() -> None:
    broker = world()
    producer = open_transaction(broker)
    broker.faults.plan("commit", Fate.REFUSED)
    with pytest.raises(TransactionAborted):
        producer.commit(1)
    producer.abort(1)
    producer.begin()
    producer.send_offsets("g", "in", {0: OffsetAndMetadata(2)}, 1)
    producer.commit(1)
    assert committed(broker) == 2
    assert broker.records("out") == []


def test_a_prepared_transaction_is_unstable_and_holds_up_init_until_it_is_complete() -> None:
    broker = world(marker_delay=None)
    producer = open_transaction(broker)
    producer.commit(1)
    assert broker.transactions.prepared() == ["id"]
    with pytest.raises(Unstable):
        committed(broker)
    assert broker.records("out") == []
    successor = broker.cluster(client_id="successor").transactional_producer("id")
    with pytest.raises(TimedOut):
        successor.init(1)
    broker.transactions.complete("id")
    assert committed(broker) == 1
    assert [r.value() for r in broker.records("out")] == [b"1"]
    successor.init(1)


def test_markers_take_the_time_that_was_given() -> None:
    broker = world(marker_delay=0.5)
    producer = open_transaction(broker)
    producer.commit(1)
    with pytest.raises(Unstable):
        committed(broker)
    broker.clock.sleep(0.5)
    assert committed(broker) == 1
    producer.begin()
    producer.send_offsets("g", "in", {0: OffsetAndMetadata(2)}, 1)
    producer.commit(1)
    producer.begin()
    producer.send_offsets("g", "in", {0: OffsetAndMetadata(3)}, 1)  # waits for the former one's markers
    assert committed(broker, stable=False) == 2


def test_an_open_transaction_is_aborted_after_ten_seconds_even_while_nobody_reaches_the_broker() -> None:
    broker = world()
    producer = open_transaction(broker)
    broker.faults.up = False
    broker.clock.sleep(9.9)
    broker.faults.up = True
    with pytest.raises(Unstable):
        committed(broker)
    broker.clock.sleep(0.2)
    assert committed(broker) is None
    with pytest.raises(Fenced):
        producer.commit(1)


def test_the_hook_sees_each_call_before_and_after_its_effect_and_may_crash_the_caller_there() -> None:
    broker = world()
    producer = open_transaction(broker)
    seen: list[tuple[str, str, Phase]] = []

    def crash_after_commit(call: Call) -> None:
        seen.append((call.client, call.name, call.phase))
        if call.name == "commit" and call.phase is Phase.AFTER:
            raise Crash

    broker.hook = crash_after_commit
    with pytest.raises(Crash):
        producer.commit(1)
    broker.hook = lambda _: None
    assert seen == [
        ("worker", "deliver", Phase.BEFORE),
        ("worker", "deliver", Phase.AFTER),
        ("worker", "commit", Phase.BEFORE),
        ("worker", "commit", Phase.AFTER),
    ]
    assert committed(broker) == 1


def test_the_hook_may_choose_the_fate_of_a_call() -> None:
    broker = world()
    producer = open_transaction(broker)

    def lose_replies(call: Call) -> None:
        if call.name == "commit":
            call.fate = Fate.REPLY_LOST

    broker.hook = lose_replies
    with pytest.raises(OutcomeUnknown):
        producer.commit(1)
    broker.hook = lambda _: None
    assert committed(broker) == 1


def test_a_plan_is_for_one_call_of_the_client_it_names() -> None:
    broker = world()
    broker.faults.plan("describe_topic", Fate.LOST, client="b")
    broker.cluster(client_id="a").admin().describe_topic("in", 1)
    with pytest.raises(TimedOut):
        broker.cluster(client_id="b").admin().describe_topic("in", 1)
    broker.cluster(client_id="b").admin().describe_topic("in", 1)


def test_a_crash_of_a_plain_producer_loses_what_it_has_buffered() -> None:
    broker = world()
    producer = broker.cluster(client_id="p").producer()
    producer.produce("out", b"acknowledged")
    producer.flush(1)
    producer.produce("out", b"lost")
    producer.close()
    assert [r.value() for r in broker.records("out")] == [b"acknowledged"]


def test_expired_offsets_are_absent() -> None:
    broker = world()
    open_transaction(broker).commit(1)
    broker.groups.expire("g", "in", [0])
    assert committed(broker) is None


def test_the_first_fetch_after_an_unassign_may_give_one_record_more() -> None:
    broker = world()
    broker.append("in", 0, [b"a", b"b", b"c"])
    consumer = broker.cluster(client_id="r").consumer("in", group="g")
    consumer.assign({0: 0})
    assert len(consumer.fetch(1, 0)) == 1
    consumer.unassign([0])
    assert [r.value() for r in consumer.fetch(10, 0)] == [b"b"]
    assert consumer.fetch(10, 0) == []


def test_waits_are_sleeps_on_the_clock_and_end_in_time() -> None:
    broker = world()
    broker.faults.up = False
    before = broker.clock.monotonic()
    with pytest.raises(TimedOut):
        broker.cluster(client_id="w").transactional_producer("id").init(3.0)
    assert broker.clock.monotonic() - before == pytest.approx(3.0)
