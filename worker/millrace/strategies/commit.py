"""The end of every chain: what arrives here was processed to its end, and is said to be so."""

from __future__ import annotations

from collections.abc import Callable, Set

from millrace.clock import Deadline
from millrace.engine.batch import Batch
from millrace.engine.outbox import Outbox
from millrace.engine.strategy import Strategy

OnComplete = Callable[
    [int, int, int], None
]  # partition, first offset, offset after the last: OffsetTracker.complete


class Commit(Strategy):
    """Takes everything at once and keeps nothing."""

    def __init__(self, on_complete: OnComplete, outbox: Outbox) -> None:
        self._on_complete, self._outbox = on_complete, outbox

    def submit(self, batch: Batch) -> None:
        self._on_complete(batch.partition, batch.start, batch.end)
        self._outbox.end_batch(batch)

    def poll(self) -> None:
        """Nothing waits here."""

    def drain(self, partitions: Set[int]) -> None:
        """Nothing is buffered here."""

    def abandon(self, partitions: Set[int]) -> None:
        """Nothing is buffered here."""

    def close(self) -> None:
        """Nothing is buffered here."""

    def join(self, deadline: Deadline) -> bool:  # noqa: ARG002
        return True

    def terminate(self) -> None:
        """Nothing to release."""
