"""What pools promise beyond the contract of all strategies: who is called when, for how long, how often, and what leaves.

Functions of these tests wait for events that the test sets, so nothing depends on how quick the machine is.
"""

from __future__ import annotations

import asyncio
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field

import pytest

import millrace
from chain_fakes import FakeRecord
from millrace.clock import Clock, Deadline, SystemClock, VirtualClock
from millrace.engine.batch import Batch
from millrace.engine.stats import StageStats
from millrace.engine.strategy import MessageRejected, Strategy
from millrace.errors import StageFailed
from millrace.strategies import FlatMap, Function, Judge, Map, Retry, Vectorized
from millrace.strategies.functions import FunctionWork
from millrace.strategies.pool import Crew, OnTheSpot, Pooled, Schedule, Sequence, Tasks, Threads, pooled

pytestmark = pytest.mark.unit

SOON = 30.0  # s: what should happen at once has to happen within


class End(Strategy):
    """Takes everything."""

    def __init__(self) -> None:
        self.taken: list[Batch] = []

    def submit(self, batch: Batch) -> None:
        self.taken.append(batch)

    def poll(self) -> None: ...
    def drain(self, partitions: Set[int]) -> None: ...
    def abandon(self, partitions: Set[int]) -> None: ...
    def close(self) -> None: ...
    def join(self, deadline: Deadline) -> bool:
        return True

    def terminate(self) -> None: ...


