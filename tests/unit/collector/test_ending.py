"""When a job that ends by itself is done."""

from __future__ import annotations

import pytest

from collector_specs import job_spec
from millrace.channel.wire import END
from millrace.collector.ending import IDLE_SECONDS, AllClosed, AllTaken
from millrace.collector.positions import Position
from millrace.collector.progress import BatchProgress

pytestmark = pytest.mark.unit

HOUR = 3_600_000_000
LATENESS = 600_000_000


def batch(
    ends: dict[int, int], watermark: int | None, state_rows: int = 1, latest: dict[int, int] | None = None
) -> BatchProgress:
    return BatchProgress(
        batch=1,
        rows=0,
        seconds=1.0,
        watermark=watermark,
        ends=ends,
        latest=latest or ends,
        marks={},
        state_rows=state_rows,
        state_bytes=0,
        late=0,
    )


def quiet() -> bool:
    return False


@pytest.mark.parametrize(
    ("done", "over"),
    [
        (batch({0: 5}, END - LATENESS, state_rows=0), True),
        (batch({0: 5}, END - LATENESS, state_rows=3), False),
        (batch({0: 5}, HOUR, state_rows=0), False),
        (batch({0: 5}, None, state_rows=0), False),
        (batch({0: 5}, END - LATENESS, state_rows=0, latest={0: 6}), False),
    ],
)
def test_all_is_closed(done: BatchProgress, over: bool) -> None:
    assert AllClosed(job_spec()).after(done, {}, 0.0) is over


def test_all_is_taken_when_what_was_there_is_read_and_its_watermark_has_come() -> None:
    ending = AllTaken({0: 10, 1: 4}, {}, job_spec())
    positions = {0: Position(10, 5 * HOUR), 1: Position(4, 3 * HOUR)}
    assert not ending.after(batch({0: 9, 1: 4}, None), positions, 0.0), "one is not read"
    assert not ending.after(batch({0: 10, 1: 4}, 0), positions, 0.0), "its windows are not closed"
    closed = 2 * HOUR  # the last window that ends by 3 h, less the lateness
    assert not ending.after(batch({0: 12, 1: 4}, closed - 1000), positions, 0.0)
    assert ending.after(batch({0: 12, 1: 4}, closed), positions, 0.0)


def test_a_partition_without_event_time_has_the_last_batch_decide() -> None:
    ending = AllTaken({0: 10, 1: 0}, {}, job_spec())
    assert not ending.after(batch({0: 10, 1: 0}, 0), {0: Position(10, HOUR)}, 100.0)
    assert not ending.idle(100.0 + IDLE_SECONDS - 0.1, quiet)
    assert not ending.idle(100.0 + IDLE_SECONDS, lambda: True), "a batch is under way"
    assert not ending.idle(101.0 + IDLE_SECONDS, quiet), "it may bring another"
    assert ending.idle(100.0 + 2 * IDLE_SECONDS, quiet)


def test_while_something_is_not_read_it_is_not_done_however_quiet() -> None:
    ending = AllTaken({0: 10}, {0: Position(9)}, job_spec())
    assert not ending.idle(0.0, quiet)
    assert not ending.idle(100.0, quiet)


def test_where_all_was_read_before_it_ends_without_a_batch() -> None:
    ending = AllTaken({0: 10}, {0: Position(10)}, job_spec())
    assert not ending.idle(0.0, quiet)
    assert ending.idle(IDLE_SECONDS, quiet)
