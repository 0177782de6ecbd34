"""What chaos strikes and when: on a pipeline that is quicker than any, and on one that fails."""

from __future__ import annotations

import contextlib
import itertools
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import psutil
import pytest

from flights_example import example

pytestmark = pytest.mark.unit

chaos, striking = example("chaos"), example("striking")

OWNERS = (0, 1, 2, 0, 1, 2)
TOTAL = 300_000


@dataclass
class Feed:
    """Flights go to the partitions in turn."""

    total: int = TOTAL
    fed: int = 0
    ends: list[int] = field(default_factory=lambda: [0] * len(OWNERS))

    def advance(self, to: int, waiting: Callable[[], None] = lambda: None) -> None:
        waiting()
        self.fed = max(self.fed, min(to, self.total))
        self.ends = [(self.fed + turn) // len(OWNERS) for turn in reversed(range(len(OWNERS)))]


@dataclass
class Process:
    pid: int
    gone: bool = False
    stopped: bool = False

    def send_signal(self, number: signal.Signals) -> None:
        if self.gone:
            raise psutil.NoSuchProcess(self.pid)
        self.stopped = number == signal.SIGSTOP
        self.gone = not self.stopped

    def resume(self) -> None:
        self.stopped = False


class QuickPipeline:
    """Commits all that was fed by the time it is looked at twice, but for what a stopped worker has; a dead process is
    replaced at once. Its collector has done another batch at each look.
    """

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._seen, self._done = list(feed.ends), list(feed.ends)
        self.living: dict[str, Process] = {}
        self._born = self._batch = 0
        self.at_peace = False

    def workers(self) -> dict[int, Process]:
        return {index: self._process(f"worker {index}") for index in range(3)}

    def broker(self) -> Process:
        return self._process("the broker")

    def committed(self) -> Sequence[int]:
        halted = {index for index, process in self.workers().items() if process.stopped}
        self._done = [
            done if owner in halted else seen
            for done, seen, owner in zip(self._done, self._seen, OWNERS, strict=True)
        ]
        self._seen = list(self._feed.ends)
        return self._done

    def _process(self, name: str) -> Process:
        if name not in self.living or self.living[name].gone:
            self._born += 1
            self.living[name] = Process(self._born)
        return self.living[name]


class Collector:
    """It works when there was something new for it to do."""

    def __init__(self, feed: Feed, stuck: bool = False) -> None:
        self._feed, self._stuck, self._batch = feed, stuck, 0
        self._seen = 0
        self.at_peace = False

    def works(self) -> bool:
        if not self._seen:
            self._seen = self._feed.fed
        return self._feed.fed > self._seen

    def committed(self) -> int:
        self._batch += not self._stuck
        return self._batch

    @contextlib.contextmanager
    def truce(self) -> Iterator[None]:
        assert not self.at_peace
        self.at_peace = True
        yield
        self.at_peace = False


class Chaos:
    """On a quick pipeline, without pauses."""

    def __init__(self, seed: int, watch: Callable[[], None] = lambda: None, *, stuck: bool = False) -> None:
        self.feed = Feed()
        self.collector = Collector(self.feed, stuck)
        self.pipeline = QuickPipeline(self.feed)
        self.strikes = striking.Strikes(lambda: self.feed.fed / self.feed.total, lambda _text: None)
        blows = [replace(blow, pause=0.0, seconds=0.0) for blow in chaos.plan(seed, workers=3)]
        self.feed.advance(round(self.feed.total * chaos.BEFORE))
        self.chaos = chaos.Chaos(
            blows,
            OWNERS,
            self.feed,
            self.pipeline,
            self.pipeline.committed,
            self.collector,
            watch,
            self.strikes,
        )


@pytest.mark.parametrize("seed", range(50))
def test_the_plan_kills_eight_workers_two_pairs_among_them_and_the_broker_and_stops_one(seed: int) -> None:
    blows = chaos.plan(seed, workers=3)
    assert blows == chaos.plan(seed, workers=3)
    kills = [blow for blow in blows if blow.signal == signal.SIGKILL and blow.workers]
    assert sorted(len(blow.workers) for blow in kills) == [1, 1, 1, 1, 2, 2]
    assert sum(not blow.workers for blow in blows) == 1
    (stop,) = [blow for blow in blows if blow.signal == signal.SIGSTOP]
    assert len(stop.workers) == 1
    assert stop.seconds >= 4
    assert all(set(blow.workers) <= {0, 1, 2} for blow in blows)
    assert [blow.portion for blow in blows] == sorted(blow.portion for blow in blows)
    assert chaos.BEFORE <= blows[0].portion <= blows[-1].portion <= chaos.LAST


@pytest.mark.parametrize("seed", range(5))
def test_a_pipeline_that_is_quicker_than_any_is_struck_in_mid_backlog_as_often_as_planned(seed: int) -> None:
    world = Chaos(seed)
    world.chaos.carry_out()
    assert (world.strikes.count("worker"), world.strikes.pairs, world.strikes.stops) == (8, 2, 1)
    assert world.strikes.count(striking.BROKER) == 1
    assert not any(struck.when.startswith("0 messages") for struck in world.strikes.struck)
    assert not any(process.stopped for process in world.pipeline.living.values())
    assert not world.collector.at_peace
    assert world.feed.fed < TOTAL
    # the collector is another's to strike
    assert all("collector" in missing for missing in world.strikes.missing())


def test_a_victim_that_is_gone_when_it_is_struck_does_not_count() -> None:
    world = Chaos(seed=3)
    for process in world.pipeline.workers().values():
        process.gone = True
    world.chaos.carry_out()
    assert world.strikes.count("worker") == 8


def test_flights_are_fed_as_long_as_others_have_need_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos, "rest", lambda _seconds, _watch: None)
    monkeypatch.setattr(chaos, "DRIB_EVERY", 0.0)
    world = Chaos(seed=3)
    fed = []

    def done() -> bool:
        fed.append(world.feed.fed)
        return len(fed) > 200

    world.chaos.feed_until(done)
    assert all(now > before for before, now in itertools.pairwise(fed))
    assert fed[-1] < TOTAL == world.feed.fed


def test_a_stop_that_others_slept_through_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos, "LONGEST_STANDSTILL", 0.0)
    world = Chaos(3)
    stops: list[striking.Struck] = []

    def watch() -> None:
        stops[:] = [struck for struck in world.strikes.struck if struck.signal == "SIGSTOP"]
        if len(stops) == 3:
            monkeypatch.setattr(chaos, "LONGEST_STANDSTILL", 60.0)

    world.chaos._watch = watch
    world.chaos.carry_out()
    assert (len(stops), world.strikes.stops) == (3, 1)


def test_nothing_is_waited_for_when_the_run_is_over() -> None:
    def over() -> None:
        raise striking.Over

    world = Chaos(3, over)
    with pytest.raises(striking.Over):
        world.chaos.carry_out()
    assert "workers killed: 0 of 5" in world.strikes.missing()


def test_a_stopped_worker_goes_on_when_the_run_ends_meanwhile() -> None:
    def watch() -> None:
        if world and any(process.stopped for process in world[0].pipeline.living.values()):
            raise striking.Over

    world: list[Chaos] = []
    world.append(Chaos(3, watch, stuck=True))
    with pytest.raises(striking.Over):
        world[0].chaos.carry_out()
    assert not any(process.stopped for process in world[0].pipeline.living.values())
    assert "workers stopped: 0 of 1" in world[0].strikes.missing()
