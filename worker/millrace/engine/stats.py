"""What a stage has done since it was made, counted once per batch: cheap enough to be always on.

A reader (metrics, the live view) takes differences of two readings; nothing is ever reset. Written by the engine's
thread, read by others: each field is replaced whole, so a reader may see a batch in one field and not yet in another.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

LATENCIES: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the classes in which latencies are counted, s; one more is for all above."""

ASKED_AGAIN: Final = 1.0
"""s within which a batch that was refused is offered again. After a longer silence the engine was busy with something else,
or the batch will never come again."""


@dataclass(slots=True)
class StageStats:
    """Attributes:
    name: of the stage.
    received: messages that the stage has got.
    emitted: values that it has made of them.
    dead: dead letters that it has made of them.
    late: values that a collect stage has left out as late.
    batches: batches they came in.
    seconds: time spent in the stage itself, not in those after it.
    latencies: batches by the time from their coming to their results being there to go on, waits for a pool, for more
        messages and for acknowledgements included: how many for each class of LATENCIES.
    latency: sum of these times, s.
    rejected: how often it has begun to refuse batches because it was full itself: its pool, or the producer's buffer.
    held_back: seconds for which it did.
    """

    name: str = ""
    received: int = 0
    emitted: int = 0
    dead: int = 0
    late: int = 0
    batches: int = 0
    seconds: float = 0.0
    latencies: list[int] = field(default_factory=lambda: [0] * (len(LATENCIES) + 1))
    latency: float = 0.0
    rejected: int = 0
    held_back: float = 0.0
    refused_at: float = -1.0  # when it refused last; -1: it did not since it took something

    def add(self, received: int, emitted: int, dead: int, seconds: float) -> None:
        """Account for one batch."""
        self.received += received
        self.emitted += emitted
        self.dead += dead
        self.batches += 1
        self.seconds += seconds

    def took(self, seconds: float) -> None:
        """The results of a batch are there, so many seconds after it came."""
        self.latencies[bisect_left(LATENCIES, seconds)] += 1
        self.latency += seconds

    def refuses(self, now: float) -> None:
        """A batch is refused, at `now` on the monotonic clock; not because the next stage refuses one."""
        if self.refused_at < 0:
            self.rejected += 1
        else:
            self.held_back += min(now - self.refused_at, ASKED_AGAIN)
        self.refused_at = now

    def takes(self, now: float) -> None:
        """A batch is taken. To be called where `refused_at` is not negative."""
        self.held_back += min(now - self.refused_at, ASKED_AGAIN)
        self.refused_at = -1.0
