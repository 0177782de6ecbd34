"""Reading claims (R2): plainly, to see where to look; stably, before anything is decided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from millrace.clock import Deadline
from millrace.connectivity.ports import Admin, OffsetAndMetadata, TopicMissing, Unstable
from millrace.errors import ExitCode, MillraceError
from millrace.ownership.claim import Claim
from millrace.ownership.control_rules import Identity
from millrace.ownership.errors import ClaimLost, ForeignClaim
from millrace.ownership.worker_rules import Meaning


class ClaimReader:
    """Reads the claims of one topic. Does not wait for pending transactions: says which partitions have one."""

    def __init__(self, admin: Admin, topic: str, claims_group: str) -> None:
        self._admin, self._topic, self._group = admin, topic, claims_group

    def glance(self, partitions: Iterable[int], deadline: Deadline) -> Mapping[int, OffsetAndMetadata]:
        """What is committed at this moment; a pending transaction may be about to change it. Decides nothing."""
        return self._admin.group_offsets(
            self._group, self._topic, partitions, deadline.remaining(), stable=False
        )

    def check_topic(self, identity: Identity, held: Mapping[int, int], deadline: Deadline) -> None:
        """Raises ForeignClaim if the topic was made anew: the offsets of what is held mean nothing any more. TopicMissing."""
        topic = self._admin.describe_topic(self._topic, deadline.remaining())
        if topic is None:
            raise TopicMissing(f"topic {self._topic} is gone", where="spec.source.topic")
        if topic.id != identity.topic_id:
            whose = dict.fromkeys(held, "the topic was deleted and made again") or {0: topic.id}
            raise ForeignClaim(identity.topic, identity.group, identity.claims_group, whose, held)

    def stable(
        self, partitions: Sequence[int], deadline: Deadline
    ) -> tuple[dict[int, OffsetAndMetadata], set[int]]:
        """The stable records, and the partitions that have none for now as a transaction is pending on them.

        One pending partition must not hold up the others (a dead worker's may be pending for transaction.timeout.ms):
        the broker refuses a question as a whole, so a refused one is asked again in halves.
        """
        if not partitions:
            return {}, set()
        try:
            found = self._admin.group_offsets(
                self._group, self._topic, partitions, deadline.remaining(), stable=True
            )
        except Unstable:
            if len(partitions) == 1:
                return {}, set(partitions)
            middle = len(partitions) // 2
            left, left_pending = self.stable(partitions[:middle], deadline)
            right, right_pending = self.stable(partitions[middle:], deadline)
            return left | right, left_pending | right_pending
        return dict(found), set()


class Superseded(MillraceError):
    """Another process acts as this index now (R3f)."""

    code = ExitCode.SUPERSEDED


def changed(
    identity: Identity,
    index: int,
    partition: int,
    committed: int,
    meaning: Meaning,
    record: OffsetAndMetadata | None,
) -> MillraceError:
    """What it means that a claim which this worker holds, committed at this offset, is not what it has written: another
    one acts as this worker, or the claim is lost or foreign (R6).
    """
    group, topic = identity.claims_group, identity.topic
    if meaning is Meaning.ABSENT:
        return ClaimLost(topic, identity.group, group, [partition], {partition: committed})
    if meaning is Meaning.FOREIGN:
        return ForeignClaim(
            topic, identity.group, group, {partition: "not this pipeline"}, {partition: committed}
        )
    claim = Claim.decode(record.metadata) if record else None
    to = f"worker {claim.holder}" if claim else "another"
    return Superseded(
        f"partition {partition} was passed to {to} while I held it: another process acts as this worker",
        where=f"worker {index}, group {group}",
        remedy="nothing, if this process is a left-over; its successor goes on",
    )
