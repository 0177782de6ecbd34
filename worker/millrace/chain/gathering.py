"""Building batch and reduce stages."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from millrace.chain.functions import Functions
from millrace.chain.roles import role_name
from millrace.chain.taking import taking_of
from millrace.clock import Clock
from millrace.engine.stats import StageStats
from millrace.engine.strategy import Strategy
from millrace.engine.tracing import Tracer
from millrace.strategies import Fill, Folded, Gather, Judge, Listed, Map, Room, Work
from millrace.strategies.hold import Contents
from millrace.strategies.keys import as_key
from millrace.strategies.traced import TracedContents, TracedWork
from millrace_api import Stage


def gather(
    next_: Strategy,
    stage: Stage,
    functions: Functions,
    room: Room,
    stats: StageStats,
    clock: Clock,
    *,
    dead_letters: bool,
    tracer: Tracer | None = None,
) -> Strategy:
    """The strategy of a batch or reduce stage. room: what all of the chain's may hold together."""
    declared = stage.gathering
    if declared is None:
        raise ValueError(f"stage {stage.name} of kind {stage.kind} holds nothing")
    fill = Fill(declared.count, declared.bytes, declared.interval_seconds)
    reduce = stage.reduce
    if reduce is None:
        return Gather(next_, fill, partial(Listed, fill.count), room, stats, clock, tracer=tracer)
    judge = Judge(stage.name, dead_letters, on_error_dead_letter=reduce.on_error == "DeadLetter")
    initial, accumulate = (functions[role_name(stage.name, field)] for field in ("initial", "accumulate"))
    taking = taking_of(stage, "key", reduce.key, functions)
    key = None if taking is None else as_key(taking)
    contents: Callable[[], Contents] = partial(Folded, initial.call, accumulate, key, judge)
    finish: Work | None = None
    if reduce.flush is not None:
        finish = Map(functions[role_name(stage.name, "flush")], judge)
    if tracer is not None:
        contents = partial(_traced, contents, tracer, stage.name)
        finish = None if finish is None else TracedWork(finish, tracer, stage.name)
    return Gather(next_, fill, contents, room, stats, clock, finish=finish, tracer=tracer)


def _traced(contents: Callable[[], Contents], tracer: Tracer, stage: str) -> TracedContents:
    return TracedContents(contents(), tracer, stage)
