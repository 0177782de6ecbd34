"""Looking at a pipeline's offsets and setting them by hand, over connectivity's ports, while nothing of it runs.

Claims are written as R1 has it: init as the holder that a claim names, a stable read, the write through that producer; the
mirror is written in the same transaction. There is a transaction for each holder, so a crash in between leaves some
partitions set and others not: to do it again sets the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from millrace.clock import Clock, Deadline
from millrace.connectivity.ports import (
    Admin,
    Cluster,
    DeliveryFailed,
    Fenced,
    OffsetAndMetadata,
    OutcomeUnknown,
    Span,
    TimedOut,
    TopicMissing,
    TransactionAborted,
    Unstable,
)
from millrace.ownership.claim import OP, transactional_id
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


class _Again(Exception):
    """Another has acted as this holder, or the outcome of a write is unknown: everything is dropped, and begun at init."""


class Rewriter:
    """For one pipeline. Not thread-safe.

    Args:
        identity: its `topic_id` is looked up.
        epoch: as published last; epoch 0 if none was.
        timeout: seconds for everything that an object of this does.

    Raises: what the clients raise; TopicMissing; TimedOut if it can't be done in time: what is written by then stays.
    """

    def __init__(
        self, cluster: Cluster, clock: Clock, identity: Identity, epoch: Epoch, *, timeout: float = 60.0
    ) -> None:
        self._cluster, self._clock, self._epoch = cluster, clock, epoch
        self._deadline = Deadline.after(clock, timeout)
        self._admin: Admin = cluster.admin()
        self._identity = identity

    def close(self) -> None:
        self._admin.close()

    def look(self) -> Sight:
        """Without waiting for pending transactions: good for being shown, and for finding out as whom to act."""
        topic = self._identity.topic
        described = self._admin.describe_topic(topic, self._deadline.remaining())
        if described is None:
            raise TopicMissing(
                f"topic {topic} does not exist",
                where="spec.source.topic",
                remedy="check --kafka: is this the broker of the run?",
            )
        identity = replace(self._identity, topic_id=described.id)
        partitions = range(described.partitions)
        return Sight(
            identity,
            self._epoch,
            self._read(identity.claims_group, partitions),
            self._read(identity.group, partitions),
            dict(self._admin.spans(topic, partitions, self._deadline.remaining())),
        )

    def settled(self) -> Sight:
        """The same, when no transaction is pending on claims and mirror: a dead worker's may be, for some seconds."""
        sight = self.look()
        claims = self._read(sight.identity.claims_group, sight.spans, stable=True)
        mirror = self._read(sight.identity.group, sight.spans, stable=True)
        return replace(sight, claims=claims, mirror=mirror)

    def targets(self, sight: Sight, position: Position, partitions: Sequence[int]) -> dict[int, int]:
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
                found = dict(self._admin.offsets_at(topic, partitions, at, self._deadline.remaining()))
        check(topic, self._identity.group, partitions, found, sight.spans)
        return found

    def reset(self, targets: dict[int, int]) -> None:
        """Make claims that are ours say these offsets."""
        self._write(lambda sight: resets(sight.identity, sight.claims, targets))

    def repair(self, targets: dict[int, int]) -> None:
        """Write claims that are lost or foreign anew, at these offsets. Whoever of ours might still believe that it
        holds one is fenced first: of a lost claim nobody knows whom it named.
        """
        for holder in (*range(self._epoch.replicas_ever), OP):
            self._fence(holder)
        self._write(lambda sight: repairs(sight.identity, sight.epoch, sight.claims, targets))

    def _fence(self, holder: int) -> None:
        while True:
            try:
                with _Acting(
                    self._cluster, self._identity, Writer(self._identity.uid, holder), self._deadline
                ):
                    return
            except _Again as reason:
                self._pause(str(reason))

    def _write(self, decide: Decide) -> None:
        while todo := decide(sight := self.look()):
            for writer in sorted({change.writer for change in todo}, key=lambda w: (w.uid, w.holder)):
                try:
                    self._write_as(
                        writer, sight, [change.partition for change in of_writer(todo, writer)], decide
                    )
                except _Again as reason:
                    self._pause(str(reason))

    def _write_as(self, writer: Writer, sight: Sight, partitions: Sequence[int], decide: Decide) -> None:
        """What a stable read, done as the writer, still shows to be its to write."""
        with _Acting(self._cluster, self._identity, writer, self._deadline) as acting:
            claims = self._read(sight.identity.claims_group, partitions, stable=True)
            now = of_writer(decide(replace(sight, claims=claims)), writer)
            acting.write(
                {change.partition: change.record for change in now if change.partition in partitions}
            )

    def _read(self, group: str, partitions: Iterable[int], *, stable: bool = False) -> Records:
        wanted = list(partitions)
        while True:
            try:
                return self._admin.group_offsets(
                    group, self._identity.topic, wanted, self._deadline.remaining(), stable=stable
                )
            except Unstable as pending:
                self._pause(f"a transaction on group {group} stays pending: {pending.what}")

    def _pause(self, why: str) -> None:
        if self._deadline.expired():
            raise TimedOut(
                f"it could not be done in time: {why}",
                where=f"group {self._identity.claims_group}",
                remedy="partitions that are set stay so (`millrace offsets show`); run the command again for the others",
            )
        self._clock.sleep(min(_WAIT, self._deadline.remaining()))


class _Acting:
    """R1, as a with statement: init first; what is read and written inside is done as the writer."""

    def __init__(self, cluster: Cluster, identity: Identity, writer: Writer, deadline: Deadline) -> None:
        self._identity, self._deadline = identity, deadline
        self._who = transactional_id(writer.uid, writer.holder)
        self._producer = cluster.transactional_producer(self._who)

    def __enter__(self) -> _Acting:
        try:
            self._producer.init(self._deadline.remaining())
        except (Fenced, TimedOut) as error:
            self._producer.close()
            raise _Again(f"could not act as {self._who}: {error.what}") from error
        except BaseException:
            self._producer.close()
            raise
        return self

    def write(self, records: Records) -> None:
        """Claims, and the mirror with them, in one transaction."""
        if not records:
            return
        mirror = {p: OffsetAndMetadata(record.offset) for p, record in records.items()}
        topic, remaining = self._identity.topic, self._deadline.remaining
        self._producer.begin()
        self._producer.send_offsets(self._identity.claims_group, topic, records, remaining())
        self._producer.send_offsets(self._identity.group, topic, mirror, remaining())
        self._producer.commit(remaining())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        self._producer.close()
        if isinstance(error, TransactionAborted) and isinstance(error.__cause__, DeliveryFailed):
            raise error.__cause__
        if isinstance(error, (Fenced, OutcomeUnknown, TransactionAborted, TimedOut)):
            raise _Again(f"acting as {self._who} was interrupted: {error.what}") from error
