"""Carries out what `reconcile` wants, for one pipeline at a time: looks, asks, writes, in that order.

What it keeps in memory can be lost at any moment: Kafka clients and the last look at Kafka, by the pipeline's uid.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import structlog

from millrace.clock import Clock
from millrace.connectivity.ports import Cluster as KafkaCluster
from millrace.ownership.control_plane import Interrupted
from millrace_api import ConsumerPipeline
from millrace_api.spec import Kafka
from millrace_api.tree import Tree
from millrace_operator import children, names
from millrace_operator.absent_pods import AbsentPods
from millrace_operator.cache import Cache
from millrace_operator.cluster import Cluster, Conflict, Refused
from millrace_operator.connecting import identity
from millrace_operator.epochs import EpochMap
from millrace_operator.kafka import PipelineKafka, Threads
from millrace_operator.objects import (
    CLAIMS,
    CONFIG_MAPS,
    KINDS,
    NAMESPACES,
    PIPELINES,
    PODS,
    SECRETS,
    digest,
    text,
)
from millrace_operator.observed import KafkaView, Observed, Resource, Settings
from millrace_operator.outcome import Outcome
from millrace_operator.readings import Question, Reading, Watches
from millrace_operator.reconcile import reconcile
from millrace_operator.recorder import Recorder
from millrace_operator.resources import claim_of, code_of, resource_of, secret_of, secret_values
from millrace_operator.seal import Seal
from millrace_operator.standstill import Standstill
from millrace_operator.work_queue import Key

ConnectKafka = Callable[[Kafka, Mapping[str, str] | None, str], KafkaCluster]
"""Clients for `spec.kafka`, given the Secret's texts (None: there is none) and a client id."""

_READER: Final = "millrace-operator"
"""Client id of readings, which are not one pipeline's."""


@dataclass(slots=True)
class _Memory:
    """Of one pipeline. `of`: its uid, the part of its spec that concerns Kafka, its credentials: others need others.
    `who`: it, to those who read Kafka for it.
    """

    of: tuple[object, ...]
    kafka: PipelineKafka
    store: EpochMap
    who: object
    view: KafkaView | None = None


