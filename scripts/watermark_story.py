"""What docs/watermarks.svg shows: a small pipeline's records in the order in which its collector reads them, by the rules
of the real one. Who is late is decided by the worker, against the partition's own latest; a transaction that carries a
partition further ends with a progress mark; an idle mark promises what the group has come to; after each batch the
query's watermark is the smallest latest of all partitions less the lateness. Times are minutes. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

PARTITIONS = 3
LATENESS = 30
SIZE = 30
END = 10_000


class Kind(Enum):
    ROW = "row"
    LATE = "late"
    PROGRESS = "progress"
    IDLE = "idle"
    FINISH = "end"


@dataclass(frozen=True, slots=True)
class Record:
    """`at`: its place in the order; `latest`: of its partition, once it is read. A LATE one is in no channel."""

    at: int
    partition: int
    kind: Kind
    time: int
    latest: int


@dataclass(slots=True)
class Batch:
    """`begin`, `end`: places of its records; `watermark`: of the next batch, None before every partition has a latest."""

    begin: int
    records: list[Record] = field(default_factory=list)
    end: int = 0
    watermark: int | None = None
    closed: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Bar:
    """A window that begins at `start`: from the place of its first row to the batch after which it is written."""

    start: int
    first: int
    written: int
    batch: int
    rows: int


IDLE = "idle"
FINISH = "end"
# A batch is a list of transactions: the partition, then event times of its rows or the mark that it is.
SCRIPT: Sequence[Sequence[tuple[int, Sequence[int] | str]]] = (
    ((0, (4, 12, 8, 19)), (1, (2, 15, 10)), (2, (6, 13))),
    ((0, (31, 24, 42)), (1, (22, 38, 33, 47)), (2, (29, 26, 36))),
    ((0, (55, 63, 58, 72)), (2, (49, 64))),
    ((0, (81, 76, 95)), (2, (79, 84)), (0, (40, 101, 92))),
    ((0, (112, 108, 123)),),
    ((1, (53, 49, 60, 68, 64, 77)), (0, (131, 126)), (1, (71, 88, 97, 93))),
    ((1, (104, 118, 109, 127)), (0, (138,)), (2, IDLE)),
    ((0, (147, 143)), (1, (133, 145)), (0, FINISH), (1, FINISH), (2, FINISH)),
)


def run() -> tuple[list[Batch], list[Bar]]:
    batches: list[Batch] = []
    latest: dict[int, int] = {}
    first: dict[int, int] = {}
    rows: dict[int, int] = {}
    bars: list[Bar] = []
    at = 0
    for script in SCRIPT:
        batch = Batch(begin=at)
        batches.append(batch)
        for partition, what in script:
            for kind, time in _transaction(partition, what, latest):
                if kind is not Kind.LATE:
                    latest[partition] = max(time, latest.get(partition, time))
                batch.records.append(Record(at, partition, kind, time, latest[partition]))
                if kind is Kind.ROW:
                    start = time // SIZE * SIZE
                    first.setdefault(start, at)
                    rows[start] = rows.get(start, 0) + 1
                at += 1
        batch.end = at
        at += 1  # room between two batches
        if len(latest) == PARTITIONS:
            batch.watermark = min(latest.values()) - LATENESS
        if batch.watermark is not None:
            batch.closed = sorted(start for start in first if start + SIZE <= batch.watermark)
            bars.extend(
                Bar(start, first.pop(start), batch.end, len(batches), rows.pop(start))
                for start in batch.closed
            )
    return batches, bars


def _transaction(
    partition: int, what: Sequence[int] | str, latest: Mapping[int, int]
) -> list[tuple[Kind, int]]:
    if what == FINISH:
        return [(Kind.FINISH, END)]
    if what == IDLE:
        # those that are being read have come so far
        return [(Kind.IDLE, min(time for other, time in latest.items() if other != partition))]
    found: list[tuple[Kind, int]] = []
    before = reached = latest.get(partition)
    for time in what:
        assert isinstance(time, int)
        if reached is not None and time < reached - LATENESS:
            found.append((Kind.LATE, time))
            continue
        found.append((Kind.ROW, time))
        reached = max(time, reached if reached is not None else time)
    if reached is not None and reached != before:
        found.append((Kind.PROGRESS, reached))
    return found
