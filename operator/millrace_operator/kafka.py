"""A pipeline's Kafka: what is read there, through the readings of all, and what is done, with clients that are opened for
it and closed when it is done.

A look gives a `KafkaView`, whatever happens; a failure is part of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

import structlog

from millrace.clock import Clock, Deadline
from millrace.connectivity.ports import Admin
from millrace.connectivity.ports import Cluster as KafkaCluster
from millrace.errors import ExitCode, MillraceError
from millrace.ownership.control_plane import ControlPlane, Event, Interrupted, StartFrom
from millrace.ownership.control_rules import Identity, examine
from millrace.ownership.epoch_store import EpochStore, Published, published
from millrace.ownership.errors import ClaimLost, ForeignClaim
from millrace.ownership.topics import ensure, ensure_channel, missing, no_source
from millrace_api import ConsumerPipeline
from millrace_api.needed import needed, transactional
from millrace_operator.backoff import Backoff
from millrace_operator.observed import Failure, KafkaView, Resource
from millrace_operator.outcome import Cleanup, KafkaWork
from millrace_operator.readings import Channel, Question, Reading

_TIMEOUT: Final = 10.0  # seconds for what is done at once
_FIRST_PAUSE: Final = 30.0  # s between two looks after parked claims; doubled each time
_LONGEST_PAUSE: Final = 3600.0

Connect = Callable[[ConsumerPipeline], KafkaCluster]
"""Clients for a pipeline with its credentials. Raises MillraceError (CREDENTIALS)."""

Ask = Callable[[Question, float], Reading]
"""Read Kafka; a reading that is so many seconds old will do. Blocks. Raises MillraceError."""


class PipelineKafka:
    """Of one pipeline (one uid). Used by one at a time; `look`, `work` and `clean` block, and belong on a thread."""

    def __init__(
        self, resource: Resource, connect: Connect, ask: Ask, store: EpochStore, clock: Clock
    ) -> None:
        assert resource.pipeline is not None
        self._uid, self._pipeline = resource.uid, resource.pipeline
        self._connect, self._ask, self._store, self._clock = connect, ask, store, clock
        self._plane: ControlPlane | None = None
        self._prepared = False
        self._published: Published | None = None
        self._made: dict[str, str] = {}
        self._renewal = Backoff(clock, _FIRST_PAUSE, _LONGEST_PAUSE)
        self._judged: KafkaView | None = (
            None  # of which a stable read has said that claims are lost or foreign
        )
        self._log = structlog.get_logger("millrace.operator").bind(
            namespace=resource.namespace, pipeline=resource.name
        )
        self.view = KafkaView()
        self._channel = _channel(resource.pipeline)
        self.own_topics: Mapping[str, str] = {}
        """Of the status; only these are made."""

    def look(self, within: float = 0.0) -> KafkaView:
        """Publishes epoch 0 if there is none, and makes topics that the manifest wants made, if the status has them as
        the pipeline's own: so that whatever happens then, it is known whose they are.

        within: seconds; what was read that long ago will do.
        """
        try:
            self.view = self._look(within)
        except MillraceError as error:
            self._failed(error)
        return self.view

    def work(self, order: KafkaWork) -> Sequence[Event]:
        """What the control plane did; the next look tells where that has led."""
        if not self._worth(order):
            return ()
        try:
            self._plane = self._plane or self._new_plane()
            done = self._plane.reconcile(order.replicas, order.fleet)
        except MillraceError as error:
            self._judged = self.view if order.why == "examine" else None
            self._failed(error)
            return ()
        finally:
            if self._plane is not None:
                self._plane.close()
        interrupted = [event.reason for event in done.events if isinstance(event, Interrupted)]
        self.view = replace(self.view, failure=None, interrupted=interrupted[-1] if interrupted else "")
        return done.events

    def clean(self, order: Cleanup) -> KafkaView:
        """Delete for good what the pipeline has made; what is gone is gone. The view says whether all is."""
        deadline = Deadline.after(self._clock, _TIMEOUT)
        try:
            self._with_admin(lambda admin: self._clean(admin, order, deadline))
            self.view = replace(self.view, failure=None, cleaned=True)
        except MillraceError as error:
            self._failed(error)
        return self.view

    def _look(self, within: float) -> KafkaView:
        known = self._published
        self._published = published(self._store, self._uid)  # before the claims, which it says are there
        if known != self._published:
            within = 0.0
        reading = self._ask(self._question(), within)
        if not self._prepared:
            to_make = self._to_make(reading)
            if to_make:
                return replace(self.view, to_make=to_make, failure=None)
        if self._make(reading):
            reading = self._ask(self._question(), 0.0)
        self._note_own(reading)
        return self._seen(reading, self._published)

    def _question(self) -> Question:
        assert self._published is not None
        pipeline = self._pipeline
        topics = frozenset() if self._prepared else frozenset(t.name for t in needed(pipeline))
        return Question(
            pipeline.spec.source.topic,
            pipeline.group_id,
            pipeline.claims_group,
            self._published.epoch.partitions,
            topics if self._prepared else topics | frozenset(self.own_topics),
            self._channel,
        )

    def _to_make(self, reading: Reading) -> tuple[str, ...]:
        """Topics that are not the pipeline's own yet and have to be, first. Raises TopicMissing."""
        absent = [topic for topic in needed(self._pipeline) if reading.topics[topic.name] is None]
        hopeless = [topic for topic in absent if topic.partitions is None]
        if hopeless:
            raise missing(hopeless)
        return tuple(sorted({topic.name for topic in absent} - set(self.own_topics)))

    def _make(self, reading: Reading) -> bool:
        """What is lacking, if anything is: topics, the channel, or partitions of it, which has as many as the source."""
        topics, deadline = needed(self._pipeline), Deadline.after(self._clock, _TIMEOUT)
        made = False
        if not self._prepared and any(reading.topics[topic.name] is None for topic in topics):
            self._with_admin(lambda admin: ensure(admin, topics, deadline, self._notice))
            made = True
        source = reading.topics[self._pipeline.spec.source.topic]
        if self._channel is not None and (source is not None or made):
            name, channel = self._channel.topic, reading.topics[self._channel.topic]
            wanted = source.partitions if source is not None else topics[0].partitions
            if wanted is not None and (channel is None or channel.partitions < wanted):
                self._with_admin(lambda admin: ensure_channel(admin, name, wanted, deadline, self._notice))
                made = True
        return made

    def _note_own(self, reading: Reading) -> None:
        """Ids of the pipeline's own topics, once."""
        if not self._prepared:
            found = {name: reading.topics.get(name) for name in self.own_topics}
            self._made = {name: described.id for name, described in found.items() if described is not None}
            self._prepared = True

    def _seen(self, reading: Reading, shown: Published) -> KafkaView:
        pipeline = self._pipeline
        source = reading.topics[pipeline.spec.source.topic]
        if source is None:
            raise no_source(pipeline.spec.source.topic)
        identity = Identity(self._uid, source.name, source.id, pipeline.group_id, pipeline.claims_group)
        claims, ends = reading.claims, reading.ends
        view = KafkaView(
            identity,
            shown.epoch,
            source.partitions,
            claims,
            reading.mirror,
            lag={p: max(0, ends[p] - record.offset) for p, record in claims.items() if p in ends},
            interrupted=self.view.interrupted,
            strays=reading.strays,
            backlog=reading.backlog,
            made=self._made,
        )
        return replace(view, failure=self._still(view))

    def _still(self, view: KafkaView) -> Failure | None:
        """What a stable read has found of lost or foreign claims holds until a look finds them in order."""
        assert view.identity is not None
        assert view.epoch is not None
        try:
            examine(view.identity, view.epoch, view.claims, view.mirror)
        except (ClaimLost, ForeignClaim):
            failure = self.view.failure
            known = failure is not None and failure.code in (ExitCode.CLAIM_LOST, ExitCode.CLAIM_FOREIGN)
            return failure if known else None
        return None

    def _worth(self, order: KafkaWork) -> bool:
        """Whether anything can come of it. Parked claims are renewed daily and seldom have anything to be swept up; of
        claims that are lost a second stable read says what the first has said, until they are others.
        """
        if order.why == "renew":
            return self._renewal.due()
        self._renewal.reset()
        if order.why == "examine" and self._judged is not None and self.view.failure is not None:
            before, now = self._judged, self.view
            return (before.epoch, before.claims, before.mirror) != (now.epoch, now.claims, now.mirror)
        return True

    def _clean(self, admin: Admin, order: Cleanup, deadline: Deadline) -> None:
        for topic, id in order.topics.items():
            there = admin.describe_topic(topic, deadline.remaining())
            if there is not None and there.id == (id or there.id):
                admin.delete_topic(topic, deadline.remaining())
                self._notice(f"topic {topic} deleted", "info")
        for group in order.groups:
            admin.delete_group(group, deadline.remaining())
            self._notice(f"group {group} deleted", "info")

    def _with_admin(self, do: Callable[[Admin], None]) -> None:
        admin = self._connect(self._pipeline).admin()
        try:
            do(admin)
        finally:
            admin.close()

    def _new_plane(self) -> ControlPlane:
        """It is kept, for what it has in mind from one time to the next."""
        spec = self._pipeline.spec
        return ControlPlane(
            self._connect(self._pipeline),
            self._store,
            self._clock,
            uid=self._uid,
            topic=spec.source.topic,
            group=self._pipeline.group_id,
            claims_group=self._pipeline.claims_group,
            start_from=_start_from(self._pipeline),
            outputs=transactional(self._pipeline),
            timeout=_TIMEOUT,
        )

    def _failed(self, error: MillraceError) -> None:
        self.view = replace(self.view, failure=Failure(error.code, error.what, error.remedy))

    def _notice(self, message: str, level: str) -> None:
        self._log.info("topic", what=message, level_told=level)


