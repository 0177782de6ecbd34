"""Putting the strategies of a pipeline together, from the end of the chain to its head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from millrace.chain.functions import Functions
from millrace.chain.gathering import gather
from millrace.chain.processes import Part, in_processes, process_stage, runs_of
from millrace.chain.stages import function_stage
from millrace.chain.taking import address_of
from millrace.chain.works import decode_of, form_of, judge_of
from millrace.channel.lateness import Lateness
from millrace.channel.progress import Progress
from millrace.channel.wire import END
from millrace.clock import Clock
from millrace.connectivity.ports import Producer
from millrace.engine.outbox import Outbox
from millrace.engine.stats import StageStats
from millrace.engine.strategy import Strategy
from millrace.engine.tracing import Tracer
from millrace.strategies import (
    DEAD_LETTER_STAGE,
    DECODE_STAGE,
    Commit,
    Inline,
    Limits,
    Marker,
    OnComplete,
    Produce,
    Room,
    collect_rows,
    produce_in_transaction,
    write_dead_letters,
)
from millrace_api import ConsumerPipeline


def stage_stats(pipeline: ConsumerPipeline) -> dict[str, StageStats]:
    """Figures for each stage that `build` makes, all zero, in the order of the chain. The writing of dead letters has
    its seconds only: how many there are is said by the stages that made them.
    """
    names = [DECODE_STAGE, *(stage.name for stage in pipeline.spec.stages)]
    if pipeline.spec.dead_letter is not None:
        names.append(DEAD_LETTER_STAGE)
    return {name: StageStats(name) for name in names}


def build(
    pipeline: ConsumerPipeline,
    functions: Functions,
    outbox: Outbox,
    producer: Producer | None,
    on_complete: OnComplete,
    stats: Mapping[str, StageStats],
    clock: Clock,
    tracer: Tracer | None = None,
) -> Strategy:
    """The pipeline's chain: decode, its stages, limits on dead letters, produce, collect, dead letters, commit.

    Args:
        producer: for a `produce` stage with delivery AtLeastOnce; not looked at otherwise.
        on_complete: told of each range of offsets that is done: OffsetTracker.complete.
        stats: as `stage_stats` makes them.
        tracer: makes spans of what functions do; None: no traces are wanted, and rows of a channel carry no context.

    Raises ManifestError if `message.max.bytes` in kafka.properties is not a number.
    """
    spec = pipeline.spec
    dead_letter = spec.dead_letter
    chain: Strategy = Commit(on_complete, outbox)
    if dead_letter is not None:
        chain = write_dead_letters(chain, outbox, dead_letter.topic, stats[DEAD_LETTER_STAGE], clock)
    before = [stage for stage in spec.stages if stage.produce is None and stage.collect is None]
    writers = [stage for stage in spec.stages if stage not in before]
    beside = len(writers) > 1  # produce, then collect
    for last in reversed(writers):
        name, figures = last.name, stats[last.name]
        if last.collect is not None:
            window, channel = last.collect.window, pipeline.channel(name)
            progress = Progress(of=f"{name}.{window.time}" if window is not None else name)
            lateness = (
                Lateness(window.lateness_micros, window.lateness, window.late == "DeadLetter")
                if window is not None
                else Lateness(2 * END)  # rows without event time are never late, not even after an end
            )
            outbox.marks = Marker(outbox, channel, progress, clock)
            chain = collect_rows(
                chain,
                outbox,
                channel,
                progress,
                lateness,
                name,
                figures,
                clock,
                beside=beside,
                contexts=tracer is not None,
            )
        elif last.produce is None:
            raise ValueError(f"stage {name} of kind {last.kind} writes nothing")
        elif spec.delivery == "ExactlyOnce":
            topic = last.produce.topic
            chain = produce_in_transaction(chain, outbox, topic, name, figures, clock, beside=beside)
        elif producer is not None:
            chain = Produce(chain, producer, last.produce.topic, name, figures, clock, beside=beside)
        else:
            raise ValueError("a produce stage with delivery AtLeastOnce needs a producer")
    if dead_letter is not None and (dead_letter.max_ratio, dead_letter.max_consecutive) != (None, None):
        limits = Limits(dead_letter.max_ratio, dead_letter.max_consecutive)
        chain = Inline(chain, limits, None, clock, forget=limits.forget)
    runs = runs_of(before)
    form = writers[0] if len(writers) == 1 and runs and in_processes(runs[-1]) else None
    if form is not None and address_of(form, functions) is not None:
        form = None  # keys and headers of its own are made here
    for last in reversed(writers):
        if last is not form:
            work, emits = form_of(last, pipeline, functions, beside=beside), last.collect is None
            chain = Inline(chain, work, stats[last.name], clock, emits=emits, ends=False)
    room = Room()
    for run in reversed(runs):
        own = functions.strategies.get(run[0].name)
        if own is not None:
            chain = own(chain, clock)
        elif run[0].gathering is not None:
            name, letters = run[0].name, dead_letter is not None
            chain = gather(
                chain, run[0], functions, room, stats[name], clock, dead_letters=letters, tracer=tracer
            )
        elif in_processes(run):
            is_last = run is runs[-1]
            part = Part(tuple(stage.name for stage in run), run is runs[0], is_last and not writers)
            if is_last and form is not None:
                part = replace(part, form=form.name)
            chain = process_stage(chain, part, pipeline, functions, stats, clock, traced=tracer is not None)
        else:
            (stage,) = run
            judge = judge_of(stage, pipeline)
            chain = function_stage(
                chain, stage, functions[stage.name], judge, stats[stage.name], clock, tracer
            )
    if runs and in_processes(runs[0]):
        return chain  # they decode too
    return Inline(chain, decode_of(pipeline), stats[DECODE_STAGE], clock)
