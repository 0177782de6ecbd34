"""The admin client over librdkafka: questions to the cluster, and topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka import KafkaError as Native
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import EarliestSpec, LatestSpec, OffsetSpec, TimestampSpec
from confluent_kafka.cimpl import NewPartitions, NewTopic

from millrace.clock import Deadline, SystemClock
from millrace.connectivity.confluent.committed import CommittedOffsets
from millrace.connectivity.confluent.errors import Connection, bad_setting
from millrace.connectivity.confluent.logs import logger
from millrace.connectivity.confluent.requests import UNLIMITED, Requests
from millrace.connectivity.confluent.slots import NotLed, metadata_of, not_led
from millrace.connectivity.ports import (
    KafkaError,
    OffsetAndMetadata,
    OffsetOutOfRange,
    Span,
    TopicDescription,
    Unstable,
)
from millrace.connectivity.settings import Settings
from millrace.errors import ExitCode

_FIRST: OffsetSpec = EarliestSpec()  # type: ignore[no-untyped-call]  # the library does not say
_LAST: OffsetSpec = LatestSpec()  # type: ignore[no-untyped-call]


class ConfluentAdmin:
    """Implements `ports.Admin`."""

    def __init__(self, settings: Settings, connection: Connection) -> None:
        self._connection, self._clock = connection, SystemClock()
        self._settings: dict[str, Any] = {**settings, "error_cb": connection.event}
        self._requests = Requests(self._make, connection, self._clock)
        self._committed = CommittedOffsets(settings, connection, self._clock)

    def describe_topic(self, topic: str, timeout: float) -> TopicDescription | None:
        return self._describe(topic, self._deadline(timeout))

    def create_topic(
        self, topic: str, partitions: int, timeout: float, config: Mapping[str, str] | None = None
    ) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=-1, config=dict(config or {}))
        self._change(
            f"create topic {topic}",
            topic,
            lambda admin: admin.create_topics([new], request_timeout=UNLIMITED),
            timeout,
            lambda now: now is not None and now.partitions == partitions,
        )

    def create_partitions(self, topic: str, total: int, timeout: float) -> None:
        new = NewPartitions(topic, total)
        self._change(
            f"grow topic {topic} to {total} partitions",
            topic,
            lambda admin: admin.create_partitions([new], request_timeout=UNLIMITED),
            timeout,
            lambda now: now is not None and now.partitions == total,
        )

    def delete_topic(self, topic: str, timeout: float) -> None:
        self._change(
            f"delete topic {topic}",
            topic,
            lambda admin: admin.delete_topics([topic], request_timeout=UNLIMITED),
            timeout,
            lambda now: now is None,
        )

    def spans(
        self, topic: str, partitions: Iterable[int], timeout: float, *, read_committed: bool = True
    ) -> Mapping[int, Span]:
        deadline, wanted = self._deadline(timeout), list(partitions)
        first = self._offsets(topic, wanted, _FIRST, deadline, read_committed=False)
        last = self._offsets(topic, wanted, _LAST, deadline, read_committed=read_committed)
        return {p: Span(first[p], last[p]) for p in wanted}

    def offsets_at(
        self, topic: str, partitions: Iterable[int], timestamp_ms: int, timeout: float
    ) -> Mapping[int, int]:
        deadline, at = self._deadline(timeout), TimestampSpec(timestamp_ms)
        found = self._offsets(topic, list(partitions), at, deadline, read_committed=True)
        without = [p for p, offset in found.items() if offset < 0]
        ends = self._offsets(topic, without, _LAST, deadline, read_committed=True)
        return {**found, **ends}

    def group_offsets(
        self, group: str, topic: str, partitions: Iterable[int], timeout: float, *, stable: bool
    ) -> Mapping[int, OffsetAndMetadata]:
        wanted = list(partitions)
        if not wanted:
            return {}
        offsets = {}
        for slot in self._committed.read(group, topic, wanted, self._deadline(timeout), stable=stable):
            if slot.error is not None:
                raise self._of_slot(slot.error, f"read the offsets of group {group}", slot)
            if slot.offset >= 0:
                offsets[slot.partition] = OffsetAndMetadata(slot.offset, metadata_of(slot))
        return offsets

    def commit_offsets(
        self, group: str, topic: str, offsets: Mapping[int, OffsetAndMetadata], timeout: float
    ) -> None:
        if not offsets:
            return
        doing = f"commit offsets of group {group}"
        slots = [
            TopicPartition(topic, p, offset.offset, offset.metadata or "") for p, offset in offsets.items()
        ]
        done = self._requests.one(
            doing,
            lambda admin: admin.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group, slots)], request_timeout=UNLIMITED
            ),
            self._deadline(timeout),
            f"group {group}",
        )
        # the answer as a whole is no failure even where each of its partitions was refused
        for slot in done.topic_partitions if done else ():
            if slot.error is not None:
                raise self._of_slot(slot.error, doing, slot)

    def group_members(self, group: str, timeout: float) -> Sequence[str]:
        found = self._requests.one(
            f"describe group {group}",
            lambda admin: admin.describe_consumer_groups([group], request_timeout=UNLIMITED),
            self._deadline(timeout),
            f"group {group}",
            absent=Native.GROUP_ID_NOT_FOUND,
        )
        return [member.client_id for member in found.members] if found else []

    def delete_group(self, group: str, timeout: float) -> None:
        self._requests.one(
            f"delete group {group}",
            lambda admin: admin.delete_consumer_groups([group], request_timeout=UNLIMITED),
            self._deadline(timeout),
            f"group {group}",
            absent=Native.GROUP_ID_NOT_FOUND,
        )

    def delete_records(self, topic: str, before: Mapping[int, int], timeout: float) -> None:
        slots = [TopicPartition(topic, p, offset) for p, offset in before.items()]

        deadline = self._deadline(timeout)

        def judge(slot: TopicPartition, error: Native) -> KafkaError | None:
            if error.code() == Native.OFFSET_OUT_OF_RANGE:
                return OffsetOutOfRange(topic, slot.partition, before[slot.partition])
            return self._without_leader(slot, error, deadline)

        self._requests.each(
            f"delete records of {topic}",
            lambda admin: admin.delete_records(slots, request_timeout=UNLIMITED),
            deadline,
            lambda slot: f"topic {topic}, partition {slot.partition}",
            judge=judge,
        )

    def close(self) -> None:
        self._requests.close()
        self._committed.close()

    def _make(self) -> AdminClient:
        try:
            return AdminClient(self._settings, logger=logger)
        except KafkaException as error:
            raise bad_setting(error) from None

    def _describe(self, topic: str, deadline: Deadline) -> TopicDescription | None:
        found = self._requests.one(
            f"describe topic {topic}",
            lambda admin: admin.describe_topics(TopicCollection([topic]), request_timeout=UNLIMITED),
            deadline,
            f"topic {topic}",
            absent=Native.UNKNOWN_TOPIC_OR_PART,
        )
        return TopicDescription(topic, str(found.topic_id), len(found.partitions)) if found else None

    def _change(
        self,
        doing: str,
        topic: str,
        send: Callable[[AdminClient], Mapping[str, Future[None]]],
        timeout: float,
        done: Callable[[TopicDescription | None], bool],
    ) -> None:
        """Change a topic and wait until the cluster says that it is so (it answers before all brokers know)."""
        deadline = self._deadline(timeout)
        self._requests.one(doing, send, deadline, f"topic {topic}", judge=_not_possible(topic))
        self._requests.until(doing, lambda: done(self._describe(topic, deadline)), deadline)

    def _offsets(
        self,
        topic: str,
        partitions: Sequence[int],
        spec: OffsetSpec,
        deadline: Deadline,
        *,
        read_committed: bool,
    ) -> dict[int, int]:
        if not partitions:
            return {}
        level = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
        request = {TopicPartition(topic, p): spec for p in partitions}
        answers = self._requests.until_not(
            NotLed,
            lambda: self._requests.each(
                f"look up offsets of {topic}",
                lambda admin: admin.list_offsets(request, isolation_level=level, request_timeout=UNLIMITED),
                deadline,
                lambda slot: f"topic {topic}, partition {slot.partition}",
                judge=lambda slot, error: self._without_leader(slot, error, deadline),
            ),
            deadline,
        )
        return {slot.partition: found.offset for slot, found in answers.items()}

    def _without_leader(self, slot: TopicPartition, error: Native, deadline: Deadline) -> KafkaError | None:
        return not_led(slot, error, lambda topic: self._describe(topic, deadline))

    def _of_slot(self, error: Native, doing: str, slot: TopicPartition) -> KafkaError:
        where = f"topic {slot.topic}, partition {slot.partition}"
        if error.code() == Native.UNSTABLE_OFFSET_COMMIT:
            return Unstable(
                f"{doing}: a transaction is pending",
                where=where,
                remedy="ask again: it ends within transaction.timeout.ms",
            )
        return self._connection.error(error, doing, where)

    def _deadline(self, timeout: float) -> Deadline:
        return Deadline.after(self._clock, timeout)


def _not_possible(topic: str) -> Callable[[str, Native], KafkaError | None]:
    """The cluster's own reason why a topic can't be as asked for, which is for the manifest's author to mend."""

    def judge(_: str, error: Native) -> KafkaError | None:
        if error.code() not in (
            Native.INVALID_PARTITIONS,
            Native.INVALID_CONFIG,
            Native.TOPIC_EXCEPTION,
            Native.INVALID_REPLICATION_FACTOR,
            Native.POLICY_VIOLATION,
        ):
            return None
        return KafkaError(
            f"the cluster does not make topic {topic} so: {error.str()}",
            where=f"topic {topic}",
            code=ExitCode.TOPIC,
        )

    return judge
