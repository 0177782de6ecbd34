"""What the control plane has to do (R4-R6), decided from what it sees. Pure.

The operator and the parent of a local run both follow these, so that there is one place where it is decided who may
be acted for, what is written as whom, and in which order a change of the number of replicas happens.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from millrace.connectivity.ports import OffsetAndMetadata
from millrace.ownership.claim import OP, Claim
from millrace.ownership.epoch import Epoch
from millrace.ownership.errors import ClaimLost, ForeignClaim

Records = Mapping[int, OffsetAndMetadata]
"""Committed offsets of a group, by partition."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose claims are meant. `group` is the user's consumer group, the mirror of the claims."""

    uid: str
    topic: str
    topic_id: str
    group: str
    claims_group: str


class Standing(Enum):
    """What a committed record of the claims' group is to a pipeline."""

    ABSENT = "absent"
    OURS = "ours"
    ADOPTABLE = (
        "adoptable"  # parked with the control plane of another uid: a pipeline that was suspended and deleted
    )
    FOREIGN = "foreign"


def standing(identity: Identity, record: OffsetAndMetadata | None) -> Standing:
    """How a record stands to us. Metadata that is no claim is foreign: somebody else wrote it."""
    if record is None:
        return Standing.ABSENT
    claim = Claim.decode(record.metadata)
    if claim is None or claim.topic_id != identity.topic_id:
        return Standing.FOREIGN
    if claim.uid == identity.uid:
        return Standing.OURS
    return Standing.ADOPTABLE if claim.holder == OP else Standing.FOREIGN


def own_claim(identity: Identity, record: OffsetAndMetadata | None) -> Claim | None:
    """The claim in a record, if it is ours."""
    if record is None or standing(identity, record) is not Standing.OURS:
        return None
    return Claim.decode(record.metadata)


def examine(identity: Identity, epoch: Epoch, claims: Records, mirror: Records) -> None:
    """R6: nothing is done for a pipeline whose claims are not as the protocol leaves them.

    Raises ForeignClaim, ClaimLost. `mirror` is what the last known offsets are taken from.
    """
    foreign = {
        p: _whose(identity, record)
        for p, record in claims.items()
        if standing(identity, record) is Standing.FOREIGN
        or (p < epoch.partitions and standing(identity, record) is Standing.ADOPTABLE)
    }
    if foreign:
        known = {p: claims[p].offset for p in foreign}
        raise ForeignClaim(identity.topic, identity.group, identity.claims_group, foreign, known)
    lost = [p for p in range(epoch.partitions) if p not in claims]
    if lost:
        known = {p: mirror[p].offset for p in lost if p in mirror}
        raise ClaimLost(identity.topic, identity.group, identity.claims_group, lost, known)


def _whose(identity: Identity, record: OffsetAndMetadata) -> str:
    claim = Claim.decode(record.metadata)
    if claim is None:
        return f"metadata that is no claim, {(record.metadata or '')[:40]!r}"
    if claim.topic_id != identity.topic_id:
        return f"pipeline {claim.uid}, for an earlier topic of this name (id {claim.topic_id})"
    return f"pipeline {claim.uid}"


@dataclass(frozen=True, slots=True)
class Fleet:
    """The workers, as whoever runs them sees them.

    Attributes:
        scale: how many are asked for (a StatefulSet's spec.replicas); indices below it are started again when they
            end, so that no index below it is ever gone.
        running: indices that have a process or a pod, whatever its state.
        ready: of those, the ones that have read an epoch, initialised their producer and reached the broker.
        overdue: indices that may be acted for although they are below `scale` or running: a crash loop over its
            deadline, a lost node. They may well be alive: the fence makes it safe.
    """

    scale: int
    running: frozenset[int] = frozenset()
    ready: frozenset[int] = frozenset()
    overdue: frozenset[int] = frozenset()

    def gone(self, index: int) -> bool:
        """Whether the control plane may act for this index (R5)."""
        return index in self.overdue or (index >= self.scale and index not in self.running)


@dataclass(frozen=True, slots=True)
class Pass:
    """Claims to be passed on behalf of a holder: each partition to its planned owner, in the epoch published."""

    holder: int
    targets: Mapping[int, int]


