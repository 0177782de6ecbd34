"""The topics of bench-engine on its broker: inputs, each filled once when first asked for, and outputs."""

from __future__ import annotations

import random
import sys
import time

import msgspec
from confluent_kafka import Consumer, Producer, TopicPartition

from millrace.clock import Deadline, SystemClock
from millrace.connectivity import settings
from millrace.connectivity.confluent import ConfluentCluster
from millrace.connectivity.ports import KafkaError

PARTITIONS = 8


class Topics:
    """Args: bootstrap: of a fresh broker that nobody else uses."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._cluster = ConfluentCluster(bootstrap, client_id="bench")
        self._admin = self._cluster.admin()
        self._filled: set[str] = set()
        self._first_transaction()

    def input(self, kind: str, size: int, messages: int) -> str:
        """A topic of exactly so many messages of `size` bytes, spread evenly. Kind: bytes (half random, for compression
        to have something to do) or json.
        """
        topic = f"{kind}-{size}-{messages}"
        if topic not in self._filled:
            self._admin.create_topic(topic, PARTITIONS, 30.0)
            self._fill(topic, kind, size, messages)
            self._filled.add(topic)
        return topic

    def drop(self, kind: str, size: int, messages: int) -> None:
        """Give its disk back."""
        topic = f"{kind}-{size}-{messages}"
        if topic in self._filled:
            self._filled.remove(topic)
            self.delete(topic)

    def output(self, name: str) -> str:
        topic = f"out-{name}"
        self._admin.create_topic(topic, PARTITIONS, 30.0)
        return topic

    def delete(self, topic: str) -> None:
        self._admin.delete_topic(topic, 30.0)

    def committed(self, group: str, topic: str) -> int:
        """Messages below the group's offsets."""
        offsets = self._admin.group_offsets(group, topic, range(PARTITIONS), 30.0, stable=True)
        return sum(offset.offset for offset in offsets.values())

    def count(self, topic: str) -> int:
        """Records that a reader of committed ones sees."""
        common = settings.common(self.bootstrap, "bench-count", None)
        reader = Consumer(settings.consumer(common, {}, f"count-{topic}"))
        reader.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        records = ended = 0
        deadline = Deadline.after(SystemClock(), 60.0)
        while ended < PARTITIONS and not deadline.expired():
            for message in reader.consume(500, 0.05):
                if message.error() is None:
                    records += 1
                else:  # the only event there should be: a partition's end
                    ended += 1
        reader.close()
        return records

    def _fill(self, topic: str, kind: str, size: int, messages: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0, "linger.ms": 20})
        chance = random.Random(7)
        pool = chance.randbytes(1 << 16).hex().encode()
        for n in range(messages):
            if kind == "json":
                value = _flight(chance, n).ljust(size, b" ")
            else:
                at = n * 211 % (len(pool) - size)
                value = pool[at : at + size]
            while True:
                try:
                    producer.produce(topic, value, partition=n * 7 % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
        if producer.flush(60.0):
            sys.exit(f"topic {topic} could not be filled")

    def _first_transaction(self) -> None:
        """A fresh broker makes its internal topics now, not within a measured run."""
        producer = self._cluster.transactional_producer("bench")
        deadline = Deadline.after(SystemClock(), 30.0)
        while True:
            try:
                producer.init(5.0)
                break
            except KafkaError:
                if deadline.expired():
                    raise
                time.sleep(0.2)
        producer.close()


def _flight(chance: random.Random, n: int) -> bytes:
    return msgspec.json.encode(
        {
            "flight": n,
            "carrier": chance.choice(["UA", "DL", "AA"]),
            "cancelled": chance.random() < 0.03,
            "scheduled": "2013-01-01T05:00:00Z",
            "delay": chance.random() * 60,
            "origin": "EWR",
            "dest": "IAH",
        }
    )
