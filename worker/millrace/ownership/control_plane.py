"""The control plane at work: carries out what `control_rules` decide, over connectivity's ports (R4-R6).

The operator and the parent of a local run each call `reconcile` again and again, tell it how many workers are wanted
and which there are, and do what the returned step says about workers; everything that touches claims and epochs is
done in here. Any number of control planes may run at once, and any may die at any moment: what they do is ordered by
the fence of the id they act as, and by the compare-and-set of the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal

from millrace.clock import Clock, Deadline
from millrace.connectivity.ports import (
    Admin,
    BrokerUnreachable,
    Cluster,
    DeliveryFailed,
    Fenced,
    OffsetAndMetadata,
    OutcomeUnknown,
    TimedOut,
    TopicMissing,
    TransactionAborted,
    TransactionalProducer,
    Unstable,
)
from millrace.ownership.claim import OP, Claim, transactional_id
from millrace.ownership.control_rules import (
    Advance,
    Fleet,
    Identity,
    Pass,
    Records,
    Standing,
    Step,
    examine,
    next_step,
    own_claim,
    passes,
    standing,
)
from millrace.ownership.epoch import Epoch
from millrace.ownership.epoch_store import EpochConflict, EpochStore, Published
from millrace.ownership.errors import ClaimLost, ForeignClaim
from millrace.ownership.hanging import end_hanging

StartFrom = Literal["Earliest", "Latest"] | int
"""Where a new pipeline begins; a number is a time in milliseconds since the Unix epoch."""

RENEW_PARKED = 24 * 3600.0
"""Seconds after which parked claims are written again, so that they never expire (offsets.retention: 7 days)."""


class Why(Enum):
    """What an offset was seeded from."""

    START_FROM = "what spec.source.startFrom says"
    GROUP = "the consumer group's own offset"
    BEGINNING = "partition added later: its beginning"
    ADOPTED = "the parked claim of an earlier pipeline"


@dataclass(frozen=True, slots=True)
class Seeded:
    """A partition got its first claim, or its first one under this uid."""

    partition: int
    offset: int
    holder: int
    why: Why


@dataclass(frozen=True, slots=True)
class Passed:
    """A claim was passed on behalf of a worker that is gone, or from OP."""

    partition: int
    offset: int
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class EpochPublished:
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Something was not done: another control plane acted as the same id, the outcome of a write is unknown, or the
    broker did not answer in time. Nothing is wrong; the next reconcile begins again.
    """

    reason: str


Event = Seeded | Passed | EpochPublished | Interrupted


@dataclass(frozen=True, slots=True)
class Observation:
    """What a look at the broker and the store gives. Not stable: good for status and for deciding what to try."""

    published: Published
    identity: Identity
    partitions: int
    claims: Records
    mirror: Records

    @property
    def epoch(self) -> Epoch:
        return self.published.epoch


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What a reconcile did, and the step that is next: its caller's if it is about workers."""

    epoch: Epoch
    step: Step
    events: tuple[Event, ...]


class _Again(Exception):
    """A write was given up; whatever is needed is seen at the next reconcile."""