def passes(identity: Identity, epoch: Epoch, claims: Records, fleet: Fleet) -> tuple[Pass, ...]:
    """R5: what the control plane passes on, for OP and for the indices that are gone, by holder.

    A claim of an epoch newer than `epoch` is left alone, as by workers: we look at the world with an old plan.
    """
    by_holder: dict[int, dict[int, int]] = {}
    for partition in range(epoch.partitions):
        claim = own_claim(identity, claims.get(partition))
        if claim is None or claim.epoch > epoch.number:
            continue
        if claim.holder != OP and not fleet.gone(claim.holder):
            continue
        owner = epoch.owner(partition)
        if owner != claim.holder:
            by_holder.setdefault(claim.holder, {})[partition] = owner
    return tuple(Pass(holder, targets) for holder, targets in sorted(by_holder.items()))


def next_number(epoch: Epoch, claims: Records) -> int:
    """The number of the next epoch: above all that were ever published or written into a claim, so that even an
    epoch file put back from a copy can't make numbers start again.
    """
    seen = (Claim.decode(record.metadata) for record in claims.values())
    return max([epoch.number, *(claim.epoch for claim in seen if claim)]) + 1


def unseeded(identity: Identity, claims: Records, partitions: int) -> tuple[int, ...]:
    """Partitions of the topic that have no claim of ours yet: absent, or to be adopted from another uid's OP."""
    wanted = (Standing.ABSENT, Standing.ADOPTABLE)
    return tuple(p for p in range(partitions) if standing(identity, claims.get(p)) in wanted)


@dataclass(frozen=True, slots=True)
class Scale:
    """Step: run this many workers (start those above what runs, or let those above it end)."""

    replicas: int


@dataclass(frozen=True, slots=True)
class AwaitReady:
    """Step: wait until these new workers are ready."""

    indices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Advance:
    """Step: seed these partitions for this epoch, then publish it."""

    epoch: Epoch
    seed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AwaitPassing:
    """Step: wait until no claim names a worker that is to leave. Each partition with its holder."""

    holders: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Settled:
    """Step: nothing to do; the epoch, the topic and the workers are as they should be."""


Step = Scale | AwaitReady | Advance | AwaitPassing | Settled


def next_step(
    identity: Identity, epoch: Epoch, claims: Records, *, replicas: int, partitions: int, fleet: Fleet
) -> Step:
    """R4: the next thing to do on the way to `replicas` workers on a topic of `partitions` partitions.

    Growing: first the workers, then, when the new ones are ready, seeds and the epoch. Shrinking: first the epoch,
    then, when no claim names a leaving worker (or it is overdue), the workers. To be asked again after each step.
    An epoch that is behind its claims (an old copy was put back) is published anew, or nobody would act on them.
    """
    current = (epoch.replicas, epoch.partitions) == (replicas, partitions) and epoch.number > 0
    if current and next_number(epoch, claims) == epoch.number + 1:
        return _follow(identity, epoch, claims, fleet)
    if fleet.scale < replicas:
        return Scale(replicas)
    waiting = tuple(i for i in range(epoch.replicas, replicas) if i not in fleet.ready)
    if waiting:
        return AwaitReady(waiting)
    ever = max(epoch.replicas_ever, replicas)
    upcoming = Epoch(identity.uid, next_number(epoch, claims), partitions, replicas, ever)
    return Advance(upcoming, unseeded(identity, claims, partitions))


def _follow(identity: Identity, epoch: Epoch, claims: Records, fleet: Fleet) -> Step:
    if fleet.scale < epoch.replicas:
        return Scale(epoch.replicas)
    if fleet.scale == epoch.replicas:
        return Settled()
    holders = _held_by(identity, claims, range(epoch.replicas, fleet.scale), fleet.overdue)
    return AwaitPassing(holders) if holders else Scale(epoch.replicas)


def _held_by(
    identity: Identity, claims: Records, indices: Collection[int], excused: Collection[int]
) -> dict[int, int]:
    found: dict[int, int] = {}
    for partition, record in sorted(claims.items()):
        claim = own_claim(identity, record)
        if claim and claim.holder in indices and claim.holder not in excused:
            found[partition] = claim.holder
    return found


def holders(identity: Identity, claims: Records, partitions: Iterable[int]) -> dict[int, int | None]:
    """Who holds each partition, for status: an index, OP, or None where there is no claim of ours."""
    found = {p: own_claim(identity, claims.get(p)) for p in partitions}
    return {p: claim.holder if claim else None for p, claim in found.items()}
