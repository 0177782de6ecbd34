"""The collector is killed at the moments that were planned, and only when they are there."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from flights_example import example

pytestmark = pytest.mark.unit

ambush, striking, collecting = example("ambush"), example("striking"), example("collecting")
ANY, WRITTEN, IN_PLACE = ambush.Moment.ANY, ambush.Moment.WRITTEN, ambush.Moment.IN_PLACE
PYTHON, JVM = striking.PYTHON, striking.JVM


class Collector:
    """Two processes that do nothing, and the folders as they would have made them. The kinds of folders are two: pending
    ones beside the results, or in the checkpoint.
    """

    def __init__(self, path: Path, beside: bool) -> None:
        self._beside = beside
        self.results, self.checkpoint, self._status = path / "results", path / "v1", path / "status.json"
        self.results.mkdir()
        (self.checkpoint / "commits").mkdir(parents=True)
        (self.checkpoint / "pending").mkdir()
        self._children: list[subprocess.Popen[bytes]] = []
        self.collecting = collecting.Collecting(self.results, self.checkpoint, self._status)
        self.attempt()

    def attempt(self) -> None:
        """Start one, in place of the former."""
        self.end()
        self._children = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]

    def end(self) -> None:
        for child in self._children:
            child.kill()
            child.wait()

    def collector(self) -> tuple[psutil.Process, psutil.Process | None] | None:
        python, jvm = self._children
        if python.poll() is not None:
            return None
        return psutil.Process(python.pid), psutil.Process(jvm.pid)

    def ended_by(self, which: str) -> int:
        """How Python, or the JVM, has ended."""
        return self._children[which == JVM].wait(5)

    def pending(self, batch: int) -> Path:
        name = f".pending-{batch}" if self._beside else f"batch=001-{batch:08}"
        return (self.results if self._beside else self.checkpoint / "pending") / name

    def target(self, batch: int) -> Path:
        return self.results / (f"batch={batch}" if self._beside else f"batch=001-{batch:08}")

    def write(self, batch: int, *, whole: bool = True) -> None:
        (self.pending(batch) / "date=2013-01-01").mkdir(parents=True)
        (self.pending(batch) / "date=2013-01-01" / "part-0.parquet").touch()
        if not whole:
            (self.pending(batch) / "_temporary").mkdir()

    def put_in_place(self, batch: int) -> None:
        self.pending(batch).rename(self.target(batch))

    def commit(self, batch: int) -> None:
        (self.checkpoint / "commits" / str(batch)).touch()
        (self.checkpoint / "commits" / f".{batch}.crc").touch()
        self._status.write_text(json.dumps({"pid": self._children[0].pid, "batches": 1}))


@pytest.fixture(params=[True, False], ids=["beside", "in the checkpoint"])
def collector(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Collector]:
    made = Collector(tmp_path, request.param)
    yield made
    made.end()


class Ambushes:
    """Over the collector, until the deadline; `story` is called at each look."""

    def __init__(self, collector: Collector, *todo: object, story: Callable[[], None] = lambda: None) -> None:
        self.strikes = striking.Strikes(lambda: 0.5, lambda _text: None)
        self._deadline = time.monotonic() + 20
        self._story = story
        self.ambushes = ambush.Ambushes(todo, collector, collector.collecting, self._watch, self.strikes)

    def carry_out(self) -> list[tuple[str, int, str]]:
        self.ambushes.start()
        await_that(self.ambushes.done)
        return [(one.what, one.pid, one.when) for one in self.strikes.struck]

    def _watch(self) -> None:
        if time.monotonic() > self._deadline:
            raise striking.Over
        self._story()


def await_that(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("seed", range(50))
def test_the_plan_has_two_moments_between_write_and_commit_and_two_of_each_victim(seed: int) -> None:
    assert ambush.plan(seed) == ambush.plan(seed)
    live, last = ambush.plan(seed)
    assert sorted(one.moment.name for one in live) == ["ANY", "ANY", "IN_PLACE"]
    assert [one.moment for one in last] == [WRITTEN]
    assert sorted(one.victim for one in [*live, *last]) == [JVM, JVM, PYTHON, PYTHON]


@pytest.mark.parametrize("victim", [PYTHON, JVM])
def test_it_is_killed_at_any_time(collector: Collector, victim: str) -> None:
    python, jvm = collector.collector()
    killed = Ambushes(collector, ambush.Ambush(ANY, victim, 0.0)).carry_out()
    pid = (python if victim == PYTHON else jvm).pid
    assert killed == [(victim, pid, ANY.value)]
    assert collector.ended_by(victim) == -signal.SIGKILL


@pytest.mark.parametrize("victim", [PYTHON, JVM])
def test_it_is_killed_when_the_files_are_written_and_not_before(collector: Collector, victim: str) -> None:
    looks = iter(range(1_000_000))

    def story() -> None:
        look = next(looks)
        if look == 5:
            collector.write(3, whole=False)
        if look == 10:
            (collector.pending(3) / "_temporary").rmdir()

    killed = Ambushes(collector, ambush.Ambush(WRITTEN, victim, 0.0), story=story).carry_out()
    assert [(what, when) for what, _, when in killed] == [(victim, f"{WRITTEN.value}: batch 3")]


def test_it_is_killed_when_the_folder_is_in_place_and_the_batch_not_committed(collector: Collector) -> None:
    looks = iter(range(1_000_000))

    def story() -> None:
        look = next(looks)
        if look == 3:  # too quick for anyone
            collector.write(3)
            collector.put_in_place(3)
            collector.commit(3)
        if look == 6:
            collector.write(4)
            collector.put_in_place(4)

    killed = Ambushes(collector, ambush.Ambush(IN_PLACE, JVM, 0.0), story=story).carry_out()
    assert [when for _, _, when in killed] == [f"{IN_PLACE.value}: batch 4"]


def test_what_a_former_attempt_has_left_is_no_sign(collector: Collector) -> None:
    for batch in (3, 4):
        collector.write(batch)
    collector.put_in_place(3)
    since = psutil.Process().create_time() + 3600  # of an attempt that is yet to come
    assert not collector.collecting.pending(-1, since)
    assert not collector.collecting.in_place(-1, since)
    assert list(collector.collecting.pending(-1, 0.0)) == [4]
    assert list(collector.collecting.in_place(-1, 0.0)) == [3]
    assert not collector.collecting.in_place(3, 0.0)


def test_one_that_is_hard_to_hit_is_hit_at_an_easier_moment(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ambush, "MISSES", 0)
    collector.write(0)
    killed = Ambushes(collector, ambush.Ambush(IN_PLACE, PYTHON, 0.0)).carry_out()
    assert [when for _, _, when in killed] == [f"{WRITTEN.value}: batch 0"]


def test_no_more_than_two_attempts_in_a_row_are_killed_without_a_batch(collector: Collector) -> None:
    alone: list[float] = []

    def story() -> None:
        if collector.collector() is None:
            collector.attempt()
        elif len(ambushes.strikes.struck) == 2:
            alone.append(time.monotonic())
            if len(alone) == 20:
                collector.commit(0)

    todo = [ambush.Ambush(ANY, PYTHON, 0.0)] * 3
    ambushes = Ambushes(collector, *todo, story=story)
    assert len(ambushes.carry_out()) == 3
    assert len(alone) >= 20


def test_nothing_is_struck_during_a_truce(collector: Collector) -> None:
    looks: list[None] = []
    ambushes = Ambushes(collector, ambush.Ambush(ANY, PYTHON, 0.0), story=lambda: looks.append(None))
    with ambushes.ambushes.truce():
        ambushes.ambushes.start()
        await_that(lambda: len(looks) > 20)
        assert not ambushes.strikes.struck
    await_that(ambushes.ambushes.done)
    assert ambushes.strikes.count(PYTHON) == 1


def test_the_end_of_the_run_ends_the_wait(collector: Collector) -> None:
    def story() -> None:
        raise striking.Over

    with pytest.raises(striking.Over):
        Ambushes(collector, ambush.Ambush(IN_PLACE, JVM, 0.0), story=story).carry_out()
    assert collector.collector() is not None
