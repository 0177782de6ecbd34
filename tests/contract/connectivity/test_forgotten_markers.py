"""A broker forgets the markers of a transaction (KAFKA-20734), what comes of that, and that a sweep puts it right
(docs/adr/0007). The real one is made to: the log directory of the output is taken away before the transaction ends, so
that its partitions have no leader, and comes back with a restart.
"""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import pytest
from confluent_kafka.admin import AdminClient

from connectivity_world import PATIENCE, KafkaWorld, MemoryWorld, World
from kafka_fixture import start_or_skip
from millrace.clock import Deadline
from millrace.connectivity.confluent import ConfluentCluster
from millrace.connectivity.ports import Cluster, OffsetAndMetadata, TimedOut, TransactionalProducer
from millrace.local.broker.embedded import EmbeddedBroker
from millrace.ownership.claim import Claim
from millrace.ownership.control_rules import Identity
from millrace.ownership.provenance import origin_header
from millrace.ownership.sweeper import Sweep

SOURCE, OUTPUT, GROUP, CLAIMS = "source", "output", "g", "g.claims"
WRITERS = 5
SLOW = {
    "broker.session.timeout.ms": "60000"
}  # on a crowded machine a broker must not lose its partitions by itself


class Forgetful(Protocol):
    """A broker with a source that it keeps, and an output whose markers it can be made to forget."""

    world: World

    def forget(self, end: Callable[[], None]) -> None:
        """Do this while the output has no leader. It is back when this returns."""


class ForgetfulMemory:
    def __init__(self) -> None:
        self.world = MemoryWorld()
        self.world.broker.create_topic(SOURCE, WRITERS)
        self.world.broker.create_topic(OUTPUT, WRITERS)

    def forget(self, end: Callable[[], None]) -> None:
        broker = self.world.broker
        asked: dict[str, int] = {}

        def of_the_output(transaction: object) -> bool:
            name = transaction.transactional_id  # type: ignore[attr-defined]
            asked[name] = asked.get(name, 0) + 1
            return asked[name] == 1  # its partition of the output is asked for before its groups

        broker.transactions.forgets = of_the_output
        end()
        broker.transactions.forgets = lambda _: False


class PatientWorld(KafkaWorld):
    """Its transactions don't time out while a broker finds out that a directory is gone."""

    def cluster(self, client_id: str = "test", *, buffer: int | None = None) -> Cluster:
        assert buffer is None
        return ConfluentCluster(self.bootstrap, client_id=client_id, transaction_timeout=300.0)


class ForgetfulKafka:
    def __init__(self, directory: Path) -> None:
        self._directory, self._other = directory, directory / "other"
        broker = EmbeddedBroker(directory, properties=SLOW)
        start_or_skip(broker)
        world = PatientWorld(broker.bootstrap)
        world.admin().create_topic(SOURCE, WRITERS, PATIENCE)
        first = world.transactional("first")  # makes the internal topics, in the directory that stays
        first.begin()
        first.send_offsets("first", SOURCE, {0: OffsetAndMetadata(0)}, PATIENCE)
        first.commit(PATIENCE)
        world.close()
        broker.stop()
        self._add_directory()
        self._broker = EmbeddedBroker(
            directory,
            properties=SLOW
            | {
                "log.dirs": f"{directory / 'data'},{self._other}",
                "replica.high.watermark.checkpoint.interval.ms": "100",  # how a lost directory is noticed
            },
        )
        start_or_skip(self._broker)
        self.world = PatientWorld(self._broker.bootstrap)
        self.world.admin().create_topic(OUTPUT, WRITERS, PATIENCE)
        there = [self._other / f"{OUTPUT}-{p}" for p in range(WRITERS)]
        try:
            self.world.until(lambda: all(place.is_dir() for place in there), "all of it is in that directory")
        except BaseException:
            self._broker.stop()
            raise

    def _add_directory(self) -> None:
        self._other.mkdir()
        known = (self._directory / "data" / "meta.properties").read_text().splitlines()
        own = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        lines = [line for line in known if not line.startswith("directory.id")]
        (self._other / "meta.properties").write_text("\n".join([*lines, f"directory.id={own}", ""]))

    def forget(self, end: Callable[[], None]) -> None:
        away = self._other.with_name("away")
        self._other.rename(away)
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap})

        def leaderless() -> bool:
            topic = admin.list_topics(OUTPUT, timeout=PATIENCE).topics[OUTPUT]
            return all(partition.leader < 0 for partition in topic.partitions.values())

        self.world.until(leaderless, "the output has no leader", 60.0)
        with pytest.raises(TimedOut):  # what passes by itself: a worker that begins now waits
            self.world.admin().spans(OUTPUT, [0], PATIENCE)
        end()
        self._broker.stop()
        if self._other.exists():  # the broker may have made it anew
            self._other.rename(self._other.with_name("left"))
        away.rename(self._other)
        self._broker.start()
        self.world.until(lambda: not leaderless(), "the output has its leaders again", 60.0)

    def close(self) -> None:
        self.world.close()
        self._broker.stop()


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.integration)])
def forgetful(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Forgetful]:
    if request.param == "memory":
        yield ForgetfulMemory()
        return
    kafka = ForgetfulKafka(tmp_path / "broker")
    yield kafka
    kafka.close()


