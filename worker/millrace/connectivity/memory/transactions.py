"""The transaction coordinator: who may write as which transactional id, and how its transaction ends.

An id has an epoch; `init` raises it, which fences every former producer of the id. A transaction is open until it is
ended, by its producer, by a later `init`, or by time (transaction.timeout.ms after its first write). Ended is not yet
complete: it is *prepared* until its markers are written to all its partitions. Meanwhile its offsets stay unstable,
its records unread, and the id's next transaction and any `init` have to wait. (KIP-98; the states are those of the
model in tests/model.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from millrace.connectivity.memory.groups import Groups, Slot
from millrace.connectivity.memory.log import Draft, Outcome, PartitionLog
from millrace.connectivity.ports import Fenced, OffsetAndMetadata


class Concurrent(Exception):
    """CONCURRENT_TRANSACTIONS: the id's former transaction is not complete; the client asks again."""


@dataclass(frozen=True, slots=True)
class LateEnd:
    """An EndTxn(commit) that is still under way after its sender has given up on the reply."""

    transactional_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class LateOffsets:
    """A TxnOffsetCommit that is still under way. It bears its producer's epoch and nothing of the transaction it was
    meant for, so it can enter the same producer's next one if that has offsets of the group too (KIP-890).
    """

    transactional_id: str
    epoch: int
    group: str
    offsets: Mapping[Slot, OffsetAndMetadata]


class TransactionState(Enum):
    OPEN = "open"
    PREPARED_COMMIT = "prepared to commit"
    PREPARED_ABORT = "prepared to abort"


@dataclass(slots=True)
class Transaction:
    """What one transactional id has under way."""

    transactional_id: str
    times_out_at: float
    state: TransactionState = TransactionState.OPEN
    complete_at: float | None = None  # None while prepared: only when told
    logs: list[PartitionLog] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)  # those with offsets in it


@dataclass(slots=True)
class _Identity:
    epoch: int = -1
    current: Transaction | None = None


