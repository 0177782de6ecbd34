"""A pipeline in the test's own process: fed with messages, run by the real engine, its results looked at.

    with PipelineHarness.of("pipeline.yaml") as h:
        h.feed([{"carrier": "AA", "delay": 12}])
        h.run_to_end()
        assert h.values("flights.scored") == [...]

One worker is all there is. It holds the partitions by claims, commits them in transactions and writes what it writes through
the in-memory broker, as it would anywhere. No thread of ours runs beside the test's: between two calls nothing happens.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from millrace.chain import Functions, load
from millrace.channel.progress import Note
from millrace.clock import Deadline, VirtualClock
from millrace.collector import functions as collecting
from millrace.connectivity.memory import MemoryBroker, MemoryRecord
from millrace.engine.bounds import Bounds
from millrace.errors import ExitCode, MillraceError
from millrace.library import Pipeline
from millrace.library.sole import SoleWorker
from millrace.ownership.control_rules import Identity, own_claim
from millrace.ownership.epoch_store import MemoryEpochs
from millrace.testing.inputs import draft
from millrace.testing.seen import DeadLetter, Output, Row, letter_of, output_of, row_of
from millrace.testing.time import PoolClock, Unfinished
from millrace.worker.manifest import code_of, read
from millrace_api import ConsumerPipeline
from millrace_api.needed import needed

UID = "harness"
STEP = 0.05  # s on the harness's clock that a step may wait for messages
STRIDE, LONGEST = 0.02, 1.0  # of the time since the last message, and s, by which time is passed over
DRAIN = 30.0  # s on the harness's clock in which a worker that is stopped brings what it has to its end


class PipelineHarness:
    """A context manager; `of` makes one. Not thread-safe.

    Attributes:
        pipeline: the manifest.
        broker: on which it runs, for tests that want to look at more than is shown here, or to make something fail.
    """

    def __init__(
        self, pipeline: ConsumerPipeline, functions: Functions, *, partitions: int | None, held: ExitStack
    ) -> None:
        self.pipeline = pipeline
        self._functions, self._held = functions, held
        self._pooled = any(
            s.function_stage is not None and s.function_stage.pool is not None for s in pipeline.spec.stages
        )
        self._clock = PoolClock(self._busy) if self._pooled else VirtualClock()
        self.broker = MemoryBroker(self._clock)
        create = pipeline.spec.source.create
        self._partitions = partitions or (create.partitions if create is not None else 1)
        for topic in needed(pipeline):
            if self.broker.find_topic(topic.name) is None:
                count = topic.partitions or self._partitions
                self.broker.create_topic(
                    topic.name, self._partitions if topic.name == self._source else count
                )
        for stage in pipeline.spec.stages:
            if stage.collect is not None:
                self.broker.create_topic(pipeline.channel(stage.name), self._partitions)
        self._epochs = MemoryEpochs()
        self._worker: SoleWorker | None = None

    @classmethod
    def of(
        cls,
        pipeline: str | Path | Pipeline,
        *,
        code: str | Path | None = None,
        partitions: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Self:
        """A harness for a manifest's file, or for a pipeline that is written in Python.

        Its functions are imported and their `setup()` is called now; modules that were not imported before are forgotten
        when the harness is closed. So are `worker.env` of the manifest and `env`, which are the process's environment
        until then.

        Args:
            code: the directory with the functions' modules; None: as `millrace run` finds them, in a ConfigMap in the same
                file, or in the manifest's folder.
            partitions: of the source; None: as `source.create` says, else 1.
            env: variables that win over `worker.env`.

        Raises:
            What `millrace validate` says of a bad manifest, in its words: InvalidManifest, ManifestError, FunctionError.
        """
        held = ExitStack()
        try:
            if isinstance(pipeline, Pipeline):
                manifest, directory = pipeline.manifest, pipeline.code
            else:
                path = Path(pipeline)
                loaded = read(path)
                manifest = loaded.pipeline
                directory = held.enter_context(code_of(loaded, path, None if code is None else Path(code)))
            _keep_environment(held, manifest, env or {})
            _keep_modules(held, directory)
            functions = pipeline.functions() if isinstance(pipeline, Pipeline) else load(manifest, directory)
            for index, stage in enumerate(manifest.spec.stages):
                if stage.collect is not None and stage.collect.function is not None:
                    where = f"spec.stages[{index}].collect.function"
                    collecting.check(stage.collect.function, directory, where)
            return cls(manifest, functions, partitions=partitions, held=held)
        except BaseException:
            held.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End everything, committing nothing more. What was written can still be looked at. Idempotent."""
        self.kill()
        self._held.close()

    # what goes in, and how time passes

    def feed(self, messages: Iterable[object], *, partition: int | None = None) -> None:
        """Append messages to the source. Each is a value, which is encoded as the source's format says; bytes, which are
        taken as they are; None, a record without value; or an `Input`.

        Args:
            partition: None: by the key as Kafka's clients do, and 0 without a key.
        """
        form = self.pipeline.spec.source.format
        drafts = [draft(message, self._source, form, partition, self._partitions) for message in messages]
        for one in drafts:
            self.broker.log(self._source, one.partition).append(one, int(self._clock.time() * 1000))

    def run_to_end(self, *, within: float = 600.0) -> None:
        """Do what `millrace run --until-end` does: process everything that was fed so far to its end (what batch and
        reduce stages hold is flushed), commit it, and stop. Time passes as it is needed.

        Args:
            within: seconds on the harness's clock.

        Raises:
            What ends a worker: StageFailed (its `__cause__` is what the function raised), DeadLetterLimit, DeliveryFailed.
            What was before it is committed. Unfinished: it takes longer than `within`.
        """
        self.stop()
        source = self.broker.topic(self._source)
        bounds = Bounds({number: log.end for number, log in enumerate(source.logs)})
        worker, deadline = self._started(bounds), Deadline.after(self._clock, within)
        quiet = self._clock.monotonic()
        while not worker.at_end():
            quiet = self._work(worker, quiet, deadline)
            if not self._busy():
                # nothing is left but to commit, for which no test should wait
                self._clock.advance(self.pipeline.spec.commit.interval_seconds)
            if deadline.expired():
                seen = worker.snapshot()
                raise Unfinished(
                    f"it is not at its end after {within:g} s on the harness's clock",
                    where=f"done {dict(seen.positions)} of {dict(bounds.ends)}",
                    remedy="; ".join(seen.reasons)
                    or "see what its functions wait for, or give more time: within=",
                )
        self.stop()

    def run_for(self, seconds: float) -> None:
        """Work while so much time passes on the harness's clock. The worker that does so stays for the next call. What is to
        happen after some time, without a message, happens at most 2 % of that time too late, and never more than a second.

        Raises: as `run_to_end`.
        """
        worker = self._worker or self._started(None)
        while not worker.settled or len(worker.snapshot().positions) < self._partitions:
            self._step(worker, 0.0)  # it takes up its partitions first, which is no part of the time
            self._clock.advance(0.001)
        until, quiet = Deadline.after(self._clock, seconds), self._clock.monotonic()
        while not until.expired():
            quiet = self._work(worker, quiet, until)

    def stop(self) -> None:
        """End the worker as SIGTERM does: what it has taken is brought to its end and committed. Fine if there is none."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close(Deadline.after(self._clock, DRAIN))

    def kill(self) -> None:
        """End the worker as SIGKILL does: nothing more is committed, so the next run does again what was not. Fine if there
        is none.
        """
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.terminate()

    # what is seen

    def outputs(self, topic: str) -> list[Output]:
        """What a read_committed reader sees of an output topic, partition by partition."""
        form = self._format(topic)
        return [output_of(record, form) for record in self._records(topic)]

    def values(self, topic: str) -> list[object]:
        """The values of `outputs`."""
        return [output.value for output in self.outputs(topic)]

    def rows(self, stage: str | None = None) -> list[Row]:
        """What a collect stage has written for its collector. stage: None if there is one."""
        names = [one.name for one in self.pipeline.spec.stages if one.collect is not None]
        if not names or (stage is not None and stage not in names):
            raise _nothing_there(f"collect stage {stage}" if stage else "collect stage", names)
        records = self._records(self.pipeline.channel(stage or names[0]))
        return [row for row in map(row_of, records) if row is not None]

    @property
    def dead_letters(self) -> list[DeadLetter]:
        """Committed ones, in the order of the source."""
        topic = self.pipeline.spec.dead_letter
        found = [letter_of(record) for record in self._records(topic.topic)] if topic is not None else []
        return sorted(found, key=lambda letter: (letter.partition, letter.offset))

    @property
    def commits(self) -> dict[int, int]:
        """For each partition of the source the committed offset: all messages below it are done. Without those of which
        nothing is committed yet.
        """
        return {partition: offset for partition, (offset, _) in self._claims().items() if offset}

    @property
    def late(self) -> int:
        """Rows that the collect stage has left out as late, in all partitions."""
        notes = (Note.decode(note) for _, note in self._claims().values())
        return sum(note.late for note in notes if note is not None)

    @property
    def now(self) -> float:
        """Time on the harness's clock, seconds since the Unix epoch; messages that are fed without one get this."""
        return self._clock.time()

    # ---

    @property
    def _source(self) -> str:
        return self.pipeline.spec.source.topic

    def _started(self, bounds: Bounds | None) -> SoleWorker:
        self._worker = SoleWorker(
            self.pipeline,
            self._functions,
            self.broker.cluster(client_id="harness"),
            self._clock,
            uid=UID,
            epochs=self._epochs,
            bounds=bounds,
        )
        return self._worker

    def _work(self, worker: SoleWorker, quiet: float, until: Deadline) -> float:
        """A step, and some time. quiet: since when no message was taken; returns that."""
        taken, clock = self._step(worker, min(STEP, until.remaining())), self._clock
        if taken or (self._pooled and self._busy()):
            return clock.monotonic()
        # the longer nothing has happened, the longer the strides
        stride = min(LONGEST, max(0.001, STRIDE * (clock.monotonic() - quiet)))
        clock.advance(min(stride, until.remaining()))
        return quiet

    def _step(self, worker: SoleWorker, timeout: float) -> int:
        try:
            return worker.step(timeout)
        except BaseException:
            self.stop()  # as a worker does: what came before the failure is complete, and counts
            raise

    def _busy(self) -> bool:
        """Whether a function may be at work on something."""
        if self._worker is None:
            return False
        positions = self._worker.snapshot().positions
        logs = self.broker.topic(self._source).logs
        return any(positions.get(number, 0) < log.end for number, log in enumerate(logs))

    def _claims(self) -> dict[int, tuple[int, str | None]]:
        pipeline, topic = self.pipeline, self.broker.topic(self._source)
        identity = Identity(UID, topic.name, topic.id, pipeline.group_id, pipeline.claims_group)
        found = self.broker.groups.read(
            pipeline.claims_group, topic.name, range(self._partitions), stable=False
        )
        claims = {partition: (record, own_claim(identity, record)) for partition, record in found.items()}
        return {p: (record.offset, claim.note) for p, (record, claim) in claims.items() if claim is not None}

    def _records(self, topic: str) -> list[MemoryRecord]:
        return self.broker.records(topic)

    def _format(self, topic: str) -> str:
        writers = [stage.produce for stage in self.pipeline.spec.stages if stage.produce is not None]
        for writer in writers:
            if writer.topic == topic:
                return writer.format
        raise _nothing_there(f"topic {topic}", [writer.topic for writer in writers])


