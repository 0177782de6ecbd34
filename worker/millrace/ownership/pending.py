"""Claims that a broker has left pending, so that they can never be read stably (R2).

Claims that name x are written only by the producer of x (R1), and right after init that has nothing under way: what stays
pending then for a while was forgotten, a commit or an abort. Outputs that came with it tell which, if readers see any.
"""

from __future__ import annotations

from millrace.clock import Clock, Deadline
from millrace.connectivity.ports import Admin, OffsetAndMetadata, TransactionalProducer, Unstable
from millrace.ownership.claim import Claim
from millrace.ownership.control_rules import Identity, own_claim
from millrace.ownership.leftovers import SETTLE, Leftovers
from millrace.ownership.sweep import floors, proves_commit


class PendingClaims:
    """Of one holder.

    Args:
        notes: the consumer group in which it notes what a sweep must not forget.

    Attributes:
        offsets: of all claims of the pipeline, as of the last `settle`.
    """

    def __init__(
        self,
        admin: Admin,
        producer: TransactionalProducer,
        identity: Identity,
        holder: int,
        left: Leftovers,
        notes: str,
        clock: Clock,
    ) -> None:
        self._admin, self._producer, self._identity, self._holder = admin, producer, identity, holder
        self._left, self._notes, self._clock = left, notes, clock
        self._mine: dict[int, OffsetAndMetadata] = {}  # those that name the holder
        self._unstable_since: float | None = None
        self.offsets: dict[int, int] = {}

    def settle(self, deadline: Deadline) -> bool:
        """See that none of the holder's claims is pending, and none behind what readers see; do what can be done now.
        Returns whether it is so. Raises what the clients raise.
        """
        self._read(deadline)
        try:
            found = self._admin.group_offsets(
                self._identity.claims_group,
                self._identity.topic,
                self._mine,
                deadline.remaining(),
                stable=True,
            )
        except Unstable:
            now = self._clock.monotonic()
            self._unstable_since = now if self._unstable_since is None else self._unstable_since
            if now - self._unstable_since >= SETTLE:
                self._decide(deadline)
            return False
        return found == self._mine and not (self._left.topics and self._raise(deadline))

    def _read(self, deadline: Deadline) -> None:
        """Not stably: those of other holders may be pending for good reasons, and what they are now is enough."""
        identity = self._identity
        described = self._admin.describe_topic(identity.topic, deadline.remaining())
        found = self._admin.group_offsets(
            identity.claims_group,
            identity.topic,
            range(described.partitions if described is not None else 0),
            deadline.remaining(),
            stable=False,
        )
        ours = {p: (record, own_claim(identity, record)) for p, record in found.items()}
        self.offsets = {p: record.offset for p, (record, claim) in ours.items() if claim is not None}
        self._mine = {p: record for p, (record, claim) in ours.items() if self._names_me(claim)}

    def _names_me(self, claim: Claim | None) -> bool:
        return claim is not None and claim.holder == self._holder

    def _decide(self, deadline: Deadline) -> None:
        """Commit what is pending if outputs that came with it are to be seen; abort it if there are none. A transaction
        that is to commit it may still end in an abort; so what is known of the claims then is noted first.
        """
        identity, pending = self._identity, self._mine.keys()
        proofs = self._left.newest(lambda one: proves_commit(one, self.offsets, pending), deadline)
        if proofs:
            noted = {
                p: OffsetAndMetadata(offset, self._mine[p].metadata)
                for p, offset in floors(proof for _, proof in proofs).items()
            }
            self._admin.commit_offsets(self._notes, identity.topic, noted, deadline.remaining())
            place, proof = proofs[0]
            # any offset of the group will do: the marker commits all that is pending of this producer
            slot = {place.partition: OffsetAndMetadata(proof.offset)}
            self._producer.begin()
            self._producer.send_offsets(identity.claims_group, place.topic, slot, deadline.remaining())
            self._producer.commit(deadline.remaining())
            self._unstable_since = None
        elif not self._left.unclear():  # else there may be some that can't be seen yet
            slot = dict([min(self._mine.items())])
            self._producer.begin()
            for group in (identity.claims_group, identity.group):
                self._producer.send_offsets(group, identity.topic, slot, deadline.remaining())
            self._producer.abort(deadline.remaining())
            self._unstable_since = None

    def _raise(self, deadline: Deadline) -> bool:
        """Claims that are known to have been committed further than they are: the transaction that was to commit them
        was aborted. Returns whether there were any.
        """
        identity = self._identity
        noted = self._admin.group_offsets(
            self._notes, identity.topic, self._mine, deadline.remaining(), stable=False
        )
        behind = {
            p: OffsetAndMetadata(record.offset, self._mine[p].metadata)
            for p, record in noted.items()
            if record.offset > self._mine[p].offset and own_claim(identity, record) is not None
        }
        if behind:
            mirror = {p: OffsetAndMetadata(record.offset) for p, record in behind.items()}
            self._producer.begin()
            self._producer.send_offsets(identity.claims_group, identity.topic, behind, deadline.remaining())
            self._producer.send_offsets(identity.group, identity.topic, mirror, deadline.remaining())
            self._producer.commit(deadline.remaining())
        return bool(behind)
