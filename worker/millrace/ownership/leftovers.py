"""Finding what a writer has left open in the topics that it writes, by reading: no client library that we have can ask a
broker for its open transactions (KIP-664).

The last stable offset of a partition is the first offset of whatever is open there, of whichever writer; above it nobody
can tell what is open from what is not. But of a writer who has nothing under way, if the very record at the last stable
offset is its, that is a leftover, and so is all of its that comes after. If the record there is another's, that one has to
end first: by its own commit or abort, or by its own sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from millrace.clock import Clock, Deadline
from millrace.connectivity.ports import Admin, Cluster, OffsetOutOfRange, Record, Span, TimedOut
from millrace.ownership import provenance
from millrace.ownership.sweep import Place, Trace

SETTLE = 1.0
"""Seconds for which a writer's record has to stay the first that is open until it is taken for a leftover. A new leader of
the partition may know less than the former for a moment."""

STALLED = 10.0  # s without a record, though some must come, after which a reading is given up
_BATCH = 500
_WINDOWS = (
    1_000,
    30_000,
    1_000_000,
)  # offsets looked at, back from the end, until there is a record of the writer


@dataclass(slots=True)
class Open:
    """What a writer has at or above the last stable offset of a place; `since`: when it was first seen to begin with
    exactly that (None: it does not), on the monotonic clock.
    """

    traces: list[Trace]
    since: float | None = None


@dataclass(slots=True)
class Leftovers:
    """Looks at the topics of one writer, which writes nothing meanwhile.

    Args:
        group: names the reading client to the broker.
    """

    cluster: Cluster
    admin: Admin
    clock: Clock
    writer: str
    group: str
    topics: tuple[str, ...]
    open: dict[Place, Open] = field(default_factory=dict)
    partitions: dict[str, range] = field(default_factory=dict)  # of the topics that are there

    def look(self, deadline: Deadline) -> None:
        """Find what is, or may be, open of the writer. Raises what the clients raise."""
        for topic in self.topics:
            described = self.admin.describe_topic(topic, deadline.remaining())
            if described is None:
                continue  # nothing is open in what is not there
            partitions = range(described.partitions)
            stable = self._spans(topic, partitions, deadline)
            ends = self.admin.spans(topic, partitions, deadline.remaining(), read_committed=False)
            ranges = {p: (stable[p].end, ends[p].end) for p in partitions if stable[p].end < ends[p].end}
            for record in self.records(topic, ranges, read_committed=False):
                place = Place(topic, record.partition())
                self.open.setdefault(place, Open([])).traces.append(trace(record))
            self.partitions[topic] = partitions

    def follow(self, deadline: Deadline) -> None:
        """See what has ended since, and what begins with a record of the writer."""
        now = self.clock.monotonic()
        for topic in {place.topic for place in self.open}:
            ours = [place.partition for place in self.open if place.topic == topic]
            for partition, span in self._spans(topic, ours, deadline).items():
                place = Place(topic, partition)
                found = self.open[place]
                found.traces = [one for one in found.traces if one.offset >= span.end]
                if not found.traces:
                    del self.open[place]
                elif found.traces[0].offset != span.end:
                    found.since = None
                elif found.since is None:
                    found.since = now

    def certain(self) -> dict[Place, list[Trace]]:
        """Where the writer's are leftovers for certain."""
        now = self.clock.monotonic()
        return {
            place: found.traces
            for place, found in self.open.items()
            if found.since is not None and now - found.since >= SETTLE
        }

    def unclear(self) -> dict[Place, int]:
        """Where something of another writer has to end before it can be told, each with the writer's first offset."""
        return {place: found.traces[0].offset for place, found in self.open.items() if found.since is None}

    def ended(self, place: Place) -> None:
        """A marker is on its way to this place: look anew whether it arrives."""
        if place in self.open:
            self.open[place].since = None

    def newest(self, proves: Callable[[Trace], bool], deadline: Deadline) -> list[tuple[Place, Trace]]:
        """What readers see of the writer's newest transactions: of each place all records from the last back to the first
        for which `proves` holds no longer.
        """
        found: list[tuple[Place, Trace]] = []
        for topic, partitions in self.partitions.items():
            for partition, span in self._spans(topic, partitions, deadline).items():
                place = Place(topic, partition)
                found += [(place, one) for one in self._newest_of(place, span, proves)]
        return found

    def records(
        self, topic: str, ranges: Mapping[int, tuple[int, int]], *, read_committed: bool
    ) -> Iterator[Record]:
        """The writer's records from each partition's first offset up to, not including, the second. Raises TimedOut if
        nothing comes for STALLED seconds.
        """
        at = {p: first for p, (first, end) in ranges.items() if first < end}
        if not at:
            return
        consumer = self.cluster.consumer(topic, group=self.group, read_committed=read_committed)
        try:
            consumer.assign(at)
            patience = Deadline.after(self.clock, STALLED)
            while any(position < ranges[p][1] for p, position in at.items()):
                if patience.expired():
                    raise TimedOut(f"topic {topic} can't be read up to its end", where=f"topic {topic}")
                records = consumer.fetch(_BATCH, 0.05)
                for record in records:
                    partition, offset = record.partition(), record.offset()
                    at[partition] = offset + 1
                    if offset < ranges[partition][1] and self._is_ours(record):
                        yield record
                ends = consumer.ends()
                at.update({p: max(at[p], end) for p, end in ends.items()})
                if records or ends:
                    patience = Deadline.after(self.clock, STALLED)
        except OffsetOutOfRange as gone:
            raise TimedOut(f"{gone.what}: it was deleted while it was read", where=gone.where) from gone
        finally:
            consumer.close()

    def _newest_of(self, place: Place, span: Span, proves: Callable[[Trace], bool]) -> list[Trace]:
        topic, partition = place
        ours: list[Trace] = []
        for window in (*_WINDOWS, span.end):
            begin = max(span.beginning, span.end - window)
            ours = list(map(trace, self.records(topic, {partition: (begin, span.end)}, read_committed=True)))
            if begin == span.beginning or (ours and not proves(ours[0])):
                break
        return [one for one in ours if proves(one)]

    def _spans(self, topic: str, partitions: range | list[int], deadline: Deadline) -> Mapping[int, Span]:
        return self.admin.spans(topic, partitions, deadline.remaining())

    def _is_ours(self, record: Record) -> bool:
        return provenance.writer(record.headers()) == self.writer


def trace(record: Record) -> Trace:
    headers = record.headers()
    return Trace(record.offset(), provenance.origin(headers), provenance.time(headers))


def writer_at(cluster: Cluster, clock: Clock, group: str, place: Place, offset: int) -> str | None:
    """Who wrote the record at an offset, decided or not; None if that can't be told."""
    consumer = cluster.consumer(place.topic, group=group, read_committed=False)
    try:
        consumer.assign({place.partition: offset})
        patience = Deadline.after(clock, STALLED)
        while not patience.expired():
            for record in consumer.fetch(1, 0.05):
                return provenance.writer(record.headers()) if record.offset() == offset else None
        return None
    finally:
        consumer.close()
