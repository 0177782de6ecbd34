"""What becomes of a batch's report: positions, the watermark that Spark is told, offsets, deletions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import pytest
import structlog

from collector_specs import job_spec
from millrace.channel import wire
from millrace.clock import VirtualClock
from millrace.collector import positions
from millrace.collector.books import DELETE_AT, DELETE_EVERY, Books
from millrace.collector.progress import BatchProgress, Step
from millrace.connectivity.memory import MemoryBroker
from millrace.connectivity.ports import Admin, BrokerUnreachable, Cluster

pytestmark = pytest.mark.unit

HOUR = 3_600_000_000
LATENESS = 600_000_000


class World:
    def __init__(self, checkpoint: Path, **changes: object) -> None:
        self.clock = VirtualClock()
        self.cluster: Cluster = MemoryBroker(self.clock).cluster(client_id="test")
        self.admin = self.cluster.admin()
        self.spec = job_spec(checkpoint=str(checkpoint), **changes)
        self.admin.create_topic(self.spec.channel, self.spec.partitions, 1)
        self.written = dict.fromkeys(range(self.spec.partitions), 0)
        self.books = self.start(self.admin)
        self.number = 0

    def start(self, admin: Admin) -> Books:
        books = Books(self.spec, self.cluster, admin, self.clock, structlog.get_logger())
        books.open()
        return books

    def write(self, partition: int, count: int) -> None:
        producer = self.cluster.producer()
        for _ in range(count):
            producer.produce(self.spec.channel, b"{}", partition=partition)
        producer.flush(1)
        self.written[partition] = self.written.get(partition, 0) + count

    def batch(
        self,
        marks: Mapping[int, Step] | None,
        watermark: int = 0,
        books: Books | None = None,
        starts: Mapping[int, int] | None = None,
    ) -> None:
        """All that was written is read."""
        self.number += 1
        books = books or self.books
        known = {p: position.offset for p, position in books.positions.items()}
        report = BatchProgress(
            batch=self.number, rows=1, seconds=1, watermark=watermark, starts=starts or known,
            ends=dict(self.written), latest={}, marks=marks, state_rows=0, state_bytes=0, late=0,
        )  # fmt: skip
        books.enter(report)

    def told(self) -> list[int]:
        folder = Path(self.spec.checkpoint) / "control"
        return [int(file.read_text()) for file in sorted(folder.iterdir())]

    def committed(self) -> dict[int, int]:
        found = self.admin.group_offsets(self.spec.group, self.spec.channel, self.written, 1, stable=False)
        return {p: at.offset for p, at in found.items()}

    def beginnings(self) -> dict[int, int]:
        spans = self.admin.spans(self.spec.channel, self.written, 1)
        return {p: span.beginning for p, span in spans.items()}


def test_windows_close_when_all_partitions_have_come_to_their_end_and_not_before(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(0, 5)
    world.batch({0: Step(5, 9 * HOUR)})
    assert world.told() == [], "nothing is known of partition 1"
    world.write(1, 5)
    world.batch({1: Step(3, 3 * HOUR + LATENESS - 1)})
    world.batch({1: Step(4, 3 * HOUR + LATENESS)})
    world.batch({1: Step(5, 4 * HOUR + LATENESS - 1)})
    assert world.told() == [2 * HOUR, 3 * HOUR]
    assert world.committed() == {0: 5, 1: 5}
    world.batch({0: Step(6, wire.END), 1: Step(6, wire.END)})
    assert world.told()[-1] == wire.END - LATENESS
    assert positions.read(tmp_path) == world.books.positions


def test_a_partition_that_was_added_holds_back_windows_until_it_has_a_mark(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.admin.create_partitions(world.spec.channel, 3, 1)
    world.batch({0: Step(1, 9 * HOUR), 1: Step(1, 9 * HOUR)})
    assert world.told() == [], "Spark has not read of it yet"
    world.write(2, 1)
    world.batch({2: Step(1, 5 * HOUR)})
    assert world.told() == [4 * HOUR]


def test_a_bounded_run_asks_only_for_the_partitions_that_it_began_with(tmp_path: Path) -> None:
    world = World(tmp_path, until_end=True)
    world.admin.create_partitions(world.spec.channel, 3, 1)
    world.batch({0: Step(1, wire.END), 1: Step(1, wire.END)})
    assert world.told() == [wire.END - LATENESS]


def test_a_kill_after_the_positions_were_written_costs_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    at = {p: positions.Position(1, 9 * HOUR) for p in range(2)}
    positions.write(tmp_path, at)
    again = world.start(world.admin)
    assert world.told() == [8 * HOUR]
    assert again.positions == at
    world.start(world.admin)
    assert world.told() == [8 * HOUR], "it is told once"


class Away:
    """An admin that can't do one thing for a while."""

    def __init__(self, admin: Admin, what: str) -> None:
        self._admin, self._what, self.away = admin, what, True

    def __getattr__(self, name: str) -> object:
        if name == self._what and self.away:
            return self._refuse
        return getattr(self._admin, name)

    def _refuse(self, *_: object) -> NoReturn:
        raise BrokerUnreachable("gone")


