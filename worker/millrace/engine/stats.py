"""What a stage has done since it was made, counted once per batch: cheap enough to be always on.

A reader (metrics, the live view) takes differences of two readings; nothing is ever reset. Written by the engine's
thread, read by others: each field is replaced whole, so a reader may see a batch in one field and not yet in another.
"""

from __future__ import annotations

from dataclasses import dataclass


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
    """

    name: str = ""
    received: int = 0
    emitted: int = 0
    dead: int = 0
    late: int = 0
    batches: int = 0
    seconds: float = 0.0

    def add(self, received: int, emitted: int, dead: int, seconds: float) -> None:
        """Account for one batch."""
        self.received += received
        self.emitted += emitted
        self.dead += dead
        self.batches += 1
        self.seconds += seconds
