"""The broker itself: topics, groups, the coordinator, the faults, and requests that are still under way.

Clients come from `cluster()`. What a test may do beside them (an operator's kafka-topics, a stray subscriber, time,
retention) are methods here or on `groups`, `faults` and `transactions`.
"""

from __future__ import annotations

from collections.abc import Iterable

from millrace.clock import Clock
from millrace.connectivity.memory.administration import MemoryAdmin
from millrace.connectivity.memory.faults import Faults, Hook
from millrace.connectivity.memory.groups import Groups
from millrace.connectivity.memory.log import Draft, MemoryRecord, PartitionLog, Topic
from millrace.connectivity.memory.reader import MemoryConsumer
from millrace.connectivity.memory.survey import MemorySurvey
from millrace.connectivity.memory.transactional import MemoryTransactionalProducer
from millrace.connectivity.memory.transactions import Coordinator, LateEnd, LateOffsets
from millrace.connectivity.memory.writer import MemoryProducer
from millrace.connectivity.ports import TopicExists, TopicMissing

TRANSACTION_TIMEOUT = 10.0  # s; what `settings` asks the real broker for


class MemoryBroker:
    """One broker.

    Args:
        clock: all time is read from it and all waits are sleeps on it.
        marker_delay: seconds for which an ended transaction stays prepared; None: until `transactions.complete(id)`.
        max_buffered: records a producer buffers before it raises BufferFull.
        max_record_bytes: larger records are refused by the client (message.max.bytes).
    """

    def __init__(
        self,
        clock: Clock,
        *,
        marker_delay: float | None = 0.0,
        max_buffered: int = 100_000,
        max_record_bytes: int = 1_000_000,
    ) -> None:
        self.clock = clock
        self.max_buffered, self.max_record_bytes = max_buffered, max_record_bytes
        self.faults = Faults(clock)
        self.groups = Groups()
        self.transactions = Coordinator(self.groups, clock.monotonic, TRANSACTION_TIMEOUT, marker_delay)
        self.late: list[LateEnd | LateOffsets] = []
        self._topics: dict[str, Topic] = {}
        self._made = 0

    @property
    def hook(self) -> Hook:
        """Called with each client call before it takes effect and after; see `faults`."""
        return self.faults.hook

    @hook.setter
    def hook(self, hook: Hook) -> None:
        self.faults.hook = hook

    def cluster(self, *, client_id: str) -> MemoryCluster:
        return MemoryCluster(self, client_id)

    # topics

    def topic(self, name: str) -> Topic:
        """Raises TopicMissing."""
        if name not in self._topics:
            raise TopicMissing(f"there is no topic {name}", where=f"topic {name}")
        return self._topics[name]

    def find_topic(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def log(self, topic: str, partition: int) -> PartitionLog:
        """Raises TopicMissing, also for a partition that is not there."""
        logs = self.topic(topic).logs
        if not 0 <= partition < len(logs):
            raise TopicMissing(f"topic {topic} has no partition {partition}", where=f"topic {topic}")
        return logs[partition]

    def create_topic(self, name: str, partitions: int, *, max_message_bytes: int = 1_048_588) -> Topic:
        if name in self._topics:
            raise TopicExists(f"topic {name} exists", where=f"topic {name}")
        self._made += 1
        topic = self._topics[name] = Topic(name, f"memory-topic-{self._made:08d}", max_message_bytes)
        topic.grow(partitions)
        return topic

    def delete_topic(self, name: str) -> None:
        self.topic(name)
        del self._topics[name]
        self.groups.forget_topic(name)

    def append(
        self, topic: str, partition: int, values: Iterable[bytes | None], *, key: bytes | None = None
    ) -> None:
        """Write records outside any transaction, as another producer would."""
        for value in values:
            self.log(topic, partition).append(
                Draft(topic, value, key, None, partition, 0), int(self.clock.time() * 1000)
            )

    def records(self, topic: str, *, read_committed: bool = True) -> list[MemoryRecord]:
        """All that a reader sees of a topic now, partition by partition."""
        self.settle()
        return list(self.topic(topic).records(read_committed=read_committed))

    # time, and requests under way

    def settle(self) -> None:
        """Do what time has brought. Every client call begins with it."""
        self.transactions.settle()

    def land(self, request: LateEnd | LateOffsets) -> bool:
        """A late request arrives now. Returns whether it was accepted."""
        self.settle()
        self.late.remove(request)
        return self.transactions.land(request)


class MemoryCluster:
    """The broker as one client id sees it."""

    def __init__(self, broker: MemoryBroker, client_id: str) -> None:
        self._broker, self._client_id = broker, client_id

    def consumer(self, topic: str, *, group: str, read_committed: bool = True) -> MemoryConsumer:
        return MemoryConsumer(self._broker, self._client_id, topic, group, read_committed)

    def producer(self) -> MemoryProducer:
        return MemoryProducer(self._broker, self._client_id)

    def transactional_producer(self, transactional_id: str) -> MemoryTransactionalProducer:
        return MemoryTransactionalProducer(self._broker, self._client_id, transactional_id)

    def admin(self) -> MemoryAdmin:
        return MemoryAdmin(self._broker, self._client_id)

    def survey(self) -> MemorySurvey:
        return MemorySurvey(self._broker, self._client_id)
