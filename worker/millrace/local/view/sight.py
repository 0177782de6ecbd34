"""How far a local run has come, as its steward saw it last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millrace.channel.backlog import Backlog
from millrace.local.view.snapshot import PartitionSnapshot
from millrace.ownership.epoch import Epoch


@dataclass(frozen=True, slots=True)
class Sight:
    """What was seen last.

    Attributes:
        settled: epoch, claims and workers are as they should be.
        begun: position of each partition when this run first saw it.
        late_before: late rows of each partition before this run, by what was committed.
        channel: end of each partition of the channel; empty without one.
        backlog: what waits in the channel; None without one.
    """

    epoch: Epoch
    partitions: tuple[PartitionSnapshot, ...]
    begun: Mapping[int, int]
    settled: bool
    channel: Mapping[int, int] = field(default_factory=dict)
    late_before: Mapping[int, int] = field(default_factory=dict)
    backlog: Backlog | None = None

    @property
    def total(self) -> int | None:
        """Offsets from where this run began to the end that the input had then; None without a target."""
        known = [(p.target, self.begun[p.partition]) for p in self.partitions if p.partition in self.begun]
        if all(target is None for target, _ in known):
            return None
        return sum(max(0, target - begun) for target, begun in known if target is not None)

    @property
    def done(self) -> int:
        return sum(
            max(
                0, min(p.position, p.target if p.target is not None else p.position) - self.begun[p.partition]
            )
            for p in self.partitions
            if p.position is not None and p.partition in self.begun
        )

    @property
    def late(self) -> int:
        """Late rows of this run."""
        before = self.late_before
        return sum(p.late - before[p.partition] for p in self.partitions if p.partition in before)

    @property
    def at_end(self) -> bool:
        """All that was there at the start is behind the claims."""
        return all(
            p.position is not None and (p.target is None or p.position >= p.target) for p in self.partitions
        )