@dataclass
class Bench:
    """A pooled stage before an end that takes everything."""

    function: Callable[..., object]
    crew: str = "threads"
    size: int = 4
    sequence: Sequence = Sequence.ANY
    ordered: bool = True
    on_error: str = "Stop"
    retry: Retry = field(default_factory=Retry)
    timeout: float | None = None
    work: Callable[[Function, Judge], FunctionWork] = Map
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        judge = Judge("stage", dead_letters=True, on_error_dead_letter=self.on_error == "DeadLetter")
        work = self.work(Function(self.function), judge)
        schedule = Schedule(self.sequence, self.retry, judge.judge, self.clock)
        crew: Crew = OnTheSpot(schedule, work, self.clock)
        if self.crew != "spot":
            kind = Threads if self.crew == "threads" else Tasks
            crew = kind(schedule, work, self.size, self.timeout, self.clock, name="test")
        self.end, self.members, self.stats = End(), crew, StageStats()
        self.strategy = Pooled(
            self.end, work, schedule, crew, self.size, self.stats, self.clock, ordered=self.ordered
        )

    def submit(self, *values: object, start: int = 0, partition: int = 0, key: bytes | None = None) -> None:
        records = [
            FakeRecord(start + n, b"%d" % n, partition, key if key is not None else str(value).encode()[:1])
            for n, value in enumerate(values)
        ]
        batch = Batch(partition, start, start + len(values), records, records, list(values))
        self.until(lambda: self._submitted(batch))

    def _submitted(self, batch: Batch) -> bool:
        try:
            self.strategy.submit(batch)
        except MessageRejected:
            return False
        return True

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + SOON
        while not condition():
            assert time.monotonic() < deadline, "it does not happen"
            self.strategy.poll()
            self.clock.sleep(0.001)
            time.sleep(0)

    def settle(self) -> None:
        self.until(lambda: not self.strategy._busy())

    def finish(self, *values: object, partition: int = 0) -> None:
        """Submit, and settle; a failure may be raised by either."""
        self.submit(*values, partition=partition)
        self.settle()

    @property
    def values(self) -> list[object]:
        return [value for batch in self.end.taken for value in batch.values]

    @property
    def dead(self) -> list[tuple[int, str]]:
        return [(d.record.offset(), d.reason) for batch in self.end.taken for d in batch.dead]


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(function: Callable[..., object], **options: object) -> Bench:
        made.append(Bench(function, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in made:
        one.strategy.terminate()


Make = Callable[..., Bench]


def test_threads_call_at_the_same_time_and_results_keep_their_order(bench: Make) -> None:
    together = threading.Barrier(4)

    def function(value: int) -> int:
        together.wait(SOON)
        time.sleep(0.001 * (4 - value))
        return value * 10

    made = bench(function)
    made.submit(0, 1, 2, 3)
    made.settle()
    assert made.values == [0, 10, 20, 30]


def test_coroutines_wait_at_the_same_time_and_results_keep_their_order(bench: Make) -> None:
    waiting = 0

    async def function(value: int) -> int:
        nonlocal waiting
        waiting += 1
        while waiting < 100:
            await asyncio.sleep(0)
        return value * 10

    made = bench(function, crew="asyncio", size=100)
    made.submit(*range(100))
    made.settle()
    assert made.values == [value * 10 for value in range(100)]


def test_no_more_coroutines_wait_than_the_pool_has_places(bench: Make) -> None:
    waiting = most = 0

    async def function(value: int) -> None:
        nonlocal waiting, most
        waiting += 1
        most = max(most, waiting)
        await asyncio.sleep(0)
        waiting -= 1

    made = bench(function, crew="asyncio", size=7)
    for start in range(0, 200, 50):
        made.submit(*range(50), start=start)
    made.settle()
    assert most == 7


def test_coroutines_that_never_wait_are_called_by_few_tasks(bench: Make) -> None:
    tasks = set()

    async def function(value: int) -> int:
        tasks.add(asyncio.current_task())
        return value

    made = bench(function, crew="asyncio", size=1000)
    made.submit(*range(500))
    made.settle()
    assert made.values == list(range(500))
    assert len(tasks) <= 2


@pytest.mark.parametrize("crew", ["threads", "asyncio"])
def test_with_ordering_key_messages_of_a_key_are_called_one_after_the_other(bench: Make, crew: str) -> None:
    busy: set[str] = set()
    seen: list[str] = []

    def begin(value: str) -> None:
        assert value[0] not in busy
        busy.add(value[0])
        seen.append(value)

    def function(value: str) -> str:
        begin(value)
        time.sleep(0.0001)
        busy.remove(value[0])
        return value

    async def coroutine(value: str) -> str:
        begin(value)
        await asyncio.sleep(0.0001)
        busy.remove(value[0])
        return value

    chance = random.Random(1)
    chosen = function if crew == "threads" else coroutine
    made = bench(chosen, crew=crew, size=8, sequence=Sequence.KEY, ordered=False)
    values = [f"{chance.choice('abc')}{n}" for n in range(200)]
    for start in range(0, 200, 20):
        made.submit(*values[start : start + 20], start=start)
    made.settle()
    for order in (seen, [str(value) for value in made.values]):
        for key in "abc":
            assert [v for v in order if v[0] == key] == [v for v in values if v[0] == key]


def test_with_ordering_none_a_slow_message_holds_up_no_other(bench: Make) -> None:
    gate = threading.Event()

    def function(value: int) -> int:
        if value == 1:
            gate.wait(SOON)
        return value

    made = bench(function, ordered=False)
    made.submit(0, 1, 2, 3)
    made.submit(4, 5, start=4)
    made.until(lambda: sorted(map(str, made.values)) == ["0", "2", "3", "4", "5"])
    answered = sorted((batch.start, batch.end) for batch in made.end.taken)
    assert not any(start <= 1 < end for start, end in answered), "its offset waits"
    gate.set()
    made.settle()
    assert sorted(map(str, made.values)) == list("012345")


def test_what_is_done_of_a_slow_batch_goes_on_before_the_rest(bench: Make) -> None:
    gate = threading.Event()

    def function(value: int) -> int:
        if value == 2:
            gate.wait(SOON)
        return value

    made = bench(function)
    made.submit(0, 1, 2, 3)
    made.until(lambda: made.values == [0, 1])
    assert [(batch.start, batch.end) for batch in made.end.taken][-1][1] == 2
    gate.set()
    made.settle()
    assert made.values == [0, 1, 2, 3]


def test_values_of_one_message_are_never_parted(bench: Make) -> None:
    """An earlier flatMap has made several of one message: its offset is done when all of them are."""
    gate = threading.Event()

    def function(value: int) -> int:
        if value == 3:
            gate.wait(SOON)
        return value

    made = bench(function, ordered=False)
    records = [FakeRecord(offset) for offset in (0, 1, 1, 1, 2)]
    source = [records[0], records[1], records[4]]
    made.strategy.submit(Batch(0, 0, 3, source, records, [0, 1, 2, 3, 4]))
    made.until(lambda: sorted(map(str, made.values)) == ["0", "4"])
    gate.set()
    made.settle()
    assert [value for value in made.values if value not in (0, 4)] == [1, 2, 3]


def test_after_a_failure_that_stops_nothing_from_it_on_is_handed_on_and_little_is_begun(bench: Make) -> None:
    called: list[int] = []

    def function(value: int) -> int:
        called.append(value)
        if value == 3:
            raise KeyError("tail")
        return value

    made = bench(function, size=1)
    with pytest.raises(StageFailed) as raised:
        made.finish(*range(100))
    assert (raised.value.partition, raised.value.offset, raised.value.stage) == (0, 3, "stage")
    assert "KeyError" in raised.value.what
    assert "test_pools.py" in raised.value.what
    assert made.values == [0, 1, 2]
    assert called == [0, 1, 2, 3]
    with pytest.raises(StageFailed):
        made.strategy.submit(Batch(0, 100, 101, [], [], []))
    made.strategy.close()
    assert made.strategy.join(Deadline.after(made.clock, SOON))


def test_what_was_begun_of_another_partition_is_brought_to_its_end_after_a_failure(bench: Make) -> None:
    gate, begun = threading.Event(), list[str]()

    def function(value: str) -> str:
        if value == "bad":
            raise ValueError
        begun.append(value)
        gate.wait(SOON)
        return value

    made = bench(function, size=2)
    made.submit("a", "b", partition=1)
    made.until(lambda: len(begun) == 2)
    gate.set()
    with pytest.raises(StageFailed):
        made.finish("bad", partition=2)
    made.strategy.close()
    assert made.strategy.join(Deadline.after(made.clock, SOON))
    assert made.values == ["a", "b"]


def test_a_failure_of_a_partition_that_was_given_up_stops_nothing(bench: Make) -> None:
    gate = threading.Event()

    def function(value: str) -> str:
        gate.wait(SOON)
        if value == "bad":
            raise ValueError
        return value

    made = bench(function, size=1)
    made.submit("bad", partition=1)
    made.strategy.abandon({1})
    gate.set()
    made.submit("a", "b", partition=2)
    made.settle()
    assert made.values == ["a", "b"]


@pytest.mark.parametrize("crew", ["threads", "asyncio"])
def test_a_call_that_takes_too_long_counts_as_a_timeout(bench: Make, crew: str) -> None:
    gate, cancelled = threading.Event(), threading.Event()

    def function(value: int) -> int:
        if value == 1:
            gate.wait(SOON)
        return value

    async def coroutine(value: int) -> int:
        try:
            if value == 1:
                await asyncio.sleep(SOON)
        finally:
            if value == 1:
                cancelled.set()
        return value

    made = bench(function if crew == "threads" else coroutine, crew=crew, timeout=0.05, on_error="DeadLetter")
    made.submit(0, 1, 2)
    made.settle()
    assert made.values == [0, 2]
    assert made.dead == [(1, "TimeoutError: it took longer than 0.05 s")]
    if crew == "asyncio":
        assert cancelled.wait(SOON)
    gate.set()
    made.submit(3, 4, start=3)
    made.settle()
    assert made.values == [0, 2, 3, 4]


def test_calls_that_go_on_for_ever_end_the_worker_whatever_on_error_says(bench: Make) -> None:
    gate = threading.Event()
    made = bench(lambda value: gate.wait(SOON), size=2, timeout=0.05, on_error="DeadLetter")
    with pytest.raises(StageFailed, match="2 calls that did go on for ever") as raised:
        made.finish(0, 1, 2, 3)
    assert raised.value.offset == 2
    assert [offset for offset, _ in made.dead] == [0, 1]
    gate.set()


def test_a_function_that_holds_the_event_loop_ends_the_worker(bench: Make) -> None:
    gate = threading.Event()

    async def function(value: int) -> None:
        gate.wait(SOON)

    made = bench(function, crew="asyncio", size=10, timeout=0.05, on_error="DeadLetter")
    with pytest.raises(StageFailed, match="holds the event loop"):
        made.finish(0, 1, 2)
    gate.set()


def test_a_coroutine_that_cancels_itself_has_failed(bench: Make) -> None:
    async def function(value: int) -> int:
        if value == 1:
            raise asyncio.CancelledError
        return value

    made = bench(function, crew="asyncio", on_error="DeadLetter")
    made.submit(0, 1, 2)
    made.settle()
    assert made.values == [0, 2]
    assert made.dead == [(1, "RuntimeError: the call was cancelled from within")]


@pytest.mark.parametrize("crew", ["spot", "threads", "asyncio"])
def test_an_exit_or_an_end_of_iteration_is_a_failure_of_its_message(bench: Make, crew: str) -> None:
    def function(value: int) -> int:
        if value == 1:
            sys.exit(3)
        if value == 2:
            raise TimeoutError("of my own")
        return value

    async def coroutine(value: int) -> int:
        return function(value)

    made = bench(coroutine if crew == "asyncio" else function, crew=crew, on_error="DeadLetter")
    made.submit(0, 1, 2)
    made.settle()
    assert made.values == [0]
    assert [reason for _, reason in made.dead] == [
        "RuntimeError: a stage function called sys.exit(3)",
        "TimeoutError: of my own",
    ]


class Flaky:
    """Fails so many times for each value."""

    def __init__(self, failures: int, error: Exception) -> None:
        self.failures, self.error, self.calls = failures, error, list[int]()

    def __call__(self, value: int) -> int:
        self.calls.append(value)
        if self.calls.count(value) <= self.failures:
            raise self.error
        return value


def test_without_a_pool_messages_wait_for_the_one_that_is_called_again_and_nobody_sleeps(bench: Make) -> None:
    function, clock = Flaky(2, ConnectionError()), VirtualClock()
    retry = Retry(3, 1.0, 10.0, chance=random.Random(0))
    made = bench(function, crew="spot", size=4, sequence=Sequence.PARTITION, retry=retry, clock=clock)
    made.submit(1, 2)
    made.submit(7, partition=1)
    assert clock.monotonic() < 0.5
    assert function.calls == [1, 7]
    made.settle()
    assert [v for v in function.calls if v != 7] == [1, 1, 1, 2, 2, 2]
    assert sorted(map(str, made.values)) == ["1", "2", "7"]


@pytest.mark.parametrize("crew", ["spot", "threads"])
def test_when_all_attempts_have_failed_on_error_applies(bench: Make, crew: str) -> None:
    function = Flaky(9, ConnectionError("refused"))
    made = bench(function, crew=crew, on_error="DeadLetter", retry=Retry(3, 0.001, 0.002))
    made.submit(1)
    made.settle()
    assert function.calls == [1, 1, 1]
    assert made.dead == [(0, "ConnectionError: refused")]


def test_invalid_and_exceptions_that_are_not_named_are_not_retried(bench: Make) -> None:
    for error in (millrace.Invalid("no"), KeyError("k"), MemoryError()):
        function = Flaky(9, error)
        retry = Retry(5, 0.001, 0.001, (OSError, millrace.Invalid, MemoryError))
        made = bench(function, on_error="DeadLetter", retry=retry)
        try:
            made.finish(1)
        except StageFailed:
            assert isinstance(error, MemoryError)
        assert function.calls == [1]


def test_a_timeout_is_retried_while_the_call_that_was_given_up_goes_on(bench: Make) -> None:
    gate, calls = threading.Event(), list[int]()

    def function(value: int) -> int:
        calls.append(value)
        if len(calls) == 1:
            gate.wait(SOON)
            return -1
        return value

    made = bench(function, timeout=0.05, retry=Retry(2, 0.001, 0.001, (TimeoutError,)))
    made.submit(5)
    made.settle()
    gate.set()
    assert made.values == [5]
    assert calls == [5, 5]


def test_waits_double_up_to_the_longest_and_at_most_half_of_them_is_left_out() -> None:
    retry = Retry(10, 0.1, 1.0, chance=random.Random(3))
    for attempt, whole in ((1, 0.1), (2, 0.2), (3, 0.4), (4, 0.8), (5, 1.0), (9, 1.0)):
        waits = [retry.wait(OSError(), attempt) for _ in range(100)]
        assert all(wait is not None and whole / 2 <= wait <= whole for wait in waits)
        assert len(set(waits)) > 50
    assert retry.wait(OSError(), 10) is None


def test_a_pool_takes_no_more_bytes_than_it_may(bench: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pooled, "MOST_BYTES", 10)
    gate = threading.Event()
    made = bench(lambda value: gate.wait(SOON), size=100)
    records = [FakeRecord(0, b"0123456789")]
    made.strategy.submit(Batch(0, 0, 1, records, records, [0]))
    with pytest.raises(MessageRejected):
        made.strategy.submit(Batch(0, 1, 2, records, records, [0]))
    gate.set()


def test_a_pool_takes_more_while_batches_are_done_soon(bench: Make) -> None:
    made = bench(lambda value: value, size=1)
    for start in range(0, 3000, 10):
        made.submit(*range(10), start=start)
    made.settle()
    assert made.strategy._window > 10
    gate = threading.Event()
    made = bench(lambda value: gate.wait(SOON), size=1)
    made.submit(1, 2)
    with pytest.raises(MessageRejected):
        made.strategy.submit(Batch(0, 2, 3, [], [], []))
    gate.set()


def test_an_asynchronous_generator_gives_several_values(bench: Make) -> None:
    async def function(value: int) -> object:
        for n in range(value):
            await asyncio.sleep(0)
            yield n

    made = bench(function, crew="asyncio", work=FlatMap)
    made.submit(0, 1, 3)
    made.settle()
    assert made.values == [0, 0, 1, 2]


def test_a_vectorized_function_is_called_once_for_each_batch(bench: Make) -> None:
    calls: list[list[int]] = []

    def function(values: list[int]) -> list[object]:
        calls.append(values)
        return [millrace.Invalid("odd") if value % 2 else value for value in values]

    made = bench(function, work=lambda f, j: Vectorized(Map(f, j)))
    made.submit(0, 1, 2)
    made.submit(start=3)
    made.submit(4, 5, start=4)
    made.settle()
    assert sorted(calls) == [[0, 1, 2], [4, 5]]
    assert made.values == [0, 2, 4]
    assert made.dead == [(1, "odd"), (5, "odd")]


def test_terminating_does_not_wait_for_a_function_that_does_not_return(bench: Make) -> None:
    gate = threading.Event()
    made = bench(lambda value: gate.wait(SOON))
    made.submit(1, 2, 3)
    began = time.monotonic()
    made.strategy.terminate()
    assert time.monotonic() - began < SOON / 2
    gate.set()
