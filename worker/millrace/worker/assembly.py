"""What a worker is made of, put together from its settings, and released again."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

import msgspec

from millrace.chain import Functions, build, load, stage_stats
from millrace.channel.progress import Note
from millrace.clock import Clock
from millrace.connectivity.ports import Cluster, Producer
from millrace.engine.calls import Call
from millrace.engine.outbox import Outbox
from millrace.engine.readiness import State
from millrace.engine.replica import Replica
from millrace.engine.session import OnComplete
from millrace.engine.settings import ReplicaSettings
from millrace.engine.stats import StageStats
from millrace.engine.strategy import Strategy
from millrace.engine.tracing import Tracer
from millrace.strategies import DECODE_STAGE
from millrace.tracing.setup import start
from millrace.worker import logs
from millrace.worker.bounds import read_bounds
from millrace.worker.cluster import connect
from millrace.worker.epoch_watch import EpochWatch
from millrace.worker.manifest import code_of, read
from millrace.worker.pulse import Pulse
from millrace.worker.settings import Settings
from millrace.worker.status import RUNNING, STARTING, WAITING, StageStatus, WorkerStatus
from millrace.worker.watcher import Watcher
from millrace_api import ConsumerPipeline
from millrace_api.needed import transactional


@contextmanager
def assembled(settings: Settings, clock: Clock, pulse: Pulse) -> Iterator[Replica]:
    """The replica, ready to be stepped; `pulse` tells of it from now on. Whoever steps it closes it.

    Raises: MillraceError (MANIFEST, FUNCTION, CREDENTIALS) and millrace_api.InvalidManifest. No broker is needed yet.
    """
    log = logs.logger("millrace.worker")
    with ExitStack() as stack:
        loaded = read(settings.manifest)
        pipeline = loaded.pipeline
        code = stack.enter_context(code_of(loaded, settings.manifest, settings.code))
        functions = load(pipeline, code)
        log.info("functions loaded", code=str(code))
        cluster = connect(
            pipeline,
            bootstrap=settings.bootstrap,
            secrets=settings.secrets,
            client_id=f"{pipeline.group_id}-{settings.index}",
        )
        tracing = start(os.environ, pipeline, str(settings.index))
        if tracing is not None:
            stack.callback(tracing.close)
            log.info("traces are made")
        tracer = None if tracing is None else tracing.tracer
        chains = Chains(pipeline, functions, cluster, clock, tracer)
        stack.callback(chains.close)
        replica = Replica(
            cluster,
            topic=pipeline.spec.source.topic,
            group=pipeline.group_id,
            claims_group=pipeline.claims_group,
            index=settings.index,
            epoch_source=EpochWatch(settings.epoch_file, clock),
            chain=chains,
            clock=clock,
            settings=ReplicaSettings(commit_interval=pipeline.spec.commit.interval_seconds),
            bounds=read_bounds(settings.until) if settings.until is not None else None,
            outputs=transactional(pipeline),
        )
        pulse.fill_from(_Filler(pipeline, replica, chains))
        watcher = Watcher(chains.calls, pulse.stuck, clock, settings.stuck_after)
        watcher.start()
        stack.callback(watcher.close)
        yield replica


class Chains:
    """Makes the chain of each session of a replica. With AtLeastOnce it also has a producer of its own, so that nothing of a
    session that was dropped is waited for, or fails, in the next.
    """

    def __init__(
        self,
        pipeline: ConsumerPipeline,
        functions: Functions,
        cluster: Cluster,
        clock: Clock,
        tracer: Tracer | None = None,
    ) -> None:
        self._tracer = tracer
        self._pipeline, self._functions, self._cluster, self._clock = pipeline, functions, cluster, clock
        self._producer: Producer | None = None
        self._chain: Strategy | None = None
        self.stats: Mapping[str, StageStats] = stage_stats(pipeline)

    def __call__(self, outbox: Outbox, on_complete: OnComplete) -> Strategy:
        self.close()
        spec = self._pipeline.spec
        if spec.delivery == "AtLeastOnce" and any(stage.produce for stage in spec.stages):
            self._producer = self._cluster.producer()
        self._chain = build(
            self._pipeline,
            self._functions,
            outbox,
            self._producer,
            on_complete,
            self.stats,
            self._clock,
            self._tracer,
        )
        return self._chain

    def calls(self) -> Iterable[Call]:
        """Of the newest chain; an earlier one was terminated. Safe on any thread."""
        return () if self._chain is None else self._chain.calls()

    def in_flight(self) -> Mapping[str, int]:
        """Source messages in each stage. On the engine's thread."""
        found = Counter[str]()
        for name, count in () if self._chain is None else self._chain.in_flight():
            found[name] += count
        return found

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None


class _Filler:
    """Fills a worker's status from its replica and the figures of its stages."""

    def __init__(self, pipeline: ConsumerPipeline, replica: Replica, chains: Chains) -> None:
        self._replica, self._chains = replica, chains
        self._kinds = {DECODE_STAGE: "decode"} | {stage.name: stage.kind for stage in pipeline.spec.stages}

    def __call__(self, status: WorkerStatus) -> WorkerStatus:
        seen = self._replica.snapshot()
        in_flight = self._chains.in_flight()
        stages = tuple(
            StageStatus(
                name,
                self._kinds.get(name, ""),
                s.received,
                s.emitted,
                s.dead,
                s.seconds,
                s.late,
                s.batches,
                s.rejected,
                round(s.held_back, 3),
                in_flight.get(name, 0),
                tuple(s.latencies),
                s.latency,
            )
            for name, s in self._chains.stats.items()
        )
        state = STARTING
        if seen.state is State.RUNNING:
            state = RUNNING if seen.ready and (seen.positions or not seen.reasons) else WAITING
        elif seen.state is State.INTERRUPTED:
            state = WAITING
        return msgspec.structs.replace(
            status,
            state=state,
            ready=seen.ready,
            reasons=seen.reasons,
            epoch=seen.epoch,
            positions=dict(seen.positions),
            late_rows={
                p: note.late for p, text in seen.notes.items() if (note := Note.decode(text)) is not None
            },
            messages=stages[0].received if stages else 0,
            interruptions=seen.interruptions,
            stages=stages,
        )
