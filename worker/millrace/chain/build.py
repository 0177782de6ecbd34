"""Putting the strategies of a pipeline together, from the end of the chain to its head."""

from __future__ import annotations

from collections.abc import Mapping

from millrace.chain.functions import Functions
from millrace.chain.gathering import gather
from millrace.chain.taking import address_of
from millrace.channel.lateness import Lateness
from millrace.channel.progress import Progress
from millrace.channel.schema import RowEncoder
from millrace.channel.wire import END
from millrace.clock import Clock
from millrace.connectivity.ports import Producer
from millrace.engine.outbox import Outbox
from millrace.engine.stats import StageStats
from millrace.engine.strategy import Strategy
from millrace.errors import ManifestError
from millrace.strategies import (
    DEAD_LETTER_STAGE,
    DECODE_STAGE,
    Check,
    Commit,
    Decode,
    Encode,
    Filter,
    FlatMap,
    Inline,
    Judge,
    Limits,
    Map,
    Marker,
    OnComplete,
    Produce,
    Room,
    Work,
    collect_rows,
    produce_in_transaction,
    write_dead_letters,
)
from millrace_api import ConsumerPipeline, Stage

MAX_MESSAGE_BYTES = 1_000_000  # librdkafka's default of message.max.bytes
WRITTEN_HEADERS = 400  # bytes: more than the headers that say where a record comes from have


def stage_stats(pipeline: ConsumerPipeline) -> dict[str, StageStats]:
    """Figures for each stage that `build` makes, all zero, in the order of the chain. The writing of dead letters has
    its seconds only: how many there are is said by the stages that made them.
    """
    names = [DECODE_STAGE, *(stage.name for stage in pipeline.spec.stages)]
    if pipeline.spec.dead_letter is not None:
        names.append(DEAD_LETTER_STAGE)
    return {name: StageStats() for name in names}


def build(
    pipeline: ConsumerPipeline,
    functions: Functions,
    outbox: Outbox,
    producer: Producer | None,
    on_complete: OnComplete,
    stats: Mapping[str, StageStats],
    clock: Clock,
) -> Strategy:
    """The pipeline's chain: decode, its stages, limits on dead letters, produce, collect, dead letters, commit.

    Args:
        producer: for a `produce` stage with delivery AtLeastOnce; not looked at otherwise.
        on_complete: told of each range of offsets that is done: OffsetTracker.complete.
        stats: as `stage_stats` makes them.

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
                chain, outbox, channel, progress, lateness, name, figures, clock, beside=beside
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
    for last in reversed(writers):
        form, emits = _form(last, pipeline, functions, beside), last.collect is None
        chain = Inline(chain, form, stats[last.name], clock, emits=emits)
    room = Room()
    for stage in reversed(before):
        if stage.gathering is not None:
            chain = gather(
                chain,
                stage,
                functions,
                room,
                stats[stage.name],
                clock,
                dead_letters=dead_letter is not None,
            )
            continue
        chain = Inline(chain, _work(stage, functions, dead_letter is not None), stats[stage.name], clock)
    decode = Decode(spec.source.format, Judge(DECODE_STAGE, dead_letters=dead_letter is not None))
    return Inline(chain, decode, stats[DECODE_STAGE], clock)


def _form(stage: Stage, pipeline: ConsumerPipeline, functions: Functions, beside: bool) -> Work:
    """What brings values into the form that a writing stage writes. beside: there are two of them."""
    dead_letters = pipeline.spec.dead_letter is not None
    judge = Judge(stage.name, dead_letters)
    limit = _max_message_bytes(pipeline)
    if stage.produce is not None:
        judge = Judge(stage.name, dead_letters, on_error_dead_letter=stage.produce.on_error == "DeadLetter")
        limit -= WRITTEN_HEADERS if pipeline.spec.delivery == "ExactlyOnce" else 0
        return Encode(stage.produce.format, judge, limit, keep=beside, address=address_of(stage, functions))
    if stage.collect is not None:
        window = stage.collect.window
        return Check(
            RowEncoder(stage.collect.columns, window.time if window is not None else None),
            judge,
            limit,
            beside=beside,
        )
    raise ValueError(f"stage {stage.name} of kind {stage.kind} writes nothing")


def _work(stage: Stage, functions: Functions, dead_letters: bool) -> Work:
    declared = stage.function_stage
    if declared is None:
        raise ValueError(f"stage {stage.name} of kind {stage.kind} has no function")
    judge = Judge(stage.name, dead_letters, on_error_dead_letter=declared.on_error == "DeadLetter")
    function = functions[stage.name]
    if stage.map is not None:
        return Map(function, judge)
    if stage.filter is not None:
        return Filter(function, judge)
    return FlatMap(function, judge)


def _max_message_bytes(pipeline: ConsumerPipeline) -> int:
    text = pipeline.spec.kafka.properties.get("message.max.bytes", str(MAX_MESSAGE_BYTES))
    try:
        return int(text)
    except ValueError as error:
        raise ManifestError(
            f"{text!r} is not a number of bytes",
            where="spec.kafka.properties.message.max.bytes",
            remedy="write a number",
        ) from error
