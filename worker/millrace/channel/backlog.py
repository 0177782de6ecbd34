"""When a collector that does not run all the time is to be started: pure.

Who watches (the parent of a local run, the operator) looks at the channel and at the collector's consumer group, and
asks here. Lag is counted in offsets, which is more than rows: marks and the ends of transactions have offsets too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millrace.connectivity.ports import Admin, Span


@dataclass(frozen=True, slots=True)
class OnLag:
    """How much has to wait. `messages`: so many offsets; `age`: the oldest has waited for so many seconds. One of them
    is given, or both: then whichever comes first."""

    messages: int | None = None
    age: float | None = None


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits in a channel, by partition.

    Attributes:
        spans: beginning and end of the log for a read_committed reader.
        read: offset up to which the collector has read; absent: it has read nothing.
        aged: offset of the first record that has not waited for OnLag.age; empty if no age is given.
    """

    spans: Mapping[int, Span]
    read: Mapping[int, int]
    aged: Mapping[int, int] = field(default_factory=dict)

    def waiting(self, also_read: Mapping[int, int] | None = None) -> int:
        """Offsets that are not read yet."""
        return sum(end - begin for begin, end in self._unread(also_read).values())

    def _unread(self, also_read: Mapping[int, int] | None) -> dict[int, tuple[int, int]]:
        """also_read: what the reader itself says, which may be newer than what is committed."""
        more = also_read or {}
        found = {}
        for partition, span in self.spans.items():
            begin = max(span.beginning, self.read.get(partition, 0), more.get(partition, 0))
            if begin < span.end:
                found[partition] = begin, span.end
        return found

    def old(self, also_read: Mapping[int, int] | None = None) -> frozenset[int]:
        """Partitions in which something has waited for too long."""
        unread = self._unread(also_read).items()
        return frozenset(p for p, (begin, _) in unread if begin < self.aged.get(p, begin))


def due(trigger: OnLag, backlog: Backlog, also_read: Mapping[int, int] | None = None) -> str:
    """Why a job is to be started now, for people; "" if it is not.

    also_read: offsets that the last job says it has read, where they are not committed (yet).
    """
    waiting = backlog.waiting(also_read)
    if trigger.messages is not None and waiting >= trigger.messages:
        return f"{waiting:,} messages wait"
    if trigger.age is not None and (old := backlog.old(also_read)):
        return f"messages of partition {min(old)} wait for {trigger.age:g} s or more"
    return ""


def look(
    admin: Admin,
    trigger: OnLag,
    *,
    channel: str,
    group: str,
    spans: Mapping[int, Span],
    now: float,
    timeout: float,
) -> Backlog:
    """Ask Kafka how much waits. now: seconds since the Unix epoch; timeout: of each question. Raises KafkaError.

    The age of a record is that of its place in the channel, whose timestamps the broker makes (LogAppendTime).
    """
    committed = admin.group_offsets(group, channel, spans, timeout, stable=False)
    aged: Mapping[int, int] = {}
    if trigger.age is not None:
        aged = admin.offsets_at(channel, spans, round((now - trigger.age) * 1000), timeout)
    return Backlog(spans, {p: found.offset for p, found in committed.items()}, aged)
