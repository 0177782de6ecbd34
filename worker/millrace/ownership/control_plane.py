"""The control plane at work: carries out what `control_rules` decide, over connectivity's ports (R4-R6, R8).

The operator and the parent of a local run each call `reconcile` again and again, tell it how many workers are wanted
and which there are, and do what the returned step says about workers; everything that touches claims and epochs is
done in here. Any number of control planes may run at once, and any may die at any moment: what they do is ordered by
the fence of the id they act as, and by the compare-and-set of the epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millrace.clock import Clock, Deadline
from millrace.connectivity.ports import (
    BrokerUnreachable,
    Cluster,
    OffsetAndMetadata,
    TimedOut,
)
from millrace.ownership.abandoned import Abandoned
from millrace.ownership.acting import Acting, Again, Desk, claim_of
from millrace.ownership.claim import OP
from millrace.ownership.control_rules import (
    Advance,
    Fleet,
    Identity,
    Pass,
    Step,
    examine,
    next_step,
    own_claim,
    passes,
)
from millrace.ownership.epoch import Epoch
from millrace.ownership.epoch_store import EpochConflict, EpochStore, Published, published
from millrace.ownership.errors import ClaimLost, ForeignClaim
from millrace.ownership.reports import (
    EpochPublished,
    Event,
    Interrupted,
    Observation,
    Passed,
    Reconciled,
    Seeded,
    Why,
)
from millrace.ownership.seeding import StartFrom, give_first_claims
from millrace.ownership.topics import no_source

__all__ = [
    "RENEW_PARKED",
    "ControlPlane",
    "EpochPublished",
    "Event",
    "Interrupted",
    "Observation",
    "Passed",
    "Reconciled",
    "Seeded",
    "StartFrom",
    "Why",
]

RENEW_PARKED = 24 * 3600.0
"""Seconds after which parked claims are written again, so that they never expire (offsets.retention: 7 days)."""


class ControlPlane:
    """Seeds and passes claims and publishes epochs for one pipeline. Not thread-safe.

    Args:
        start_from: for partitions of a new pipeline for which `group` has no offset.
        outputs: all topics that the pipeline's workers write in transactions (`millrace_api.needed.transactional`).
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
        outputs: Sequence[str] = (),
        timeout: float = 30.0,
    ) -> None:
        self._store, self._clock = store, clock
        self._identity = Identity(uid, topic, "", group, claims_group)
        self._start_from, self._timeout = start_from, timeout
        self._renewed = clock.monotonic()
        self._desk = Desk(cluster, clock, tuple(outputs))
        self._abandoned = Abandoned(self._desk)

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
            self._sweep_for_the_gone(seen, fleet, deadline)
        except Again as reason:
            events.append(Interrupted(str(reason)))
        except (TimedOut, BrokerUnreachable) as failure:
            events.append(Interrupted(failure.what))
        return Reconciled(seen.epoch, _next(seen, replicas, fleet), tuple(events))

    def close(self) -> None:
        """Close the clients. It may go on later, with others; what it has in mind it keeps."""
        self._desk.close()

    def _published(self) -> Published:
        return published(self._store, self._identity.uid)

    def _observe(self, deadline: Deadline) -> Observation:
        shown = self._published()  # before the claims: what it calls seeded must be found among them
        desk, topic = self._desk, self._identity.topic
        described = desk.admin.describe_topic(topic, deadline.remaining())
        if described is None:
            raise no_source(topic)
        identity = replace(self._identity, topic_id=described.id)
        partitions = range(max(described.partitions, shown.epoch.partitions))
        claims = desk.read(identity.claims_group, topic, partitions, deadline)
        mirror = desk.read(identity.group, topic, partitions, deadline)
        return Observation(shown, identity, described.partitions, claims, mirror)

    def _examine(self, seen: Observation, deadline: Deadline) -> None:
        """R6. What looks lost may be a seed whose transaction is committed and not complete: only a stable read tells."""
        identity = seen.identity
        try:
            examine(identity, seen.epoch, seen.claims, seen.mirror)
        except (ClaimLost, ForeignClaim):
            partitions = range(seen.epoch.partitions)
            claims = self._desk.read(identity.claims_group, identity.topic, partitions, deadline, stable=True)
            examine(identity, seen.epoch, {**seen.claims, **claims}, seen.mirror)

    def _advance(self, seen: Observation, step: Advance, deadline: Deadline) -> list[Event]:
        events = give_first_claims(self._desk, seen, step.epoch, step.seed, self._start_from, deadline)
        try:
            self._store.publish(step.epoch, seen.published.version)
        except EpochConflict as conflict:
            raise Again(conflict.what) from conflict
        return [*events, EpochPublished(step.epoch)]

    def _pass(self, seen: Observation, todo: Pass, deadline: Deadline) -> list[Event]:
        """R5: as the holder, after a sweep (R8) and a stable read, only what still names it."""
        events: list[Event] = []
        identity = seen.identity
        with Acting(self._desk, identity, todo.holder, deadline) as acting:
            acting.sweep()
            claims = self._desk.read(
                identity.claims_group, identity.topic, todo.targets, deadline, stable=True
            )
            records = {}
            for p, target in sorted(todo.targets.items()):
                claim = own_claim(identity, claims.get(p))
                if claim and claim.holder == todo.holder and claim.epoch <= seen.epoch.number:
                    passed = claim_of(identity, seen.epoch, target, claim)
                    records[p] = OffsetAndMetadata(claims[p].offset, passed)
                    events.append(Passed(p, claims[p].offset, todo.holder, target))
            acting.write(records)
        return events

    def _renew_parked(self, seen: Observation, deadline: Deadline) -> None:
        if seen.epoch.replicas or self._clock.monotonic() - self._renewed < RENEW_PARKED:
            return
        identity, partitions = seen.identity, range(seen.epoch.partitions)
        with Acting(self._desk, identity, OP, deadline) as acting:
            claims = self._desk.read(identity.claims_group, identity.topic, partitions, deadline, stable=True)
            acting.write(
                {p: r for p, r in claims.items() if (c := own_claim(identity, r)) and c.holder == OP}
            )
        self._renewed = self._clock.monotonic()

    def _sweep_for_the_gone(self, seen: Observation, fleet: Fleet, deadline: Deadline) -> None:
        """R8, for indices that no claim names any more."""
        if not self._abandoned.due():
            return
        ever = range(seen.epoch.replicas_ever)
        for index in sorted(self._abandoned.look(seen.identity, ever, fleet.gone, deadline)):
            with Acting(self._desk, seen.identity, index, deadline) as acting:
                acting.sweep()


def _next(seen: Observation, replicas: int, fleet: Fleet) -> Step:
    return next_step(
        seen.identity, seen.epoch, seen.claims, replicas=replicas, partitions=seen.partitions, fleet=fleet
    )
