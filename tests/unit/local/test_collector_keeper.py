"""The collector is kept alive, with a stand-in for its job that ends as told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from collector_specs import job_spec
from millrace.channel.backlog import Backlog, OnLag
from millrace.channel.wire import END
from millrace.clock import VirtualClock
from millrace.collector import CollectorStatus, JobSpec, positions
from millrace.collector.stage import CollectorJob
from millrace.collector.versions import Choice, Former
from millrace.connectivity.ports import Span
from millrace.errors import ExitCode, MillraceError
from millrace.local.backoff import Backoff
from millrace.local.collector.keeper import CollectorKeeper

pytestmark = pytest.mark.unit


class StandIn:
    """An attempt. `ends(code, failure)` is what its process would do."""

    pid = 7

    def __init__(self) -> None:
        self.exit_code: int | None = None
        self.error: MillraceError | None = None
        self.asked = self.killed = False
        self.said: CollectorStatus | None = None

    def start(self, timeout: float = 0.0) -> None:
        pass

    def terminate(self) -> None:
        self.asked = True

    def kill(self) -> None:
        self.killed = True

    def status(self) -> CollectorStatus | None:
        return self.said

    def failure(self) -> MillraceError | None:
        return self.error

    def says(self, *, batches: int, rows: int, offsets: Mapping[int, int]) -> None:
        self.said = CollectorStatus(
            pid=7, started=0, updated=0, state="running", batches=batches, rows=rows, offsets=dict(offsets)
        )

    def ends(self, code: int, what: str = "") -> None:
        self.exit_code = code
        self.error = MillraceError(what, code=ExitCode(max(code, 1))) if what else None


class World:
    def __init__(
        self,
        *,
        until_end: bool = True,
        on_lag: OnLag | None = None,
        former: Former | None = None,
        checkpoint: Path = Path("nowhere/v1"),
        busy: int = 0,
    ) -> None:
        self.clock, self.attempts, self.notices = VirtualClock(), list[StandIn](), list[str]()
        self.specs = list[JobSpec]()
        refusals = iter([MillraceError("another attempt", code=ExitCode.BUSY)] * busy)

        def choose(partitions: int) -> Choice:
            for refusal in refusals:
                raise refusal
            spec = job_spec(partitions=partitions, until_end=until_end, checkpoint=str(checkpoint))
            return Choice(spec, former, "its query has changed" if former else "")

        job = SimpleNamespace(stage="by-kind", at=2, log=Path("by-kind.log"), choose=choose, on_lag=on_lag)
        self.keeper = CollectorKeeper(
            cast(CollectorJob, job),
            self._attempt,
            self.clock,
            lambda text, _level: self.notices.append(text),
            Backoff(first=1.0, settled=100.0),
        )
        self.keeper.start(4)

    def _attempt(self, spec: JobSpec) -> StandIn:
        self.attempts.append(StandIn())
        self.specs.append(spec)
        return self.attempts[-1]

    def tick(self, seconds: float = 0.0) -> None:
        self.clock.advance(seconds)
        self.keeper.tick()

    def waits(self, messages: int, read: int = 0) -> None:
        """So many messages are in the channel beyond what is committed."""
        self.keeper.watch(Backlog({0: Span(0, read + messages)}, {0: read}))


def test_one_that_was_killed_is_started_again_after_a_pause() -> None:
    world = World()
    world.attempts[0].ends(-9, "the collector was ended by SIGKILL")
    world.tick()
    assert world.attempts[0].killed  # its JVM might live on
    assert world.keeper.snapshot({}).state == "restarting"
    world.tick(0.5)
    assert len(world.attempts) == 1
    world.tick(0.6)
    assert len(world.attempts) == 2
    assert world.notices == ["collector by-kind: the collector was ended by SIGKILL; again in 1.0 s"]


def test_one_that_fails_again_and_again_ends_the_run_with_its_failure() -> None:
    world = World()
    for _ in range(2):
        world.attempts[-1].ends(ExitCode.OUT_OF_MEMORY, "Spark ran out of memory")
        world.tick()
        world.tick(10.0)
    world.attempts[-1].ends(ExitCode.OUT_OF_MEMORY, "Spark ran out of memory")
    with pytest.raises(MillraceError, match="out of memory") as caught:
        world.tick()
    assert "spec.stages[2].collect" in caught.value.where


def test_a_broker_that_is_away_is_waited_for_as_long_as_it_takes() -> None:
    world = World()
    for _ in range(50):
        world.attempts[-1].ends(ExitCode.BROKER_UNREACHABLE, "the broker does not answer")
        world.tick()
        world.tick(31.0)
    assert len(world.attempts) == 51


def test_one_that_is_killed_after_a_long_outage_of_the_broker_is_started_again() -> None:
    world = World()
    for _ in range(50):
        world.attempts[-1].ends(ExitCode.BROKER_UNREACHABLE, "the broker does not answer")
        world.tick()
        world.tick(31.0)
    world.attempts[-1].ends(-9, "the collector was ended by SIGKILL")
    world.tick()
    world.tick(1.1)
    assert len(world.attempts) == 52


def test_a_checkpoint_in_use_is_asked_for_again(tmp_path: Path) -> None:
    world = World(busy=2)
    assert world.notices == ["collector by-kind: another attempt; again in 1.0 s"]
    assert world.keeper.snapshot({}).state == "restarting"
    world.tick(1.1)
    world.tick(2.1)
    assert len(world.attempts) == 1


def test_a_batch_that_is_done_makes_the_next_failure_a_first_one() -> None:
    world = World()
    for _ in range(6):
        world.attempts[-1].says(batches=1, rows=10, offsets={0: 10})
        world.tick()
        world.attempts[-1].ends(-9, "the collector was ended by SIGKILL")
        world.tick()
        world.tick(1.1)
    assert len(world.attempts) == 7
    assert world.keeper.snapshot({}).rows == 60


def test_what_its_user_must_mend_ends_the_run_at_once() -> None:
    world = World()
    world.attempts[0].ends(ExitCode.TOPIC, "the channel is not there")
    with pytest.raises(MillraceError, match="the channel is not there") as caught:
        world.tick()
    assert caught.value.code is ExitCode.TOPIC


def test_a_bounded_run_is_over_when_it_has_read_all_of_the_channel() -> None:
    world = World()
    assert not world.keeper.has_all({0: 12})
    world.attempts[0].says(batches=1, rows=10, offsets={0: 10})
    world.attempts[0].ends(0)
    world.tick()
    assert not world.keeper.has_all({0: 12})  # it saw the end marks of another run
    world.attempts[1].says(batches=1, rows=2, offsets={0: 12})
    world.attempts[1].ends(0)
    world.tick()
    assert world.keeper.has_all({0: 12})
    assert len(world.attempts) == 2


def test_after_a_bounded_run_the_next_waits_for_the_workers_and_says_what_is_late(tmp_path: Path) -> None:
    positions.write(tmp_path, {0: positions.Position(12, END)})
    world = World(checkpoint=tmp_path)
    assert "a former run has ended all windows" in world.notices[0]
    world.tick()
    assert not world.attempts
    assert not world.keeper.has_all({0: 12})
    assert len(world.attempts) == 1


def test_with_a_trigger_by_lag_no_job_runs_until_enough_waits() -> None:
    world = World(until_end=False, on_lag=OnLag(messages=100))
    world.waits(99)
    world.tick()
    assert not world.attempts
    assert world.keeper.snapshot({}).state == "waiting"
    assert world.keeper.snapshot({}).lag == 99
    world.waits(100)
    assert [(spec.pending, spec.until_end) for spec in world.specs] == [(True, False)]
    assert world.notices == ["collector by-kind: 100 messages wait"]
    world.waits(100)
    assert len(world.attempts) == 1, "one at a time"


def test_a_job_that_took_what_was_there_is_gone_until_there_is_more() -> None:
    world = World(until_end=False, on_lag=OnLag(messages=100))
    world.waits(100)
    world.attempts[0].says(batches=1, rows=90, offsets={0: 100})
    world.attempts[0].ends(0)
    world.tick()
    assert world.keeper.snapshot({}).state == "waiting"
    world.waits(100)  # its progress is not seen in the consumer group yet
    assert len(world.attempts) == 1
    world.waits(100, read=100)
    assert len(world.attempts) == 2
    assert (world.specs[1].attempt, world.specs[1].restarts) == (2, 0)


def test_a_job_that_took_part_and_died_is_started_again_at_once() -> None:
    world = World(until_end=False, on_lag=OnLag(messages=100))
    world.waits(100)
    world.attempts[0].ends(-9, "the collector was ended by SIGKILL")
    world.tick()
    world.tick(1.1)
    assert [(spec.pending, spec.attempt, spec.restarts) for spec in world.specs] == [
        (True, 1, 0),
        (True, 2, 1),
    ]


def test_a_bounded_run_with_a_trigger_by_lag_ends_with_a_job_for_the_rest() -> None:
    world = World(on_lag=OnLag(messages=100))
    world.waits(100)
    assert not world.keeper.has_all({0: 120}), "the job for what was pending goes on"
    world.attempts[0].says(batches=1, rows=100, offsets={0: 100})
    world.attempts[0].ends(0)
    world.tick()
    assert not world.keeper.has_all({0: 120})
    assert [(spec.pending, spec.until_end) for spec in world.specs] == [(True, False), (False, True)]
    world.attempts[1].says(batches=1, rows=20, offsets={0: 120})
    world.attempts[1].ends(0)
    world.tick()
    assert world.keeper.has_all({0: 120})
    assert world.keeper.snapshot({}).rows == 120


def test_a_job_for_what_was_pending_that_has_closed_all_was_the_last_one() -> None:
    world = World(on_lag=OnLag(messages=100))
    world.waits(100)
    attempt = world.attempts[0]
    attempt.says(batches=2, rows=98, offsets={0: 100})
    assert attempt.said is not None
    attempt.said = msgspec.structs.replace(attempt.said, watermark=END)
    attempt.ends(0)
    world.tick()
    assert world.keeper.has_all({0: 100})
    assert not world.keeper.has_all({0: 102}), "there is more, so it is not over"
    assert len(world.attempts) == 2


def test_a_new_version_of_the_checkpoint_is_told_of_and_reads_what_is_there_whatever_the_lag() -> None:
    former = Former(job_spec(), 7, None, {})
    world = World(until_end=False, on_lag=OnLag(messages=100), former=former)
    assert world.notices[0].startswith(
        "collector by-kind: its query has changed: version 1 of its checkpoint begins."
    )
    assert [spec.pending for spec in world.specs] == [True]


def test_asked_to_end_it_is_not_started_again() -> None:
    world = World(until_end=False)
    world.keeper.terminate()
    assert world.attempts[0].asked
    world.attempts[0].ends(0)
    world.tick()
    world.tick(60.0)
    assert (world.keeper.running(), len(world.attempts)) == (False, 1)
