"""What must hold at every write of a claim, and what the writes may never have done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from millrace.connectivity.memory.log import Fateful, Outcome
from millrace.connectivity.ports import OffsetAndMetadata
from millrace.engine.replica import Replica
from millrace.ownership.claim import Claim, transactional_id
from replica_stage import CLAIMS, GROUP, OUTPUT, SOURCE, Stage

Slot = tuple[str, int]


SWEPT = b"millrace"  # the key of a record that a sweep touches a partition with


class Violation(AssertionError):
    """An invariant does not hold."""


class Checks:
    """Watches every write of the claims' group, from inside the broker.

    Args:
        exactly_once: outputs have to be there exactly once when they are committed, not at least once.
        replicas: all replicas that live, zombies included.
    """

    def __init__(
        self, stage: Stage, *, exactly_once: bool, replicas: Callable[[], Iterable[Replica]]
    ) -> None:
        self._stage, self._exactly_once, self._replicas = stage, exactly_once, replicas
        self._completing: str | None = None  # the transactional id whose transaction is being completed
        self.writes = 0
        broker = stage.broker
        self._complete, self._write = broker.transactions.complete, broker.groups.write
        broker.transactions.complete = self._completed  # type: ignore[method-assign]
        broker.groups.write = self._written  # type: ignore[method-assign]

    def _completed(self, transactional: str) -> None:
        self._completing = transactional
        try:
            self._complete(transactional)
        finally:
            self._completing = None

    def _written(self, group: str, offsets: Mapping[Slot, OffsetAndMetadata]) -> None:
        if group == CLAIMS:
            self.writes += 1
            outputs = self._outputs()
            for (topic, partition), record in offsets.items():
                if topic != SOURCE:
                    continue  # a slot that a sweep touches the group with
                self._one(partition, self._stage.records().get(partition), record, outputs)
        self._write(group, offsets)
        self.at_most_one_can_commit()

    def _one(
        self,
        partition: int,
        before: OffsetAndMetadata | None,
        after: OffsetAndMetadata,
        outputs: Counter[tuple[int, int]],
    ) -> None:
        claim = Claim.decode(after.metadata)
        former = Claim.decode(before.metadata) if before else None
        if claim is None:
            raise Violation(f"partition {partition}: {after} is no claim")
        holder = former.holder if former else -1
        uid = former.uid if former else claim.uid
        if self._completing != transactional_id(uid, holder):
            raise Violation(
                f"R1: the claim of partition {partition} names {holder}, and was written by {self._completing}"
            )
        if former and claim.epoch < former.epoch:
            raise Violation(f"partition {partition}: epoch {former.epoch} was followed by {claim.epoch}")
        begin = before.offset if before else after.offset
        if after.offset < begin:
            raise Violation(f"BACK: the claim of partition {partition} went from {begin} to {after.offset}")
        for offset in range(begin, after.offset):
            times = outputs[partition, offset]
            if times == 0:
                raise Violation(f"LOSS: message {partition}:{offset} was committed and has no output")
            if times > 1 and self._exactly_once:
                raise Violation(f"DOUBLE: message {partition}:{offset} has {times} outputs")
        ahead = [
            offset
            for (p, offset), times in outputs.items()
            if p == partition and offset >= after.offset and times
        ]
        if self._exactly_once and ahead:
            raise Violation(f"DOUBLE: messages {partition}:{ahead} have outputs and are not committed")

    def _outputs(self) -> Counter[tuple[int, int]]:
        """What is committed, also what an unfinished transaction before it still hides from readers."""
        found: Counter[tuple[int, int]] = Counter()
        for log in self._stage.broker.topic(OUTPUT).logs:
            for entry in log._entries:
                if entry.record and entry.record.key() != SWEPT and _counts(entry.transaction):
                    partition, _, offset = (entry.record.value() or b"").partition(b":")
                    found[int(partition), int(offset)] += 1
        return found

    def _nothing_open(self) -> None:
        for log in self._stage.broker.topic(OUTPUT).logs:
            if log.stable_end != log.end:
                raise Violation(f"{OUTPUT}: from {log.stable_end} on something is open at the end")

    def at_most_one_can_commit(self) -> None:
        """Invariant 4: of those who hold a partition only one has a producer that is not fenced."""
        holders: dict[int, str] = {}
        coordinator = self._stage.broker.transactions
        for replica in self._replicas():
            session = replica._session
            if session is None:
                continue
            producer = session._producer
            identity = coordinator._ids.get(producer.transactional_id)
            if identity is None or identity.epoch != producer._epoch:  # type: ignore[attr-defined]
                continue
            name = producer._client_id  # type: ignore[attr-defined]
            for partition in session.holdings.committed:
                if partition in holders:
                    raise Violation(
                        f"TWO: {holders[partition]} and {name} can both commit partition {partition}"
                    )
                holders[partition] = name

    def at_the_end(self) -> None:
        """Every input accounted for, in the group and in the output; the mirror says the same."""
        stage = self._stage
        stage.broker.settle()
        self._nothing_open()
        outputs = self._outputs()
        for partition, log in enumerate(stage.source.logs):
            for offset in range(log.end):
                times = outputs[partition, offset]
                if times == 0 or (times > 1 and self._exactly_once):
                    raise Violation(f"message {partition}:{offset} has {times} outputs at the end")
        if stage.offsets() != stage.offsets(GROUP):
            raise Violation(f"the mirror says {stage.offsets(GROUP)}, the claims {stage.offsets()}")


def _counts(fate: Fateful | None) -> bool:
    """Whether a record is committed, or was said to be and is only open because its marker was forgotten."""
    if fate is None:
        return True
    return Outcome.COMMITTED in (fate.outcome, fate.promised if fate.outcome is Outcome.PENDING else None)