def _nothing_there(what: str, there: list[str]) -> MillraceError:
    return MillraceError(
        f"the pipeline writes to no {what}",
        where="PipelineHarness",
        remedy=f"it has: {', '.join(there)}" if there else "it has none",
        code=ExitCode.USAGE,
    )


def _keep_environment(stack: ExitStack, pipeline: ConsumerPipeline, env: Mapping[str, str]) -> None:
    worker = pipeline.spec.worker
    wanted = {variable.name: variable.value for variable in worker.env} if worker is not None else {}
    wanted |= env
    before = {name: os.environ.get(name) for name in wanted}

    def restore() -> None:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    stack.callback(restore)
    os.environ.update(wanted)


def _keep_modules(stack: ExitStack, directory: Path | None) -> None:
    """So that two pipelines of one test run may each have a module of the same name, and setup() begins anew."""
    if directory is None:
        return
    path, modules = list(sys.path), set(sys.modules)

    def forget() -> None:
        if str(directory) not in path and str(directory) in sys.path:
            sys.path.remove(str(directory))
        for name in set(sys.modules) - modules:
            file = getattr(sys.modules[name], "__file__", None)
            if file is not None and Path(file).resolve().is_relative_to(directory.resolve()):
                del sys.modules[name]

    stack.callback(forget)
