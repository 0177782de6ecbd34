"""Seeding (R4) and adopting (R6): how partitions get their first claim under a uid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal

from millrace.clock import Deadline
from millrace.connectivity.ports import OffsetAndMetadata
from millrace.ownership.acting import Acting, Desk, claim_of
from millrace.ownership.claim import OP, Claim
from millrace.ownership.control_rules import Standing, own_claim, standing
from millrace.ownership.epoch import Epoch
from millrace.ownership.reports import Event, Observation, Seeded, Why

StartFrom = Literal["Earliest", "Latest"] | int
"""Where a new pipeline begins; a number is a time in milliseconds since the Unix epoch."""


def give_first_claims(
    desk: Desk,
    seen: Observation,
    epoch: Epoch,
    partitions: Iterable[int],
    start_from: StartFrom,
    deadline: Deadline,
) -> list[Event]:
    """See that these partitions have claims of ours, with holder and number of the epoch to come."""
    events: list[Event] = []
    adopted = _adoptable(seen, partitions)
    for uid, theirs in sorted(adopted.items()):
        events += _adopt(desk, seen, epoch, uid, theirs, deadline)
    fresh = [p for p in partitions if not any(p in theirs for theirs in adopted.values())]
    if fresh:
        events += _seed(desk, seen, epoch, fresh, start_from, deadline)
    return events


def _seed(
    desk: Desk,
    seen: Observation,
    epoch: Epoch,
    partitions: list[int],
    start_from: StartFrom,
    deadline: Deadline,
) -> list[Event]:
    """R4: only where a stable read, done as OP, finds nothing."""
    identity = seen.identity
    with Acting(desk, identity, OP, deadline) as acting:
        claims = desk.read(identity.claims_group, identity.topic, partitions, deadline, stable=True)
        absent = [p for p in partitions if p not in claims]
        starts = _starts(desk, seen, absent, start_from, deadline)
        acting.write(
            {
                p: OffsetAndMetadata(offset, claim_of(identity, epoch, epoch.owner(p)))
                for p, (offset, _) in starts.items()
            }
        )
    return [Seeded(p, offset, epoch.owner(p), why) for p, (offset, why) in starts.items()]


def _starts(
    desk: Desk, seen: Observation, partitions: list[int], start_from: StartFrom, deadline: Deadline
) -> Mapping[int, tuple[int, Why]]:
    """Where each partition begins, and why."""
    topic = seen.identity.topic
    new_pipeline = seen.epoch.partitions == 0
    found: dict[int, tuple[int, Why]] = {}
    if new_pipeline:
        stable = desk.read(seen.identity.group, topic, partitions, deadline, stable=True)
        found = {p: (record.offset, Why.GROUP) for p, record in stable.items()}
    rest = [p for p in partitions if p not in found]
    if not rest:
        return found
    if not new_pipeline or start_from in ("Earliest", "Latest"):
        spans = desk.admin.spans(topic, rest, deadline.remaining())
        latest = new_pipeline and start_from == "Latest"
        why = Why.START_FROM if new_pipeline else Why.BEGINNING
        found |= {p: (spans[p].end if latest else spans[p].beginning, why) for p in rest}
    else:
        at = desk.admin.offsets_at(topic, rest, int(start_from), deadline.remaining())
        found |= {p: (at[p], Why.START_FROM) for p in rest}
    return dict(sorted(found.items()))


def _adoptable(seen: Observation, partitions: Iterable[int]) -> dict[str, list[int]]:
    """Partitions whose claim is parked with the control plane of another uid, by that uid."""
    found: dict[str, list[int]] = {}
    for p in partitions:
        record = seen.claims.get(p)
        claim = Claim.decode(record.metadata) if record else None
        if claim and standing(seen.identity, record) is Standing.ADOPTABLE:
            found.setdefault(claim.uid, []).append(p)
    return found


def _adopt(
    desk: Desk, seen: Observation, epoch: Epoch, uid: str, partitions: list[int], deadline: Deadline
) -> list[Event]:
    """R6: parked claims of another uid become ours. Written as the OP of that uid (R1), which fences its control plane if
    that is still there.
    """
    theirs = replace(seen.identity, uid=uid)
    with Acting(desk, theirs, OP, deadline) as acting:
        claims = desk.read(theirs.claims_group, theirs.topic, partitions, deadline, stable=True)
        parked = {p: r for p, r in claims.items() if (c := own_claim(theirs, r)) and c.holder == OP}
        acting.write(
            {
                p: OffsetAndMetadata(
                    r.offset, claim_of(seen.identity, epoch, epoch.owner(p), own_claim(theirs, r))
                )
                for p, r in parked.items()
            }
        )
    return [Seeded(p, r.offset, epoch.owner(p), Why.ADOPTED) for p, r in sorted(parked.items())]
