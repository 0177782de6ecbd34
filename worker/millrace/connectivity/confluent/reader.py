"""The consumer over librdkafka: batch-first, and nothing in Python per message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka import KafkaError as Native

from millrace.clock import Deadline, SystemClock
from millrace.connectivity.confluent.errors import Connection, bad_setting
from millrace.connectivity.confluent.logs import logger
from millrace.connectivity.ports import KafkaError, OffsetOutOfRange, Record, TopicMissing
from millrace.connectivity.settings import Settings

_LONGEST_WAIT = 0.05  # s; while a call waits, librdkafka's consumer does nothing else for us
_SILENCE = 10.0  # s without a record, after which it is asked whether the topic is still there
_ASK_TIMEOUT = 0.2  # s

_OUT_OF_RANGE = {Native._AUTO_OFFSET_RESET, Native.OFFSET_OUT_OF_RANGE}
_PASSING = {Native._ALL_BROKERS_DOWN, Native._TRANSPORT, Native._RESOLVE, Native._TIMED_OUT}
# Of a partition just added, by a broker that has not heard of it yet: librdkafka keeps it wanted, and fetches it when one
# has. Whether it is really not there is found out by asking, after some silence.
_NOT_HEARD_OF = {Native._UNKNOWN_PARTITION}

_error_of = Message.error


class ConfluentConsumer:
    """Implements `ports.Consumer`."""

    def __init__(self, settings: Settings, topic: str, connection: Connection) -> None:
        self._topic, self._connection = topic, connection
        self._partitions: set[int] = set()
        self._ends: dict[int, int] = {}
        self._failure: KafkaError | None = None
        self._clock = SystemClock()
        self._silence: Deadline | None = None
        try:
            self._consumer = Consumer({**settings, "error_cb": connection.event}, logger=logger)
        except KafkaException as error:
            raise bad_setting(error) from None

    def assign(self, positions: Mapping[int, int]) -> None:
        self._consumer.incremental_assign([TopicPartition(self._topic, p, at) for p, at in positions.items()])
        self._partitions.update(positions)
        for partition in positions:
            self._ends.pop(partition, None)

    def unassign(self, partitions: Iterable[int]) -> None:
        leaving = self._partitions.intersection(partitions)
        if leaving:
            self._consumer.incremental_unassign([TopicPartition(self._topic, p) for p in leaving])
        self._partitions -= leaving
        for partition in leaving:
            self._ends.pop(partition, None)

    def fetch(self, max_records: int, timeout: float) -> Sequence[Record]:
        """As the port says.

        librdkafka's own `consume(n, t)` waits for the whole of t unless n messages come. So what is there is taken
        first, without a wait; only if that is nothing, one message is waited for and the rest taken after it.
        Measured, CPU of the whole process per message of 200 bytes in batches of 500, best of three in one run: this
        0.54 us (the pass over the errors included), a bare consume(500, 1.0) 0.57 us, a bare consume(500, 0.05)
        0.59 us, waiting for the first message always 0.55 us.
        """
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        messages = self._consumer.consume(max_records, 0)
        if not messages:
            messages = self._wait(max_records, timeout)
            if not messages:
                self._nothing_came()
                return ()
        if any(map(_error_of, messages)):
            messages = self._without_events(messages)
        self._silence = None
        if messages:
            self._connection.works()
        return cast("list[Record]", messages)  # a message without error has all its fields

    def ends(self) -> Mapping[int, int]:
        ends, self._ends = self._ends, {}
        return ends

    def close(self) -> None:
        self._consumer.close()

    def _wait(self, max_records: int, timeout: float) -> list[Message]:
        """One message as soon as there is one, and what has come along with it."""
        if timeout <= 0:
            return []
        first = self._consumer.poll(min(timeout, _LONGEST_WAIT))
        if first is None:
            return []
        return [first, *self._consumer.consume(max_records - 1, 0)] if max_records > 1 else [first]

    def _without_events(self, messages: list[Message]) -> list[Message]:
        """The records among messages and events. An event that is an error is raised at once if it came alone, else
        by the next fetch: what has been taken from librdkafka must be handed out.
        """
        records = []
        for message in messages:
            error = message.error()
            if error is None:
                records.append(message)
            elif error.code() == Native._PARTITION_EOF:
                self._reached_end(message)
            elif error.code() in _PASSING:
                self._connection.event(error)
            elif error.code() in _NOT_HEARD_OF:
                continue
            elif self._failure is None:
                self._failure = self._judged(message, error)
        if self._failure is not None and not records:
            failure, self._failure = self._failure, None
            raise failure
        return records

    def _reached_end(self, event: Message) -> None:
        partition, offset = event.partition(), event.offset()
        if partition is not None and offset is not None and partition in self._partitions:
            self._ends[partition] = offset
        self._connection.works()

    def _judged(self, event: Message, error: Native) -> KafkaError:
        partition, offset = event.partition(), event.offset()
        if error.code() in _OUT_OF_RANGE and partition is not None and offset is not None:
            return OffsetOutOfRange(self._topic, partition, offset)
        return self._connection.error(error, "fetch", f"topic {self._topic}, partition {partition}")

    def _nothing_came(self) -> None:
        """Raises AuthenticationFailed or TopicMissing where that is why: librdkafka itself tries on for ever, and of a
        topic that is not there, or no more, it does not say a word to an assigned consumer.
        """
        if self._connection.troubled:
            raise self._connection.refusal()
        if self._silence is None:
            self._silence = Deadline.after(self._clock, _SILENCE)
        elif self._silence.expired() and self._partitions:
            self._silence = Deadline.after(self._clock, _SILENCE)
            self._ask_for_topic()

    def _ask_for_topic(self) -> None:
        try:
            found = self._consumer.list_topics(self._topic, timeout=_ASK_TIMEOUT).topics[self._topic]
        except KafkaException:
            return  # not now: the broker is away
        there = set(found.partitions) if found.error is None else set()
        if missing := sorted(self._partitions - there):
            raise TopicMissing(
                f"topic {self._topic} is not there any more"
                if not there
                else f"topic {self._topic} has no partition {missing[0]}",
                where=f"topic {self._topic}",
                remedy="it was deleted, or made anew with fewer partitions, while it was read",
            )
