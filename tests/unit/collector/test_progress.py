"""What Spark says of a batch is understood, also where it says less than usual."""

from __future__ import annotations

import json

import msgspec
import pytest

from millrace.channel import wire
from millrace.collector import ending, progress
from millrace.collector.progress import BatchProgress, Step
from millrace.collector.query import Query, Window
from millrace.collector.spec import JobSpec

pytestmark = pytest.mark.unit

CHANNEL = "flights.by-carrier.channel"


def report(**changes: object) -> str:
    """A report as Spark 4.2.0 writes it, of a channel with two partitions."""
    whole: dict[str, object] = {
        "id": "8dd20224-a74c-4327-8b90-1522df6d41a3",
        "runId": "8e7ec0bb-136f-4c2d-ac72-ae0921c34c01",
        "batchId": 7,
        "durationMs": {"addBatch": 1200, "triggerExecution": 1500},
        "eventTime": {"max": "9999-12-31T23:59:59.000Z", "watermark": "2013-01-17T17:32:50.000Z"},
        "stateOperators": [{"numRowsTotal": 8100, "numRowsDroppedByWatermark": 3, "memoryUsedBytes": 99}],
        "sources": [
            {
                "description": "FileStreamSource[file:/x]",
                "startOffset": {"logOffset": 0},
                "endOffset": {"logOffset": 1},
                "latestOffset": None,
            },
            {
                "description": f"KafkaV2[Subscribe[{CHANNEL}]]",
                "startOffset": {CHANNEL: {"0": 10}},
                "endOffset": {CHANNEL: {"0": 20, "1": 45}},
                "latestOffset": {CHANNEL: {"0": 90, "1": 91}},
                "numInputRows": 55,
            },
        ],
        "observedMetrics": {
            "channel": {
                "rows": 9,
                "marks": [
                    {"partition": 0, "offset": 12, "time": 700},
                    {"partition": 1, "offset": 40, "time": 1358443970000000},
                    {"partition": 0, "offset": 17, "time": 600},
                ],
            }
        },
    }
    return json.dumps({**whole, **changes})


def parsed(**changes: object) -> BatchProgress:
    return progress.parse(report(**changes), CHANNEL)


def test_a_report_tells_how_far_each_partition_is_read_and_what_its_marks_say_together() -> None:
    assert parsed() == BatchProgress(
        batch=7,
        rows=9,
        seconds=1.5,
        watermark=1358443970000000,
        starts={0: 10},
        ends={0: 20, 1: 45},
        latest={0: 90, 1: 91},
        marks={0: Step(18, 700), 1: Step(41, 1358443970000000)},
        state_rows=8100,
        state_bytes=99,
        late=3,
    )


def test_no_marks_are_something_else_than_no_word_of_them() -> None:
    assert parsed(observedMetrics={"channel": {"rows": 0, "marks": []}}).marks == {}
    assert parsed(observedMetrics={}).marks is None


@pytest.mark.parametrize("nothing", [None, "None", "null"])
def test_a_batch_that_is_run_again_has_no_latest_offsets(nothing: str | None) -> None:
    sources = [
        {"endOffset": json.dumps({CHANNEL: {"0": 20}}), "latestOffset": nothing, "numInputRows": 1},
        {"endOffset": {CHANNEL: {"1": 45}}},
    ]
    found = parsed(sources=sources)
    assert (found.ends, found.latest) == ({0: 20, 1: 45}, {})


def test_a_report_may_lack_all_that_is_not_there_yet() -> None:
    found = progress.parse('{"batchId": 0, "sources": [], "stateOperators": []}', CHANNEL)
    assert (found.batch, found.rows, found.watermark, found.ends, found.marks) == (0, 0, None, {}, None)


def test_what_is_no_report_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        progress.parse("nonsense", CHANNEL)


@pytest.mark.parametrize(
    ("watermark", "state_rows", "over"),
    [
        ("9999-12-30T23:59:59.000Z", 0, True),
        ("9999-12-30T23:59:59.000Z", 1, False),
        ("9999-12-30T23:59:58.999Z", 0, False),
        ("2013-01-17T17:32:50.000Z", 0, False),
        ("1970-01-01T00:00:00.000Z", 0, False),
    ],
)
def test_it_is_over_when_all_partitions_ended_and_no_window_is_open(
    watermark: str, state_rows: int, over: bool
) -> None:
    batch = parsed(
        eventTime={"watermark": watermark}, stateOperators=[{"numRowsTotal": state_rows}], sources=[]
    )
    assert ending.AllClosed(_spec(lateness=86_400)).after(batch, {}, 0.0) is over


def test_the_end_marks_time_is_later_than_any_row_and_known_to_spark_and_python() -> None:
    last = parsed(eventTime={"watermark": "9999-12-31T23:59:59.000Z"})
    assert last.watermark == wire.END


def _spec(lateness: float) -> JobSpec:
    query = Query(
        schema="carrier string, scheduled timestamp",
        group_by=("carrier",),
        window=Window(size=3600, time="scheduled", lateness=lateness),
        aggregate={"flights": "count(*)"},
    )
    return JobSpec(
        name="flights/by-carrier",
        query=query,
        bootstrap="",
        channel=CHANNEL,
        partitions=2,
        group="flights.by-carrier",
        checkpoint="",
        where="spec.stages[1].collect",
        status_file="",
        log="",
        jars="",
    )
