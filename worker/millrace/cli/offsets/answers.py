"""What `offsets` has found or done, as plain data: it is printed here, or told by a pod to whoever made that."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from millrace.local.view.figures import plural
from millrace.ownership.claim import Claim
from millrace.ownership.control_rules import Standing, own_claim, standing
from millrace.ownership.repositioning import Change, damaged, whose
from millrace.ownership.rewriting import Sight
from millrace_api import ConsumerPipeline

OURS = "ours"
_SOUND = {Standing.OURS: OURS, Standing.ADOPTABLE: "parked by a former pipeline"}
UNCLAIMED = "unclaimed"


class PartitionOffsets(msgspec.Struct, frozen=True, rename="camel"):
    """One partition. `holder` -1: parked; `difference`: what the consumer group's offset is ahead of the claim's (R7:
    it changes nothing). `standing`: ours, unclaimed (nothing has begun), or what is wrong; `uid`: whose it is, if not ours.
    """

    partition: int
    standing: str
    holder: int | None
    epoch: int | None
    offset: int | None
    group_offset: int | None
    difference: int | None
    beginning: int
    end: int
    lag: int | None
    uid: str | None = None


class Offsets(msgspec.Struct, frozen=True, rename="camel"):
    """How it stands. `running`: a run, or workers, may be at work."""

    topic: str
    topic_id: str
    group: str
    claims_group: str
    uid: str
    epoch: int
    running: bool
    partitions: tuple[PartitionOffsets, ...]

    @property
    def damaged(self) -> bool:
        sound = {*_SOUND.values(), UNCLAIMED}
        return any(row.standing not in sound for row in self.partitions)


class ChangedOffset(msgspec.Struct, frozen=True, rename="camel"):
    """`before`: the offset claimed until now, or None; `why`: what was wrong, None with a reset; `left`: what is in the log
    from there on.
    """

    partition: int
    before: int | None
    after: int
    difference: int | None
    holder: int
    why: str | None
    left: int


class Changes(msgspec.Struct, frozen=True, rename="camel"):
    """`consequences`: what will happen that does not happen otherwise, in sentences."""

    action: str
    dry_run: bool
    changes: tuple[ChangedOffset, ...]
    consequences: tuple[str, ...] = ()


def offsets_of(sight: Sight, *, running: bool) -> Offsets:
    identity = sight.identity
    return Offsets(
        identity.topic,
        identity.topic_id,
        identity.group,
        identity.claims_group,
        identity.uid,
        sight.epoch.number,
        running,
        tuple(_rows(sight)),
    )


def changes_of(
    action: str, found: Sequence[Change], sight: Sight, pipeline: ConsumerPipeline, *, dry_run: bool
) -> Changes:
    told = tuple(
        ChangedOffset(
            c.partition,
            c.before,
            c.after,
            c.after - c.before if c.before is not None else None,
            c.claim.holder,
            c.damage.value if c.damage else None,
            max(0, sight.spans[c.partition].end - c.after),
        )
        for c in found
    )
    return Changes(action, dry_run, told, tuple(_consequences(found, pipeline)))


def _rows(sight: Sight) -> list[PartitionOffsets]:
    identity = sight.identity
    bad = damaged(identity, sight.epoch, sight.claims, sight.spans)
    found = []
    for p, span in sorted(sight.spans.items()):
        record, mirror = sight.claims.get(p), sight.mirror.get(p)
        ours = own_claim(identity, record)
        claim = Claim.decode(record.metadata) if record else None
        stands = bad[p].value if p in bad else _SOUND.get(standing(identity, record), UNCLAIMED)
        at = record.offset if record else None
        known = mirror.offset if mirror else None
        found.append(
            PartitionOffsets(
                p,
                stands,
                claim.holder if claim else None,
                claim.epoch if claim else None,
                at,
                known,
                known - at if known is not None and at is not None else None,
                span.beginning,
                span.end,
                max(0, span.end - at) if ours and at is not None else None,
                whose(identity, record) or None,
            )
        )
    return found


def _consequences(found: Sequence[Change], pipeline: ConsumerPipeline) -> list[str]:
    """Figures are offsets, of which not each is a message."""
    back = sum(c.before - c.after for c in found if c.before is not None and c.after < c.before)
    on = sum(c.after - c.before for c in found if c.before is not None and c.after > c.before)
    unknown = [c.partition for c in found if c.before is None]
    lines = []
    if back:
        lines.append(
            f"up to {plural(back, 'message')} are processed again, and what they lead to is written again"
        )
    if on:
        lines.append(f"up to {plural(on, 'message')} are left out, and never processed")
    if unknown:
        lines.append(
            "messages below an offset set anew are not processed; those from there on are, perhaps again"
        )
    if (back or unknown) and any(stage.collect is not None for stage in pipeline.spec.stages):
        lines.append("the collector gets rows again that it has had: see docs/offsets.md")
    return lines
