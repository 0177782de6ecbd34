"""Pools of processes: what goes through shared memory, and what becomes of messages that processes die of."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence, Set
from pathlib import Path

import msgspec
import psutil
import pytest

from chain_fakes import FakeRecord
from millrace.clock import Deadline, SystemClock
from millrace.engine.batch import Batch
from millrace.engine.stats import StageStats
from millrace.engine.strategy import MessageRejected, Strategy
from millrace.errors import FunctionError, StageFailed
from millrace.strategies import Judge
from millrace.strategies.processes import Launch, Processes, Shape, Values, stage
from millrace.strategies.processes.block import SMALLEST, SPARE_AFTER, Block

pytestmark = pytest.mark.integration

SOON = 240.0  # s: what should happen at once has to happen within


class End(Strategy):
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


class Bench:
    """The strategy before an end that takes everything."""

    def __init__(
        self,
        marks: Path,
        kind: str,
        *,
        size: int = 1,
        letters: bool = True,
        rest: bool = False,
        into: Values = Values.BYTES,
        out: Values = Values.OBJECTS,
        timeout: float | None = None,
        **order: object,
    ) -> None:
        self.marks, self.end, self.clock, self.stats = marks, End(), SystemClock(), StageStats()
        payload = {
            "kind": kind, "marks": str(marks), "timeout": timeout, "into": into.value, "out": out.value, **order
        }  # fmt: skip
        self.strategy = Processes(
            self.end,
            Launch("process_functions:works_of", msgspec.json.encode(payload)),
            size,
            Shape(into, out, keys=rest, rest=rest),
            [(self.stats, True)],
            Judge("stage", dead_letters=letters, on_error_dead_letter=bool(order.get("on_error"))),
            self.clock,
            timeout=timeout,
            where="spec.stages[0].map",
        )

    def submit(self, records: Sequence[FakeRecord], values: Sequence[object] | None = None) -> None:
        first, end = records[0].offset(), records[-1].offset() + 1
        batch = Batch(
            records[0].partition(), first, end, records, records, records if values is None else values
        )

        def submitted() -> bool:
            try:
                self.strategy.submit(batch)
            except MessageRejected:
                return False
            return True

        self.until(submitted)

    def numbers(self, count: int, *, start: int = 0, partition: int = 0) -> None:
        self.submit([FakeRecord(start + n, b"%d" % (start + n), partition) for n in range(count)])

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + SOON
        while not condition():
            assert time.monotonic() < deadline, "it does not happen"
            self.strategy.poll()
            time.sleep(0.002)

    def settle(self) -> None:
        self.until(lambda: not self.strategy._busy())

    def settle_or_fail(self) -> None:
        deadline = time.monotonic() + SOON
        while time.monotonic() < deadline:
            self.strategy.poll()
            time.sleep(0.002)

    @property
    def values(self) -> list[object]:
        return [value for batch in self.end.taken for value in batch.values]

    @property
    def dead(self) -> list[tuple[int, str]]:
        return [(d.record.offset(), d.reason) for batch in self.end.taken for d in batch.dead]

    def calls(self, value: int) -> int:
        return len((self.marks / str(value)).read_text().splitlines())


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(kind: str, **options: object) -> Bench:
        made.append(Bench(tmp_path, kind, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in made:
        one.strategy.terminate()


Make = Callable[..., Bench]


def test_what_another_process_has_done_sooner_waits_for_its_turn(bench: Make, tmp_path: Path) -> None:
    made = bench("zero_waits", size=2)
    for number in (0, 1):
        made.numbers(1, start=number)
    second = made.strategy._tasks[0][1]
    made.until(lambda: second.outcome is not None)
    made.strategy.poll()
    assert made.end.taken == []
    (tmp_path / "go").touch()
    made.settle()
    assert made.values == [b"0", b"1"]


def test_processes_take_no_more_bytes_than_they_may(
    bench: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "MOST_BYTES", 1)
    made = bench("zero_waits", size=4)
    made.numbers(1)
    records = [FakeRecord(1, b"1")]
    with pytest.raises(MessageRejected):
        made.strategy.submit(Batch(0, 1, 2, records, records, records))
    (tmp_path / "go").touch()
    made.settle()
    made.numbers(1, start=1)
    made.settle()
    assert made.values == [b"0", b"1"]


def test_a_message_has_all_that_its_record_had(bench: Make) -> None:
    made = bench("message", rest=True)
    records = [
        FakeRecord(7, b"x", 3, b"key", (("h", b"1"), ("h", None)), 1_700_000_000_123),
        FakeRecord(9, None, 3, ms=None),
    ]
    made.submit(records)
    made.settle()
    assert made.values == [
        (b"key", (("h", b"1"), ("h", None)), 1_700_000_000_123, 3, 7),
        (None, (), None, 3, 9),
    ]


def test_results_larger_than_a_block_and_values_that_are_not_bytes(bench: Make) -> None:
    made = bench("large", into=Values.OBJECTS, out=Values.BYTES)
    made.submit([FakeRecord(0), FakeRecord(1)], [b"ab", b"c"])
    made.settle()
    assert [len(value) for value in made.values] == [2_000_000, 1_000_000]  # type: ignore[arg-type]
    made.submit([FakeRecord(2)], [b"d" * 3])
    made.settle()
    assert len(made.values[-1]) == 3_000_000  # type: ignore[arg-type]


def test_errors_are_told_with_their_type_and_traceback_though_they_cannot_be_pickled(bench: Make) -> None:
    made = bench("raises")
    made.numbers(6, partition=4)
    with pytest.raises(StageFailed) as raised:
        made.settle()
    failed = raised.value
    assert (failed.stage, failed.partition, failed.offset) == ("stage", 4, 2)
    assert "Odd: this and that (process_functions.py:" in failed.what
    assert 'raise Odd("this", "that")' in str(failed.__cause__)
    assert made.values == [b"0", b"1"]


def test_invalid_messages_and_values_that_cannot_come_back_are_dead_letters(bench: Make) -> None:
    made = bench("raises", on_error=True)
    made.numbers(6)
    made.settle()
    assert made.values == [b"0", b"1", b"3", b"5"]
    assert made.dead == [(2, "Odd: this and that"), (4, "four")]
    assert (made.stats.received, made.stats.emitted, made.stats.dead) == (6, 4, 2)
    made = bench("unpicklable")
    made.numbers(4)
    made.settle()
    assert made.values == [b"0", b"1", b"3"]
    ((offset, reason),) = made.dead
    assert (offset, "of type function can't be passed between processes" in reason) == (2, True)


def test_a_value_that_cannot_be_sent_is_a_dead_letter(bench: Make) -> None:
    made = bench("numbers", into=Values.OBJECTS)
    made.submit([FakeRecord(n) for n in range(3)], [1, lambda: 2, 3])
    made.settle()
    assert made.values == [2, 4]
    assert [offset for offset, _ in made.dead] == [1]


def test_a_message_that_processes_die_of_is_found_and_all_others_are_done(bench: Make) -> None:
    made = bench("kills", size=2)
    made.numbers(4, start=5)
    made.numbers(4, partition=1, start=100)
    made.settle()
    assert made.dead == [(7, "its process was killed by SIGSEGV")]
    of_first = [v for b in made.end.taken if b.partition == 0 for v in b.values]
    assert of_first == [b"5", b"6", b"8"]
    assert [(b.start, b.end) for b in made.end.taken if b.partition == 1] == [(100, 104)]


def test_without_dead_letters_such_a_message_ends_the_worker(bench: Make) -> None:
    made = bench("exits", letters=False)
    made.numbers(2, start=6)
    with pytest.raises(StageFailed, match="ended by itself, with exit code 3") as raised:
        made.settle()
    assert (raised.value.partition, raised.value.offset) == (0, 7)
    assert made.values == [b"6"]


def test_a_batch_whose_process_was_killed_once_is_done_by_another(bench: Make) -> None:
    made = bench("kills_once")
    made.numbers(16)
    made.settle()
    assert made.values == [b"%d" % n for n in range(16)]
    assert made.dead == []
    assert made.calls(7) == 2


def test_a_call_that_takes_too_long_is_interrupted_and_called_again(bench: Make) -> None:
    made = bench("sleeps", timeout=0.3, attempts=2)
    made.numbers(4)
    made.settle()
    assert made.values == [b"0", b"1", b"2", b"3"]
    assert made.calls(2) == 2


def test_a_call_that_does_not_listen_is_killed_with_its_process(bench: Make) -> None:
    made = bench("never_listens", timeout=0.2, on_error=True)
    made.numbers(3)
    made.settle()
    assert made.values == [b"0", b"1"]
    ((offset, reason),) = made.dead
    assert (offset, reason[:34]) == (2, "TimeoutError: it took longer than ")


def test_a_process_that_cannot_prepare_itself_says_why(bench: Make) -> None:
    with pytest.raises(FunctionError, match=r"setup\(\) failed: no table"):
        bench("not ready").settle_or_fail()
    with pytest.raises(FunctionError, match="3 in a row were killed by SIGKILL before they were ready"):
        bench("dies at the start").settle_or_fail()


def test_the_function_is_called_once_for_each_message_and_never_for_what_was_abandoned(bench: Make) -> None:
    made = bench("waits")
    made.numbers(1)
    made.numbers(1, partition=1, start=50)
    made.numbers(1, partition=2, start=90)
    made.until((made.marks / "0").exists)
    made.strategy.abandon({0, 2})
    (made.marks / "go").touch()
    made.settle()
    assert made.values == [b"50"]
    assert (made.calls(0), made.calls(50)) == (1, 1)


def test_processes_end_with_their_parent_and_nothing_is_left(tmp_path: Path) -> None:
    """The parent is killed while its processes are in a function that does not return."""
    script = tmp_path / "parent.py"
    script.write_text(
        "import sys, pathlib, importlib.util\n"
        f"sys.path[:] = {sys.path!r}\n"
        f"spec = importlib.util.spec_from_file_location('t', {__file__!r})\n"
        "t = importlib.util.module_from_spec(spec); spec.loader.exec_module(t)\n"
        f"made = t.Bench(pathlib.Path({str(tmp_path)!r}), 'waits', size=2)\n"
        "made.numbers(1); made.numbers(1, partition=1, start=50)\n"
        "made.until(lambda: (made.marks / '0').exists() and (made.marks / '50').exists())\n"
        "print(*made.strategy.pids, flush=True)\n"
        "sys.stdin.read()\n"
    )  # fmt: skip
    shared = Path("/dev/shm")
    before = set(os.listdir(shared)) if shared.exists() else set()
    parent = subprocess.Popen(
        [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    assert parent.stdin is not None
    try:
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.communicate()
    deadline = time.monotonic() + SOON
    while any(psutil.pid_exists(pid) and _alive(pid) for pid in pids):
        assert time.monotonic() < deadline, "a process outlives its parent"
        time.sleep(0.01)
    if shared.exists():
        assert not [name for name in set(os.listdir(shared)) - before if "millrace" in name or "psm_" in name]


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_pool_that_ends_leaves_no_process_and_no_descriptor(bench: Make) -> None:
    mine = psutil.Process()
    before = mine.num_fds()
    made = bench("marked", size=2)
    made.numbers(20)
    made.settle()
    pids = made.strategy.pids
    made.strategy.terminate()
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert mine.num_fds() == before


def test_a_block_grows_and_becomes_smaller_again() -> None:
    block = Block()
    other = Block(os.dup(block.fd))
    for content in (b"a" * 10, b"b" * (SMALLEST * 5), b"c"):
        length = block.write(content)
        with other.view(length) as view:
            assert bytes(view) == content
    assert block.size == SMALLEST * 8
    for _ in range(2 * SPARE_AFTER):
        block.write(b"small")
    assert block.size == SMALLEST
    length = block.write(b"d" * (SMALLEST * 9))
    with other.view(length) as view:
        assert bytes(view) == b"d" * (SMALLEST * 9)
    block.close()
    other.close()
