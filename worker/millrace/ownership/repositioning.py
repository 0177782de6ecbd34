"""Setting claimed offsets by hand (R6, R7): what would change, and as whom each claim is to be written. Pure.

Everywhere else claimed offsets only move forward (invariant 3). Here they go where a person says, while nothing runs: a
reset gives claims that are as they should be another offset; a repair writes claims anew that are lost or foreign.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from millrace.connectivity.ports import OffsetAndMetadata, Span
from millrace.errors import ExitCode, MillraceError
from millrace.ownership.claim import OP, Claim
from millrace.ownership.control_rules import Identity, Records, Standing, own_claim, standing
from millrace.ownership.epoch import Epoch
from millrace.ownership.errors import shorten


class To(Enum):
    """Where to, for all partitions alike: the log's first offset, its end, or what the user's group has (the mirror)."""

    EARLIEST = "earliest"
    LATEST = "latest"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class ToOffset:
    offset: int


@dataclass(frozen=True, slots=True)
class ToTime:
    """The first message at or after this time, in milliseconds since the Unix epoch."""

    timestamp_ms: int


Position = To | ToOffset | ToTime


@dataclass(frozen=True, slots=True)
class Writer:
    """As whom a claim is written: the holder that it names, of the pipeline that it names (R1)."""

    uid: str
    holder: int


class Damage(Enum):
    """Why a claim can't be worked with."""

    LOST = "lost"
    FOREIGN = "another pipeline's"
    TOPIC = "of an earlier topic of this name"
    NO_CLAIM = "text that is no claim"


@dataclass(frozen=True, slots=True)
class Change:
    """One claim to be written.

    Attributes:
        before: the offset claimed, or beside a foreign claim; None where there is none, or where it is of another topic.
        after: the offset to be claimed.
        claim: to be written beside it.
        damage: what is repaired by it; None: nothing, it is a reset.
    """

    partition: int
    writer: Writer
    before: int | None
    after: int
    claim: Claim
    damage: Damage | None = None

    @property
    def record(self) -> OffsetAndMetadata:
        return OffsetAndMetadata(self.after, self.claim.encode())


class OutsideLog(MillraceError):
    """An offset that was asked for is not in the log, so that nobody could begin there."""

    code = ExitCode.OFFSET_GONE


class NoPosition(MillraceError):
    """The user's group has no offset for a partition that is to begin where it says."""

    code = ExitCode.USAGE


def check(
    topic: str, group: str, partitions: Iterable[int], targets: Mapping[int, int], spans: Mapping[int, Span]
) -> None:
    """That there is an offset for each partition, and that it is one to begin at. Raises NoPosition, OutsideLog."""
    missing = [p for p in partitions if p not in targets]
    if missing:
        raise NoPosition(
            f"group {group} has no offset for partitions {shorten(missing)} of {topic}",
            where=f"group {group}, topic {topic}",
            remedy=f"say where these are to begin: --partitions {shorten(missing).replace(' ', '')} --to earliest (or latest, "
            "an offset, a time); the others with --partitions and --from-group",
        )
    outside = [p for p, at in sorted(targets.items()) if not spans[p].beginning <= at <= spans[p].end]
    if outside:
        told = "; ".join(
            f"{p}: {targets[p]} is not in {spans[p].beginning} to {spans[p].end}" for p in outside[:10]
        )
        raise OutsideLog(
            f"partitions {shorten(outside)} of {topic} have no such offset",
            where=f"topic {topic}, {told}{', ...' if len(outside) > 10 else ''}",
            remedy="give an offset that is in the log, or --to earliest or latest; --partitions says for which partitions",
        )


def damaged(
    identity: Identity, epoch: Epoch, claims: Records, partitions: Iterable[int]
) -> dict[int, Damage]:
    """Partitions whose claims are lost or foreign (as `control_rules.examine` judges), and how."""
    found: dict[int, Damage] = {}
    for p in partitions:
        stands = standing(identity, claims.get(p))
        if stands is Standing.ABSENT and p < epoch.partitions:
            found[p] = Damage.LOST
        elif stands is Standing.FOREIGN or (stands is Standing.ADOPTABLE and p < epoch.partitions):
            found[p] = _how(identity, Claim.decode(claims[p].metadata))
    return found


def resets(identity: Identity, claims: Records, targets: Mapping[int, int]) -> tuple[Change, ...]:
    """Holder, epoch and note stay. The note says what was promised to readers of the channel so far: that stays
    promised, wherever the offset goes.
    """
    found = []
    for p, offset in sorted(targets.items()):
        claim = own_claim(identity, claims.get(p))
        if claim is not None and claims[p].offset != offset:
            writer = Writer(claim.uid, claim.holder)
            found.append(Change(p, writer, claims[p].offset, offset, claim))
    return tuple(found)


def repairs(
    identity: Identity, epoch: Epoch, claims: Records, targets: Mapping[int, int]
) -> tuple[Change, ...]:
    """New claims are parked with the control plane, which passes them to their planned owners. A foreign claim is written
    over as whoever it names, which fences that one; nothing is known of whose an absent one was.
    """
    found = []
    for p, damage in damaged(identity, epoch, claims, sorted(targets)).items():
        record = claims.get(p)
        former = Claim.decode(record.metadata) if record else None
        writer = Writer(former.uid, former.holder) if former else Writer(identity.uid, OP)
        before = record.offset if record and damage is not Damage.TOPIC else None
        fresh = Claim(identity.uid, identity.topic_id, epoch.number, OP)
        found.append(Change(p, writer, before, targets[p], fresh, damage))
    return tuple(found)


def again(changes: Iterable[Change], mirror: Records, spans: Mapping[int, Span]) -> tuple[int, ...]:
    """Partitions of which messages will be processed that were processed before, or may have been. What was claimed is
    best known from the claim, else from the mirror; of messages of an earlier topic nothing is processed again.
    """
    found = []
    for change in changes:
        known = change.before
        if known is None and change.partition in mirror:
            known = mirror[change.partition].offset
        if change.damage is not Damage.TOPIC and change.after < (
            spans[change.partition].end if known is None else known
        ):
            found.append(change.partition)
    return tuple(found)


def of_writer(changes: Iterable[Change], writer: Writer) -> tuple[Change, ...]:
    return tuple(change for change in changes if change.writer == writer)


def _how(identity: Identity, claim: Claim | None) -> Damage:
    if claim is None:
        return Damage.NO_CLAIM
    return Damage.TOPIC if claim.topic_id != identity.topic_id else Damage.FOREIGN


def whose(identity: Identity, record: OffsetAndMetadata | None) -> str:
    """Whose claim a record is, for people; "" if it is ours or there is none."""
    if record is None or standing(identity, record) is Standing.OURS:
        return ""
    claim = Claim.decode(record.metadata)
    return "" if claim is None else claim.uid
