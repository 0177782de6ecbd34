"""sentry-arroyo: a StreamProcessor and its strategies, as its documentation has it.

functions  FilterStep, RunTask, CommitOffsets, commits once a second. The filter is given the commit policy, without which
           the offsets of messages that are filtered at the end would never be committed.
produce    RunTask, Produce, CommitOffsets; the producer with `use_simple_futures`, its cheaper kind.
processes  RunTaskWithMultiprocessing, with `prefetch_batches` and blocks that are sized automatically.

One RunTask that filters and maps was no cheaper than the two steps; batches (BatchStep, Reduce) are made message by
message behind the same consumer. Needs sentry-arroyo only; the contract: child.py.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import functions
from arroyo.backends.kafka import KafkaConsumer, KafkaPayload, KafkaProducer
from arroyo.commit import ONCE_PER_SECOND
from arroyo.processing.processor import StreamProcessor
from arroyo.processing.strategies import (
    CommitOffsets,
    FilterStep,
    ProcessingStrategy,
    ProcessingStrategyFactory,
    Produce,
    RunTask,
    RunTaskWithMultiprocessing,
)
from arroyo.processing.strategies.run_task_with_multiprocessing import MultiprocessingPool
from arroyo.types import Commit, Message, Partition, Topic
from child import Meter, Work, watched, work

BATCH = 10_000  # messages for a process at once: fewer cost more, as its documentation says


def kept(message: Message[KafkaPayload]) -> bool:
    return functions.keep(message.payload.value)


def changed(message: Message[KafkaPayload]) -> bytes:
    return functions.change(message.payload.value)


def turned(message: Message[KafkaPayload]) -> KafkaPayload:
    return KafkaPayload(None, functions.turn(message.payload.value), [])


def trivial(message: Message[KafkaPayload]) -> bytes:
    return functions.trivial(message.payload.value)


class Consumer(KafkaConsumer):
    """Remembers what it has committed, so that `done` costs nothing per message."""

    committed: dict[Partition, int]

    def commit_offsets(self) -> Mapping[Partition, int] | None:
        self.committed = {**self.committed, **self._KafkaConsumer__staged_offsets}  # type: ignore[attr-defined]
        return super().commit_offsets()

    def done(self) -> int:
        """How many messages have gone through all strategies: their offsets are staged, or committed."""
        staged = dict(self._KafkaConsumer__staged_offsets)  # type: ignore[attr-defined]
        return sum({**self.committed, **staged}.values())

    def polled(self) -> int:
        return sum(dict(self.tell()).values())


class Factory(ProcessingStrategyFactory[KafkaPayload]):
    def __init__(self, todo: Work) -> None:
        self._todo = todo
        self._pool = MultiprocessingPool(todo.processes) if todo.case == "trivial" else None
        self._producer = KafkaProducer(_producing(todo), use_simple_futures=True) if todo.output else None

    def create_with_partitions(
        self, commit: Commit, _partitions: Mapping[Partition, int]
    ) -> ProcessingStrategy[KafkaPayload]:
        last: Any = CommitOffsets(commit)
        if self._producer is not None and self._todo.output is not None:
            return RunTask(turned, Produce(self._producer, Topic(self._todo.output), last))
        if self._pool is not None:
            return RunTaskWithMultiprocessing(trivial, last, BATCH, 1.0, self._pool, prefetch_batches=True)
        return FilterStep(kept, RunTask(changed, last), ONCE_PER_SECOND)

    def shutdown(self) -> None:
        if self._pool is not None:
            self._pool.close()
        if self._producer is not None:
            self._producer.close()


def _producing(todo: Work) -> dict[str, Any]:
    # its futures wait for the report of each record
    return {**todo.producer, "delivery.report.only.error": False}


def main() -> None:
    logging.disable(logging.WARNING)
    todo = work()
    meter = Meter(watch_memory=todo.watch_memory)
    # the end of a partition is an error to it
    consumer = Consumer({**todo.consumer, "auto.offset.reset": "earliest", "enable.partition.eof": False})
    consumer.committed = {}
    processor = StreamProcessor(consumer, Topic(todo.topic), Factory(todo), ONCE_PER_SECOND)

    def over() -> None:
        meter.end(todo.messages)  # before the last commit, and before its processes are ended
        processor.signal_shutdown()

    # a filter that drops the last message of a partition stages its offset only at the end
    done = consumer.polled if todo.case == "functions" else consumer.done
    watched(meter, todo.messages, consumer.polled, done, over)
    processor.run()
    meter.tell()


if __name__ == "__main__":
    main()
