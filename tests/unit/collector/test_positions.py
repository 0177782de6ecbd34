"""How far each partition's event time had come survives whatever ends the job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from millrace.channel import wire
from millrace.clock import VirtualClock
from millrace.collector import positions
from millrace.collector.positions import Position
from millrace.collector.progress import BatchProgress, Step
from millrace.collector.query import Window
from millrace.connectivity.memory import MemoryBroker
from millrace.connectivity.ports import Cluster

pytestmark = pytest.mark.unit

CHANNEL = "c"
HOUR = 3_600_000_000
WINDOW = Window(size=3600, time="at", lateness=7200)


@dataclass
class Row:
    time: int


@dataclass
class Mark:
    time: int


@pytest.fixture
def cluster() -> Cluster:
    cluster = MemoryBroker(VirtualClock()).cluster(client_id="test")
    cluster.admin().create_topic(CHANNEL, 3, 1)
    return cluster


def batch(
    ends: Mapping[int, int], marks: Mapping[int, Step] | None, starts: Mapping[int, int] | None = None
) -> BatchProgress:
    return BatchProgress(
        batch=1, rows=0, seconds=1, watermark=0, starts=starts or {}, ends=ends, latest={}, marks=marks,
        state_rows=0, state_bytes=0, late=0,
    )  # fmt: skip


def test_positions_grow_and_a_batch_without_marks_or_with_older_ones_changes_no_time() -> None:
    first = positions.after({}, batch({0: 10, 1: 5, 2: 0}, {0: Step(9, 700), 1: Step(5, 900)}), WINDOW)
    assert first == {
        0: Position(10, 700, (Step(9, 700),)),
        1: Position(5, 900, (Step(5, 900),)),
        2: Position(0, None),
    }
    second = positions.after(first, batch({0: 14, 1: 5, 2: 1}, {0: Step(12, 600), 2: Step(1, 50)}), WINDOW)
    assert second == {
        0: Position(14, 700, (Step(12, 700),)),
        1: first[1],
        2: Position(1, 50, (Step(1, 50),)),
    }
    assert positions.after(first, batch({0: 14}, {0: Step(12, 800)}), None)[0].time == 800


def test_the_watermark_is_that_of_the_partition_furthest_behind() -> None:
    lateness = WINDOW.late_after
    known = {0: Position(9, 10 * HOUR), 1: Position(9, 7 * HOUR + 1)}
    assert positions.watermark(known, 2, WINDOW) == 7 * HOUR - lateness
    assert positions.watermark({**known, 1: Position(9, 7 * HOUR - 1)}, 2, WINDOW) == 6 * HOUR - lateness
    assert positions.watermark(known, 3, WINDOW) is None, "nothing is known of one"
    assert positions.watermark({**known, 2: Position(4)}, 3, WINDOW) is None, "one has no mark yet"
    ended = {p: Position(9, wire.END) for p in range(2)}
    assert positions.watermark({**ended, 0: known[0]}, 2, WINDOW) == 10 * HOUR - lateness
    assert positions.watermark(ended, 2, WINDOW) == wire.END - lateness


def test_what_no_report_told_is_a_gap() -> None:
    known = {0: Position(10), 1: Position(20)}
    assert positions.gaps(known, batch({0: 15, 1: 20}, {}, {0: 10, 1: 20})) == {}
    assert positions.gaps(known, batch({0: 15, 1: 25}, {}, {0: 13, 1: 20})) == {0: (10, 13)}, "a lost report"
    assert positions.gaps(known, batch({0: 15, 1: 20}, None, {0: 10, 1: 20})) == {0: (10, 15)}, (
        "without marks"
    )
    assert positions.gaps(known, batch({0: 10, 1: 20, 2: 7}, {}, {0: 10, 1: 20})) == {}, "a new partition"
    assert positions.gaps(known, batch({0: 10, 1: 20, 2: 7}, None, {0: 10, 1: 20})) == {2: (0, 7)}
    found = positions.after(known, batch({0: 15}, {0: Step(15, 3)}), WINDOW, {0: Step(12, 5)})
    assert found[0] == Position(15, 5, (Step(15, 5),))


def test_positions_are_read_as_they_were_written(tmp_path: Path) -> None:
    assert positions.read(tmp_path) == {}
    written = {0: Position(10, wire.END, (Step(7, 50), Step(9, wire.END))), 3: Position(0)}
    positions.write(tmp_path, written)
    assert positions.read(tmp_path) == written


def test_the_very_first_start_has_nothing_to_resume(tmp_path: Path, cluster: Cluster) -> None:
    assert resumed(tmp_path, cluster) == {}


def test_spark_s_last_whole_batch_is_what_counts(tmp_path: Path) -> None:
    _spark(tmp_path, committed=9, ends={0: 4})
    _spark(tmp_path, committed=10, ends={0: 5})
    _spark(tmp_path, committed=None, batch=11, ends={0: 9})
    (tmp_path / "commits" / ".10.crc").touch()
    assert positions.committed(tmp_path, CHANNEL) == {0: 5}


def test_what_was_read_after_the_last_writing_down_is_read_again(tmp_path: Path, cluster: Cluster) -> None:
    """Killed between Spark's commit and ours: the end mark of partition 1 is known to the channel only."""
    _write(cluster, 0, Row(100), Mark(100), Row(900), Mark(900), Mark(950))
    _write(cluster, 1, Row(50), Mark(wire.END))
    _write(cluster, 2, Mark(70), Row(80))
    _spark(tmp_path, committed=1, ends={0: 4, 1: 2, 2: 2})
    positions.write(tmp_path, {0: Position(2, 100), 1: Position(1), 2: Position(1, 70)})
    assert resumed(tmp_path, cluster) == {
        0: Position(4, 900, (Step(4, 900),)),
        1: Position(2, wire.END, (Step(2, wire.END),)),
        2: Position(2, 70),
    }


