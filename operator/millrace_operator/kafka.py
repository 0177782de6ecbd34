"""The pipelines' Kafka: for each a control plane and an admin client, behind a few threads, with deadlines.

A look gives a `KafkaView`, whatever happens; a failure is part of it. Clients of a broker that did not answer are thrown
away, since librdkafka's may keep asking with what they knew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

import structlog

from millrace.channel.backlog import Backlog, OnLag, look
from millrace.clock import Clock, Deadline
from millrace.connectivity.ports import Admin, KafkaError
from millrace.connectivity.ports import Cluster as KafkaCluster
from millrace.errors import ExitCode, MillraceError
from millrace.ownership.control_plane import ControlPlane, Event, Interrupted, StartFrom
from millrace.ownership.control_rules import examine
from millrace.ownership.epoch_store import EpochStore
from millrace.ownership.errors import ClaimLost, ForeignClaim
from millrace.ownership.topics import ensure, ensure_channel
from millrace_api import ConsumerPipeline
from millrace_api.needed import needed, transactional
from millrace_operator.observed import Failure, KafkaView, Resource
from millrace_operator.outcome import Cleanup, KafkaWork

_TIMEOUT: Final = 10.0  # seconds for a look or a reconcile

Connect = Callable[[ConsumerPipeline], KafkaCluster]
"""Clients for a pipeline with its credentials. Raises MillraceError (CREDENTIALS)."""


@dataclass(slots=True)
class _Clients:
    plane: ControlPlane
    admin: Admin
    prepared: bool = False
    channel_partitions: int = 0

    def close(self) -> None:
        self.plane.close()
        self.admin.close()


@dataclass(frozen=True, slots=True)
class _Channel:
    """Of the collect stage: its topic, who reads it, and how much is too much to wait."""

    topic: str
    group: str
    trigger: OnLag


class PipelineKafka:
    """Of one pipeline (one uid). Used by one at a time; `look` and `work` block, and belong on a thread."""

    def __init__(self, resource: Resource, connect: Connect, store: EpochStore, clock: Clock) -> None:
        assert resource.pipeline is not None
        self._uid, self._pipeline = resource.uid, resource.pipeline
        self._connect, self._store, self._clock = connect, store, clock
        self._clients: _Clients | None = None
        self._made: dict[str, str] = {}
        self._log = structlog.get_logger("millrace.operator").bind(
            namespace=resource.namespace, pipeline=resource.name
        )
        self.view = KafkaView()
        self._channel = _channel(resource.pipeline)
        self.own_topics: Mapping[str, str] = {}
        """Of the status; only these are made."""

    def look(self) -> KafkaView:
        """Publishes epoch 0 if there is none, and makes topics that the manifest wants made, if the status has them as
        the pipeline's own: so that whatever happens then, it is known whose they are.
        """
        try:
            self.view = self._look()
        except MillraceError as error:
            self._failed(error)
        return self.view

    def work(self, order: KafkaWork) -> Sequence[Event]:
        """What the control plane did; the next look tells where that has led."""
        try:
            done = self._open().plane.reconcile(order.replicas, order.fleet)
        except MillraceError as error:
            self._failed(error)
            return ()
        interrupted = [event.reason for event in done.events if isinstance(event, Interrupted)]
        self.view = replace(self.view, failure=None, interrupted=interrupted[-1] if interrupted else "")
        return done.events

    def clean(self, order: Cleanup) -> KafkaView:
        """Delete for good what the pipeline has made; what is gone is gone. The view says whether all is."""
        deadline = Deadline.after(self._clock, _TIMEOUT)
        try:
            admin = self._open().admin
            for topic, id in order.topics.items():
                there = admin.describe_topic(topic, deadline.remaining())
                if there is not None and there.id == (id or there.id):
                    admin.delete_topic(topic, deadline.remaining())
                    self._notice(f"topic {topic} deleted", "info")
            for group in order.groups:
                admin.delete_group(group, deadline.remaining())
                self._notice(f"group {group} deleted", "info")
            self.view = replace(self.view, failure=None, cleaned=True)
        except MillraceError as error:
            self._failed(error)
        return self.view

    def close(self) -> None:
        clients, self._clients = self._clients, None
        if clients is not None:
            clients.close()

    def _look(self) -> KafkaView:
        clients = self._open()
        deadline = Deadline.after(self._clock, _TIMEOUT)
        if not clients.prepared:
            to_make = self._prepare(clients.admin, deadline)
            if to_make:
                return replace(self.view, to_make=to_make, failure=None)
            clients.prepared = True
        seen = clients.plane.observe()
        spans = clients.admin.spans(
            seen.identity.topic, range(seen.partitions), deadline.remaining(), read_committed=False
        )
        lag = {p: max(0, spans[p].end - record.offset) for p, record in seen.claims.items() if p in spans}
        strays = tuple(clients.admin.group_members(self._pipeline.group_id, deadline.remaining()))
        view = KafkaView(
            seen.identity, seen.epoch, seen.partitions, seen.claims, seen.mirror, lag, None, "", strays
        )
        view = replace(view, made=self._made)
        if self._channel is not None:
            view = replace(view, backlog=self._backlog(self._channel, clients, seen.partitions, deadline))
        return replace(view, failure=self._still(view), interrupted=self.view.interrupted)

    def _backlog(self, channel: _Channel, clients: _Clients, partitions: int, deadline: Deadline) -> Backlog:
        """What waits in the channel, which is made if need be, and gets as many partitions as the source has."""
        if clients.channel_partitions < partitions:
            ensure_channel(clients.admin, channel.topic, partitions, deadline, self._notice)
            clients.channel_partitions = partitions
        spans = clients.admin.spans(channel.topic, range(partitions), deadline.remaining())
        return look(
            clients.admin,
            channel.trigger,
            channel=channel.topic,
            group=channel.group,
            spans=spans,
            now=self._clock.time(),
            timeout=deadline.remaining(),
        )

    def _prepare(self, admin: Admin, deadline: Deadline) -> tuple[str, ...]:
        """See to the topics. Returns those that are not the pipeline's own yet and have to be, first. Raises TopicMissing."""
        topics = needed(self._pipeline)
        there = {topic.name: admin.describe_topic(topic.name, deadline.remaining()) for topic in topics}
        hopeless = any(there[topic.name] is None and topic.partitions is None for topic in topics)
        lacking = {name for name, described in there.items() if described is None} - set(self.own_topics)
        if lacking and not hopeless:
            return tuple(sorted(lacking))
        ensure(admin, topics, deadline, self._notice)
        for name in self.own_topics:
            described = there.get(name) or admin.describe_topic(name, deadline.remaining())
            if described is not None:
                self._made[name] = described.id
        return ()

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

    def _open(self) -> _Clients:
        if self._clients is None:
            cluster = self._connect(self._pipeline)
            spec = self._pipeline.spec
            plane = ControlPlane(
                cluster,
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
            self._clients = _Clients(plane, cluster.admin())
        return self._clients

    def _failed(self, error: MillraceError) -> None:
        self.view = replace(self.view, failure=Failure(error.code, error.what, error.remedy))
        if isinstance(error, KafkaError):
            self.close()

    def _notice(self, message: str, level: str) -> None:
        self._log.info("topic", what=message, level_told=level)


def _channel(pipeline: ConsumerPipeline) -> _Channel | None:
    for stage in pipeline.spec.stages:
        if stage.collect is not None:
            lag = stage.collect.trigger.on_lag
            return _Channel(
                pipeline.channel(stage.name),
                pipeline.collector_group(stage.name),
                OnLag(lag.messages, lag.age_seconds) if lag is not None else OnLag(),
            )
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

    async def look(self, kafka: PipelineKafka) -> KafkaView:
        return await asyncio.get_running_loop().run_in_executor(self._pool, kafka.look)

    async def work(self, kafka: PipelineKafka, order: KafkaWork) -> Sequence[Event]:
        return await asyncio.get_running_loop().run_in_executor(self._pool, kafka.work, order)

    async def clean(self, kafka: PipelineKafka, order: Cleanup) -> KafkaView:
        return await asyncio.get_running_loop().run_in_executor(self._pool, kafka.clean, order)

    async def close(self, kafka: PipelineKafka) -> None:
        await asyncio.get_running_loop().run_in_executor(self._pool, kafka.close)

    def shutdown(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
