"""The bare confluent-kafka loop, as one writes it by hand for speed: `consume(500)`, the same functions, a commit at the
interval. It is the ceiling: nothing that uses this client can do with less.

Needs confluent-kafka, and msgspec for the case `json`. The contract: child.py.
"""

from __future__ import annotations

import asyncio
import time

import functions
from child import Meter, Work, work
from confluent_kafka import Consumer, Message, Producer, TopicPartition

FETCH = 500
CONCURRENCY = 1000


class Loop:
    """Consumes, commits and counts; what is done with the messages is the caller's. `way` fenced: offsets are committed
    in a transaction, as the engine's are.
    """

    def __init__(self, todo: Work, meter: Meter) -> None:
        self.todo, self.meter = todo, meter
        self.consumer = Consumer(todo.consumer)
        self.producer = Producer(todo.producer) if todo.output else None
        self.fenced = todo.way == "fenced"
        if self.fenced:
            self.producer = Producer(todo.transactional)
            self.producer.init_transactions(30.0)
        self.consumer.assign([TopicPartition(todo.topic, p, 0) for p in range(todo.partitions)])
        self.positions: dict[int, int] = {}
        self.taken, self._due = 0, 0.0

    def consume(self) -> list[Message]:
        messages: list[Message] = self.consumer.consume(FETCH, 0.05)
        return [message for message in messages if message.error() is None]

    def more(self) -> bool:
        return self.taken < self.todo.messages

    def done(self, count: int) -> None:
        """So many messages more: a commit, if it is time."""
        self.taken += count
        if not self.meter.began:
            if self.taken:
                self.meter.begin(self.taken)
                self._due = time.monotonic() + self.todo.interval
        elif time.monotonic() >= self._due:
            self.commit()
            self._due += self.todo.interval

    def commit(self) -> None:
        offsets = [TopicPartition(self.todo.topic, p, offset) for p, offset in self.positions.items()]
        if self.fenced and self.producer is not None:
            self.producer.begin_transaction()
            self.producer.send_offsets_to_transaction(offsets, self.consumer.consumer_group_metadata(), 10.0)
            self.producer.commit_transaction(10.0)
            return
        if self.producer is not None and self.producer.flush(10.0):
            raise RuntimeError("records were not acknowledged")
        self.consumer.commit(offsets=offsets, asynchronous=False)

    def end(self) -> None:
        self.commit()
        self.meter.end(self.taken)
        self.consumer.close()


def each(loop: Loop) -> None:
    keep, change, positions = functions.keep, functions.change, loop.positions
    while loop.more():
        taken = 0
        for message in loop.consumer.consume(FETCH, 0.05):
            if message.error() is not None:
                continue
            value = message.value()
            if keep(value):
                change(value)
            positions[message.partition()] = message.offset() + 1
            taken += 1
        loop.done(taken)


def each_json(loop: Loop) -> None:
    import msgspec

    decode = msgspec.json.Decoder().decode
    keep, change, positions = functions.keep_json, functions.change_json, loop.positions
    while loop.more():
        taken = 0
        for message in loop.consumer.consume(FETCH, 0.05):
            if message.error() is not None:
                continue
            value = decode(message.value())
            if keep(value):
                change(value)
            positions[message.partition()] = message.offset() + 1
            taken += 1
        loop.done(taken)


def vectorized(loop: Loop) -> None:
    positions = loop.positions
    while loop.more():
        batch = loop.consume()
        if batch:
            values = [message.value() for message in batch]
            kept = functions.keep_all(values)
            functions.change_all([value for value, good in zip(values, kept, strict=True) if good])
            for message in batch:
                positions[message.partition()] = message.offset() + 1
        loop.done(len(batch))


def produce(loop: Loop) -> None:
    """Deliveries are confirmed by the flush before each commit; with delivery.report.only.error a report comes for
    failures only. `way` keeps: the records have key, headers and timestamp of those that they were made of.
    """
    todo, producer, turn, positions = loop.todo, loop.producer, functions.turn, loop.positions
    assert producer is not None
    topic, send = todo.output, producer.produce

    def failed(error: object, _message: object) -> None:
        if error is not None:
            raise RuntimeError(f"not delivered: {error}")

    keeps = todo.way == "keeps"
    while loop.more():
        taken = 0
        for message in loop.consumer.consume(FETCH, 0.05):
            if message.error() is not None:
                continue
            value = turn(message.value())
            while True:
                try:
                    if keeps:
                        stamp, key, headers = message.timestamp()[1], message.key(), message.headers()
                        send(topic, value, key, timestamp=stamp, headers=headers, on_delivery=failed)
                    else:
                        send(topic, value, on_delivery=failed)
                    break
                except BufferError:
                    producer.poll(0.01)
            positions[message.partition()] = message.offset() + 1
            taken += 1
        producer.poll(0)
        loop.done(taken)


def busy(loop: Loop) -> None:
    function, positions = functions.busy, loop.positions
    while loop.more():
        batch = loop.consume()
        for message in batch:
            function(message.value())
            positions[message.partition()] = message.offset() + 1
        loop.done(len(batch))


def awaiting(loop: Loop) -> None:
    asyncio.run(_awaiting(loop))


async def _awaiting(loop: Loop) -> None:
    """`consume(500)` on a thread, its messages in a queue from which a thousand coroutines pull. What it commits is what
    was taken from the queue or waits in it: wrong, and simpler than what is right.
    """
    function = functions.waits if loop.todo.case == "asyncio-1ms" else functions.trivial_async
    queue: asyncio.Queue[Message] = asyncio.Queue(2 * CONCURRENCY)
    done = told = 0

    async def pull() -> None:
        nonlocal done
        while True:
            message = await queue.get()
            await function(message.value())
            done += 1

    pullers = [asyncio.create_task(pull()) for _ in range(CONCURRENCY)]
    running = asyncio.get_running_loop()
    taken = 0
    while taken < loop.todo.messages:
        for message in await running.run_in_executor(None, loop.consumer.consume, FETCH, 0.05):
            if message.error() is None:
                await queue.put(message)
                loop.positions[message.partition()] = message.offset() + 1
                taken += 1
        loop.done(done - told)
        told = done
    while done < taken:
        await asyncio.sleep(0.001)
    loop.taken = done
    for puller in pullers:
        puller.cancel()


CASES = {
    "functions": each,
    "json": each_json,
    "vectorized": vectorized,
    "produce": produce,
    "busy": busy,
    "asyncio-trivial": awaiting,
    "asyncio-1ms": awaiting,
}


def main() -> None:
    todo = work()
    meter = Meter(watch_memory=todo.watch_memory)
    loop = Loop(todo, meter)
    CASES[todo.case](loop)
    loop.end()
    meter.tell()


if __name__ == "__main__":
    main()
