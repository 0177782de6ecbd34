"""Reading much of a cluster at once, with one admin client of librdkafka's, and one of kafka-python's beside it for what
librdkafka can only ask group by group.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from confluent_kafka import (
    ConsumerGroupState,
    IsolationLevel,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka import KafkaError as Native
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import EarliestSpec, LatestSpec, OffsetSpec, TimestampSpec

from millrace.clock import Deadline, SystemClock
from millrace.connectivity.confluent.committed import CommittedOffsets
from millrace.connectivity.confluent.errors import Connection, bad_setting, native
from millrace.connectivity.confluent.logs import logger
from millrace.connectivity.confluent.many_groups import ManyGroups, Unusable
from millrace.connectivity.confluent.requests import UNLIMITED, Requests
from millrace.connectivity.confluent.slots import metadata_of, not_led
from millrace.connectivity.ports import (
    AuthenticationFailed,
    KafkaError,
    OffsetAndMetadata,
    TopicDescription,
)
from millrace.connectivity.settings import Settings
from millrace.connectivity.survey import At, Progress, Spots

_WITH_MEMBERS = {
    state
    for state in ConsumerGroupState
    if state not in (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD, ConsumerGroupState.UNKNOWN)
}


class ConfluentSurvey:
    """Implements `survey.Survey`."""

    def __init__(self, settings: Settings, connection: Connection) -> None:
        self._connection, self._clock = connection, SystemClock()
        self._settings: dict[str, Any] = {**settings, "error_cb": connection.event}
        self._requests = Requests(self._make, connection, self._clock)
        self._groups = ManyGroups(settings, connection.tried, self._clock)
        self._one_by_one = CommittedOffsets(settings, connection, self._clock)

    def topics(
        self, names: Collection[str], timeout: float
    ) -> Mapping[str, TopicDescription | KafkaError | None]:
        if not names:
            return {}
        found = self._requests.every(
            "describe topics",  # the same words each time: a status that says so must not change by itself
            lambda admin: admin.describe_topics(TopicCollection(list(names)), request_timeout=UNLIMITED),
            self._deadline(timeout),
            lambda name: f"topic {name}",
            absent=Native.UNKNOWN_TOPIC_OR_PART,
        )
        return {
            name: answer
            if answer is None or isinstance(answer, KafkaError)
            else TopicDescription(name, str(answer.topic_id), len(answer.partitions))
            for name, answer in found.items()
        }

    def offsets(
        self, asked: Collection[Spots], timeout: float
    ) -> Mapping[Spots, Mapping[int, int] | KafkaError]:
        deadline = self._deadline(timeout)
        answers: dict[Spots, Mapping[int, int] | KafkaError] = {}
        for some in _requests_of(asked):
            answers.update(self._list(some, deadline))
        for spots, found in answers.items():
            if not isinstance(found, KafkaError) and min(found.values(), default=0) < 0:
                answers[spots] = self._filled(spots, found, deadline)
        return answers

    def committed(
        self, asked: Collection[Progress], timeout: float
    ) -> Mapping[Progress, Mapping[int, OffsetAndMetadata] | KafkaError]:
        if not asked:
            return {}
        deadline = self._deadline(timeout)
        try:
            found = self._groups.read(asked, deadline)
            self._one_by_one.close()
            return found
        except Unusable:
            return {one: self._read(one, deadline) for one in asked}

    def members(self, groups: Collection[str], timeout: float) -> Mapping[str, Sequence[str] | KafkaError]:
        """Only groups that anybody is subscribed in are looked at one by one: of all others each broker says that there
        is nobody, in one answer.
        """
        if not groups:
            return {}
        deadline = self._deadline(timeout)
        listed = self._requests.one(
            "list groups",
            lambda admin: {"": admin.list_consumer_groups(states=_WITH_MEMBERS, request_timeout=UNLIMITED)},
            deadline,
            "",
        )
        peopled = {found.group_id for found in listed.valid} & set(groups)
        answers: dict[str, Sequence[str] | KafkaError] = dict.fromkeys(groups, ())
        if listed.errors and not listed.valid:  # some brokers did not answer: whose groups, nobody knows
            raise self._connection.error(native(listed.errors[0]), "list groups")
        if peopled:
            described = self._requests.every(
                "describe groups",
                lambda admin: admin.describe_consumer_groups(sorted(peopled), request_timeout=UNLIMITED),
                deadline,
                lambda group: f"group {group}",
                absent=Native.GROUP_ID_NOT_FOUND,
            )
            for group, found in described.items():
                known = found is None or isinstance(found, KafkaError)
                answers[group] = (found or ()) if known else [member.client_id for member in found.members]
        return answers

    def close(self) -> None:
        self._requests.close()
        self._groups.close()
        self._one_by_one.close()

    def _list(
        self, asked: Sequence[Spots], deadline: Deadline
    ) -> Mapping[Spots, Mapping[int, int] | KafkaError]:
        level = _level(asked[0].at)
        request = {TopicPartition(s.topic, p): _spec(s.at) for s in asked for p in range(s.partitions)}
        if not request:
            return {spots: {} for spots in asked}
        found = self._requests.every(
            "look up offsets",
            lambda admin: admin.list_offsets(request, isolation_level=level, request_timeout=UNLIMITED),
            deadline,
            lambda slot: f"topic {slot.topic}, partition {slot.partition}",
            judge=lambda slot, error: not_led(slot, error, lambda topic: self._describe(topic, deadline)),
        )
        by_topic: dict[str, dict[int, int] | KafkaError] = {}
        for slot, answer in found.items():
            before = by_topic.setdefault(slot.topic, {})
            if isinstance(answer, KafkaError):
                by_topic[slot.topic] = answer
            elif not isinstance(before, KafkaError):
                before[slot.partition] = answer.offset
        return {spots: by_topic.get(spots.topic, {}) for spots in asked}

    def _filled(
        self, spots: Spots, found: Mapping[int, int], deadline: Deadline
    ) -> Mapping[int, int] | KafkaError:
        """Of a time: the end stands for what is not there."""
        ends = self._list([Spots(spots.topic, spots.partitions, "stable end")], deadline)
        (end,) = ends.values()
        if isinstance(end, KafkaError):
            return end
        return {p: offset if offset >= 0 else end[p] for p, offset in found.items()}

    def _read(self, asked: Progress, deadline: Deadline) -> Mapping[int, OffsetAndMetadata] | KafkaError:
        doing = f"read the offsets of group {asked.group}"
        offsets = {}
        try:
            partitions = range(asked.partitions)
            for slot in self._one_by_one.read(asked.group, asked.topic, partitions, deadline, stable=False):
                if slot.error is not None:
                    return self._connection.error(slot.error, doing, f"group {asked.group}")
                if slot.offset >= 0:
                    offsets[slot.partition] = OffsetAndMetadata(slot.offset, metadata_of(slot))
        except AuthenticationFailed:
            raise
        except KafkaError as error:
            return error
        return offsets

    def _describe(self, topic: str, deadline: Deadline) -> TopicDescription | None:
        found = self.topics([topic], deadline.remaining())[topic]
        if isinstance(found, KafkaError):
            raise found
        return found

    def _make(self) -> AdminClient:
        try:
            return AdminClient(self._settings, logger=logger)
        except KafkaException as error:
            raise bad_setting(error) from None

    def _deadline(self, timeout: float) -> Deadline:
        return Deadline.after(self._clock, timeout)


def _requests_of(asked: Collection[Spots]) -> Sequence[Sequence[Spots]]:
    """As few lists as may be, each of one isolation level and with no topic twice."""
    lists: list[tuple[IsolationLevel, set[str], list[Spots]]] = []
    for spots in asked:
        level = _level(spots.at)
        fits = (one for one in lists if one[0] == level and spots.topic not in one[1])
        chosen = next(fits, None)
        if chosen is None:
            chosen = (level, set(), [])
            lists.append(chosen)
        chosen[1].add(spots.topic)
        chosen[2].append(spots)
    return [some for _, _, some in lists]


def _level(at: At) -> IsolationLevel:
    return IsolationLevel.READ_UNCOMMITTED if at == "end" else IsolationLevel.READ_COMMITTED


def _spec(at: At) -> OffsetSpec:
    if isinstance(at, int):
        return TimestampSpec(at)
    return EarliestSpec() if at == "beginning" else LatestSpec()  # type: ignore[no-untyped-call]
