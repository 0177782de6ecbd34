"""The transactional producer over librdkafka.

What an error means depends on the call. librdkafka says of each whether it is fatal, ends the transaction, or may be
tried again (rdkafka_error.h); and an EndTxn whose reply is overdue may have been carried out, or may yet be, so that is
OutcomeUnknown and never tried again by us. (librdkafka itself goes on trying within the timeout of the call, which is
safe: same producer epoch, same transaction.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka import KafkaError as Native

from millrace.clock import Deadline, SystemClock
from millrace.connectivity.confluent.bounded import NeverReturned, bounded
from millrace.connectivity.confluent.errors import Connection, native
from millrace.connectivity.confluent.writer import hand_over, make, on_wire, undelivered
from millrace.connectivity.ports import (
    AuthorizationFailed,
    BrokerUnreachable,
    BufferFull,
    DeliveryFailed,
    Fenced,
    Headers,
    KafkaError,
    OffsetAndMetadata,
    OutcomeUnknown,
    Row,
    TimedOut,
    TransactionAborted,
)
from millrace.connectivity.settings import Settings

_SLICE = 1.0  # s; how often a long wait looks whether it is hopeless
_LONGEST_SEND = (
    5.0  # s for send_offsets, which takes milliseconds or, when the broker dies under it, for ever
)
_LEAST_FOR_END = 1.0  # s left for EndTxn when delivering has taken all the time of a commit

_NEVER_DELIVERED = (
    frozenset(  # whatever is tried; other failures of delivery pass, or are the transaction's own
        {
            Native.MSG_SIZE_TOO_LARGE,
            Native.RECORD_LIST_TOO_LARGE,
            Native.INVALID_MSG_SIZE,
            Native.INVALID_RECORD,
            Native.TOPIC_AUTHORIZATION_FAILED,
            Native.UNKNOWN_TOPIC_OR_PART,
            Native._UNKNOWN_TOPIC,
            Native._UNKNOWN_PARTITION,
        }
    )
)


class ConfluentTransactionalProducer:
    """Implements `ports.TransactionalProducer`."""

    def __init__(self, settings: Settings, transactional_id: str, connection: Connection) -> None:
        self.transactional_id = transactional_id
        self._where = f"transactional id {transactional_id}"
        self._connection, self._clock = connection, SystemClock()
        self._final: KafkaError | None = None
        self._undelivered: DeliveryFailed | None = None  # of this transaction, and it never will be
        self._closed = self._begun = self._lost = False
        self._producer = make(settings, connection, self._report)

    def init(self, timeout: float) -> None:
        self._alive()
        deadline = Deadline.after(self._clock, timeout)
        while True:
            try:
                self._producer.init_transactions(min(_SLICE, deadline.remaining()))
            except KafkaException as error:
                failure = self._failure(native(error), "init")
                waiting = isinstance(failure, TimedOut | BrokerUnreachable)
                if not waiting or deadline.expired():
                    raise failure from None
            else:
                self._connection.works()
                return

    def begin(self) -> None:
        self._alive()
        if self._begun:
            raise ValueError("begin: a transaction is open already")
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            raise self._failure(native(error), "begin") from None
        self._begun = True

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers | None = None,
        partition: int = -1,
        timestamp_ms: int = 0,
    ) -> None:
        if not self._begun:
            self._in_transaction("produce")
        try:
            self._producer.produce(topic, value, key, partition, None, None, timestamp_ms, on_wire(headers))
        except BufferError:
            raise BufferFull(f"{len(self._producer)} records wait for the broker") from None
        except KafkaException as error:
            self._alive()
            failure = self._failure(native(error), "produce", f"topic {topic}")
            raise failure from self._reason_of(failure)

    def produce_all(self, rows: Sequence[Row], first: int) -> int:
        if not self._begun:
            self._in_transaction("produce")
        after = hand_over(self._producer, rows, first)
        if after == first:
            self.produce(*rows[first])  # which says what is wrong, or finds room by now
            after += 1
        return after

    def poll(self) -> None:
        self._alive()
        try:
            self._producer.poll(0)
        except KafkaException as error:
            raise self._failure(native(error), "poll") from None
        if self._connection.troubled:
            raise self._connection.refusal()

    def flush(self, timeout: float) -> None:
        self._in_transaction("flush")
        if self._flushed(timeout, "flush"):
            raise TimedOut(
                f"flush: {len(self._producer)} records were not taken in {timeout:g} s", where=self._where
            )
        if self._undelivered is not None:
            raise TransactionAborted(self._undelivered.what, where=self._where) from self._undelivered

    def send_offsets(
        self, group: str, topic: str, offsets: Mapping[int, OffsetAndMetadata], timeout: float
    ) -> None:
        self._in_transaction("send_offsets")
        positions = [TopicPartition(topic, p, o.offset, o.metadata or "") for p, o in offsets.items()]

        where = f"group {group}, topic {topic}"
        try:
            producer, metadata = self._producer, group_metadata(group)
            wait = min(timeout, _LONGEST_SEND)
            self._bounded(
                lambda: producer.send_offsets_to_transaction(positions, metadata, wait), "send_offsets", wait
            )
        except KafkaException as error:
            failure = self._failure(native(error), "send_offsets", where)
            cause = self._connection.error(native(error), "send_offsets", where)
            if isinstance(cause, TimedOut | BrokerUnreachable):  # though librdkafka takes an abort for enough
                failure = self._unknown(cause)
            raise failure from self._reason_of(failure)

    def commit(self, timeout: float) -> None:
        self._in_transaction("commit")
        deadline = Deadline.after(self._clock, timeout)
        if self._flushed(deadline.remaining(), "commit"):
            raise TransactionAborted(
                f"commit: {len(self._producer)} records could not be delivered within {timeout:g} s",
                where=self._where,
            ) from self._undelivered
        try:
            producer, left = self._producer, max(deadline.remaining(), _LEAST_FOR_END)
            self._bounded(lambda: producer.commit_transaction(left), "commit", left)
        except KafkaException as error:
            failure = self._failure(native(error), "commit")
            if not isinstance(failure, Fenced | TransactionAborted):
                failure = self._unknown(failure)
            raise failure from self._reason_of(failure)
        self._begun = False
        self._connection.works()

    def abort(self, timeout: float) -> None:
        self._alive()
        try:
            producer = self._producer
            self._bounded(lambda: producer.abort_transaction(timeout), "abort", timeout)
        except KafkaException as error:
            failure = self._failure(native(error), "abort")
            if not isinstance(failure, Fenced):
                failure = self._unknown(failure)
            raise failure from None
        self._begun, self._undelivered = False, None

    def close(self) -> None:
        """Drop the client. Its own close() would abort an open transaction, and flush without a limit."""
        if not self._closed:
            self._closed, self._begun = True, False
            self._final = self._final or Fenced("this producer is closed", where=self._where)
            if not self._lost:  # else a call of librdkafka is still in there, and keeps it for ever
                with suppress(KafkaException):
                    self._producer.purge()
            del self._producer

    def _flushed(self, timeout: float, doing: str) -> int:
        """How many records are not delivered yet."""
        try:
            return self._producer.flush(timeout)
        except KafkaException as error:
            raise self._failure(native(error), doing) from None

    def _alive(self) -> None:
        if self._final is not None:
            raise self._final

    def _in_transaction(self, doing: str) -> None:
        self._alive()
        if not self._begun:
            raise ValueError(f"{doing}: no transaction was begun")

    def _bounded(self, call: Callable[[], None], doing: str, timeout: float) -> None:
        """Raises OutcomeUnknown, finally, where librdkafka does not come back."""
        try:
            bounded(call, timeout)
        except NeverReturned:
            self._lost = True
            cause = TimedOut(f"{doing}: librdkafka did not return within {timeout:g} s")
            raise self._unknown(cause) from None

    def _unknown(self, cause: KafkaError) -> OutcomeUnknown:
        """No reply: final for this producer."""
        unknown = OutcomeUnknown(
            cause.what, where=self._where, remedy="start anew: what was committed is read from the broker"
        )
        self._final = unknown
        return unknown

    def _report(self, error: Native | None, message: Message) -> None:
        """A delivery report: only of failures (delivery.report.only.error)."""
        if error is not None and error.code() in _NEVER_DELIVERED and self._undelivered is None:
            self._undelivered = undelivered(error, message)

    def _reason_of(self, failure: KafkaError) -> DeliveryFailed | None:
        return self._undelivered if isinstance(failure, TransactionAborted) else None

    def _failure(self, error: Native, doing: str, where: str = "") -> KafkaError:
        """What an error of a call means for this producer."""
        with suppress(
            KafkaException
        ):  # serve the error callback, which knows why; a fatal error is said again
            self._producer.poll(0)
        if error.code() == Native._STATE and self._begun:
            return TransactionAborted(
                f"{doing}: the transaction can't be committed, abort it", where=where or self._where
            )
        if error.txn_requires_abort():
            cause = self._connection.error(error, doing, where or self._where)
            if isinstance(cause, AuthorizationFailed) and self._undelivered is None:
                self._undelivered = DeliveryFailed(
                    cause.what, where=cause.where, remedy=cause.remedy, code=cause.code
                )
            return TransactionAborted(cause.what, where=where or self._where, remedy=cause.remedy)
        failure = self._connection.error(error, doing, where or self._where)
        if error.fatal() or isinstance(failure, Fenced):
            self._final = failure
        return failure


@cache
def group_metadata(group: str) -> object:
    """What librdkafka wants to know of a consumer group to commit its offsets in a transaction: for a simple group
    only its name, with generation -1 and no member. A consumer that is never connected makes it (in about 1 ms); what
    it returns is a value and stays good after the consumer is closed.
    """
    consumer = Consumer({"group.id": group, "log_level": 0})
    try:
        return consumer.consumer_group_metadata()
    finally:
        consumer.close()
