"""When a stage counts as stuck, how often that is told, and when it is over; on a virtual clock."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from millrace.clock import VirtualClock
from millrace.engine.calls import Call
from millrace.worker.http import answer
from millrace.worker.metrics import exposition
from millrace.worker.pulse import Pulse
from millrace.worker.status import StageStatus, StuckStage, WorkerStatus, read
from millrace.worker.stuck import ENDED_WITHIN, Detector
from millrace.worker.watcher import Watcher

pytestmark = pytest.mark.unit


def call(
    mark: Hashable, *, stage: str = "score", offset: int = 17, allowed: float = 0.0, holding: bool = True
) -> Call:
    return Call(stage, 3, offset, offset, mark, lambda: f"stack of {mark}", allowed, holding)


def test_a_call_is_stuck_when_the_same_is_seen_for_too_long() -> None:
    detector = Detector(after=60)
    for now in range(0, 60, 2):
        assert not detector.look(float(now), [call("a")]).begun
    (incident,) = detector.look(60.0, [call("a")]).begun
    assert (incident.stage, incident.seconds, incident.calls) == ("score", 60.0, 1)


def test_calls_that_come_to_an_end_are_not_stuck_however_long_the_batch_takes() -> None:
    detector = Detector(after=60)
    for now in range(1000):
        assert not detector.look(float(now), [call(("batch", now // 50))]).begun


def test_an_incident_is_told_once_and_ends_when_the_stage_goes_on() -> None:
    detector = Detector(after=10)
    told = [detector.look(float(now), [call("a")]) for now in range(30)]
    assert sum(len(change.begun) for change in told) == 1
    (ended,) = detector.look(30.0, [call("b")]).ended
    assert (ended.call.mark, ended.seconds) == ("a", 29.0)
    assert not detector.incidents


def test_many_calls_of_a_stage_are_one_incident() -> None:
    detector = Detector(after=10)
    calls = [call(n, offset=n) for n in range(16)]
    begun = [one for now in range(20) for one in detector.look(float(now), calls).begun]
    assert [one.calls for one in begun] == [16]
    assert not detector.look(20.0, calls[5:]).ended
    assert detector.incidents["score"].calls == 11


def test_stages_have_incidents_of_their_own() -> None:
    detector = Detector(after=10)
    calls = [call("a"), call("b", stage="weather")]
    begun = {one.stage for now in range(11) for one in detector.look(float(now), calls).begun}
    assert begun == {"score", "weather"}
    assert {one.stage for one in detector.look(11.0, calls[:1]).ended} == {"weather"}


def test_the_coroutine_that_holds_the_event_loop_is_to_blame() -> None:
    detector = Detector(after=10)
    calls = [call(n, offset=n, holding=n == 5) for n in range(8)]
    begun = [one for now in range(11) for one in detector.look(float(now), calls).begun]
    assert [one.call.first for one in begun] == [5]


def test_a_stage_with_a_longer_timeout_has_that() -> None:
    detector = Detector(after=10)
    slow = call("a", allowed=300)
    begun = {
        now: one for now in range(400) for one in detector.look(float(now), [slow]).begun
    }  # looks every second
    assert list(begun) == [300 + ENDED_WITHIN]


def test_a_shorter_timeout_changes_nothing() -> None:
    detector = Detector(after=10)
    begun = {now for now in range(20) for _ in detector.look(float(now), [call("a", allowed=3)]).begun}
    assert begun == {10}


def test_a_process_that_stood_still_as_a_whole_is_not_taken_for_a_stuck_stage() -> None:
    detector = Detector(after=10)
    detector.look(0.0, [call("a")])
    assert not detector.look(3600.0, [call("a")]).begun
    begun = {now for now in range(3601, 3620) for _ in detector.look(float(now), [call("a")]).begun}
    assert begun == {3610}


@given(st.lists(st.sets(st.integers(0, 5)), max_size=60))
def test_it_says_what_a_record_of_all_looks_says(looks: list[set[int]]) -> None:
    """The reference: a call is late at a look if it was in this look and in all of the last ten seconds."""
    detector, open_ = Detector(after=10), False
    for now, marks in enumerate(looks):
        change = detector.look(float(now), [call(mark) for mark in marks])
        late = now >= 10 and bool(set.intersection(*looks[now - 10 : now + 1]))
        assert bool(detector.incidents) is late
        assert (len(change.begun), len(change.ended)) == (late and not open_, open_ and not late)
        open_ = late


class World:
    """A watcher, and who hears of it."""

    def __init__(self, folder: Path) -> None:
        self.clock, self.calls = VirtualClock(), list[Call]()
        self.pulse = Pulse(0, self.clock, folder / "0.json")
        self.pulse.fill_from(running)
        self.pulse.publish()
        self.watcher = Watcher(lambda: self.calls, self.pulse.stuck, self.clock, 60.0)

    def look(self, seconds: float) -> None:
        for _ in range(round(seconds / 2)):
            self.clock.advance(2.0)
            self.watcher.look()


def running(status: WorkerStatus) -> WorkerStatus:
    stages = (StageStatus("score", "map", 10, 10), StageStatus("out", "produce", 10, 10))
    return WorkerStatus(0, 1, 0.0, status.updated, "running", ready=True, stages=stages)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def log() -> Iterator[list[structlog.typing.EventDict]]:
    with structlog.testing.capture_logs() as events:
        yield events


def test_a_stuck_stage_is_one_line_in_the_log_with_its_stack(
    world: World, log: list[structlog.typing.EventDict]
) -> None:
    world.calls = [call("a")]
    world.look(300)
    (event,) = log
    assert (event["event"], event["log_level"]) == ("stage stuck", "warning")
    assert (event["stage"], event["partition"], event["offsets"]) == ("score", 3, [17, 17])
    assert event["seconds"] >= 60
    assert event["stack"] == "stack of a"
    world.calls = []
    world.look(10)
    assert [one["event"] for one in log] == ["stage stuck", "stage goes on"]


def test_it_stands_in_the_status_and_goes_from_there_while_the_loop_itself_stands_still(
    world: World, tmp_path: Path
) -> None:
    updated = world.pulse.status().updated
    world.calls = [call("a")]
    world.look(100)
    for status in (world.pulse.status(), read(tmp_path / "0.json")):
        assert status is not None
        assert [(one.stage, one.partition, one.first, one.calls) for one in status.stuck] == [
            ("score", 3, 17, 1)
        ]
        assert status.reasons == (
            "stage score is stuck at partition 3, offset 17: the worker's log has its stack",
        )
        assert status.ready, "nobody is to restart it, or to hold back others, for that"
        assert status.updated == updated, "the loop has not come round"
    world.calls = []
    world.look(2)
    assert not world.pulse.status().stuck
    left = read(tmp_path / "0.json")
    assert left is not None
    assert (left.stuck, left.reasons) == ((), ())


def test_a_stage_that_is_stuck_in_a_pool_leaves_the_worker_alive_and_ready(world: World) -> None:
    world.calls = [call("a")]
    for _ in range(200):
        world.look(2)
        world.pulse.beat()  # the loop goes round: only the pool's call does not return
    assert world.pulse.status().stuck
    assert answer("/livez", world.pulse)[0] == 200
    assert answer("/readyz", world.pulse)[0] == 200


def test_metrics_tell_of_each_stage_whether_it_is_stuck() -> None:
    status = running(WorkerStatus(0, 1, 0.0, 0.0, "running"))
    _, text = exposition(status)
    assert _stuck(text) == {
        ("calls", "score"): 0,
        ("seconds", "score"): 0,
        ("calls", "out"): 0,
        ("seconds", "out"): 0,
    }
    stuck = StuckStage("score", 3, 17, 17, 61.5, 4)
    _, text = exposition(WorkerStatus(0, 1, 0.0, 0.0, "running", stages=status.stages, stuck=(stuck,)))
    assert _stuck(text)[("calls", "score")] == 4
    assert _stuck(text)[("seconds", "score")] == 61.5
    assert _stuck(text)[("calls", "out")] == 0


def _stuck(text: bytes) -> dict[tuple[str, str], float]:
    return {
        (sample.name.removeprefix("millrace_stage_stuck_"), sample.labels["stage"]): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if sample.name.startswith("millrace_stage_stuck_")
    }


def test_a_look_that_fails_says_so_once_and_the_next_one_works(
    log: list[structlog.typing.EventDict],
) -> None:
    clock, looks = VirtualClock(), iter(range(100))

    def calls() -> list[Call]:
        if next(looks) < 3:
            raise RuntimeError("the chain was being built")
        return []

    watcher = Watcher(calls, lambda _: None, clock, 60.0)
    for _ in range(5):
        watcher.look_safely()
    assert [event["event"] for event in log] == ["can't look at the stages"]
