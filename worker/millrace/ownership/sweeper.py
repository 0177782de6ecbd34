"""The sweep: whoever acts as a writer decides all that brokers have left open of it, before it writes anything else or moves
a claim (docs/adr/0007).

Of each partition, everything that is open is aborted, by a transaction of the writer that touches it and is aborted. What
was meant to count is then written anew, byte for byte, in a transaction that is committed. A commit alone would do only in
a channel, where there are records that nobody minds (marks): one is needed to touch the partition, and everybody sees it. Between
abort and restoring a crash would lose those records, so before the abort it is noted where they lie, as committed offsets
of the writer's own consumer group; what is noted is looked after by the next sweep. Restoring compares with what readers
see, so doing it twice is doing it once.
"""

from __future__ import annotations

from collections.abc import Mapping

from millrace.clock import Clock, Deadline
from millrace.connectivity.ports import (
    Admin,
    BufferFull,
    Cluster,
    Headers,
    OffsetAndMetadata,
    Record,
    TimedOut,
    TransactionalProducer,
    Unstable,
)
from millrace.ownership import provenance
from millrace.ownership.claim import transactional_id
from millrace.ownership.control_rules import Identity
from millrace.ownership.leftovers import Leftovers, trace
from millrace.ownership.pending import PendingClaims
from millrace.ownership.sweep import (
    Place,
    Stretch,
    Trace,
    counts,
    promise,
    restoring_group,
    to_restore,
)

_KEY = (
    b"millrace"  # of the record that touches a partition and never counts: compacted topics take none without
)
_ROOM_WAIT = 0.005  # s until a full producer is tried again

_Content = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


