"""How far each partition of the channel is read, and how far event time has come in it: what Spark does not keep.

It is in `positions.json`, written after each batch. What a killed job had read without being able to write it down any
more is found in the channel itself, between the position and what Spark has committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from millrace.channel import wire
from millrace.clock import Clock, Deadline
from millrace.collector.floor import History, extended
from millrace.collector.progress import BatchProgress, Step, further, partition_offsets
from millrace.collector.query import Window
from millrace.connectivity.ports import Cluster, TimedOut
from millrace.worker.files import write_whole

_READ_SECONDS = 120.0
_KAFKA_SECONDS = 30.0
FILE = "positions.json"


class Position(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    Attributes:
        offset: up to which the partition is read.
        time: the furthest that its marks below promise, microseconds since the epoch; None: there is none.
        history: how it came there, see `floor`.
    """

    offset: int
    time: int | None = None
    history: History = ()


Positions = Mapping[int, Position]
Gaps = Mapping[int, tuple[int, int]]
"""Partition -> from which offset, up to which nothing is known of what was read."""


def gaps(positions: Positions, batch: BatchProgress) -> Gaps:
    """What has to be found in the channel to know how far it has come with this batch: what lies before the batch, where
    the word of another one was lost, and all of it, where Spark has not said what was in it.
    """
    found = {}
    for partition, end in batch.ends.items():
        start = batch.starts.get(partition, 0)
        known = positions[partition].offset if partition in positions else start
        upto = start if batch.marks is not None else end
        if known < upto:
            found[partition] = known, upto
    return found


def after(
    positions: Positions,
    batch: BatchProgress,
    window: Window | None,
    found: Mapping[int, Step] | None = None,
) -> Positions:
    """The positions when this batch is done. found: in the gaps, see `gaps`."""
    steps = dict(found or {})
    for partition, step in (batch.marks or {}).items():
        steps[partition] = further(steps.get(partition), step)
    return _moved(positions, batch.ends, steps, window)


def watermark(positions: Positions, partitions: int, window: Window) -> int | None:
    """Event time by which windows may be closed when all is read up to these positions: microseconds since the epoch,
    the end of a window (see `Window.end_by`), or, when all partitions have ended, the end of all. None: that can't be
    told of each of so many partitions yet.
    """
    times = [positions[p].time if p in positions else None for p in range(partitions)]
    known = [time for time in times if time is not None]
    if not known or len(known) < len(times):
        return None
    moment = min(known) - window.late_after
    return moment if min(known) == wire.END else window.end_by(moment)


def read(checkpoint: Path) -> Positions:
    try:
        return msgspec.json.decode((checkpoint / FILE).read_bytes(), type=dict[int, Position])
    except FileNotFoundError:
        return {}


def write(checkpoint: Path, positions: Positions) -> None:
    """Raises MillraceError (DISK)."""
    write_whole(checkpoint / FILE, msgspec.json.encode(positions), durable=True)


def committed(checkpoint: Path, channel: str) -> Mapping[int, int]:
    """Offsets up to which Spark's last whole batch has read; empty before the first."""
    done = _newest(checkpoint / "commits")
    if done is None:
        return {}
    ends: dict[int, int] = {}
    # a line of version, a line of the query's own, then a line for each source
    for line in (checkpoint / "offsets" / str(done)).read_text().splitlines()[2:]:
        ends.update(partition_offsets(line, channel))
    return ends


def resumed(
    checkpoint: Path, cluster: Cluster, channel: str, group: str, window: Window | None, clock: Clock
) -> Positions:
    """The positions with which a job starts. Raises MillraceError: the channel can't be read."""
    known = read(checkpoint)
    ends = committed(checkpoint, channel)
    missing = {p: known[p].offset if p in known else 0 for p in ends}
    behind = {p: (offset, ends[p]) for p, offset in missing.items() if offset < ends[p]}
    if not behind:
        return known
    return _moved(known, ends, catch_up(behind, cluster, channel, group, clock), window)


def catch_up(behind: Gaps, cluster: Cluster, channel: str, group: str, clock: Clock) -> Mapping[int, Step]:
    """Read the channel's marks there. Raises MillraceError."""
    deadline = Deadline.after(clock, _READ_SECONDS)
    admin = cluster.admin()
    try:
        spans = admin.spans(channel, behind, _KAFKA_SECONDS)
    finally:
        admin.close()
    found: dict[int, Step] = {}
    waiting = {p: end for p, (_, end) in behind.items() if end > spans[p].beginning}
    reader = cluster.consumer(channel, group=group)
    try:
        reader.assign({p: max(behind[p][0], spans[p].beginning) for p in waiting})
        while waiting:
            if deadline.expired():
                raise TimedOut(
                    f"the channel's partitions {sorted(waiting)} could not be read in {_READ_SECONDS:.0f} s",
                    where=f"topic {channel}",
                    remedy="see that the brokers are well; it is tried again at the next start",
                )
            for record in reader.fetch(500, 0.5):
                p, offset, end = record.partition(), record.offset(), behind[record.partition()][1]
                if offset < end and record.value() is None:
                    step = Step(offset + 1, wire.event_time(record.headers()))
                    found[p] = further(found.get(p), step)
                if offset + 1 >= end:
                    waiting.pop(p, None)
            for p, end in reader.ends().items():
                if end >= behind[p][1]:
                    waiting.pop(p, None)
    finally:
        reader.close()
    return found


def _moved(
    positions: Positions, ends: Mapping[int, int], steps: Mapping[int, Step], window: Window | None
) -> Positions:
    result = dict(positions)
    for partition, end in ends.items():
        before = positions.get(partition, Position(0))
        time, history = before.time, before.history
        if partition in steps:
            step = steps[partition]
            time = step.time if time is None else max(time, step.time)
            if window is not None:
                history = extended(history, Step(step.offset, time), window)
        result[partition] = Position(max(end, before.offset), time, history)
    return result


def _newest(log: Path) -> int | None:
    """The newest entry of one of Spark's metadata logs."""
    return max((int(file.name) for file in log.glob("[0-9]*") if file.name.isdigit()), default=None)