class Coordinator:
    """All transactional ids of a broker.

    Args:
        now: the monotonic clock.
        marker_delay: seconds from prepared to complete; None: a transaction is complete only when `complete` is called.
    """

    def __init__(
        self, groups: Groups, now: Callable[[], float], timeout: float, marker_delay: float | None
    ) -> None:
        self._groups, self._now = groups, now
        self._timeout, self.marker_delay = timeout, marker_delay
        self.forgets: Callable[[Transaction], bool] = lambda _: False
        """Asked for each partition and group of a transaction that becomes complete: whether its marker is left out, as
        Kafka does where a partition has no leader at that moment (KAFKA-20734, docs/adr/0007)."""
        self.forgets_offsets: Callable[[Transaction], bool] = lambda transaction: self.forgets(transaction)
        """For groups, where that is to be told apart."""
        self._ids: dict[str, _Identity] = {}

    def init(self, transactional_id: str) -> int:
        """The epoch of a new producer of this id. Fences the former one and begins to abort what it left open; raises
        Concurrent until that, or a transaction that was prepared, is complete.
        """
        identity = self._ids.setdefault(transactional_id, _Identity())
        if identity.current is not None and identity.current.state is TransactionState.OPEN:
            identity.epoch += 1
            self._prepare(identity.current, commit=False)
        if identity.current is not None:
            raise Concurrent
        identity.epoch += 1
        return identity.epoch

    def check(self, transactional_id: str, epoch: int) -> None:
        """Raises Fenced unless `epoch` is the newest of this id."""
        identity = self._ids.get(transactional_id)
        if identity is None or identity.epoch != epoch:
            raise Fenced(
                f"a newer producer of transactional id {transactional_id} exists, or the broker has given this one up",
                remedy="stop this process: another one acts in its place",
            )

    def append(
        self, transactional_id: str, epoch: int, log: PartitionLog, draft: Draft, timestamp_ms: int
    ) -> None:
        """Raises Fenced, Concurrent."""
        transaction = self._joined(transactional_id, epoch)
        if log not in transaction.logs:
            transaction.logs.append(log)
        log.append(draft, timestamp_ms, transactional_id)

    def send_offsets(
        self, transactional_id: str, epoch: int, group: str, offsets: Mapping[Slot, OffsetAndMetadata]
    ) -> None:
        """Raises Fenced, Concurrent."""
        self.add_offsets(transactional_id, epoch, group)
        self._groups.hold(group, offsets, transactional_id)

    def add_offsets(self, transactional_id: str, epoch: int, group: str) -> None:
        """AddOffsetsToTxn: a group becomes part of the transaction. Raises Fenced, Concurrent."""
        transaction = self._joined(transactional_id, epoch)
        if group not in transaction.groups:
            transaction.groups.append(group)

    def land(self, request: LateEnd | LateOffsets) -> bool:
        """A late request arrives. Returns whether it was accepted: its epoch must be the newest, and the transaction
        that is open now, whichever that is, must fit it.
        """
        identity = self._ids[request.transactional_id]
        transaction = identity.current
        if (
            identity.epoch != request.epoch
            or transaction is None
            or transaction.state is not TransactionState.OPEN
        ):
            return False
        if isinstance(request, LateEnd):
            self._prepare(transaction, commit=True)
        elif request.group not in transaction.groups:
            return False
        else:
            self.send_offsets(request.transactional_id, request.epoch, request.group, request.offsets)
        return True

    def end(self, transactional_id: str, epoch: int, *, commit: bool) -> None:
        """EndTxn: the transaction is prepared from now on, and complete after the marker delay. Raises Fenced."""
        self.check(transactional_id, epoch)
        transaction = self._ids[transactional_id].current
        if transaction is not None and transaction.state is TransactionState.OPEN:
            self._prepare(transaction, commit=commit)

    def complete(self, transactional_id: str) -> None:
        """Write the markers of a prepared transaction: now its records and offsets are there, or gone. Where `forgets`
        says so they are not written, and the transaction is complete all the same.
        """
        identity = self._ids[transactional_id]
        transaction = identity.current
        if transaction is None or transaction.state is TransactionState.OPEN:
            raise ValueError(f"transactional id {transactional_id} has nothing prepared")
        committed = transaction.state is TransactionState.PREPARED_COMMIT
        outcome = Outcome.COMMITTED if committed else Outcome.ABORTED
        for log in transaction.logs:
            if self.forgets(transaction):
                log.forget(transactional_id, outcome)
            else:
                log.mark(transactional_id, outcome)
        for group in transaction.groups:
            if not self.forgets_offsets(transaction):
                self._groups.mark(group, transactional_id, commit=committed)
        identity.current = None

    def settle(self) -> None:
        """Do what time has brought: abort transactions that timed out, complete those whose markers are due."""
        now = self._now()
        for identity in self._ids.values():
            transaction = identity.current
            if transaction is None:
                continue
            if transaction.state is TransactionState.OPEN and transaction.times_out_at <= now:
                identity.epoch += 1  # the broker fences the producer whose transaction it aborts
                self._prepare(transaction, commit=False)
            elif transaction.complete_at is not None and transaction.complete_at <= now:
                self.complete(transaction.transactional_id)

    def open_transaction(self, transactional_id: str) -> Transaction | None:
        identity = self._ids.get(transactional_id)
        return identity.current if identity else None

    def prepared(self) -> list[str]:
        """Ids with a transaction that is ended and not complete, in the order of the ids' first use."""
        return [t for t, i in self._ids.items() if i.current and i.current.state is not TransactionState.OPEN]

    def _joined(self, transactional_id: str, epoch: int) -> Transaction:
        """The id's open transaction, begun if need be."""
        self.check(transactional_id, epoch)
        identity = self._ids[transactional_id]
        if identity.current is None:
            identity.current = Transaction(transactional_id, self._now() + self._timeout)
        elif identity.current.state is not TransactionState.OPEN:
            raise Concurrent
        return identity.current

    def _prepare(self, transaction: Transaction, *, commit: bool) -> None:
        transaction.state = TransactionState.PREPARED_COMMIT if commit else TransactionState.PREPARED_ABORT
        if self.marker_delay == 0:
            self.complete(transaction.transactional_id)
        elif self.marker_delay is not None:
            transaction.complete_at = self._now() + self.marker_delay
