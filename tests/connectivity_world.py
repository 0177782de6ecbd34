"""What the contract suite of connectivity needs of a broker beside the ports: the same few deeds for the in-memory
broker and for the real one.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from confluent_kafka import Consumer, KafkaException, TopicPartition

from millrace.clock import Clock, Deadline, SystemClock, VirtualClock
from millrace.connectivity.confluent import ConfluentCluster
from millrace.connectivity.memory import MemoryBroker
from millrace.connectivity.memory.groups import UnknownMember
from millrace.connectivity.ports import (
    Admin,
    Cluster,
    OffsetAndMetadata,
    Record,
    TransactionalProducer,
    Unstable,
)
from millrace.connectivity.ports import Consumer as ConsumerPort

PATIENCE = 60.0  # s that a test waits for what must come


class Refused(Exception):
    """A plain commit was not accepted."""


class Stray(Protocol):
    """Somebody who subscribes to a topic in a group that is not theirs, reads all, and commits by itself."""

    def close(self) -> None:
        """Leave, committing what was read, without metadata."""


class Closable(Protocol):
    def close(self) -> None: ...


_C = TypeVar("_C", bound=Closable)


class World(ABC):
    """One broker, and clients that are closed at the end of the test."""

    name: str
    clock: Clock
    transaction_timeout: float | None = None  # s, at the real broker; None: as workers have it

    def __init__(self) -> None:
        self._clients: list[Closable] = []

    @abstractmethod
    def cluster(self, client_id: str = "test", *, buffer: int | None = None) -> Cluster:
        """`buffer`: records that a producer takes before it is full."""

    @abstractmethod
    def stray(self, group: str, topic: str) -> Stray:
        """Subscribed, and everything read, when this returns."""

    @abstractmethod
    def commit_plainly(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Commit as an assigned consumer does, outside any transaction. Raises Refused."""

    def fresh(self, what: str = "x") -> str:
        """A name that nothing else has."""
        return f"{what}-{uuid.uuid4().hex[:10]}"

    def topic(self, partitions: int = 1, **config: str) -> str:
        name = self.fresh("t")
        settings = {key.replace("_", "."): value for key, value in config.items()}
        self.admin().create_topic(name, partitions, PATIENCE, settings)
        return name

    def admin(self) -> Admin:
        return self.keep(self.cluster().admin())

    def transactional(
        self, transactional_id: str, *, init: bool = True, client_id: str = "t"
    ) -> TransactionalProducer:
        producer = self.keep(self.cluster(client_id).transactional_producer(transactional_id))
        if init:
            producer.init(PATIENCE)
        return producer

    def reader(self, topic: str, positions: Mapping[int, int]) -> ConsumerPort:
        consumer = self.keep(self.cluster().consumer(topic, group=self.fresh("g")))
        consumer.assign(positions)
        return consumer

    def fill(
        self, topic: str, values: list[str], partition: int = 0, timestamps: list[int] | None = None
    ) -> None:
        """Write outside any transaction."""
        producer = self.cluster().producer()
        for i, value in enumerate(values):
            producer.produce(
                topic, value.encode(), partition=partition, timestamp_ms=timestamps[i] if timestamps else 0
            )
        producer.flush(PATIENCE)
        producer.close()

    def until(self, done: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
        deadline = Deadline.after(self.clock, patience)
        while not done():
            assert not deadline.expired(), f"waited {patience} s for this: {what}"
            self.clock.sleep(0.02)

    def read(self, consumer: ConsumerPort, to: Mapping[int, int]) -> list[Record]:
        """Fetch until the consumer says that it waits at these offsets."""
        records: list[Record] = []
        ends: dict[int, int] = {}

        def there() -> bool:
            records.extend(consumer.fetch(500, 0.05))
            ends.update(consumer.ends())
            return all(ends.get(p) == end for p, end in to.items())

        self.until(there, f"ends {dict(to)}, of which were reached {ends}")
        return records

    def values(self, topic: str, partition: int = 0) -> list[str]:
        """All that a read_committed reader sees of a partition, from its beginning."""
        admin = self.admin()
        span = admin.spans(topic, [partition], PATIENCE)[partition]
        consumer = self.reader(topic, {partition: span.beginning})
        return [(r.value() or b"").decode() for r in self.read(consumer, {partition: span.end})]

    def offsets(self, group: str, topic: str, *partitions: int) -> Mapping[int, OffsetAndMetadata]:
        """Stable committed offsets, waited for."""
        admin, found = self.admin(), {}

        def stable() -> bool:
            try:
                found.update(admin.group_offsets(group, topic, partitions or [0], PATIENCE, stable=True))
            except Unstable:
                return False
            return True

        self.until(stable, "stable offsets")
        return found

    def keep(self, client: _C) -> _C:
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in reversed(self._clients):
            client.close()


class MemoryWorld(World):
    """The in-memory broker on a virtual clock."""

    name = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.clock = VirtualClock()
        self.broker = MemoryBroker(self.clock)

    def cluster(self, client_id: str = "test", *, buffer: int | None = None) -> Cluster:
        if buffer is not None:
            self.broker.max_buffered = buffer
        return self.broker.cluster(client_id=client_id)

    def stray(self, group: str, topic: str) -> Stray:
        return _MemoryStray(self.broker, group, topic)

    def commit_plainly(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        try:
            self.broker.groups.commit_plain(
                group, {(topic, p): OffsetAndMetadata(o) for p, o in offsets.items()}
            )
        except UnknownMember as error:
            raise Refused(str(error)) from None


class _MemoryStray:
    def __init__(self, broker: MemoryBroker, group: str, topic: str) -> None:
        self._broker, self._group, self._topic = broker, group, topic
        broker.groups.join(group, "stray")

    def close(self) -> None:
        ends = {
            (self._topic, p): OffsetAndMetadata(log.stable_end)
            for p, log in enumerate(self._broker.topic(self._topic).logs)
        }
        self._broker.groups.commit_plain(self._group, ends, member="stray")
        self._broker.groups.leave(self._group, "stray")


class KafkaWorld(World):
    """A real broker."""

    name = "kafka"

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self.clock = SystemClock()
        self.bootstrap = bootstrap

    def cluster(self, client_id: str = "test", *, buffer: int | None = None) -> Cluster:
        # a topic that nobody knows is missing after this, and not only after 10 s
        properties = {"topic.metadata.propagation.max.ms": "2000"}
        if buffer is not None:
            properties["queue.buffering.max.messages"] = str(buffer)
        return ConfluentCluster(
            self.bootstrap,
            properties=properties,
            client_id=client_id,
            transaction_timeout=self.transaction_timeout,
        )

    def stray(self, group: str, topic: str) -> Stray:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "client.id": "stray",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": True,
                "auto.commit.interval.ms": 600_000,  # only as it closes
            }
        )
        consumer.subscribe([topic])
        ends = self.admin().spans(topic, [0], PATIENCE)[0].end

        def read() -> bool:
            consumer.poll(0.1)
            at = consumer.position([TopicPartition(topic, 0)])[0].offset if consumer.assignment() else -1
            return at >= ends or (ends == 0 and bool(consumer.assignment()))

        self.until(read, "the stray has read everything")
        return self.keep(consumer)

    def commit_plainly(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": group, "enable.auto.commit": False}
        )
        slots = [TopicPartition(topic, p, o) for p, o in offsets.items()]
        try:
            consumer.assign(slots)
            committed = consumer.commit(offsets=slots, asynchronous=False)
        except KafkaException as error:
            raise Refused(str(error)) from None
        finally:
            consumer.close()
        if refusals := [slot.error for slot in committed or () if slot.error is not None]:
            raise Refused(str(refusals))
