"""Committed offsets of a group, read by consumers that never join it.

Not by the admin client's list_consumer_group_offsets: where the broker answers NOT_COORDINATOR (it has just started, or
the coordinator moves), librdkafka 2.16 dereferences a null pointer and the process is gone
(https://github.com/confluentinc/librdkafka/issues/5040), and after a broker's restart the request may never be
answered. A consumer's own OffsetFetch has neither fault. Whether the read is stable (KIP-447) follows from the
consumer's isolation level, so there are two of them for a group; they are made when first asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import KafkaError as Native

from millrace.clock import Clock, Deadline
from millrace.connectivity.confluent.errors import Connection, bad_setting, native
from millrace.connectivity.confluent.logs import logger
from millrace.connectivity.ports import Unstable
from millrace.connectivity.settings import Settings

_SLICE = 0.5  # s; how often a wait looks whether it is hopeless
_PENDING = (
    0.15  # s; librdkafka asks again by itself while a transaction is pending (every 100 ms), until time is up
)
_PENDING_AT_FIRST = 1.0  # s; the same while there is no connection to the coordinator yet
_TRIPS = (
    2.0  # times as long as a plain read just took must a stable one have waited, before it counts as pending
)
_PAUSE = 0.05  # s between two attempts
_LATER = frozenset(
    {
        Native._TIMED_OUT,
        Native._TRANSPORT,
        Native._ALL_BROKERS_DOWN,
        Native._WAIT_COORD,
        Native.REQUEST_TIMED_OUT,
        Native.COORDINATOR_LOAD_IN_PROGRESS,
        Native.COORDINATOR_NOT_AVAILABLE,
        Native.NOT_COORDINATOR,
    }
)


class CommittedOffsets:
    """Args:
    settings: of an admin client of the cluster.
    """

    def __init__(self, settings: Settings, connection: Connection, clock: Clock) -> None:
        self._settings, self._connection, self._clock = settings, connection, clock
        self._consumers: dict[tuple[str, bool], Consumer] = {}
        self._answered: set[tuple[str, bool]] = set()
        self._pending: dict[str, float] = {}  # by group: seconds, where an answer takes longer than usual

    def read(
        self, group: str, topic: str, partitions: Iterable[int], deadline: Deadline, *, stable: bool
    ) -> Sequence[TopicPartition]:
        """One slot for each partition; offset below 0 where nothing is committed. Raises Unstable, TimedOut,
        BrokerUnreachable, AuthenticationFailed, AuthorizationFailed.
        """
        wanted = [TopicPartition(topic, partition) for partition in partitions]
        if not stable:
            return self._ask((group, False), wanted, deadline)
        wait = self._pending.get(group, _PENDING)
        if (group, True) not in self._answered:
            wait = max(wait, _PENDING_AT_FIRST)
        while True:
            # half of the time at most: the rest is to see whether it is the broker that does not answer
            wait = min(wait, deadline.remaining() / 2)
            try:
                return self._ask((group, True), wanted, Deadline.after(self._clock, wait))
            except _Late:
                began = self._clock.monotonic()
                self._ask((group, False), wanted, deadline)
                trips = _TRIPS * (self._clock.monotonic() - began)
                self._pending[group] = max(_PENDING, trips)
                if trips <= wait or deadline.expired():
                    raise Unstable(
                        f"a transaction on the offsets of group {group} is pending", where=f"group {group}"
                    ) from None
                wait = trips

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers.clear()

    def _ask(
        self, who: tuple[str, bool], wanted: list[TopicPartition], deadline: Deadline
    ) -> Sequence[TopicPartition]:
        group, stable = who
        consumer, doing = self._consumer(who), f"read the offsets of group {group}"
        while True:
            began = self._clock.monotonic()
            try:
                found = consumer.committed(wanted, max(0.05, min(_SLICE, deadline.remaining())))
            except KafkaException as exception:
                error = native(exception)
                self._raise_if_forbidden(consumer, doing, group)
                if self._connection.troubled:
                    raise self._connection.refusal() from None
                if error.code() not in _LATER:
                    raise self._connection.error(error, doing, f"group {group}") from None
                if deadline.expired():
                    if stable:
                        raise _Late from None
                    raise self._connection.error(error, doing, f"group {group}") from None
                if self._clock.monotonic() - began < _PAUSE:
                    self._clock.sleep(_PAUSE)
            else:
                self._answered.add(who)
                self._connection.works()
                return found

    def _raise_if_forbidden(self, consumer: Consumer, doing: str, group: str) -> None:
        """librdkafka looks for the coordinator until the time is over, also when it is told that we may not know it;
        that it says as a message of the consumer. (The poll serves the error callback as well: it knows of the rest.)
        """
        message = consumer.poll(0)
        error = message.error() if message is not None else None
        if error is not None and error.code() == Native.GROUP_AUTHORIZATION_FAILED:
            raise self._connection.error(error, doing, f"group {group}")

    def _consumer(self, who: tuple[str, bool]) -> Consumer:
        if who not in self._consumers:
            group, stable = who
            settings: dict[str, Any] = {
                **self._settings,
                "group.id": group,
                "enable.auto.commit": False,
                "isolation.level": "read_committed" if stable else "read_uncommitted",
                "error_cb": self._connection.event,
            }
            try:
                self._consumers[who] = Consumer(settings, logger=logger)
            except KafkaException as error:
                raise bad_setting(error) from None
        return self._consumers[who]


class _Late(Exception):
    """No stable answer in time: because a transaction is pending, or because of the broker."""
