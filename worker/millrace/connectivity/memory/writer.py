"""The plain producer, and the buffer that both producers have: records go to the broker at `poll` and `flush`."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from millrace.clock import Deadline
from millrace.connectivity.memory.faults import Call, Fate, Phase, no_reply
from millrace.connectivity.memory.log import Draft
from millrace.connectivity.partitioner import partition_of
from millrace.connectivity.ports import (
    BufferFull,
    DeliveryFailed,
    Headers,
    RecordTooLarge,
    Row,
    TimedOut,
    TopicMissing,
    one_by_one,
)
from millrace.errors import ExitCode

if TYPE_CHECKING:
    from millrace.connectivity.memory.broker import MemoryBroker


class Buffer:
    """Records handed over and not yet at the broker. A crash of the process (dropping the client) loses them."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._drafts: deque[Draft] = deque()
        self._keyless = 0

    def __len__(self) -> int:
        return len(self._drafts)

    def put(self, draft: Draft) -> None:
        """Raises RecordTooLarge, BufferFull."""
        if draft.size > self._broker.max_record_bytes:
            raise RecordTooLarge(
                f"a record of about {draft.size} bytes is larger than {self._broker.max_record_bytes}",
                where=f"topic {draft.topic}",
                remedy="make it smaller, or raise message.max.bytes in kafka.properties and on the topic",
            )
        if len(self._drafts) >= self._broker.max_buffered:
            raise BufferFull(f"{len(self._drafts)} records wait for the broker")
        self._drafts.append(draft)

    def first(self) -> Draft:
        return self._drafts[0]

    def drop(self) -> None:
        self._drafts.popleft()

    def clear(self) -> None:
        self._drafts.clear()

    def place(self, draft: Draft) -> tuple[str, int]:
        """The partition that a record goes to. Raises DeliveryFailed: no such topic, or too large for it."""
        try:
            topic = self._broker.topic(draft.topic)
            partition = draft.partition
            if partition < 0 and draft.key is None:
                partition = self._keyless = (self._keyless + 1) % len(topic.logs)
            elif partition < 0:
                partition = partition_of(draft.key or b"", len(topic.logs))
            self._broker.log(draft.topic, partition)
        except TopicMissing as error:
            raise DeliveryFailed(
                error.what, where=error.where, remedy="create the topic", code=ExitCode.TOPIC
            ) from error
        if draft.size > topic.max_message_bytes:
            raise DeliveryFailed(
                f"a record of about {draft.size} bytes is larger than the topic allows",
                where=f"topic {draft.topic}, partition {partition}",
                remedy=f"raise the topic's max.message.bytes (now {topic.max_message_bytes})",
                code=ExitCode.TOPIC,
            )
        return draft.topic, partition


class MemoryProducer:
    """Implements `ports.Producer`."""

    def __init__(self, broker: MemoryBroker, client_id: str) -> None:
        self._broker, self._client_id = broker, client_id
        self._buffer = Buffer(broker)

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers | None = None,
        partition: int = -1,
        timestamp_ms: int = 0,
    ) -> None:
        self._buffer.put(Draft(topic, value, key, headers, partition, timestamp_ms))

    def produce_all(self, rows: Sequence[Row], first: int) -> int:
        return one_by_one(self.produce, rows, first)

    def poll(self) -> None:
        broker, buffer = self._broker, self._buffer
        if not buffer:
            return
        call = Call(self._client_id, "producer", "deliver", {"records": len(buffer)})
        broker.hook(call)
        broker.settle()
        if not broker.faults.up or call.fate is Fate.LOST:
            return  # the client goes on trying
        while buffer:
            draft = buffer.first()
            buffer.drop()
            topic, partition = buffer.place(draft)
            broker.log(topic, partition).append(draft, int(broker.clock.time() * 1000))
        call.phase = Phase.AFTER
        broker.hook(call)

    def flush(self, timeout: float) -> None:
        deadline = Deadline.after(self._broker.clock, timeout)
        self.poll()
        while self._buffer:
            if deadline.expired():
                raise no_reply(TimedOut, Call(self._client_id, "producer", "flush", {}))
            self._broker.faults.pause(deadline)
            self.poll()

    def buffered(self) -> int:
        return len(self._buffer)

    def close(self) -> None:
        self._buffer.clear()