class Controller:
    """`reconcile_one` is what the work queue works with."""

    def __init__(
        self,
        cluster: Cluster,
        cache: Cache,
        pipelines: Mapping[Key, Tree],
        connect: ConnectKafka,
        clock: Clock,
        settings: Settings,
        threads: Threads,
        seal: Seal,
    ) -> None:
        self._cluster, self._cache, self._pipelines = cluster, cache, pipelines
        self._connect, self._clock, self._settings, self._threads = connect, clock, settings, threads
        self._seal = seal
        self._absent = AbsentPods(cluster, clock, settings.not_created_after)
        self._standstill = Standstill(clock)
        self._recorder = Recorder(cluster, clock)
        self._memory: dict[Key, _Memory] = {}
        self._parsed: dict[Key, tuple[Tree, Resource]] = {}
        self._watches = Watches(clock)
        self._log = structlog.get_logger("millrace.operator")

    async def reconcile_one(self, key: Key) -> float | None:
        """Seconds until it should be done again; None: nothing is left to do. Raises ClusterError."""
        tree = self._pipelines.get(key)
        if tree is None:
            self._parsed.pop(key, None)
            self._forget(key)
            return None
        resource = self._resource(key, tree)
        observed, secret = await self._observe(key, resource)
        outcome = reconcile(observed, self._clock.time())
        asks = outcome.look or outcome.cleanup is not None
        memory = self._remember(key, resource, secret) if asks else None
        if memory is not None and outcome.look:
            memory.store.ever, memory.kafka.own_topics = observed.epoch_ever, resource.own_topics
            memory.view = await self._threads.look(memory.kafka, outcome.look_within)
            observed, _ = await self._observe(key, resource)  # epoch 0 may have been published
            outcome = reconcile(observed, self._clock.time())
        try:
            await self._carry_out(key, resource, outcome, memory)
        except Refused as refusal:
            await self._tell(resource, reconcile(replace(observed, refused=refusal.what), self._clock.time()))
            raise
        if outcome.finalizers == () and resource.deleted is not None:
            return None
        return 0.0 if outcome.kafka is not None and outcome.kafka.why == "act" else outcome.requeue_after

    def close(self) -> None:
        self._standstill.close()
        self._memory.clear()
        self._watches.close()

    def _resource(self, key: Key, tree: Tree) -> Resource:
        """Parsed once for each time that it was written: looks at thousands that stay as they are cost nothing here."""
        known = self._parsed.get(key)
        if known is None or known[0] is not tree:
            known = self._parsed[key] = tree, resource_of(tree)
        return known[1]

    async def _observe(self, key: Key, resource: Resource) -> tuple[Observed, Tree | None]:
        """With the Secret, whose values are for Kafka's clients only."""
        code, secret, claim = None, None, None
        if resource.pipeline is not None:
            spec = resource.pipeline.spec
            if spec.worker is not None and spec.worker.code is not None:
                name = spec.worker.code.config_map_ref.name
                code = code_of(await self._cluster.get(CONFIG_MAPS, resource.namespace, name))
            if spec.storage is not None and _collects(resource.pipeline):
                name = spec.storage.persistent_volume_claim.claim_name
                claim = claim_of(await self._cluster.get(CLAIMS, resource.namespace, name))
            if spec.kafka.credentials is not None:
                name = spec.kafka.credentials.secret_ref.name
                secret = await self._cluster.get(SECRETS, resource.namespace, name)
        memory = self._memory.get(key)
        view = memory.view if memory is not None and memory.of[0] == resource.uid else None
        children_, pods = self._cache.children(key, resource.uid), self._cache.pods(key, names.WORKER)
        stateful = children_.get(("StatefulSet", resource.name))
        observed = Observed(
            resource,
            self._settings,
            children=children_,
            pods=pods,
            collector_pods=self._cache.pods(key, names.DRIVER, names.EXECUTOR),
            claim=claim,
            absent=await self._absent.why(key, stateful, len(pods)),
            nodes_lost=dict(self._cache.nodes_lost),
            code=code,
            secret=secret_of(secret, self._seal),
            kafka=view,
            stuck=self._standstill.look(key, view, pods, _stages(resource)),
            namespace_ends=resource.deleted is not None and await self._namespace_ends(resource.namespace),
        )
        return observed, secret

    async def _namespace_ends(self, namespace: str) -> bool:
        try:
            found = await self._cluster.get(NAMESPACES, "", namespace)
        except Refused:
            return False
        return found is None or bool(text(found, "metadata", "deletionTimestamp"))

    def _remember(self, key: Key, resource: Resource, secret: Tree | None) -> _Memory | None:
        """Clients for this very spec; those of another one are closed."""
        if resource.pipeline is None:
            return self._memory.get(key)
        concerned = {key: value for key, value in resource.spec.items() if key not in _NO_AFFAIR_OF_KAFKA}
        of = (resource.uid, digest(concerned), text(secret, "metadata", "resourceVersion"))
        memory = self._memory.get(key)
        if memory is not None and memory.of == of:
            return memory
        view = memory.view if memory is not None and memory.of[0] == resource.uid else None
        self._forget(key)
        values = secret_values(secret) if secret is not None else None

        of_kafka, who = resource.pipeline.spec.kafka, object()
        way = identity(of_kafka, values)

        def connect(pipeline: ConsumerPipeline) -> KafkaCluster:
            return self._connect(of_kafka, values, f"{pipeline.group_id}-op")

        def ask(question: Question, within: float) -> Reading:
            reader = partial(self._connect, of_kafka, values, _READER)
            return self._watches.ask(who, way, reader, question, within)

        store = EpochMap(
            self._cluster,
            asyncio.get_running_loop(),
            namespace=resource.namespace,
            pipeline=resource.name,
            owner=children.owner_of(resource),
        )
        kafka = PipelineKafka(resource, connect, ask, store, self._clock)
        memory = self._memory[key] = _Memory(of, kafka, store, who, view)
        return memory

    async def _made(self, tree: Tree) -> Tree:
        """Created, or found to be there already, made by us before a crash. Raises Conflict if it is another's."""
        try:
            return await self._cluster.create(tree)
        except Conflict:
            kind, namespace = KINDS[text(tree, "kind")], text(tree, "metadata", "namespace")
            live = await self._cluster.get(kind, namespace, text(tree, "metadata", "name"))
            owner = text(tree, "metadata", "ownerReferences", 0, "uid")
            if live is None or text(live, "metadata", "ownerReferences", 0, "uid") != owner:
                raise
            return live

    def _forget(self, key: Key) -> None:
        self._absent.forget(key)
        self._standstill.forget(key)
        memory = self._memory.pop(key, None)
        if memory is not None:
            self._watches.leave(memory.who)

    async def _carry_out(
        self, key: Key, resource: Resource, outcome: Outcome, memory: _Memory | None
    ) -> None:
        namespace = resource.namespace
        if outcome.finalizers is not None:
            metadata = {"finalizers": list(outcome.finalizers), "resourceVersion": resource.version}
            await self._cluster.patch(PIPELINES, namespace, resource.name, {"metadata": metadata})
        for tree in outcome.objects:
            await self._cache.write(self._cluster.apply(tree))
        for tree in outcome.creations:
            await self._cache.write(self._made(tree))
        for one in outcome.deletions:
            await self._cluster.delete(KINDS[one.kind], namespace, one.name, uid=one.uid, grace=one.grace)
        for pod in outcome.pods:
            annotations = {"annotations": {names.EPOCH: str(pod.epoch)}}
            await self._cache.write(self._cluster.patch(PODS, namespace, pod.pod, {"metadata": annotations}))
        if outcome.kafka is not None and memory is not None:
            for event in await self._threads.work(memory.kafka, outcome.kafka):
                level = "warning" if isinstance(event, Interrupted) else "info"
                self._log.log(_LEVELS[level], "protocol", namespace=key[0], pipeline=key[1], did=str(event))
            memory.view = memory.kafka.view
        if outcome.cleanup is not None and memory is not None:
            memory.view = await self._threads.clean(memory.kafka, outcome.cleanup)
        await self._tell(resource, outcome)

    async def _tell(self, resource: Resource, outcome: Outcome) -> None:
        if outcome.status is not None:
            changes: dict[str, object] = {"status": _replaced(outcome.status, resource)}
            if (
                outcome.exact
            ):  # what follows from it must not rest on what was seen before another write of ours
                changes["metadata"] = {"resourceVersion": resource.version}
            await self._cluster.patch(PIPELINES, resource.namespace, resource.name, changes, status=True)
        for happened in outcome.events:
            await self._recorder.record(resource, happened)


_NO_AFFAIR_OF_KAFKA = frozenset({"replicas", "suspend", "deletionPolicy", "nodeLost", "worker"})
_LEVELS = {"info": 20, "warning": 30}


def _collects(pipeline: ConsumerPipeline) -> bool:
    return any(stage.collect is not None for stage in pipeline.spec.stages)


def _stages(resource: Resource) -> frozenset[str]:
    pipeline = resource.pipeline
    return frozenset(stage.name for stage in pipeline.spec.stages) if pipeline is not None else frozenset()


def _replaced(status: Tree, resource: Resource) -> Tree:
    """As a merge patch: what is no longer said is taken away."""
    return {**{key: None for key in resource.status if key not in status}, **status}