class ControlPlane:
    """Seeds and passes claims and publishes epochs for one pipeline. Not thread-safe.

    Args:
        start_from: for partitions of a new pipeline for which `group` has no offset.
        timeout: seconds that a reconcile may wait for the broker in all.
    """

    def __init__(
        self,
        cluster: Cluster,
        store: EpochStore,
        clock: Clock,
        *,
        uid: str,
        topic: str,
        group: str,
        claims_group: str,
        start_from: StartFrom = "Earliest",
        timeout: float = 30.0,
    ) -> None:
        self._cluster, self._store, self._clock = cluster, store, clock
        self._identity = Identity(uid, topic, "", group, claims_group)
        self._start_from, self._timeout = start_from, timeout
        self._renewed = clock.monotonic()
        self._admin: Admin = cluster.admin()

    def open(self) -> Epoch:
        """Publish epoch 0 if nothing is published yet (before any worker starts). Returns what is published."""
        return self._published().epoch

    def observe(self) -> Observation:
        """Look without touching. Raises TopicMissing and what the admin client raises."""
        return self._observe(Deadline.after(self._clock, self._timeout))

    def reconcile(self, replicas: int, fleet: Fleet) -> Reconciled:
        """Do what is to be done about claims and epochs, and say which step is next.

        Raises ClaimLost, ForeignClaim: the pipeline is stalled until somebody decides (R6). TopicMissing. Failures
        that pass by themselves are reported as `Interrupted`, except by the look at the broker that comes first:
        that raises TimedOut or BrokerUnreachable.
        """
        deadline = Deadline.after(self._clock, self._timeout)
        seen = self._observe(deadline)
        events: list[Event] = []
        try:
            self._examine(seen, deadline)
            for todo in passes(seen.identity, seen.epoch, seen.claims, fleet):
                events += self._pass(seen, todo, deadline)
            self._renew_parked(seen, deadline)
            if events:
                seen = self._observe(deadline)
            step = _next(seen, replicas, fleet)
            if isinstance(step, Advance):
                events += self._advance(seen, step, deadline)
                seen = self._observe(deadline)
        except _Again as reason:
            events.append(Interrupted(str(reason)))
        except (TimedOut, BrokerUnreachable) as failure:
            events.append(Interrupted(failure.what))
        return Reconciled(seen.epoch, _next(seen, replicas, fleet), tuple(events))

    def close(self) -> None:
        self._admin.close()

    def _published(self) -> Published:
        published = self._store.read()
        while published is None:
            try:
                published = self._store.publish(Epoch.first(self._identity.uid), None)
            except EpochConflict:
                published = self._store.read()
        return published

    def _observe(self, deadline: Deadline) -> Observation:
        published = self._published()  # before the claims: what it calls seeded must be found among them
        topic = self._identity.topic
        described = self._admin.describe_topic(topic, deadline.remaining())
        if described is None:
            raise TopicMissing(
                f"topic {topic} does not exist",
                where="spec.source.topic",
                remedy="create it, or add spec.source.create to have it created",
            )
        identity = replace(self._identity, topic_id=described.id)
        partitions = range(max(described.partitions, published.epoch.partitions))
        claims = self._read(identity.claims_group, partitions, deadline)
        mirror = self._read(identity.group, partitions, deadline)
        return Observation(published, identity, described.partitions, claims, mirror)

    def _examine(self, seen: Observation, deadline: Deadline) -> None:
        """R6. What looks lost may be a seed whose transaction is committed and not complete: only a stable read tells."""
        try:
            examine(seen.identity, seen.epoch, seen.claims, seen.mirror)
        except (ClaimLost, ForeignClaim):
            claims = self._read(
                seen.identity.claims_group, range(seen.epoch.partitions), deadline, stable=True
            )
            examine(seen.identity, seen.epoch, {**seen.claims, **claims}, seen.mirror)

    def _read(
        self, group: str, partitions: Iterable[int], deadline: Deadline, *, stable: bool = False
    ) -> Records:
        """Stable: R2, waits until no transaction is pending on these partitions."""
        while True:
            try:
                return self._admin.group_offsets(
                    group, self._identity.topic, partitions, deadline.remaining(), stable=stable
                )
            except Unstable as pending:
                if deadline.expired():
                    raise _Again(f"a transaction on group {group} stays pending: {pending.what}") from pending
                self._clock.sleep(min(0.05, deadline.remaining()))

    def _advance(self, seen: Observation, step: Advance, deadline: Deadline) -> list[Event]:
        events: list[Event] = []
        adopted = self._adoptable(seen, step.seed)
        for uid, partitions in sorted(adopted.items()):
            events += self._adopt(seen, step.epoch, uid, partitions, deadline)
        fresh = [p for p in step.seed if not any(p in partitions for partitions in adopted.values())]
        if fresh:
            events += self._seed(seen, step.epoch, fresh, deadline)
        try:
            self._store.publish(step.epoch, seen.published.version)
        except EpochConflict as conflict:
            raise _Again(conflict.what) from conflict
        return [*events, EpochPublished(step.epoch)]

    def _seed(
        self, seen: Observation, epoch: Epoch, partitions: list[int], deadline: Deadline
    ) -> list[Event]:
        """R4: only where a stable read, done as OP, finds nothing."""
        with _Acting(self, seen.identity, OP, deadline) as acting:
            claims = self._read(seen.identity.claims_group, partitions, deadline, stable=True)
            absent = [p for p in partitions if p not in claims]
            starts = self._starts(seen, absent, deadline)
            records = {
                p: OffsetAndMetadata(offset, self._claim(seen, epoch, epoch.owner(p)))
                for p, (offset, _) in starts.items()
            }
            acting.write(records)
        return [Seeded(p, offset, epoch.owner(p), why) for p, (offset, why) in starts.items()]

    def _starts(
        self, seen: Observation, partitions: list[int], deadline: Deadline
    ) -> Mapping[int, tuple[int, Why]]:
        """Where each partition begins, and why."""
        topic = seen.identity.topic
        new_pipeline = seen.epoch.partitions == 0
        found: dict[int, tuple[int, Why]] = {}
        if new_pipeline:
            stable = self._read(seen.identity.group, partitions, deadline, stable=True)
            found = {p: (record.offset, Why.GROUP) for p, record in stable.items()}
        rest = [p for p in partitions if p not in found]
        if not rest:
            return found
        if not new_pipeline or self._start_from in ("Earliest", "Latest"):
            spans = self._admin.spans(topic, rest, deadline.remaining())
            latest = new_pipeline and self._start_from == "Latest"
            why = Why.START_FROM if new_pipeline else Why.BEGINNING
            found |= {p: (spans[p].end if latest else spans[p].beginning, why) for p in rest}
        else:
            at = self._admin.offsets_at(topic, rest, int(self._start_from), deadline.remaining())
            found |= {p: (at[p], Why.START_FROM) for p in rest}
        return dict(sorted(found.items()))

    def _adoptable(self, seen: Observation, partitions: Iterable[int]) -> dict[str, list[int]]:
        """Partitions whose claim is parked with the control plane of another uid, by that uid."""
        found: dict[str, list[int]] = {}
        for p in partitions:
            record = seen.claims.get(p)
            claim = Claim.decode(record.metadata) if record else None
            if claim and standing(seen.identity, record) is Standing.ADOPTABLE:
                found.setdefault(claim.uid, []).append(p)
        return found

    def _adopt(
        self, seen: Observation, epoch: Epoch, uid: str, partitions: list[int], deadline: Deadline
    ) -> list[Event]:
        """R6: parked claims of another uid become ours. Written as the OP of that uid (R1), which fences its control
        plane if that is still there.
        """
        theirs = replace(seen.identity, uid=uid)
        with _Acting(self, theirs, OP, deadline) as acting:
            claims = self._read(theirs.claims_group, partitions, deadline, stable=True)
            parked = {p: r for p, r in claims.items() if (c := own_claim(theirs, r)) and c.holder == OP}
            acting.write(
                {
                    p: OffsetAndMetadata(
                        r.offset, self._claim(seen, epoch, epoch.owner(p), own_claim(theirs, r))
                    )
                    for p, r in parked.items()
                }
            )
        return [Seeded(p, r.offset, epoch.owner(p), Why.ADOPTED) for p, r in sorted(parked.items())]

    def _pass(self, seen: Observation, todo: Pass, deadline: Deadline) -> list[Event]:
        """R5: as the holder, after a stable read, only what still names it."""
        events: list[Event] = []
        with _Acting(self, seen.identity, todo.holder, deadline) as acting:
            acting.end_hanging(self._admin, {p: seen.claims[p] for p in todo.targets})
            claims = self._read(seen.identity.claims_group, todo.targets, deadline, stable=True)
            records = {}
            for p, target in sorted(todo.targets.items()):
                claim = own_claim(seen.identity, claims.get(p))
                if claim and claim.holder == todo.holder and claim.epoch <= seen.epoch.number:
                    passed = self._claim(seen, seen.epoch, target, claim)
                    records[p] = OffsetAndMetadata(claims[p].offset, passed)
                    events.append(Passed(p, claims[p].offset, todo.holder, target))
            acting.write(records)
        return events

    def _renew_parked(self, seen: Observation, deadline: Deadline) -> None:
        if seen.epoch.replicas or self._clock.monotonic() - self._renewed < RENEW_PARKED:
            return
        with _Acting(self, seen.identity, OP, deadline) as acting:
            claims = self._read(
                seen.identity.claims_group, range(seen.epoch.partitions), deadline, stable=True
            )
            acting.write(
                {p: r for p, r in claims.items() if (c := own_claim(seen.identity, r)) and c.holder == OP}
            )
        self._renewed = self._clock.monotonic()

    def _claim(self, seen: Observation, epoch: Epoch, holder: int, before: Claim | None = None) -> str:
        """`before`: the claim that this one follows, at the same offset."""
        note = before.note if before else None
        return Claim(seen.identity.uid, seen.identity.topic_id, epoch.number, holder, note).encode()

    def _producer(self, uid: str, holder: int) -> TransactionalProducer:
        return self._cluster.transactional_producer(transactional_id(uid, holder))


def _next(seen: Observation, replicas: int, fleet: Fleet) -> Step:
    return next_step(
        seen.identity, seen.epoch, seen.claims, replicas=replicas, partitions=seen.partitions, fleet=fleet
    )


class _Acting:
    """R1, as a with statement: init first; what is read and written inside is done as the holder."""

    def __init__(self, plane: ControlPlane, identity: Identity, holder: int, deadline: Deadline) -> None:
        self._identity, self._deadline = identity, deadline
        self._producer = plane._producer(identity.uid, holder)
        self._who = transactional_id(identity.uid, holder)

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

    def end_hanging(self, admin: Admin, records: Records) -> None:
        """`records`: the claims that name the holder."""
        group, topic = self._identity.claims_group, self._identity.topic
        end_hanging(
            records, group=group, topic=topic, producer=self._producer, admin=admin, deadline=self._deadline
        )

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
            raise _Again(f"acting as {self._who} was interrupted: {error.what}") from error
