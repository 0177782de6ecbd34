"""What all sinks have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of results.

    Attributes:
        version: of the checkpoint.
        number: Spark's, from 0 in each version.
        query: the id that Spark gave the checkpoint when it was new. It tells a batch that is run again from another
            one of the same number, of a checkpoint that was begun anew.
    """

    version: int
    number: int
    query: str

    @property
    def name(self) -> str:
        """Such that names sort as the batches came, those of a later version after those of the former."""
        return f"{self.version:03}-{self.number:08}"


class Sink(Protocol):
    """Takes the results of batches, in the order of their numbers; the last one again, perhaps, after a kill.

    Whoever writes must read all of a batch's rows, even if it wants none: what is not read of a stateful query is not
    in Spark's state afterwards.
    """

    def check(self, columns: StructType) -> None:
        """See that results with these columns can be written. Raises ManifestError."""

    def open(self, version: int, query: str | None) -> None:
        """Get ready, before the first batch of this process. query: see `Batch`; None: the checkpoint is new.
        Raises MillraceError: it can't be written to, or has results of another checkpoint.
        """

    def former(self, version: int) -> tuple[int, int] | None:
        """Version and number of the last batch that a version before this one has written; None: there is none, or this
        sink does not know, or has written batches of this version since.
        """

    def write(self, rows: DataFrame, batch: Batch) -> int:
        """Returns how many rows have been written. Raises MillraceError, OSError, and what Spark raises."""

    def close(self) -> None:
        """Release everything. Idempotent."""