def test_without_any_writing_down_the_channel_is_read_from_what_is_left_of_it(
    tmp_path: Path, cluster: Cluster
) -> None:
    _write(cluster, 0, Row(100), Mark(100), Row(900), Mark(900))
    cluster.admin().delete_records(CHANNEL, {0: 2, 2: 0}, 1)
    _spark(tmp_path, committed=0, ends={0: 4, 1: 0})
    assert resumed(tmp_path, cluster) == {0: Position(4, 900, (Step(4, 900),)), 1: Position(0)}


def test_what_is_known_is_not_read_again(tmp_path: Path, cluster: Cluster) -> None:
    _spark(tmp_path, committed=0, ends={0: 10, 1: 5})
    written = {0: Position(10, 700), 1: Position(5, wire.END)}
    positions.write(tmp_path, written)
    assert resumed(tmp_path, cluster) == written


def resumed(checkpoint: Path, cluster: Cluster) -> positions.Positions:
    return positions.resumed(checkpoint, cluster, CHANNEL, "g", WINDOW, VirtualClock())


def _write(cluster: Cluster, partition: int, *records: Row | Mark) -> None:
    producer = cluster.producer()
    for record in records:
        value = b"{}" if isinstance(record, Row) else None
        producer.produce(
            CHANNEL, value, partition=partition, headers=[(wire.TIME, str(record.time).encode())]
        )
    producer.flush(1)
    producer.close()


def _spark(checkpoint: Path, *, committed: int | None, ends: Mapping[int, int], batch: int = 0) -> None:
    """Spark's logs of one batch."""
    lines = ["v1", '{"batchWatermarkMs":0,"conf":{}}', '{"logOffset":0}']
    lines += [json.dumps({CHANNEL: {str(partition): end}}) for partition, end in ends.items()]
    for log in ("offsets", "commits"):
        (checkpoint / log).mkdir(exist_ok=True)
    number = batch if committed is None else committed
    (checkpoint / "offsets" / str(number)).write_text("\n".join(lines))
    if committed is not None:
        (checkpoint / "commits" / str(number)).write_bytes(b"v1\n" + msgspec.json.encode({}))
