"""Totals of workers that come and go, rates, and when to try again."""

from __future__ import annotations

import pytest

from millrace.local.backoff import Backoff
from millrace.local.view.meter import Meter, Rate
from millrace.worker.status import StageStatus, WorkerStatus

pytestmark = pytest.mark.unit


def status(index: int, pid: int, messages: int) -> WorkerStatus:
    stages = (StageStatus("decode", "decode", messages, messages - 1, 1, 0.5),)
    return WorkerStatus(index, pid, 0.0, 0.0, "running", messages=messages, stages=stages)


def test_totals_are_summed_over_workers_and_do_not_go_back_when_one_is_restarted() -> None:
    meter = Meter()
    meter.update(0.0, [status(0, 10, 100), status(1, 11, 50)])
    assert meter.messages == 150
    meter.update(1.0, [status(0, 20, 5), status(1, 11, 60)])
    assert meter.messages == 165
    assert meter.stages[0].received == 165
    assert meter.stages[0].dead == 3


def test_a_worker_that_is_away_keeps_its_totals() -> None:
    meter = Meter()
    meter.update(0.0, [status(0, 10, 100)])
    meter.update(1.0, [])
    assert meter.messages == 100


def test_back_pressure_is_a_share_of_the_time_of_all_workers() -> None:
    meter = Meter()
    for second in range(11):
        held = StageStatus("score", "map", held_back=0.5 * second, in_flight=300)
        free = StageStatus("score", "map", in_flight=20)
        meter.update(
            float(second),
            [
                WorkerStatus(0, 10, 0.0, 0.0, "running", stages=(held,)),
                WorkerStatus(1, 11, 0.0, 0.0, "running", stages=(free,)),
            ],
        )
    assert meter.stages[0].held_back == 0.25
    assert meter.stages[0].in_flight == 320


def test_the_rate_is_that_of_the_window() -> None:
    rate = Rate(window=5.0)
    assert rate.add(0.0, 0) == 0.0
    assert rate.add(1.0, 100) == 100.0
    for second in range(2, 20):
        assert rate.add(float(second), 100) <= 100.0
    assert rate.add(20.0, 100) == 0.0


def test_backoff_grows_to_its_bound_and_gives_up() -> None:
    backoff = Backoff(first=1.0, longest=4.0, patience=4)
    assert [backoff.failed(0.1) for _ in range(5)] == [1.0, 2.0, 4.0, 4.0, None]


def test_a_long_life_or_progress_makes_the_next_failure_a_first_one() -> None:
    backoff = Backoff(first=1.0, settled=10.0)
    backoff.failed(0.1)
    assert backoff.failed(11.0) == 1.0
    assert backoff.failed(0.1) == 2.0
    backoff.progressed()
    assert backoff.failed(0.1) == 1.0
