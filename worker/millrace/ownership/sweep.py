"""What to do about records and offsets that a broker has left open (docs/adr/0007). Decided, not done. Pure.

A broker can call a transaction committed or aborted and forget the markers of some of its partitions. What it wrote there
stays open, and the next marker of the same transactional id decides about it, whatever was said before. The claims know
better: claims, outputs and dead letters of a transaction were committed together or not at all. So a record left open
was meant to count if its origin is below the claim of its source partition, and not if it is at or above it.

That rests on this: nobody moves the claims of a writer, and nobody writes as it, before all that it has left open is
decided. Otherwise another worker would have done again what an aborted record stands for, and its origin would be below the
claim as well. Hence the sweep at the beginning of each session, and before the control plane passes claims of others on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

from millrace.connectivity.ports import OffsetAndMetadata
from millrace.ownership.provenance import NEVER, Origin


class Place(NamedTuple):
    """A partition of a topic that is written in transactions."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Trace:
    """A record of the writer's: where it lies in its partition, where it comes from (None: it stands for nothing), and its
    event time as it is written (None: it is of no channel).
    """

    offset: int
    origin: Origin | None
    time: bytes | None = None


@dataclass(frozen=True, slots=True)
class Stretch:
    """Offsets of a place, from `first` to `last`, among which records have to be put back if they do not show."""

    first: int
    last: int

    def with_(self, other: Stretch | None) -> Stretch:
        if other is None:
            return self
        return Stretch(min(self.first, other.first), max(self.last, other.last))

    def record(self) -> OffsetAndMetadata:
        """As it is noted in the writer's own consumer group."""
        return OffsetAndMetadata(self.first, str(self.last))

    @staticmethod
    def noted(record: OffsetAndMetadata | None) -> Stretch | None:
        """The note in a record of that group; None: nothing has to be put back."""
        text = record.metadata if record is not None else None
        if record is None or not text or not text.isdigit():
            return None
        return Stretch(record.offset, int(text))


def counts(trace: Trace, claims: Mapping[int, int]) -> bool:
    """Whether a record was meant to count. `claims`: offsets of the claims by source partition, nothing of the writer
    pending. A partition without a claim has none that was committed.
    """
    return trace.origin is not None and trace.origin.offset < claims.get(trace.origin.partition, -1)


def to_restore(traces: Sequence[Trace], claims: Mapping[int, int]) -> Stretch | None:
    """Of what is open in a place: between which offsets there are records that were meant to count."""
    counting = [trace.offset for trace in traces if counts(trace, claims)]
    return Stretch(min(counting), max(counting)) if counting else None


def promise(traces: Sequence[Trace], claims: Mapping[int, int]) -> bytes | None:
    """If all that is open in a place is a channel's, and meant to count: the event time of a mark that can be written after
    it and says nothing new, so that it can be committed as it lies there. It has to stay in its place: what comes after it
    in the channel relies on that. None: that is not so.
    """
    told = [trace for trace in traces if trace.origin is None or trace.origin.offset != NEVER]
    if not told or not all(counts(trace, claims) for trace in told):
        return None
    return traces[0].time


def proves_commit(trace: Trace, claims: Mapping[int, int], pending: Set[int]) -> bool:
    """Whether a record that readers see proves that claims which are pending were committed: it came with them."""
    origin = trace.origin
    return (
        origin is not None
        and origin.offset != NEVER
        and origin.partition in pending
        and origin.offset >= claims.get(origin.partition, 0)
    )


def floors(proofs: Iterable[Trace]) -> dict[int, int]:
    """What these proofs say of the claims of their source partitions: below which offset they can't be."""
    found: dict[int, int] = {}
    for proof in proofs:
        if proof.origin is not None:
            partition, after = proof.origin.partition, proof.origin.offset + 1
            found[partition] = max(after, found.get(partition, 0))
    return found


def restoring_group(claims_group: str, holder: int) -> str:
    """The consumer group in which a writer notes what it has to restore."""
    return f"{claims_group}.{holder}"
