"""What a chain writes of its own accord as a transaction is committed, though no message asks for it: word of how far a
partition has come, or that it was read to its end. The engine knows when that is so, the chain what to write then.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from enum import Enum
from typing import Protocol

from millrace.engine.batch import Batch


class End(Enum):
    """Why nothing more of a partition is to be done, now that all that was taken of it is complete.

    LOG: the reader waits at the end of the log; more may come at any time.
    BOUND: a bounded run ends here (`engine.bounds`).
    """

    LOG = "log"
    BOUND = "bound"


Ends = Mapping[int, End | None]
"""For each partition held: whether its end was reached, None if not."""


class Marks(Protocol):
    """Set on the Outbox by the strategy that has something to write (`Outbox.marks`). It lives as long as the session:
    what it was asked to write is committed, or the session is dropped.

    What it knows of a partition is kept as a note in the partition's claim: so it belongs to the offset beside which it
    is committed, it goes with the partition to its next holder, and whatever was not committed is forgotten with it.
    """

    def adopt(self, partition: int, note: str | None) -> None:
        """A partition is ours from now on; its claim has this note. None: nothing is known of it."""

    def dismiss(self, partitions: Set[int]) -> None:
        """These were passed on."""

    def complete(self, batch: Batch) -> None:
        """All of this batch, or of this part of a batch that was cut, is done: it is below the partition's position."""

    def due(self, ends: Ends) -> bool:
        """Whether there is something to write, so that a commit should be made though nothing else asks for it."""

    def write(self, ends: Ends) -> Set[int]:
        """A commit is about to be made, of all that is complete, and no batch is partly written: write through the
        outbox what belongs into it. Returns the partitions whose note has changed; theirs must be in this commit.
        """

    def note(self, partition: int) -> str | None:
        """What to keep in the claim of a partition that is ours, beside its position."""

    def hear(self, notes: Mapping[int, str | None]) -> None:
        """The notes in all claims of the source, whoever holds them, as they were committed last. Those of partitions
        that are ours are no news.
        """
