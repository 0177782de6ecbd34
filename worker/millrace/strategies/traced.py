"""Work with a span around it. Where no traces are wanted none of this is there, and so costs nothing."""

from __future__ import annotations

from collections.abc import Sequence

from millrace.connectivity.ports import Record
from millrace.engine.batch import Batch
from millrace.engine.tracing import Tracer
from millrace.strategies.each import Outcome
from millrace.strategies.hold import Contents, Taken
from millrace.strategies.link import Work


class TracedWork:
    """A work, each batch in a span."""

    def __init__(self, work: Work, tracer: Tracer, stage: str) -> None:
        self._work, self._tracer, self._stage = work, tracer, stage

    def __call__(self, batch: Batch) -> Outcome:
        if not batch.records:
            return self._work(batch)
        span = self._tracer.begin(self._stage, batch.partition, batch.records)
        try:
            with span.current():
                outcome = self._work(batch)
        except BaseException as error:
            span.end(0, error)
            raise
        span.end(outcome.dead, outcome.failure)
        return outcome


class TracedContents:
    """The contents of a hold, each batch that is taken in a span."""

    def __init__(self, contents: Contents, tracer: Tracer, stage: str) -> None:
        self._contents, self._tracer, self._stage = contents, tracer, stage
        self.records = contents.records

    def take(self, records: Sequence[Record], values: Sequence[object]) -> Taken:
        span = self._tracer.begin(self._stage, records[0].partition(), records)
        try:
            with span.current():
                taken = self._contents.take(records, values)
        except BaseException as error:
            span.end(0, error)
            raise
        span.end(len(taken.dead), taken.failure)
        return taken

    def made(self) -> Sequence[tuple[bytes | None, object]]:
        return self._contents.made()