def identity_of(world: World) -> Identity:
    topic = world.admin().describe_topic(SOURCE, PATIENCE)
    assert topic is not None
    return Identity("u", SOURCE, topic.id, GROUP, CLAIMS)


def claim(identity: Identity, holder: int, offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, Claim("u", identity.topic_id, 1, holder).encode())


def write(producer: TransactionalProducer, index: int, offset: int, value: str) -> None:
    """An output of message `offset` of source partition `index`, into partition `index` of the output."""
    headers = [origin_header(producer.transactional_id, index, offset)]
    producer.begin()
    producer.produce(OUTPUT, value.encode(), b"key", headers, index)
    producer.flush(PATIENCE)


def seen(world: World) -> Sequence[Sequence[str]]:
    return [world.values(OUTPUT, p) for p in range(WRITERS)]


def test_what_a_broker_forgets_and_a_sweep_puts_right(forgetful: Forgetful) -> None:
    """Writers 0 and 1: committed and forgotten. 2 and 3: aborted and forgotten. 4: nothing is forgotten of it. Of 0 and 2
    the broker alone says what comes of it; 1 and 3 are swept first. Claims are in a topic that keeps its leaders.
    """
    world = forgetful.world
    identity = identity_of(world)
    writers = [world.transactional(f"u-{i}") for i in range(WRITERS)]
    for index, producer in enumerate(writers):
        write(producer, index, 0, "before")
        producer.send_offsets(CLAIMS, SOURCE, {index: claim(identity, index, 1)}, PATIENCE)
        producer.commit(PATIENCE)
    for index, producer in enumerate(writers[:4]):
        write(producer, index, 1, "forgotten")
        producer.send_offsets(CLAIMS, SOURCE, {index: claim(identity, index, 2)}, PATIENCE)

    def end() -> None:
        for index, producer in enumerate(writers[:4]):
            producer.commit(PATIENCE) if index < 2 else producer.abort(PATIENCE)
        for index in range(4):
            world.transactional(f"u-{index}")  # init: as far as the coordinator knows, all of it is complete

    forgetful.forget(end)

    stable = {p: record.offset for p, record in world.offsets(CLAIMS, SOURCE, *range(4)).items()}
    assert stable == {0: 2, 1: 2, 2: 1, 3: 1}
    assert seen(world) == [["before"]] * WRITERS  # the committed ones are hidden
    spans = world.admin().spans(OUTPUT, range(4), PATIENCE)
    ends = world.admin().spans(OUTPUT, range(4), PATIENCE, read_committed=False)
    assert all(spans[p].end < ends[p].end for p in range(4))

    unswept = [world.transactional(f"u-{index}") for index in (0, 2)]
    write(unswept[0], 0, 2, "next")
    unswept[0].abort(PATIENCE)
    write(unswept[1], 2, 1, "again")
    unswept[1].commit(PATIENCE)
    world.until(lambda: len(seen(world)[2]) == 3, "what was aborted is seen after the next commit")
    assert seen(world)[0] == ["before"], "what was committed is lost with the next abort"
    assert seen(world)[2] == ["before", "forgotten", "again"], "what was aborted is there twice"

    for index in (1, 3, 4):
        producer = world.transactional(f"u-{index}")
        sweep = Sweep(world.cluster(), world.admin(), producer, identity, index, (OUTPUT,), world.clock)
        world.until(
            lambda sweep=sweep: sweep.advance(Deadline.after(world.clock, PATIENCE)),  # type: ignore[misc]
            "the sweep is done",
            60.0,
        )
        write(producer, index, 7, "next")
        producer.commit(PATIENCE)
    world.until(lambda: len(seen(world)[4]) == 2, "the last commit is seen")
    assert seen(world)[1] == ["before", "forgotten", "next"]
    assert seen(world)[3] == ["before", "next"]
    assert seen(world)[4] == ["before", "next"]
