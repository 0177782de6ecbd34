"""Acting as a holder of claims (R1): init as it, sweep up what it has left open (R8), read stably, write through that
producer. How the control plane does whatever it does to claims.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from millrace.clock import Clock, Deadline
from millrace.connectivity.ports import (
    Admin,
    Cluster,
    DeliveryFailed,
    Fenced,
    OffsetAndMetadata,
    OutcomeUnknown,
    TimedOut,
    TransactionAborted,
    Unstable,
)
from millrace.ownership.claim import OP, Claim, transactional_id
from millrace.ownership.control_rules import Identity, Records
from millrace.ownership.epoch import Epoch
from millrace.ownership.sweeper import Sweep

_WAIT = 0.05  # s between two attempts


class Again(Exception):
    """Something was given up; whatever is needed is seen at the next reconcile."""


@dataclass(slots=True)
class Desk:
    """What the control plane of one pipeline works with. `outputs`: all topics that its workers write in transactions."""

    cluster: Cluster
    clock: Clock
    outputs: tuple[str, ...]
    _admin: Admin | None = None

    @property
    def admin(self) -> Admin:
        """Made when there is something to ask."""
        if self._admin is None:
            self._admin = self.cluster.admin()
        return self._admin

    def close(self) -> None:
        """What is asked later makes another client."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()

    def read(
        self,
        group: str,
        topic: str,
        partitions: Iterable[int],
        deadline: Deadline,
        *,
        stable: bool = False,
    ) -> Records:
        """Committed offsets. Stable: R2, waits until no transaction is pending on these partitions. Raises Again."""
        wanted = list(partitions)
        while True:
            try:
                return self.admin.group_offsets(group, topic, wanted, deadline.remaining(), stable=stable)
            except Unstable as pending:
                if deadline.expired():
                    raise Again(f"a transaction on group {group} stays pending: {pending.what}") from pending
                self.clock.sleep(min(_WAIT, deadline.remaining()))


class Acting:
    """R1, as a with statement: init first; what is read and written inside is done as the holder. Raises Again where that
    is interrupted.
    """

    def __init__(self, desk: Desk, identity: Identity, holder: int, deadline: Deadline) -> None:
        self._desk, self._identity, self._holder, self._deadline = desk, identity, holder, deadline
        self._who = transactional_id(identity.uid, holder)
        self._producer = desk.cluster.transactional_producer(self._who)

    def __enter__(self) -> Acting:
        try:
            self._producer.init(self._deadline.remaining())
        except (Fenced, TimedOut) as error:
            self._producer.close()
            raise Again(f"could not act as {self._who}: {error.what}") from error
        except BaseException:
            self._producer.close()
            raise
        return self

    def sweep(self) -> None:
        """R8: before a claim of the holder is moved."""
        desk = self._desk
        outputs = () if self._holder == OP else desk.outputs  # the control plane writes claims only
        admin = (
            desk.cluster.admin()
        )  # one of its own: it keeps a client for each group that it is asked about
        try:
            sweep = Sweep(
                desk.cluster, admin, self._producer, self._identity, self._holder, outputs, desk.clock
            )
            while not sweep.advance(self._deadline):
                if self._deadline.expired():
                    raise Again(f"acting as {self._who}: {sweep.waits}")
                desk.clock.sleep(min(_WAIT, self._deadline.remaining()))
        finally:
            admin.close()

    def write(self, records: Records) -> None:
        """Write claims, and the mirror with them, in one transaction."""
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
            raise Again(f"acting as {self._who} was interrupted: {error.what}") from error


def claim_of(identity: Identity, epoch: Epoch, holder: int, before: Claim | None = None) -> str:
    """The text of a claim. `before`: the one that it follows, at the same offset."""
    note = before.note if before else None
    return Claim(identity.uid, identity.topic_id, epoch.number, holder, note).encode()
