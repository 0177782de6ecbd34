"""Small stand-ins for Kafka in tests of the engine and of strategies: records, a consumer, producers that fill up."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from millrace.connectivity.ports import BufferFull, Headers, OffsetAndMetadata, Record, Row, one_by_one
from millrace.engine.batch import Batch


@dataclass(frozen=True, slots=True)
class FakeRecord:
    """A Record of plain fields."""

    at: int
    body: bytes | None = b"{}"
    of: int = 0
    name: bytes | None = None
    heads: tuple[tuple[str, bytes | None], ...] = ()
    ms: int | None = 1_700_000_000_000

    def topic(self) -> str:
        return "source"

    def partition(self) -> int:
        return self.of

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self.name

    def value(self) -> bytes | None:
        return self.body

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return list(self.heads) or None

    def timestamp(self) -> tuple[int, int]:
        return (0, -1) if self.ms is None else (1, self.ms)


def batch_of(records: Sequence[Record], *, start: int | None = None, end: int | None = None) -> Batch:
    """A batch as the engine submits it."""
    first = records[0].offset() if start is None else start
    after = records[-1].offset() + 1 if end is None else end
    partition = records[0].partition() if records else 0
    return Batch(partition, first, after, records, records, records)


class FakeConsumer:
    """Hands out what `feed` gave it; like the real one, may still hand out unassigned partitions' records once."""

    def __init__(self) -> None:
        self.assigned: dict[int, int] = {}
        self.ready: list[Record] = []
        self.at_end: dict[int, int] = {}
        self.fetches = 0

    def feed(self, *records: Record) -> None:
        self.ready.extend(records)

    def assign(self, positions: Mapping[int, int]) -> None:
        self.assigned.update(positions)

    def unassign(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            del self.assigned[partition]

    def fetch(self, max_records: int, timeout: float) -> Sequence[Record]:
        self.fetches += 1
        taken, self.ready = self.ready[:max_records], self.ready[max_records:]
        return taken

    def ends(self) -> Mapping[int, int]:
        ends, self.at_end = self.at_end, {}
        return ends

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Produced:
    topic: str
    value: bytes | None
    key: bytes | None
    headers: Headers | None
    partition: int
    timestamp_ms: int


@dataclass
class FakeProducer:
    """Plain and transactional at once. Full with probability `fullness` at each call; acknowledges on `poll`, with
    probability `promptness`, everything.
    """

    chance: random.Random = field(default_factory=lambda: random.Random(0))
    fullness: float = 0.0
    promptness: float = 1.0
    transactional_id: str = "fake"
    produced: list[Produced] = field(default_factory=list)
    outstanding: int = 0
    log: list[str] = field(default_factory=list)

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers | None = None,
        partition: int = -1,
        timestamp_ms: int = 0,
    ) -> None:
        if self.chance.random() < self.fullness:
            raise BufferFull("full")
        self.produced.append(Produced(topic, value, key, headers, partition, timestamp_ms))
        self.outstanding += 1

    def produce_all(self, rows: Sequence[Row], first: int) -> int:
        return one_by_one(self.produce, rows, first)

    def poll(self) -> None:
        if self.chance.random() < self.promptness:
            self.outstanding = 0

    def flush(self, timeout: float) -> None:
        self.outstanding = 0

    def buffered(self) -> int:
        return self.outstanding

    def close(self) -> None: ...

    def init(self, timeout: float) -> None: ...

    def begin(self) -> None:
        self.log.append("begin")

    def send_offsets(
        self,
        group: str,
        topic: str,
        offsets: Mapping[int, OffsetAndMetadata],
        timeout: float,
    ) -> None:
        self.log.append(f"offsets {group} {topic} { ({p: o.offset for p, o in offsets.items()}) }")

    def commit(self, timeout: float) -> None:
        self.log.append("commit")

    def abort(self, timeout: float) -> None:
        self.log.append("abort")
