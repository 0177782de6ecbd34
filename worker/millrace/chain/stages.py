"""The strategy of a stage that is a function: at once in `submit`, or by a pool, as the manifest has it."""

from __future__ import annotations

from typing import Final

from millrace.chain import works
from millrace.clock import Clock
from millrace.engine.stats import StageStats
from millrace.engine.strategy import Strategy
from millrace.engine.tracing import Tracer
from millrace.strategies import Function, Inline, Judge, Retry
from millrace.strategies.functions import FunctionWork
from millrace.strategies.pool import Crew, OnTheSpot, Pooled, Schedule, Sequence, Tasks, Threads
from millrace.strategies.traced import TracedWork
from millrace_api import Stage
from millrace_api.stages import FunctionStage

_ON_THE_SPOT: Final = (
    500  # messages, twice over: a wait for another attempt shall not hold up other partitions at once
)


def function_stage(
    next_: Strategy,
    stage: Stage,
    function: Function,
    judge: Judge,
    stats: StageStats,
    clock: Clock,
    tracer: Tracer | None = None,
) -> Strategy:
    """The strategy of a map, filter or flatMap stage. One that has a pool has its threads from now on, until it is
    terminated.
    """
    declared = works.declared(stage)
    work = works.function_work(stage, function, judge)
    if declared.pool is None and declared.retry is None:
        return Inline(next_, work if tracer is None else TracedWork(work, tracer, stage.name), stats, clock)
    schedule = Schedule(_sequence(declared), retry_of(declared, function), judge.judge, clock)
    crew = _crew(schedule, work, declared, stage.name, clock)
    size = _ON_THE_SPOT if declared.pool is None else declared.pool.size
    return Pooled(
        next_,
        work,
        schedule,
        crew,
        size,
        stats,
        clock,
        ordered=declared.ordering == "Partition",
        tracer=tracer,
    )


def retry_of(declared: FunctionStage, function: Function) -> Retry:
    """When the function of a stage is called again."""
    given = declared.retry
    if given is None:
        return Retry()
    return Retry(given.attempts, given.backoff_seconds, given.max_backoff_seconds, function.retry_on)


def _sequence(declared: FunctionStage) -> Sequence:
    if declared.pool is None:
        return Sequence.PARTITION
    return Sequence.KEY if declared.ordering == "Key" else Sequence.ANY


def _crew(schedule: Schedule, work: FunctionWork, declared: FunctionStage, name: str, clock: Clock) -> Crew:
    pool = declared.pool
    if pool is None:
        return OnTheSpot(schedule, work, clock)
    kind = Threads if pool.kind == "threads" else Tasks
    return kind(schedule, work, pool.size, declared.timeout_seconds, clock, name=name)