class Sweep:
    """One sweep, by a producer that has just been initialised. Step it with `advance` until that returns True; what it
    raises are the clients' errors, and it is over then: begin with init again.

    Args:
        holder: whose producer it is: an index, or OP, which writes claims only.
        topics: all that this pipeline's workers write in transactions.

    Attributes:
        waits: what it waits for, in words; "" if for nothing.
    """

    def __init__(
        self,
        cluster: Cluster,
        admin: Admin,
        producer: TransactionalProducer,
        identity: Identity,
        holder: int,
        topics: tuple[str, ...],
        clock: Clock,
    ) -> None:
        self.producer, self.waits = producer, ""
        self._admin, self._clock = admin, clock
        self._group = restoring_group(identity.claims_group, holder)
        writer = transactional_id(identity.uid, holder)
        self._left = Leftovers(cluster, admin, clock, writer, identity.group, topics)
        self._writer = writer
        self._pending = PendingClaims(admin, producer, identity, holder, self._left, self._group, clock)
        self._looked = self._claims_settled = False
        self._stretches: dict[Place, Stretch] = {}

    def advance(self, deadline: Deadline) -> bool:
        """Do what can be done now. Returns whether nothing is left to do."""
        if not self._looked:
            self._left.look(deadline)
            self._recall(deadline)
            self._looked = True
        self._left.follow(deadline)
        self._claims_settled = self._claims_settled or self._pending.settle(deadline)
        self._end(deadline)
        self._restore(deadline)
        self._tell()
        return self._claims_settled and not self._left.open and not self._stretches

    def _recall(self, deadline: Deadline) -> None:
        """What an earlier sweep has noted and not brought to its end."""
        for topic, partitions in self._left.partitions.items():
            found = self._admin.group_offsets(
                self._group, topic, partitions, deadline.remaining(), stable=False
            )
            for partition, record in found.items():
                stretch = Stretch.noted(record)
                if stretch is not None:
                    self._stretches[Place(topic, partition)] = stretch

    def _end(self, deadline: Deadline) -> None:
        """Abort what is open and certain to be the writer's; commit it where nobody minds how. Before that it is noted what
        must not be lost, whatever comes of it.
        """
        certain = self._left.certain() if self._claims_settled else {}
        if not certain or not self._note(certain, deadline):
            return
        times = {place: promise(traces, self._pending.offsets) for place, traces in certain.items()}
        self._commit_as_it_is({place: time for place, time in times.items() if time is not None}, deadline)
        rest = [place for place, time in times.items() if time is None]
        if rest:
            self.producer.begin()
            for place in rest:
                self._produce(place, None, _KEY, [provenance.writer_header(self._writer)], 0, deadline)
            self.producer.flush(deadline.remaining())
            self.producer.abort(deadline.remaining())
        for place in certain:
            self._left.ended(place)

    def _commit_as_it_is(self, places: Mapping[Place, bytes], deadline: Deadline) -> None:
        """Channels only: it has to stay in its place there, and a mark that says nothing new is minded by nobody."""
        if not places:
            return
        self.producer.begin()
        for place, time in places.items():
            headers = [
                (provenance.MARK, b"progress"),
                (provenance.TIME, time),
                provenance.origin_header(self._writer, place.partition, provenance.NEVER),
            ]
            self._produce(place, None, None, headers, 0, deadline)
        self.producer.commit(deadline.remaining())

    def _note(self, certain: Mapping[Place, list[Trace]], deadline: Deadline) -> bool:
        """Returns whether it is noted, for certain, what of these has to be restored."""
        new: dict[Place, Stretch] = {}
        for place, traces in certain.items():
            stretch = to_restore(traces, self._pending.offsets)
            if stretch is not None:
                new[place] = stretch.with_(self._stretches.get(place))
        if not new:
            return True
        self.producer.begin()
        for topic in sorted({place.topic for place in new}):
            slots = {place.partition: new[place].record() for place in new if place.topic == topic}
            self.producer.send_offsets(self._group, topic, slots, deadline.remaining())
        self.producer.commit(deadline.remaining())
        self._stretches |= new
        return all(self._is_noted(place, stretch, deadline) for place, stretch in new.items())

    def _is_noted(self, place: Place, stretch: Stretch, deadline: Deadline) -> bool:
        while True:
            try:
                found = self._admin.group_offsets(
                    self._group, place.topic, [place.partition], deadline.remaining(), stable=True
                )
            except Unstable:
                if deadline.expired():
                    return False
                self._clock.sleep(min(0.05, deadline.remaining()))
            else:
                return Stretch.noted(found.get(place.partition)) == stretch

    def _restore(self, deadline: Deadline) -> None:
        if not self._claims_settled:
            return
        for place in [place for place in self._stretches if place not in self._left.open]:
            missing = self._missing(place, self._stretches[place], deadline)
            self.producer.begin()
            for record in missing:
                known, milliseconds = record.timestamp()
                at = milliseconds if known else 0
                self._produce(place, record.value(), record.key(), record.headers() or (), at, deadline)
            done = OffsetAndMetadata(self._stretches[place].first)
            self.producer.send_offsets(
                self._group, place.topic, {place.partition: done}, deadline.remaining()
            )
            self.producer.commit(deadline.remaining())
            del self._stretches[place]

    def _missing(self, place: Place, stretch: Stretch, deadline: Deadline) -> list[Record]:
        """Records of a stretch that were meant to count, and that readers don't see, there or further on."""
        topic, partition = place
        span = self._admin.spans(topic, [partition], deadline.remaining())[partition]
        first = max(stretch.first, span.beginning)
        readable, noted = {partition: (first, span.end)}, {partition: (first, stretch.last + 1)}
        seen = {_content(r) for r in self._left.records(topic, readable, read_committed=True)}
        meant: dict[_Content, Record] = {}
        for record in self._left.records(topic, noted, read_committed=False):
            if counts(trace(record), self._pending.offsets):
                meant.setdefault(_content(record), record)
        return [record for content, record in meant.items() if content not in seen]

    def _produce(
        self,
        place: Place,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        deadline: Deadline,
    ) -> None:
        while True:
            try:
                self.producer.produce(place.topic, value, key, headers, place.partition, timestamp_ms)
            except BufferFull:
                if deadline.expired():
                    raise TimedOut(f"topic {place.topic} does not take what is to be restored") from None
                self._clock.sleep(_ROOM_WAIT)
                self.producer.poll()
            else:
                return

    def _tell(self) -> None:
        unclear = self._left.unclear()
        self.waits = ""
        if unclear:
            (topic, partition), offset = min(unclear.items())
            self.waits = (
                f"{topic} partition {partition}: a transaction of another producer is open below offset {offset}; "
                "if it stays so, end it (kafka-transactions.sh find-hanging, abort)"
            )
        elif self._left.open:
            topic, partition = min(self._left.open)
            self.waits = (
                f"{topic} partition {partition}: a broker has left records open, they are being decided"
            )
        elif not self._claims_settled:
            self.waits = "a transaction on its claims is pending"


def _content(record: Record) -> _Content:
    """What makes a record one of its kind: with its origin, that is in its headers."""
    return record.key(), record.value(), tuple(record.headers() or ())
