"""The consumer: assigned partitions, ends noticed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from millrace.connectivity.memory.faults import Call, Fate, Phase
from millrace.connectivity.memory.log import MemoryRecord

if TYPE_CHECKING:
    from millrace.connectivity.memory.broker import MemoryBroker


class MemoryConsumer:
    """Implements `ports.Consumer`.

    As the contract allows, a partition just unassigned may still give a record in the very next fetch: here it does
    so whenever there is one, so that nobody comes to rely on the contrary.
    """

    def __init__(
        self, broker: MemoryBroker, client_id: str, topic: str, group: str, read_committed: bool = True
    ) -> None:
        self._broker, self._client_id, self._topic, self._group = broker, client_id, topic, group
        self._read_committed = read_committed
        self._topic_id: str | None = None
        self._positions: dict[int, int] = {}
        self._leaving: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._told_end: dict[int, int] = {}

    def assign(self, positions: Mapping[int, int]) -> None:
        for partition, position in positions.items():
            self._positions[partition] = position
            self._leaving.pop(partition, None)
            self._told_end.pop(partition, None)
            self._ends.pop(partition, None)

    def unassign(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            if (position := self._positions.pop(partition, None)) is not None:
                self._leaving[partition] = position
            self._told_end.pop(partition, None)
            self._ends.pop(partition, None)

    def fetch(self, max_records: int, timeout: float) -> Sequence[MemoryRecord]:
        broker = self._broker
        call = Call(self._client_id, "consumer", "fetch", {"topic": self._topic, "group": self._group})
        broker.hook(call)
        records = self._take(max_records, call)
        if not records and timeout > 0 and not self._ends:
            broker.clock.sleep(timeout)
            records = self._take(max_records, call)
        call.phase = Phase.AFTER
        broker.hook(call)
        return records

    def ends(self) -> Mapping[int, int]:
        ends, self._ends = self._ends, {}
        return ends

    def close(self) -> None:
        self._positions.clear()
        self._leaving.clear()

    def _take(self, limit: int, call: Call) -> list[MemoryRecord]:
        """What is there now; nothing while the broker is away."""
        broker = self._broker
        broker.settle()
        if not broker.faults.up or call.fate is not Fate.CARRIED_OUT:
            return []
        records: list[MemoryRecord] = []
        for partition, position in self._leaving.items():
            topic = broker.find_topic(self._topic)
            if topic is not None and partition < len(topic.logs):
                log = topic.logs[partition]
                if log.beginning <= position <= log.end:
                    few = min(1, limit - len(records))
                    records += log.read(position, few, read_committed=self._read_committed)[0]
        self._leaving.clear()
        for partition in list(self._positions):
            if len(records) >= limit:
                break
            position = self._positions.pop(partition)
            self._positions[partition] = position  # to the end of the line: the others come first next time
            log = broker.log(self._topic, partition)
            taken, position = log.read(position, limit - len(records), read_committed=self._read_committed)
            records += taken
            self._positions[partition] = position
            end = log.stable_end if self._read_committed else log.end
            if position == end and self._told_end.get(partition) != position:
                self._ends[partition] = self._told_end[partition] = position
        return records