def test_a_broker_that_does_not_say_how_many_partitions_there_are_is_asked_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    away = Away(world.admin, "describe_topic")
    books = world.start(away)  # type: ignore[arg-type]
    world.batch({0: Step(1, 9 * HOUR), 1: Step(1, 9 * HOUR)}, books=books)
    away.away = False
    books.look_after()
    assert world.told() == [], "not again at once"
    world.clock.sleep(1.0)
    books.look_after()
    assert world.told() == [8 * HOUR]


@pytest.mark.parametrize("ends", [False, True], ids=["while the job goes on", "as it ends"])
def test_progress_that_the_broker_did_not_take_is_committed_later(tmp_path: Path, ends: bool) -> None:
    world = World(tmp_path)
    away = Away(world.admin, "commit_offsets")
    books = world.start(away)  # type: ignore[arg-type]
    world.write(0, 5)
    world.batch({}, books=books)
    world.write(1, 3)
    world.batch({}, books=books)
    assert world.committed() == {}
    away.away = False
    books.look_after()
    assert world.committed() == {}, "not again at once"
    if ends:
        books.close()
    else:
        world.clock.sleep(1.0)
        books.look_after()
    assert world.committed() == {0: 5, 1: 3}


def test_what_no_report_has_told_is_read_in_the_channel(tmp_path: Path) -> None:
    world = World(tmp_path)
    producer = world.cluster.producer()
    for p in range(2):
        producer.produce(world.spec.channel, None, partition=p, headers=[(wire.TIME, str(9 * HOUR).encode())])
    producer.flush(1)
    world.written = {0: 1, 1: 1}
    world.batch(None)
    assert world.told() == [8 * HOUR]


def test_records_are_deleted_when_their_windows_are_written_not_when_they_are_to_be(tmp_path: Path) -> None:
    world = World(tmp_path)
    many = DELETE_AT // 2 + 1
    for p in range(2):
        world.write(p, many)
    world.batch({p: Step(many, 2 * HOUR - 1) for p in range(2)})
    for p in range(2):
        world.write(p, 3)
    world.batch({p: Step(many + 2, 2 * HOUR + LATENESS) for p in range(2)})
    assert world.told()[-1] == 2 * HOUR
    assert world.beginnings() == {0: 0, 1: 0}, "Spark has not closed them"
    world.batch({}, watermark=2 * HOUR)
    assert world.beginnings() == {0: many - 1, 1: many - 1}, "the mark stays"


def test_few_records_are_deleted_once_a_minute(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(0, 5)
    world.batch({0: Step(5, HOUR - 1)})
    world.batch({}, watermark=HOUR)
    assert world.beginnings()[0] == 0
    world.clock.sleep(DELETE_EVERY)
    world.batch({}, watermark=HOUR)
    assert world.beginnings()[0] == 4


def test_they_are_deleted_then_also_if_no_batch_comes(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(0, 5)
    world.batch({0: Step(5, HOUR - 1)})
    world.batch({}, watermark=HOUR)
    world.books.look_after()
    assert world.beginnings()[0] == 0
    world.clock.sleep(DELETE_EVERY)
    world.books.look_after()
    assert world.beginnings()[0] == 4
