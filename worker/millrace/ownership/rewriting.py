"""Looking at a pipeline's offsets and setting them by hand, over connectivity's ports, while nothing of it runs.

Claims are written as R1 has it: init as the holder that a claim names, a stable read, the write through that producer; the
mirror is written in the same transaction. There is a transaction for each holder, so a crash in between leaves some
partitions set and others not: to do it again sets the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from millrace.clock import Clock, Deadline
from millrace.connectivity.ports import Cluster, Span, TimedOut, TopicMissing
from millrace.ownership.acting import Acting, Again, Desk
from millrace.ownership.claim import OP
from millrace.ownership.control_rules import Identity, Records
from millrace.ownership.epoch import Epoch
from millrace.ownership.repositioning import (
    Change,
    Position,
    To,
    ToOffset,
    ToTime,
    Writer,
    check,
    of_writer,
    repairs,
    resets,
)

_WAIT = 0.05  # s between two attempts

Decide = Callable[["Sight"], Sequence[Change]]


@dataclass(frozen=True, slots=True)
class Sight:
    """How it stands with a pipeline's offsets. `spans`: of the source, for readers of what is committed."""

    identity: Identity
    epoch: Epoch
    claims: Records
    mirror: Records
    spans: dict[int, Span]


class Rewriter:
    """For one pipeline. Not thread-safe.

    Args:
        identity: its `topic_id` is looked up.
        epoch: as published last; epoch 0 if none was.
        outputs: as `control_plane.ControlPlane` has them.
        timeout: seconds for everything that an object of this does.

    Raises: what the clients raise; TopicMissing; TimedOut if it can't be done in time: what is written by then stays.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        identity: Identity,
        epoch: Epoch,
        *,
        outputs: Sequence[str] = (),
        timeout: float = 60.0,
    ) -> None:
        self._desk = Desk(cluster, clock, tuple(outputs))
        self._deadline = Deadline.after(clock, timeout)
        self._identity, self._epoch = identity, epoch
        self._swept = False

    def close(self) -> None:
        self._desk.close()

    def look(self) -> Sight:
        """Without waiting for pending transactions: good for being shown, and for finding out as whom to act."""
        topic = self._identity.topic
        described = self._desk.admin.describe_topic(topic, self._deadline.remaining())
        if described is None:
            raise TopicMissing(
                f"topic {topic} does not exist",
                where="spec.source.topic",
                remedy="check --kafka: is this the broker of the run?",
            )
        identity = self._identity = replace(self._identity, topic_id=described.id)
        partitions = range(described.partitions)
        return Sight(
            identity,
            self._epoch,
            self._read(identity.claims_group, partitions),
            self._read(identity.group, partitions),
            dict(self._desk.admin.spans(topic, partitions, self._deadline.remaining())),
        )

    def settled(self) -> Sight:
        """The same, when no transaction is pending on claims and mirror: a dead worker's may be, for some seconds."""
        sight = self.look()
        while True:
            try:
                claims = self._stable(sight.identity.claims_group, sight.spans)
                return replace(sight, claims=claims, mirror=self._stable(sight.identity.group, sight.spans))
            except Again as reason:
                self._pause(str(reason))

    def targets(self, sight: Sight, position: Position, partitions: Sequence[int]) -> Mapping[int, int]:
        """The offset that a position means in each partition. Raises NoPosition, OutsideLog."""
        topic = self._identity.topic
        match position:
            case To.EARLIEST:
                found = {p: sight.spans[p].beginning for p in partitions}
            case To.LATEST:
                found = {p: sight.spans[p].end for p in partitions}
            case To.GROUP:
                found = {p: sight.mirror[p].offset for p in partitions if p in sight.mirror}
            case ToOffset(offset):
                found = dict.fromkeys(partitions, offset)
            case ToTime(at):
                found = dict(self._desk.admin.offsets_at(topic, partitions, at, self._deadline.remaining()))
        check(topic, self._identity.group, partitions, found, sight.spans)
        return found

    def sweep(self) -> None:
        """Decide what brokers have left open of any of our writers (R8): by the claims as they are, since by others it would
        be decided otherwise. What is pending for ever would also keep `settled` waiting.
        """
        self.look()
        for holder in self._ever():
            self._as(Writer(self._identity.uid, holder), _sweep)
        self._swept = True

    def reset(self, targets: Mapping[int, int]) -> None:
        """Make claims that are ours say these offsets, after a sweep."""
        if not self._swept:
            self.sweep()
        self._write(lambda sight: resets(sight.identity, sight.claims, targets))

    def repair(self, targets: Mapping[int, int]) -> None:
        """Write claims that are lost or foreign anew, at these offsets. Whoever of ours might still believe that it
        holds one is fenced first: of a lost claim nobody knows whom it named. What they have left open waits for the new
        claims, since the old ones can't tell any more.
        """
        self.look()
        for holder in self._ever():
            self._as(Writer(self._identity.uid, holder), _nothing)
        self._write(lambda sight: repairs(sight.identity, sight.epoch, sight.claims, targets))

    def _ever(self) -> Sequence[int]:
        return *range(self._epoch.replicas_ever), OP

    def _write(self, decide: Decide) -> None:
        while todo := decide(sight := self.look()):
            for writer in sorted({change.writer for change in todo}, key=lambda w: (w.uid, w.holder)):
                partitions = [change.partition for change in of_writer(todo, writer)]
                self._as(writer, partial(self._write_as, writer, sight, partitions, decide))

    def _write_as(
        self, writer: Writer, sight: Sight, partitions: Sequence[int], decide: Decide, acting: Acting
    ) -> None:
        """What a stable read, done as the writer, still shows to be its to write."""
        acting.sweep()
        claims = self._stable(sight.identity.claims_group, partitions)
        now = of_writer(decide(replace(sight, claims=claims)), writer)
        acting.write({change.partition: change.record for change in now if change.partition in partitions})

    def _as(self, writer: Writer, work: Callable[[Acting], None]) -> None:
        """Done once, whatever interrupts it, or TimedOut."""
        whose = replace(self._identity, uid=writer.uid)
        while True:
            try:
                with Acting(self._desk, whose, writer.holder, self._deadline) as acting:
                    return work(acting)
            except Again as reason:
                self._pause(str(reason))

    def _read(self, group: str, partitions: Iterable[int]) -> Records:
        return self._desk.read(group, self._identity.topic, partitions, self._deadline)

    def _stable(self, group: str, partitions: Iterable[int]) -> Records:
        return self._desk.read(group, self._identity.topic, partitions, self._deadline, stable=True)

    def _pause(self, why: str) -> None:
        if self._deadline.expired():
            raise TimedOut(
                f"it could not be done in time: {why}",
                where=f"group {self._identity.claims_group}",
                remedy="partitions that are set stay so (`millrace offsets show`); run the command again for the others",
            )
        self._desk.clock.sleep(min(_WAIT, self._deadline.remaining()))


def _sweep(acting: Acting) -> None:
    acting.sweep()


def _nothing(_: Acting) -> None:
    """To have acted fences."""
