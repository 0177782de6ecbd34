"""What Spark says of a batch, taken apart: pure.

Spark reports each batch as JSON (StreamingQueryProgress). The batch that is run again after a restart lacks some of
it: its sources have no latest offset (null, or the text "None"), and a batch without input has no rates. All of that is
absence here, never a failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from millrace.collector.plan import OBSERVED

_Offsets = dict[str, dict[str, int]]


class _Source(msgspec.Struct, rename="camel"):
    start_offset: object = None
    end_offset: object = None
    latest_offset: object = None


class _State(msgspec.Struct, rename="camel"):
    num_rows_total: int = 0
    num_rows_dropped_by_watermark: int = 0
    memory_used_bytes: int = 0


class _Mark(msgspec.Struct):
    partition: int
    offset: int
    time: int


class _Observed(msgspec.Struct):
    rows: int = 0
    marks: list[_Mark] = []


class _Report(msgspec.Struct, rename="camel"):
    batch_id: int
    run_id: str = ""
    duration_ms: dict[str, float] = {}
    event_time: dict[str, str] = {}
    state_operators: list[_State] = []
    sources: list[_Source] = []
    observed_metrics: dict[str, _Observed] = {}


class Step(msgspec.Struct, frozen=True):
    """What a mark says: of its partition's records below `offset` none is later than `time` (microseconds since the
    epoch), and none that comes after them is older by more than the window's lateness.
    """

    offset: int
    time: int


class BatchProgress(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        batch: Spark's number of the batch.
        rows: of the channel, marks not counted.
        seconds: that the batch took.
        watermark: of this batch, microseconds since the epoch; None before there is one.
        starts, ends: partition -> the offsets from which and up to which the channel has been read.
        latest: partition -> the end of the channel, where Spark said it.
        marks: partition -> the furthest that the marks in this batch say of it; absent without marks. None: Spark has
            not said what was in the batch.
        state_rows: groups whose window is open, when the batch was done; state_bytes: their memory.
        late: groups with rows that Spark has dropped by its watermark: less than the rows.
    """

    batch: int
    rows: int
    seconds: float
    watermark: int | None
    ends: Mapping[int, int]
    latest: Mapping[int, int]
    marks: Mapping[int, Step] | None
    state_rows: int
    state_bytes: int
    late: int
    starts: Mapping[int, int] = {}


def parse(report: str, channel: str) -> BatchProgress:
    """Raises ValueError (msgspec's) if it is not a report of Spark's."""
    found = msgspec.json.decode(report, type=_Report)
    observed = found.observed_metrics.get(OBSERVED)
    return BatchProgress(
        batch=found.batch_id,
        rows=observed.rows if observed else 0,
        seconds=found.duration_ms.get("triggerExecution", 0) / 1000,
        watermark=_micros(found.event_time.get("watermark")),
        starts=_offsets((source.start_offset for source in found.sources), channel),
        ends=_offsets((source.end_offset for source in found.sources), channel),
        latest=_offsets((source.latest_offset for source in found.sources), channel),
        marks=_furthest(observed.marks) if observed else None,
        state_rows=sum(state.num_rows_total for state in found.state_operators),
        state_bytes=sum(state.memory_used_bytes for state in found.state_operators),
        late=sum(state.num_rows_dropped_by_watermark for state in found.state_operators),
    )


def further(one: Step | None, other: Step) -> Step:
    """What both say together."""
    return other if one is None else Step(max(one.offset, other.offset), max(one.time, other.time))


def _furthest(marks: Iterable[_Mark]) -> dict[int, Step]:
    found: dict[int, Step] = {}
    for mark in marks:
        found[mark.partition] = further(found.get(mark.partition), Step(mark.offset + 1, mark.time))
    return found


def _offsets(given: Iterable[object], channel: str) -> dict[int, int]:
    """{"channel": {"0": 17}} of each source, put together; other sources' offsets have another form."""
    merged: dict[int, int] = {}
    for offset in given:
        merged.update(partition_offsets(offset, channel))
    return merged


def partition_offsets(offset: object, channel: str) -> dict[int, int]:
    """Offsets of one source by partition; none if it is not the channel's, or not known."""
    try:
        if isinstance(offset, str):
            offset = msgspec.json.decode(offset)
        known = msgspec.convert(offset, _Offsets)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return {}
    return {int(partition): number for partition, number in known.get(channel, {}).items()}


def _micros(text: str | None) -> int | None:
    if text is None:
        return None
    # not timestamp(): floats have not the digits for the year 9999
    moment = datetime.fromisoformat(text)
    since = moment - datetime.fromisoformat("1970-01-01T00:00:00Z")
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
