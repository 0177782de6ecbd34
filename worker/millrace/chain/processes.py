"""Stages that run in processes: which of them share some, and what is put together in each.

With the first stage of the chain goes the decoding of messages, with the last the encoding for the stage that writes: what
the parent passes on is bytes then, both ways.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import msgspec

from millrace.chain import works
from millrace.chain.functions import Functions, load
from millrace.chain.stages import retry_of
from millrace.clock import Clock
from millrace.engine.stats import StageStats
from millrace.engine.strategy import Strategy
from millrace.strategies import DECODE_STAGE, Work
from millrace.strategies.processes import Launch, Processes, Values
from millrace.strategies.processes.again import Again
from millrace.strategies.processes.stage import Shape
from millrace.strategies.processes.wire import Works
from millrace.strategies.traced import TracedWork
from millrace.tracing.setup import start
from millrace_api import ConsumerPipeline, Stage, parse

ENTRY = "millrace.chain.processes:works_of"


@dataclass(frozen=True, slots=True)
class Part:
    """Attributes:
    names: of the stages that are functions.
    decodes: the first of them is the first of the chain.
    ends: nobody asks for their results.
    form: the writing stage that they encode for; "" if they do not.
    """

    names: tuple[str, ...]
    decodes: bool
    ends: bool
    form: str = ""


class Order(msgspec.Struct):
    """What a process is told."""

    manifest: str
    code_dir: str | None
    part: Part
    traced: bool = False


def runs_of(stages: Sequence[Stage]) -> list[tuple[Stage, ...]]:
    """Stages before those that write, those together that share their processes, all others alone."""

    def alike(at: int) -> object:
        found = stages[at].function_stage
        if found is None or found.pool is None or found.pool.kind != "processes":
            return at
        return "processes", found.pool.size, found.ordering

    return [tuple(stages[at] for at in run) for _, run in groupby(range(len(stages)), alike)]


def in_processes(run: Sequence[Stage]) -> bool:
    declared = run[0].function_stage
    pool = None if declared is None else declared.pool
    return pool is not None and pool.kind == "processes"


def process_stage(
    next_: Strategy,
    part: Part,
    pipeline: ConsumerPipeline,
    functions: Functions,
    stats: Mapping[str, StageStats],
    clock: Clock,
    *,
    traced: bool = False,
) -> Processes:
    """The strategy of stages that share processes, which are started now. traced: they make spans of what they do, for which
    they need the messages' headers.
    """
    by_name = {stage.name: stage for stage in pipeline.spec.stages}
    stages = [by_name[name] for name in part.names]
    code_dir = None if functions.code_dir is None else str(functions.code_dir)
    order = Order(pipeline.model_dump_json(exclude_none=True), code_dir, part, traced)
    out = Values.NOTHING if part.ends else Values.OBJECTS
    figures = [(stats[DECODE_STAGE], True)] if part.decodes else []
    figures += [(stats[name], True) for name in part.names]
    if part.form:
        collects = by_name[part.form].collect is not None
        out = Values.ROWS if collects else Values.BYTES
        figures.append((stats[part.form], not collects))
    first = works.declared(stages[0])
    timeouts = [seconds for stage in stages if (seconds := works.declared(stage).timeout_seconds) is not None]
    shape = Shape(
        Values.BYTES if part.decodes else Values.OBJECTS,
        out,
        keys=bool(part.form),
        rest=traced or any(functions[name].wants_message for name in part.names),
        ordered=first.ordering == "Partition",
        alone=first.ordering == "Key",
    )
    return Processes(
        next_,
        Launch(ENTRY, msgspec.json.encode(order)),
        first.pool.size if first.pool is not None else 1,
        shape,
        figures,
        works.judge_of(stages[0], pipeline),
        clock,
        timeout=max(timeouts) if len(timeouts) == len(stages) else None,
        where=f"spec.stages[{pipeline.spec.stages.index(stages[0])}].{stages[0].kind}",
    )


def works_of(payload: bytes, pulse: Callable[[], None]) -> Works:
    """In a process: what it does with each batch. Raises FunctionError."""
    order = msgspec.json.decode(payload, type=Order)
    pipeline = parse(json.loads(order.manifest))
    part = order.part
    functions = load(pipeline, None if order.code_dir is None else Path(order.code_dir), only=set(part.names))
    tracing = start(os.environ, pipeline, f"{os.getpid()}") if order.traced else None
    by_name = {stage.name: stage for stage in pipeline.spec.stages}
    made: list[tuple[str, Work]] = [(DECODE_STAGE, works.decode_of(pipeline))] if part.decodes else []
    for name in part.names:
        stage, function = by_name[name], functions[name]
        judge, declared = works.judge_of(stage, pipeline), works.declared(stage)
        work = works.function_work(stage, function, judge)
        timeout = declared.timeout_seconds
        if declared.retry is not None or timeout is not None:
            # what accepts results is called within: a generator runs only then
            accept = (lambda result: result) if declared.vectorized else work.accept
            again = Again(function.call, accept, retry_of(declared, function), timeout, pulse)
            work = works.function_work(stage, replace(function, call=again), judge)
        made.append((name, work if tracing is None else TracedWork(work, tracing.tracer, name)))
    out = Values.NOTHING if part.ends else Values.OBJECTS
    if part.form:
        writer = by_name[part.form]
        out = Values.ROWS if writer.collect is not None else Values.BYTES
        made.append((part.form, works.form_of(writer, pipeline, functions, beside=False)))
    judge = works.judge_of(by_name[part.names[-1]], pipeline)
    into = Values.BYTES if part.decodes else Values.OBJECTS
    return Works(made, judge, into, out, *([] if tracing is None else [tracing.close]))
