"""What a replica says about itself: its state, what it holds, and what it waits for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class State(Enum):
    """STARTING: no epoch, or no producer yet. RUNNING: initialised; may hold partitions or wait for some.
    INTERRUPTED: everything was dropped after a failure that passes, and will be begun again. STOPPED: for good.
    """

    STARTING = "starting"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A replica at one moment.

    Attributes:
        epoch: number of the newest epoch it knows; None before the first.
        ready: an epoch was read, the producer initialised, and the broker answered when last asked. Holding a
            partition is no condition: a new worker is ready before anything is passed to it (R4).
        reasons: what it waits for, in words; also while ready.
        positions: of each partition held, the offset below which everything is done.
        committed: of each partition held, the offset that is known to be committed.
        notes: of each partition held, what is kept beside its position (engine.marks); none without anything to keep.
        leaving: partitions that are drained or being drained, to be passed on.
        interruptions: how often everything was dropped and begun again.
    """

    state: State
    epoch: int | None = None
    ready: bool = False
    reasons: tuple[str, ...] = ()
    positions: Mapping[int, int] = field(default_factory=dict)
    committed: Mapping[int, int] = field(default_factory=dict)
    notes: Mapping[int, str] = field(default_factory=dict)
    leaving: frozenset[int] = frozenset()
    interruptions: int = 0
