"""The plain producer over librdkafka: idempotent, no callback for a record that was delivered."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError as Native
from confluent_kafka import KafkaException, Message, Producer

from millrace.clock import Deadline, SystemClock
from millrace.connectivity.confluent.errors import Connection, bad_setting, native, translated
from millrace.connectivity.confluent.logs import logger
from millrace.connectivity.ports import BufferFull, DeliveryFailed, Headers, KafkaError, Row, TimedOut
from millrace.connectivity.settings import Settings

_SLICE = 0.2  # s; how often a long wait looks whether it is hopeless


class ConfluentProducer:
    """Implements `ports.Producer`."""

    def __init__(self, settings: Settings, connection: Connection) -> None:
        self._connection, self._clock = connection, SystemClock()
        self._failure: KafkaError | None = None
        self._closed = False
        self._producer = make(settings, connection, self._report)

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers | None = None,
        partition: int = -1,
        timestamp_ms: int = 0,
    ) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            self._producer.produce(topic, value, key, partition, None, None, timestamp_ms, on_wire(headers))
        except BufferError:
            raise BufferFull(f"{len(self._producer)} records wait for the broker") from None
        except KafkaException as error:
            raise self._connection.error(native(error), "produce", f"topic {topic}") from None

    def produce_all(self, rows: Sequence[Row], first: int) -> int:
        if self._failure is not None:
            raise self._failure
        after = hand_over(self._producer, rows, first)
        if after == first:
            self.produce(*rows[first])  # which says what is wrong, or finds room by now
            after += 1
        return after

    def poll(self) -> None:
        self._check()
        try:
            self._producer.poll(0)
        except KafkaException as error:
            raise self._fatal(error, "poll") from None
        self._check()

    def flush(self, timeout: float) -> None:
        self._check()
        deadline = Deadline.after(self._clock, timeout)
        while self._flushed(min(_SLICE, deadline.remaining())):
            self._check()
            if deadline.expired():
                waiting = Native(Native._TIMED_OUT, f"{len(self._producer)} records are not acknowledged")
                raise self._connection.error(waiting, "flush")
        self._check()
        self._connection.works()

    def buffered(self) -> int:
        return 0 if self._closed else len(self._producer)

    def close(self) -> None:
        """Drop the client. Its own close() would flush without a limit, and abort an open transaction."""
        if not self._closed:
            self._closed = True
            self._failure = self._failure or DeliveryFailed("this producer is closed")
            with suppress(KafkaException):
                self._producer.purge()
            del self._producer

    def _flushed(self, seconds: float) -> int:
        try:
            return self._producer.flush(seconds)
        except KafkaException as error:
            raise self._fatal(error, "flush") from None

    def _fatal(self, error: KafkaException, doing: str) -> KafkaError:
        """A call that serves callbacks raises nothing else: this producer will take and deliver no more."""
        self._failure = self._failure or self._connection.error(native(error), doing)
        return self._failure

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._connection.troubled:
            raise self._connection.refusal()

    def _report(self, error: Native | None, message: Message) -> None:
        """A delivery report: only of failures (delivery.report.only.error)."""
        if error is None or self._closed or self._failure is not None:
            return
        self._failure = undelivered(error, message)


class NativeProducer(Producer):
    """librdkafka's, whose calls that serve callbacks raise KafkaException for a fatal error.

    confluent-kafka 2.16 raises it before it calls our error callback, in which the first call then ends in a SystemError,
    because an exception is set already; that is what would come out, with the KafkaException as its cause.
    """

    def poll(self, *arguments: Any, **named: Any) -> int:
        try:
            return super().poll(*arguments, **named)
        except SystemError as error:
            raise _fatal(error) from None

    def flush(self, *arguments: Any, **named: Any) -> int:
        try:
            return super().flush(*arguments, **named)
        except SystemError as error:
            raise _fatal(error) from None

    def commit_transaction(self, *arguments: Any, **named: Any) -> None:
        try:
            super().commit_transaction(*arguments, **named)
        except SystemError as error:
            raise _fatal(error) from None

    def abort_transaction(self, *arguments: Any, **named: Any) -> None:
        try:
            super().abort_transaction(*arguments, **named)
        except SystemError as error:
            raise _fatal(error) from None


def _fatal(error: SystemError) -> BaseException:
    return error.__cause__ if isinstance(error.__cause__, KafkaException) else error


def make(settings: Settings, connection: Connection, report: object = None) -> Producer:
    """librdkafka's producer with our callbacks. Raises a KafkaError for settings that it does not take."""
    callbacks: dict[str, object] = {"error_cb": connection.event}
    if report is not None:
        callbacks["on_delivery"] = report
    try:
        return NativeProducer({**settings, **callbacks}, logger=logger)
    except KafkaException as error:
        raise bad_setting(error) from None


def hand_over(producer: Producer, rows: Sequence[Row], first: int) -> int:
    """Give librdkafka the rows from that index on. Returns the index of the first that it did not take, for whatever
    reason, or how many rows there are.
    """
    produce, at = producer.produce, first
    try:
        for topic, value, key, headers, partition, timestamp_ms in rows[first:] if first else rows:
            produce(topic, value, key, partition, None, None, timestamp_ms, headers or None)  # type: ignore[arg-type]
            at += 1
    except (BufferError, KafkaException):
        pass
    return at


def on_wire(headers: Headers | None) -> list[tuple[str, str | bytes | None]] | None:
    """Headers as librdkafka takes them."""
    if not headers:
        return None
    return headers if isinstance(headers, list) else list(headers)


def undelivered(error: Native, message: Message) -> DeliveryFailed:
    cause = translated(
        error, "a record was not delivered", f"topic {message.topic()}, partition {message.partition()}"
    )
    code = DeliveryFailed.code if isinstance(cause, TimedOut) else cause.code
    return DeliveryFailed(cause.what, where=cause.where, remedy=cause.remedy, code=code)
