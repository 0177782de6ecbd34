"""aiokafka: a loop over `getmany`, or `async for` (way "for"), with offsets committed by hand.

produce: a future for each record (`send`), all awaited before a commit; or, way "batch", batches made by hand
(`create_batch`, `send_batch`). Its C extensions, lz4 and the same sizes and waits as librdkafka's settings; no check of
CRCs, which librdkafka does not do either. uvloop made no difference. Needs aiokafka only; the contract: child.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import functions
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from child import Meter, Work, work

BATCH_BYTES = 256 * 1024  # of a batch of the producer; 16 KiB by default


class Loop:
    def __init__(self, todo: Work, meter: Meter) -> None:
        self.todo, self.meter = todo, meter
        given = todo.consumer
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=todo.bootstrap,
            group_id=todo.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level=str(given["isolation.level"]),
            fetch_max_wait_ms=int(given["fetch.wait.max.ms"]),
            fetch_max_bytes=int(given["fetch.max.bytes"]),
            max_partition_fetch_bytes=int(given["fetch.message.max.bytes"]),
            check_crcs=False,
        )
        self.producer: Any = None
        if todo.output:
            self.producer = AIOKafkaProducer(
                bootstrap_servers=todo.bootstrap,
                acks="all",
                enable_idempotence=True,
                compression_type=str(todo.producer["compression.type"]),
                linger_ms=int(todo.producer["linger.ms"]),
                max_batch_size=BATCH_BYTES,
            )
        self.positions: dict[TopicPartition, int] = {}
        self.sent: list[asyncio.Future[Any]] = []
        self.taken, self._due = 0, 0.0

    async def __aenter__(self) -> Loop:
        await self.consumer.start()
        if self.producer is not None:
            await self.producer.start()
        self.consumer.assign([TopicPartition(self.todo.topic, p) for p in range(self.todo.partitions)])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.consumer.stop()
        if self.producer is not None:
            await self.producer.stop()

    def more(self) -> bool:
        return self.taken < self.todo.messages

    async def done(self, count: int) -> None:
        self.taken += count
        if not self.meter.began:
            if self.taken:
                self.meter.begin(self.taken)
                self._due = time.monotonic() + self.todo.interval
        elif time.monotonic() >= self._due:
            await self.commit()
            self._due += self.todo.interval

    async def commit(self) -> None:
        if self.producer is not None:
            await self.producer.flush()
            sent, self.sent = self.sent, []
            for future in sent:
                future.result()
        await self.consumer.commit(self.positions)


async def getmany(loop: Loop) -> None:
    keep, change = functions.keep, functions.change
    while loop.more():
        taken = 0
        for partition, records in (await loop.consumer.getmany(timeout_ms=50)).items():
            for record in records:
                value = record.value
                if keep(value):
                    change(value)
            loop.positions[partition] = records[-1].offset + 1
            taken += len(records)
        await loop.done(taken)


async def async_for(loop: Loop) -> None:
    keep, change, positions = functions.keep, functions.change, loop.positions
    partitions = [TopicPartition(loop.todo.topic, p) for p in range(loop.todo.partitions)]
    taken = 0
    async for record in loop.consumer:
        value = record.value
        if keep(value):
            change(value)
        positions[partitions[record.partition]] = record.offset + 1
        taken += 1
        if taken == 500 or loop.taken + taken == loop.todo.messages:  # to look at the clock
            await loop.done(taken)
            taken = 0
            if not loop.more():
                return


async def produce(loop: Loop) -> None:
    turn, producer, topic = functions.turn, loop.producer, loop.todo.output
    while loop.more():
        taken = 0
        for partition, records in (await loop.consumer.getmany(timeout_ms=50, max_records=5000)).items():
            for record in records:
                loop.sent.append(await producer.send(topic, turn(record.value)))
            loop.positions[partition] = records[-1].offset + 1
            taken += len(records)
        await loop.done(taken)


async def produce_batches(loop: Loop) -> None:
    """One partition after the other gets a batch, as librdkafka's sticky partitioner has it."""
    turn, producer, number = functions.turn, loop.producer, 0
    batch = producer.create_batch()

    async def send() -> None:
        nonlocal batch, number
        if batch.record_count():
            batch.close()
            number += 1
            sent = await producer.send_batch(batch, loop.todo.output, partition=number % loop.todo.partitions)
            loop.sent.append(sent)
            batch = producer.create_batch()

    async def add(records: Sequence[ConsumerRecord[Any, Any]]) -> None:
        for record in records:
            value = turn(record.value)
            if batch.append(key=None, value=value, timestamp=None) is None:
                await send()
                batch.append(key=None, value=value, timestamp=None)

    while loop.more():
        taken = 0
        for partition, records in (await loop.consumer.getmany(timeout_ms=50, max_records=5000)).items():
            await add(records)
            loop.positions[partition] = records[-1].offset + 1
            taken += len(records)
        await send()
        await loop.done(taken)


WAYS = {
    ("functions", ""): getmany,
    ("functions", "for"): async_for,
    ("produce", ""): produce,
    ("produce", "batch"): produce_batches,
}


async def run(todo: Work, meter: Meter) -> None:
    async with Loop(todo, meter) as loop:
        await WAYS[todo.case, todo.way](loop)
        await loop.commit()
        meter.end(loop.taken)


if __name__ == "__main__":
    told = work()
    spent = Meter(watch_memory=told.watch_memory)
    asyncio.run(run(told, spent))
    spent.tell()