def _channel(pipeline: ConsumerPipeline) -> Channel | None:
    for stage in pipeline.spec.stages:
        if stage.collect is not None:
            lag = stage.collect.trigger.on_lag
            age = lag.age_seconds if lag is not None else None
            return Channel(pipeline.channel(stage.name), pipeline.collector_group(stage.name), age)
    return None


def _start_from(pipeline: ConsumerPipeline) -> StartFrom:
    at = pipeline.spec.source.start_timestamp_ms
    if at is not None:
        return at
    return "Latest" if pipeline.spec.source.start_from == "Latest" else "Earliest"


class Threads:
    """A bound on how many pipelines speak to brokers at once, so that one that is silent delays few others."""

    def __init__(self, count: int = 16) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="kafka")

    async def look(self, kafka: PipelineKafka, within: float = 0.0) -> KafkaView:
        return await asyncio.get_running_loop().run_in_executor(self._pool, kafka.look, within)

    async def work(self, kafka: PipelineKafka, order: KafkaWork) -> Sequence[Event]:
        return await asyncio.get_running_loop().run_in_executor(self._pool, kafka.work, order)

    async def clean(self, kafka: PipelineKafka, order: Cleanup) -> KafkaView:
        return await asyncio.get_running_loop().run_in_executor(self._pool, kafka.clean, order)

    def shutdown(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
