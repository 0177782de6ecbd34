"""A channel as a chain leaves it, made quickly: a year of rows, spread evenly over the partitions, then the end.

The collector deletes records that it has done with, and the next run is to read them again. A broker refuses that of a
topic whose clean-up is by key alone, which also lets this one be as it is: nothing in it is ever old enough.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from millrace.channel import wire
from millrace.connectivity.confluent import ConfluentCluster
from millrace.ownership.provenance import origin_header

SCHEMA = "carrier string, scheduled timestamp, delay double"
LATENESS = 24  # hours
LAST = "last"
"""Carrier of one row beyond all others, which carries a watermark that knows no marks past the year."""

_START = datetime(2013, 1, 1, tzinfo=UTC)
_HOURS = 365 * 24
_OUT_OF_ORDER = 20 * 3600  # s, at most
_CARRIERS = [
    b"AA",
    b"AS",
    b"B6",
    b"DL",
    b"EV",
    b"F9",
    b"FL",
    b"HA",
    b"MQ",
    b"OO",
    b"UA",
    b"US",
    b"VX",
    b"WN",
    b"YV",
]
_TRANSACTION = 50_000  # rows; a chain commits each second


def fill(bootstrap: str, topic: str, partitions: int, rows: int) -> None:
    """Write `rows` rows and one of the carrier LAST, marks as the chain writes them, an end mark in each partition."""
    ConfluentCluster(bootstrap, client_id="bench").admin().create_topic(topic, partitions, 30.0)
    chance = random.Random(7)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": topic,
            "compression.type": "lz4",
            "linger.ms": 20,
            "queue.buffering.max.messages": 2 * _TRANSACTION,
            "log_level": 0,
        }
    )
    producer.init_transactions(60)
    hours = [(_START + timedelta(hours=hour)).strftime("%Y-%m-%dT%H").encode() for hour in range(_HOURS + 48)]
    first = int(_START.timestamp())
    step = (_HOURS - 24) * 3600 / rows
    latest = [0] * partitions
    for begin in range(0, rows, _TRANSACTION):
        producer.begin_transaction()
        for n in range(begin, min(begin + _TRANSACTION, rows)):
            partition = n % partitions
            second = int(n * step) + chance.randrange(_OUT_OF_ORDER)
            hour, rest = divmod(second, 3600)
            value = b'{"carrier":"%s","scheduled":"%s:%02d:%02d.000000Z","delay":%d.0}' % (
                chance.choice(_CARRIERS), hours[hour], rest // 60, rest % 60, n % 300 - 30,
            )  # fmt: skip
            time = (first + second) * 1_000_000
            latest[partition] = max(latest[partition], time)
            headers = wire.row_headers(time, origin_header("bench", partition, n // partitions))
            producer.produce(topic, value, partition=partition, headers=list(headers))
            if n % 1000 == 0:
                producer.poll(0)
        _mark(producer, topic, wire.MarkKind.PROGRESS, latest)
        producer.commit_transaction(60)
    producer.begin_transaction()
    after = datetime(2100, 1, 1, tzinfo=UTC)
    value = b'{"carrier":"%s","scheduled":"%s","delay":0.0}' % (
        LAST.encode(), after.strftime("%Y-%m-%dT%H:%M:%S.000000Z").encode(),
    )  # fmt: skip
    headers = wire.row_headers(int(after.timestamp()) * 1_000_000, origin_header("bench", 0, rows))
    producer.produce(topic, value, partition=0, headers=list(headers))
    _mark(producer, topic, wire.MarkKind.END, [wire.END] * partitions)
    producer.commit_transaction(60)
    _keep(bootstrap, topic)


def _keep(bootstrap: str, topic: str) -> None:
    """Have the broker refuse to delete records of it. (While records without a key are written, it can't be so.)"""
    wanted = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(2**63 - 1)}
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in wanted.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(30)


def _mark(producer: Producer, topic: str, kind: wire.MarkKind, times: Sequence[int]) -> None:
    for partition, time in enumerate(times):
        producer.produce(
            topic, None, partition=partition, headers=wire.mark_headers(kind, time, "bench", partition)
        )
