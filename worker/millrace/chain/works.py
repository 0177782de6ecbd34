"""The works of a pipeline's stages, made from the manifest: the same here and in the processes of a pool."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from millrace.chain.functions import Functions
from millrace.chain.taking import address_of
from millrace.channel.schema import RowEncoder
from millrace.errors import ManifestError
from millrace.strategies import (
    DECODE_STAGE,
    Check,
    Decode,
    Encode,
    Filter,
    FlatMap,
    Function,
    Judge,
    Map,
    Vectorized,
    Work,
)
from millrace.strategies.functions import FunctionWork
from millrace_api import ConsumerPipeline, Stage
from millrace_api.stages import FunctionStage

MAX_MESSAGE_BYTES = 1_000_000  # librdkafka's default of message.max.bytes
WRITTEN_HEADERS = 400  # bytes: more than the headers that say where a record comes from have

_KINDS: Final[Mapping[str, Callable[[Function, Judge], FunctionWork]]] = {
    "map": Map,
    "filter": Filter,
    "flatMap": FlatMap,
}


def declared(stage: Stage) -> FunctionStage:
    """What a stage that is a function says of it. Raises ValueError for any other stage."""
    found = stage.function_stage
    if found is None:
        raise ValueError(f"stage {stage.name} of kind {stage.kind} has no function")
    return found


def judge_of(stage: Stage, pipeline: ConsumerPipeline) -> Judge:
    """Who decides about messages that this stage, which is a function, could not process."""
    letters = pipeline.spec.dead_letter is not None
    return Judge(stage.name, letters, on_error_dead_letter=declared(stage).on_error == "DeadLetter")


def decode_of(pipeline: ConsumerPipeline) -> Decode:
    """What makes values of the source's records."""
    letters = pipeline.spec.dead_letter is not None
    return Decode(pipeline.spec.source.format, Judge(DECODE_STAGE, dead_letters=letters))


def function_work(stage: Stage, function: Function, judge: Judge) -> FunctionWork:
    """What a stage that is a function does."""
    work = _KINDS[stage.kind](function, judge)
    return Vectorized(work) if declared(stage).vectorized else work


def form_of(stage: Stage, pipeline: ConsumerPipeline, functions: Functions, *, beside: bool) -> Work:
    """What brings values into the form that a writing stage writes. beside: there are two of them."""
    letters = pipeline.spec.dead_letter is not None
    judge = Judge(stage.name, dead_letters=letters)
    limit = _max_message_bytes(pipeline)
    if stage.produce is not None:
        judge = Judge(stage.name, letters, on_error_dead_letter=stage.produce.on_error == "DeadLetter")
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
