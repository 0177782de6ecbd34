"""What a collector serves over HTTP."""

from __future__ import annotations

import json

import msgspec
import pytest

from millrace.channel.wire import END
from millrace.clock import VirtualClock
from millrace.collector.metrics import Site, exposition
from millrace.collector.status import FAILED, RUNNING, CollectorStatus

pytestmark = pytest.mark.unit

STATUS = CollectorStatus(
    pid=7,
    started=0.0,
    updated=0.0,
    state=RUNNING,
    version=2,
    attempt=5,
    restarts=3,
    batch=41,
    batches=12,
    seconds=1.5,
    busy=20.5,
    rows=1000,
    rows_per_second=400.0,
    written=30,
    state_rows=17,
    state_bytes=4096,
    watermark=1_000_000_000,
    offsets={0: 90, 1: 100},
    latest={0: 100, 1: 100, 2: 5},
    late=4,
)


def figures(status: CollectorStatus, now: float) -> dict[str, float]:
    lines = exposition(status, now)[1].decode().splitlines()
    own = [line.rsplit(" ", 1) for line in lines if line.startswith("millrace_")]
    return {name.removeprefix("millrace_collector_"): float(value) for name, value in own}


def test_all_that_is_known_is_a_metric() -> None:
    assert figures(STATUS, now=1_600.0) == {
        "rows_total": 1000,
        "written_rows_total": 30,
        "batches_total": 12,
        "batch_seconds_total": 20.5,
        "late_groups_total": 4,
        "running": 1,
        "rows_per_second": 400,
        "last_batch_seconds": 1.5,
        "state_rows": 17,
        "state_bytes": 4096,
        "checkpoint_version": 2,
        "attempt": 5,
        "restarts": 3,
        "watermark_lag_seconds": 600,
        'channel_lag_offsets{partition="0"}': 10,
        'channel_lag_offsets{partition="1"}': 0,
        'channel_lag_offsets{partition="2"}': 5,
    }


@pytest.mark.parametrize("watermark", [None, END - 86_400_000_000])
def test_a_watermark_that_is_no_time_has_no_lag(watermark: int | None) -> None:
    assert "watermark_lag_seconds" not in figures(msgspec.structs.replace(STATUS, watermark=watermark), 0.0)


def test_it_is_alive_while_its_loop_comes_round_and_ready_while_it_runs() -> None:
    clock, now = VirtualClock(), [STATUS]
    beaten = clock.monotonic()
    site = Site(lambda: now[0], lambda: clock.monotonic() - beaten, clock, bound=60.0)
    assert site("/livez")[::2] == site("/readyz")[::2] == (200, b"ok\n")
    clock.advance(61.0)
    now[0] = msgspec.structs.replace(STATUS, state=FAILED)
    assert site("/livez")[::2] == (503, b"no progress for 61 s (bound 60 s)\n")
    assert site("/readyz")[::2] == (503, b"failed\n")
    assert json.loads(site("/status")[2])["batch"] == 41
    assert site("/metrics")[0] == 200
    assert site("/")[0] == 404
