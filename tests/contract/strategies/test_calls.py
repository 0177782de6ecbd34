"""What a strategy tells of the calls that are under way, in every pool: of which message, that it is still the same, and where
it is. The function of these tests does not return from one message until the test lets it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from chain_fakes import FakeRecord
from millrace.clock import Deadline, SystemClock
from millrace.engine.batch import Batch
from millrace.engine.calls import Call
from millrace.engine.outbox import Outbox
from millrace.engine.stats import StageStats
from millrace.engine.strategy import Strategy
from millrace.strategies import Commit, Fill, Folded, Function, Gather, Inline, Judge, Map, Room, Vectorized
from millrace.strategies.pool import Crew, OnTheSpot, Pooled, Schedule, Sequence, Tasks, Threads
from millrace.strategies.processes import Launch, Processes, Shape, Values
from millrace.strategies.retry import ONCE

pytestmark = pytest.mark.contract

SOON = 60.0  # s: what should happen at once has to happen within
PARTITION, FIRST, STUCK = 3, 10, 12

JUDGE = Judge("score", dead_letters=True)


class Gate:
    """Where calls wait for the message STUCK."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.open = folder, threading.Event()

    def release(self) -> None:
        self.open.set()
        (self.folder / "go").touch()

    def server_that_never_answers(self) -> None:
        self.open.wait(SOON)

    async def service_that_never_answers(self) -> None:
        while not self.open.is_set():
            await asyncio.sleep(0.005)

    def function(self, value: bytes) -> bytes:
        if value == b"%d" % STUCK:
            self.server_that_never_answers()
        return value

    def vectorized(self, values: list[bytes]) -> list[bytes]:
        return [self.function(value) for value in values]

    def accumulate(self, count: int, value: bytes) -> int:
        self.function(value)
        return count + 1

    async def coroutine(self, value: bytes) -> bytes:
        if value == b"%d" % STUCK:
            await self.service_that_never_answers()
        return value

    async def deaf(self, value: bytes) -> bytes:
        return self.function(value)


Make = Callable[[Gate, Strategy], Strategy]


def inline(gate: Gate, end: Strategy) -> Strategy:
    return Inline(end, Map(Function(gate.function), JUDGE), StageStats("score"), SystemClock())


def vectorized(gate: Gate, end: Strategy) -> Strategy:
    return Inline(end, Vectorized(Map(Function(gate.vectorized), JUDGE)), StageStats("score"), SystemClock())


def reduce(gate: Gate, end: Strategy) -> Strategy:
    def contents() -> Folded:
        return Folded(int, Function(gate.accumulate), None, JUDGE)

    return Gather(end, Fill(3, None, 60.0), contents, Room(), StageStats("score"), SystemClock())


def pooled(kind: str) -> Make:
    def make(gate: Gate, end: Strategy) -> Strategy:
        clock = SystemClock()
        call = {"asyncio": gate.coroutine, "a held event loop": gate.deaf}.get(kind, gate.function)
        work = Map(Function(call, asynchronous=call != gate.function), JUDGE)
        sequence = Sequence.PARTITION if kind == "later" else Sequence.ANY
        schedule = Schedule(sequence, ONCE, JUDGE.judge, clock)
        crew: Crew = OnTheSpot(schedule, work, clock)
        if kind == "threads":
            crew = Threads(schedule, work, 2, None, clock, name="score")
        elif kind != "later":
            crew = Tasks(schedule, work, 2, None, clock, name="score")
        return Pooled(end, work, schedule, crew, 2, StageStats("score"), clock)

    return make


def in_processes(gate: Gate, end: Strategy) -> Strategy:
    order = {"kind": "sticks_at_12", "marks": str(gate.folder)}
    return Processes(
        end,
        Launch("process_functions:works_of", msgspec.json.encode(order)),
        1,
        Shape(Values.BYTES, Values.OBJECTS),
        [(StageStats("score"), True)],
        JUDGE,
        SystemClock(),
    )


POOLS: dict[str, tuple[Make, str]] = {
    "inline": (inline, "server_that_never_answers"),
    "vectorized": (vectorized, "server_that_never_answers"),
    "reduce": (reduce, "server_that_never_answers"),
    "later": (pooled("later"), "server_that_never_answers"),
    "threads": (pooled("threads"), "server_that_never_answers"),
    "asyncio": (pooled("asyncio"), "service_that_never_answers"),
    "a held event loop": (pooled("a held event loop"), "server_that_never_answers"),
    "processes": (in_processes, "sticks_at_12"),
}


class Stage:
    """A strategy, driven on a thread of its own as an engine does it."""

    def __init__(self, make: Make, gate: Gate) -> None:
        self.done: list[tuple[int, int]] = []
        end = Commit(lambda _partition, start, end: self.done.append((start, end)), Outbox())
        self.strategy = make(gate, end)
        self.over = False
        self.thread = threading.Thread(target=self._drive)
        self.thread.start()

    def _drive(self) -> None:
        records = [FakeRecord(at, b"%d" % at, PARTITION) for at in range(FIRST, FIRST + 5)]
        values = records if isinstance(self.strategy, Processes) else [r.body for r in records]
        self.strategy.submit(Batch(PARTITION, FIRST, FIRST + 5, records, records, values))
        deadline = time.monotonic() + SOON
        while not self.over and time.monotonic() < deadline:
            self.strategy.poll()
            time.sleep(0.002)
        self.strategy.close()
        self.strategy.join(Deadline.after(SystemClock(), SOON))
        self.strategy.terminate()

    def calls(self) -> list[Call]:
        return list(self.strategy.calls())

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SOON
        while not condition():
            assert time.monotonic() < deadline, f"it does not happen; calls: {self.calls()}"
            time.sleep(0.005)

    def end(self) -> None:
        self.over = True
        self.thread.join(SOON)
        assert not self.thread.is_alive()


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


@pytest.fixture(params=POOLS)
def stage(request: pytest.FixtureRequest, gate: Gate) -> Iterator[tuple[Stage, str, str]]:
    make, inside = POOLS[request.param]
    stage = Stage(make, gate)
    yield stage, inside, request.param
    gate.release()
    stage.end()


def test_a_call_that_does_not_return_is_told_with_its_message_and_its_stack(
    stage: tuple[Stage, str, str], gate: Gate
) -> None:
    at_work, inside, pool = stage
    whole = (FIRST, FIRST + 4)  # of a function of whole batches no message can be told
    expected = whole if pool == "vectorized" else (STUCK, STUCK)

    def stuck() -> list[Call]:
        return [call for call in at_work.calls() if (call.first, call.last) == expected]

    at_work.until(lambda: bool(stuck()) and inside in stuck()[0].stack())
    (call,) = stuck()
    assert (call.stage, call.partition) == ("score", PARTITION)
    assert call.holding is (pool != "asyncio")
    assert [again.mark for again in stuck()] == [call.mark]

    gate.release()
    at_work.until(lambda: not at_work.calls())
    at_work.over = True
    at_work.until(
        lambda: at_work.done[-1:] == [(FIRST, FIRST + 5)] or sum(e - s for s, e in at_work.done) == 5
    )
