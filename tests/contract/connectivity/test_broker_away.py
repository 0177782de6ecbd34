"""A broker that goes away and comes back, and requests that arrive late. Each test has a broker of its own to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition

from connectivity_world import PATIENCE, KafkaWorld, MemoryWorld, World
from kafka_fixture import start_or_skip
from kafka_proxy import TXN_OFFSET_COMMIT, KafkaProxy
from millrace.clock import Deadline
from millrace.connectivity.confluent.transactional import group_metadata
from millrace.connectivity.memory import Fate
from millrace.connectivity.ports import (
    BrokerUnreachable,
    Fenced,
    OffsetAndMetadata,
    OutcomeUnknown,
    TimedOut,
    Unstable,
)
from millrace.local.broker.embedded import EmbeddedBroker

pytestmark = pytest.mark.contract


class MortalMemory(MemoryWorld):
    def stop(self) -> None:
        self.broker.faults.up = False

    def start(self) -> None:
        self.broker.faults.up = True


class MortalKafka(KafkaWorld):
    def __init__(self, broker: EmbeddedBroker) -> None:
        super().__init__(broker.bootstrap)
        self._broker = broker

    def stop(self) -> None:
        self._broker.kill()

    def start(self) -> None:
        self._broker.start()


@pytest.fixture(scope="module")
def mortal_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    quick = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    broker = EmbeddedBroker(tmp_path_factory.mktemp("mortal"), properties=quick)
    start_or_skip(broker)
    yield broker
    broker.stop()


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.integration)])
def mortal(request: pytest.FixtureRequest) -> Iterator[MortalMemory | MortalKafka]:
    world: MortalMemory | MortalKafka
    if request.param == "memory":
        world = MortalMemory()
    else:
        world = MortalKafka(request.getfixturevalue("mortal_broker"))
    yield world
    world.start()
    world.close()


def test_a_transaction_survives_the_restart_of_its_coordinator(mortal: MortalMemory | MortalKafka) -> None:
    source, output, group = mortal.topic(), mortal.topic(), mortal.fresh("g")
    mortal.transaction_timeout = 120.0  # on a slow machine the broker is away for longer than workers wait
    producer = mortal.transactional(mortal.fresh("id"))
    producer.begin()
    producer.produce(output, b"before", partition=0)
    producer.send_offsets(group, source, {0: OffsetAndMetadata(1, "claim")}, PATIENCE)
    mortal.stop()
    mortal.start()
    producer.produce(output, b"after", partition=0)
    producer.commit(PATIENCE)
    assert mortal.offsets(group, source) == {0: OffsetAndMetadata(1, "claim")}
    assert mortal.values(output) == ["before", "after"]


def test_a_commit_to_a_broker_that_is_away_is_unknown_and_all_or_nothing(
    mortal: MortalMemory | MortalKafka,
) -> None:
    source, output, group, name = mortal.topic(), mortal.topic(), mortal.fresh("g"), mortal.fresh("id")
    producer = mortal.transactional(name)
    producer.begin()
    producer.send_offsets(group, source, {0: OffsetAndMetadata(1)}, PATIENCE)
    mortal.stop()
    with pytest.raises(OutcomeUnknown):
        producer.commit(2.0)
    with pytest.raises(OutcomeUnknown):  # final
        producer.begin()
    producer.close()
    mortal.start()

    successor = mortal.transactional(name)
    assert mortal.offsets(group, source) == {}  # here it never arrived, and the init has aborted it
    successor.begin()
    successor.produce(output, b"again", partition=0)
    successor.send_offsets(group, source, {0: OffsetAndMetadata(1)}, PATIENCE)
    successor.commit(PATIENCE)
    assert mortal.values(output) == ["again"]


def test_offsets_sent_to_a_broker_that_is_away_are_unknown_and_final(
    mortal: MortalMemory | MortalKafka,
) -> None:
    source, group = mortal.topic(), mortal.fresh("g")
    producer = mortal.transactional(mortal.fresh("id"))
    producer.begin()
    mortal.stop()
    with pytest.raises(OutcomeUnknown):
        producer.send_offsets(group, source, {0: OffsetAndMetadata(1)}, 1.0)
    with pytest.raises(OutcomeUnknown):
        producer.abort(1.0)


def test_who_asks_a_broker_that_is_away_learns_it_in_time(mortal: MortalMemory | MortalKafka) -> None:
    topic = mortal.topic()
    admin, producer = mortal.admin(), mortal.cluster().producer()
    starting = mortal.transactional(mortal.fresh("id"), init=False)
    admin.describe_topic(topic, PATIENCE)
    mortal.stop()
    before = mortal.clock.monotonic()
    with pytest.raises((BrokerUnreachable, TimedOut)):
        admin.describe_topic(topic, 1.0)
    with pytest.raises((BrokerUnreachable, TimedOut)):
        admin.group_offsets("g", topic, [0], 1.0, stable=True)
    with pytest.raises((BrokerUnreachable, TimedOut)):
        starting.init(1.0)
    producer.produce(topic, b"v", partition=0)
    with pytest.raises((BrokerUnreachable, TimedOut)):
        producer.flush(1.0)
    assert mortal.clock.monotonic() - before < 8.0
    mortal.start()
    producer.flush(PATIENCE)
    producer.close()
    starting.init(PATIENCE)
    assert mortal.values(topic) == ["v"]


def test_a_reader_goes_on_when_the_broker_is_back(mortal: MortalMemory | MortalKafka) -> None:
    topic = mortal.topic()
    mortal.fill(topic, ["a"])
    consumer = mortal.reader(topic, {0: 0})
    mortal.read(consumer, {0: 1})
    mortal.stop()
    deadline = Deadline.after(mortal.clock, 1.0)
    while not deadline.expired():
        assert list(consumer.fetch(10, 0.05)) == []
    mortal.start()
    mortal.fill(topic, ["b"])
    assert [r.value() for r in mortal.read(consumer, {0: 2})] == [b"b"]


def test_an_open_transaction_times_out_and_its_producer_is_fenced(mortal: MortalMemory | MortalKafka) -> None:
    source, output, group = mortal.topic(), mortal.topic(), mortal.fresh("g")
    producer = mortal.transactional(mortal.fresh("id"))
    producer.begin()
    producer.produce(output, b"never", partition=0)
    producer.send_offsets(group, source, {0: OffsetAndMetadata(1)}, PATIENCE)
    before = mortal.clock.monotonic()
    assert mortal.offsets(group, source) == {}
    assert 8.0 < mortal.clock.monotonic() - before < 15.0
    with pytest.raises(Fenced):
        producer.commit(PATIENCE)
    assert mortal.values(output) == []


# Late requests


def test_offsets_that_arrive_late_are_refused_once_the_id_was_initialised_anew() -> None:
    """In memory; on the real broker below."""
    world = MemoryWorld()
    world.broker.faults.plan("send_offsets", Fate.LATE)

    def release() -> None:
        assert [world.broker.land(request) for request in list(world.broker.late)] == [False]

    offsets_of_a_lost_reply_stay_out(world, release)


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[tuple[KafkaWorld, KafkaProxy]]:
    """A broker that is only spoken to by way of a proxy."""
    proxy = KafkaProxy()
    broker = EmbeddedBroker(
        tmp_path / "broker", properties={"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
    )
    proxy.start(broker.bootstrap)
    start_or_skip(broker)
    world = KafkaWorld(f"127.0.0.1:{proxy.port}")
    yield world, proxy
    world.close()
    proxy.close()
    broker.stop()


@pytest.mark.integration
def test_late_offsets_on_the_real_broker(proxied: tuple[KafkaWorld, KafkaProxy]) -> None:
    """KIP-890. First what happens with librdkafka alone: a TxnOffsetCommit that is kept back on its way enters the same
    producer's *next* transaction and overwrites what that one has sent. (When this fails, broker and client have learnt
    to tell transactions apart, and the rule of our port may be given up.) Then our port, whose producer is final after
    a missing reply: the successor's init has raised the epoch, and the broker refuses what comes late.
    """
    world, proxy = proxied
    source, group = world.topic(), world.fresh("g")
    producer = Producer(
        {
            "bootstrap.servers": world.bootstrap,
            "transactional.id": world.fresh("id"),
            "transaction.timeout.ms": 60_000,
            "socket.timeout.ms": 2_000,
            "log_level": 0,
        }
    )

    def send(offset: int, timeout: float) -> None:
        slots = [TopicPartition(source, 0, offset)]
        producer.send_offsets_to_transaction(slots, group_metadata(group), timeout)

    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    proxy.keep_next(TXN_OFFSET_COMMIT)
    with pytest.raises(KafkaException):
        send(1, 1.0)
    producer.abort_transaction(PATIENCE)
    producer.begin_transaction()
    send(2, PATIENCE)
    assert proxy.release() == 1
    world.clock.sleep(0.5)
    producer.commit_transaction(PATIENCE)
    assert world.offsets(group, source) == {0: OffsetAndMetadata(1)}

    proxy.keep_next(TXN_OFFSET_COMMIT)

    def release() -> None:
        assert proxy.release() == 1

    offsets_of_a_lost_reply_stay_out(world, release)


def offsets_of_a_lost_reply_stay_out(world: World, release: Callable[[], None]) -> None:
    """The next sending of offsets gets no reply; `release` lets it arrive."""
    source, group, name = world.topic(), world.fresh("g"), world.fresh("id")
    first = world.transactional(name)
    first.begin()
    with pytest.raises(OutcomeUnknown):
        first.send_offsets(group, source, {0: OffsetAndMetadata(1, "late")}, 1.0)
    with pytest.raises(OutcomeUnknown):
        first.abort(1.0)
    second = world.transactional(name)
    second.begin()
    second.send_offsets(group, source, {0: OffsetAndMetadata(2, "in time")}, PATIENCE)
    release()
    world.clock.sleep(0.5)
    second.commit(PATIENCE)
    assert world.offsets(group, source) == {0: OffsetAndMetadata(2, "in time")}


@pytest.mark.integration
def test_a_long_way_to_the_broker_is_not_taken_for_a_pending_transaction(
    proxied: tuple[KafkaWorld, KafkaProxy],
) -> None:
    world, proxy = proxied
    source, group = world.topic(), world.fresh("g")
    producer, admin = world.transactional(world.fresh("id")), world.admin()
    producer.begin()
    producer.send_offsets(group, source, {0: OffsetAndMetadata(1)}, PATIENCE)
    producer.commit(PATIENCE)
    assert world.offsets(group, source) == {0: OffsetAndMetadata(1)}
    admin.group_offsets(group, source, [0], PATIENCE, stable=True)  # connected
    proxy.delay = 0.4
    read = admin.group_offsets(group, source, [0], PATIENCE, stable=True)
    assert read == {0: OffsetAndMetadata(1)}

    producer.begin()
    producer.send_offsets(group, source, {0: OffsetAndMetadata(2)}, PATIENCE)
    with pytest.raises(Unstable):
        admin.group_offsets(group, source, [0], PATIENCE, stable=True)
    producer.commit(PATIENCE)
