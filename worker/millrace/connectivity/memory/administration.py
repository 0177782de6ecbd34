"""The admin client: questions to the broker, and topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from millrace.clock import Deadline
from millrace.connectivity.memory.faults import Call
from millrace.connectivity.ports import KafkaError, OffsetAndMetadata, Span, TopicDescription
from millrace.errors import ExitCode

if TYPE_CHECKING:
    from millrace.connectivity.memory.broker import MemoryBroker

_T = TypeVar("_T")


class MemoryAdmin:
    """Implements `ports.Admin`."""

    def __init__(self, broker: MemoryBroker, client_id: str) -> None:
        self._broker, self._client_id = broker, client_id

    def describe_topic(self, topic: str, timeout: float) -> TopicDescription | None:
        def effect() -> TopicDescription | None:
            found = self._broker.find_topic(topic)
            return TopicDescription(found.name, found.id, len(found.logs)) if found else None

        return self._ask("describe_topic", effect, timeout, topic=topic)

    def create_topic(
        self, topic: str, partitions: int, timeout: float, config: Mapping[str, str] | None = None
    ) -> None:
        largest = int((config or {}).get("max.message.bytes", "1048588"))

        def effect() -> None:
            self._broker.create_topic(topic, partitions, max_message_bytes=largest)

        self._ask("create_topic", effect, timeout, topic=topic, partitions=partitions)

    def create_partitions(self, topic: str, total: int, timeout: float) -> None:
        def effect() -> None:
            found = self._broker.topic(topic)
            if total <= len(found.logs):
                raise KafkaError(
                    f"topic {topic} has {len(found.logs)} partitions, it can't be changed to {total}",
                    where=f"topic {topic}",
                    remedy="a topic can only grow",
                    code=ExitCode.TOPIC,
                )
            found.grow(total)

        self._ask("create_partitions", effect, timeout, topic=topic, total=total)

    def delete_topic(self, topic: str, timeout: float) -> None:
        self._ask("delete_topic", lambda: self._broker.delete_topic(topic), timeout, topic=topic)

    def spans(
        self, topic: str, partitions: Iterable[int], timeout: float, *, read_committed: bool = True
    ) -> Mapping[int, Span]:
        wanted = list(partitions)

        def effect() -> dict[int, Span]:
            return {p: self._broker.log(topic, p).span(read_committed=read_committed) for p in wanted}

        return self._ask("spans", effect, timeout, topic=topic, partitions=wanted)

    def offsets_at(
        self, topic: str, partitions: Iterable[int], timestamp_ms: int, timeout: float
    ) -> Mapping[int, int]:
        wanted = list(partitions)

        def effect() -> dict[int, int]:
            return {p: self._broker.log(topic, p).offset_at(timestamp_ms) for p in wanted}

        return self._ask("offsets_at", effect, timeout, topic=topic, partitions=wanted)

    def group_offsets(
        self, group: str, topic: str, partitions: Iterable[int], timeout: float, *, stable: bool
    ) -> Mapping[int, OffsetAndMetadata]:
        wanted = list(partitions)

        def effect() -> dict[int, OffsetAndMetadata]:
            return self._broker.groups.read(group, topic, wanted, stable=stable)

        return self._ask("group_offsets", effect, timeout, group=group, partitions=wanted, stable=stable)

    def commit_offsets(
        self, group: str, topic: str, offsets: Mapping[int, OffsetAndMetadata], timeout: float
    ) -> None:
        slots = {(topic, partition): offset for partition, offset in offsets.items()}

        def effect() -> None:
            self._broker.groups.commit_plain(group, slots)

        self._ask("commit_offsets", effect, timeout, group=group, offsets=dict(offsets))

    def group_members(self, group: str, timeout: float) -> Sequence[str]:
        return self._ask("group_members", lambda: self._broker.groups.members(group), timeout, group=group)

    def delete_group(self, group: str, timeout: float) -> None:
        self._ask("delete_group", lambda: self._broker.groups.delete(group), timeout, group=group)

    def delete_records(self, topic: str, before: Mapping[int, int], timeout: float) -> None:
        def effect() -> None:
            for partition, offset in before.items():
                self._broker.log(topic, partition).delete_before(offset)

        self._ask("delete_records", effect, timeout, topic=topic, before=dict(before))

    def close(self) -> None:
        pass

    def _ask(self, name: str, effect: Callable[[], _T], timeout: float, **about: object) -> _T:
        broker = self._broker

        def settled() -> _T:
            broker.settle()
            return effect()

        call = Call(self._client_id, "admin", name, about)
        return broker.faults.carry_out(call, settled, Deadline.after(broker.clock, timeout))
