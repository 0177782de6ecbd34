"""A cluster in memory around the pure core of the operator: an API server that only stores, a StatefulSet controller, a
kubelet whose pods are `WorkerDouble`s, a garbage collector; and Kafka in memory with the real control plane.

Time moves only here. Everything may be stopped in the middle (`reconcile(parts=n)`), as by a crash of the operator.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import yaml

from millrace.channel.backlog import Backlog
from millrace.clock import Deadline, VirtualClock
from millrace.connectivity.memory import MemoryBroker
from millrace.connectivity.memory.faults import Call
from millrace.connectivity.ports import BrokerUnreachable, Span
from millrace.connectivity.ports import Cluster as KafkaCluster
from millrace.errors import MillraceError
from millrace.ownership.claim import Claim
from millrace.ownership.control_plane import Interrupted
from millrace.ownership.epoch import Epoch
from millrace.ownership.epoch_store import EpochConflict, Published
from millrace_api import ConsumerPipeline, InvalidManifest, Problem, parse
from millrace_operator import names
from millrace_operator.kafka import PipelineKafka
from millrace_operator.observed import Claim as Claim_
from millrace_operator.observed import KafkaView, Observed, Resource, Secret, Settings, Stuck
from millrace_operator.outcome import Outcome
from millrace_operator.pods import node_lost_since
from millrace_operator.readings import Question, Reading, read
from millrace_operator.reconcile import reconcile
from millrace_operator.times import written
from worker_double import WorkerDouble

MANIFEST = """
apiVersion: millrace.dev/v1alpha1
kind: ConsumerPipeline
metadata: {name: flights, namespace: air}
spec:
  replicas: 2
  kafka: {bootstrapServers: "kafka:9092"}
  source: {topic: flights, create: {partitions: 6}}
  stages: [{name: scored, map: {function: "flights:score"}}]
  worker: {image: "flights:1", code: {configMapRef: {name: flights-code}}}
"""
PARTITIONS = 6
OPERATOR = "op"
Object = dict[str, Any]


@cache
def _parsed(manifest: str) -> tuple[ConsumerPipeline | None, tuple[Problem, ...]]:
    """Worlds look at the same ones thousands of times."""
    try:
        return parse(json.loads(manifest)), ()
    except InvalidManifest as error:
        return None, error.problems


class World:
    def __init__(self, **spec: object) -> None:
        self.clock = VirtualClock()
        self.broker = MemoryBroker(self.clock)
        self.broker.create_topic("flights", PARTITIONS)
        for partition in range(PARTITIONS):
            self.broker.append("flights", partition, [b"{}"] * 100)
        self.pipeline: Object | None = yaml.safe_load(MANIFEST)
        self.pipeline["spec"].update(spec)
        self.pipeline["metadata"] |= {"uid": "u-1", "generation": 1, "finalizers": []}
        self.pipeline["status"] = {}
        self.code: dict[str, str] | None = {"flights.py": "def score(v): return v"}
        self.secret: Secret | None = None
        self.objects: dict[tuple[str, str], Object] = {}
        self.pods: dict[int, Object] = {}
        self.doubles: dict[int, WorkerDouble] = {}
        self.nodes: dict[str, Object] = {"n1": {"metadata": {"name": "n1"}}}
        self.broken: Mapping[int, Object] = {}  # status of pods that don't come up, by index
        self.namespace_ends = False
        self.broker_away = False
        self.ends: dict[
            int, int
        ] = {}  # of partitions of which the operator finds more than what was written at first
        self.refused = self.absent = ""
        self.stuck: tuple[Stuck, ...] = ()
        self.settings = Settings()
        self.view: KafkaView | None = None
        self.writes: list[str] = []
        self.events: list[tuple[str, str]] = []
        self.claim: Claim_ | None = None
        self.waiting = 0  # offsets in the channel
        self.spark: dict[str, Object] = {}  # pods of drivers and executors
        self.stale = False  # the operator sees the resource as it was before its last change
        self._versions: list[Object] = []
        self._count = 0
        self._kafka_of: tuple[object, PipelineKafka] | None = None
        self.broker.hook = self._network

    # what the operator does

    def observed(self) -> Observed:
        self._remember()
        seen = self._versions[-2 if self.stale and len(self._versions) > 1 else -1]
        metadata = seen["metadata"]
        tree = {k: v for k, v in seen.items() if k != "status"}
        own = {k: v for k, v in metadata.items() if k != "deletedAt"}
        pipeline, problems = _parsed(json.dumps({**tree, "metadata": own}))
        resource = Resource(
            name=metadata["name"],
            namespace=metadata["namespace"],
            uid=metadata["uid"],
            generation=metadata["generation"],
            version=str(self._versions.index(seen)),
            pipeline=pipeline,
            problems=problems,
            deleted=metadata.get("deletedAt"),
            finalizers=tuple(metadata["finalizers"]),
            status=seen["status"],
            spec=seen["spec"],
        )
        lost = {
            name: since for name, node in self.nodes.items() if (since := node_lost_since(node)) is not None
        }
        return Observed(
            resource,
            self.settings,
            children=dict(self.objects),
            pods=tuple(self.pods.values()),
            nodes_lost=lost,
            code=self.code,
            secret=self.secret,
            kafka=self.view,
            refused=self.refused,
            absent=self.absent,
            stuck=self.stuck,
            namespace_ends=self.namespace_ends,
            collector_pods=tuple(self.spark.values()),
            claim=self.claim,
        )

    def _remember(self) -> None:
        assert self.pipeline is not None
        if not self._versions or self._versions[-1] != self.pipeline:
            self._versions.append(copy.deepcopy(self.pipeline))

    def reconcile(self, parts: int = 1000) -> Outcome:
        """Look, decide, carry out; at most so many parts of it, as if the operator had died then."""
        if self.pipeline is None:
            return Outcome(look=False)
        outcome = reconcile(self.observed(), self.clock.time())
        if outcome.look:
            self.look()
            outcome = reconcile(self.observed(), self.clock.time())
        actions: list[tuple[str, Any]] = []
        if outcome.finalizers is not None:
            actions.append(("finalizers", outcome.finalizers))
        actions += [("apply", tree) for tree in outcome.objects]
        actions += [("create", tree) for tree in outcome.creations]
        actions += [("delete", one) for one in outcome.deletions]
        actions += [("annotate", one) for one in outcome.pods]
        if outcome.kafka is not None:
            actions.append(("kafka", outcome.kafka))
        if outcome.cleanup is not None:
            actions.append(("cleanup", outcome.cleanup))
        if outcome.status is not None:
            actions.append(("status", (outcome.status, outcome.exact)))
        for what, value in actions[:parts]:
            getattr(self, f"_{what}")(value)
        self.events += [(event.type, event.reason) for event in outcome.events]
        return outcome

    def restart_operator(self) -> None:
        self.view, self._kafka_of = None, None

    def look(self) -> None:
        kafka = self.kafka()
        kafka.own_topics = self.observed().resource.own_topics
        self.view = kafka.look()
        lag = {p: self.ends.get(p, 100) - record.offset for p, record in self.view.claims.items()}
        self.view = replace(self.view, lag=lag)
        if self.collects and not self.broker_away:
            self.view = replace(self.view, backlog=Backlog({0: Span(0, self.waiting)}, {0: 0}))

    def kafka(self) -> PipelineKafka:
        assert self.pipeline is not None
        of = (self.pipeline["metadata"]["uid"], copy.deepcopy(self.pipeline["spec"]))
        if self._kafka_of is None or self._kafka_of[0] != of:
            made = PipelineKafka(self.observed().resource, self._connect, self._ask, _Store(self), self.clock)
            made.view = self.view or made.view
            self._kafka_of = (of, made)
        return self._kafka_of[1]

    def _connect(self, _: ConsumerPipeline) -> KafkaCluster:
        return self.broker.cluster(client_id=OPERATOR)

    def _ask(self, question: Question, _within: float) -> Reading:
        survey = self.broker.cluster(client_id=OPERATOR).survey()
        answer = read(survey, {"": question}, self.clock, Deadline.after(self.clock, 10.0))[""]
        if isinstance(answer, MillraceError):
            raise answer
        return answer

    def _network(self, call: Call) -> None:
        if self.broker_away and call.client == OPERATOR:
            raise BrokerUnreachable("no broker answers")

    def _finalizers(self, finalizers: tuple[str, ...]) -> None:
        assert self.pipeline is not None
        self.writes.append(f"finalizers {list(finalizers)}")
        self.pipeline["metadata"]["finalizers"] = list(finalizers)
        if not finalizers and "deletedAt" in self.pipeline["metadata"]:
            self.pipeline = None
            self.objects.clear()  # the garbage collector, by the owner references
            self.spark.clear()

    def _apply(self, tree: Object) -> None:
        key = tree["kind"], tree["metadata"]["name"]
        self.writes.append(f"apply {key}")
        old = self.objects.get(key)
        new = copy.deepcopy(dict(tree))
        new["metadata"] = dict(new["metadata"])
        before = old["metadata"] if old else {"uid": f"uid-{self._next()}", "generation": 0}
        changed = old is None or old.get("spec") != new.get("spec")
        new["metadata"] |= {"uid": before["uid"], "generation": before["generation"] + changed}
        if old and "status" in old:
            new["status"] = old["status"]
        self.objects[key] = new

    def _delete(self, one: Any) -> None:
        self.writes.append(f"delete {one.kind} {one.name}")
        if one.kind == "Pod" and one.name in self.spark:
            pod = self.spark[one.name]
            if pod["metadata"]["uid"] == one.uid:
                pod["metadata"]["deletionTimestamp"] = written(self.clock.time())
        elif one.kind == "Pod":
            for index, pod in list(self.pods.items()):
                if pod["metadata"]["name"] == one.name and pod["metadata"]["uid"] == one.uid:
                    self.end_pod(index)
        elif self.objects.get((one.kind, one.name), {}).get("metadata", {}).get("uid") == one.uid:
            del self.objects[one.kind, one.name]

    def _annotate(self, one: Any) -> None:
        self.writes.append(f"annotate {one.pod} {one.epoch}")
        for pod in self.pods.values():
            if pod["metadata"]["name"] == one.pod:
                pod["metadata"]["annotations"][names.EPOCH] = str(one.epoch)

    def _kafka(self, work: Any) -> None:
        done = self.kafka().work(work)
        self.view = self.kafka().view
        real = [event for event in done if not isinstance(event, Interrupted)]
        if real:
            self.writes.append(f"kafka {[type(event).__name__ for event in real]}")

    def _cleanup(self, order: Any) -> None:
        self.writes.append(f"cleanup {sorted(order.topics)} {list(order.groups)}")
        self.view = self.kafka().clean(order)

    def _create(self, tree: Object) -> None:
        """A driver. Whoever makes one has written it down before, and there is no other."""
        name = tree["metadata"]["name"]
        if name in self.spark:
            self.writes.append(f"found {name}")
            return
        assert self.pipeline is not None
        *_, last = self.pipeline["status"]["collector"]["attempts"]
        assert last["number"] == int(tree["metadata"]["labels"][names.ATTEMPT])
        assert "ended" not in last
        assert not self.alive(), self.alive()
        self.writes.append(f"create {name}")
        pod = copy.deepcopy(dict(tree))
        uid = f"pod-{self._next()}"
        pod["metadata"] |= {"uid": uid, "creationTimestamp": written(self.clock.time())}
        pod["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self.spark[name] = pod

    def _status(self, told: tuple[Object, bool]) -> None:
        status, exact = told
        assert self.pipeline is not None
        if exact and self.stale:
            self._remember()
            if len(self._versions) > 1:
                return  # refused: it is not as it was seen
        ready = next(c for c in status["conditions"] if c["type"] == "Ready")
        self.writes.append(f"status {ready['status']} {ready['reason']}")
        self.pipeline["status"] = copy.deepcopy(dict(status))

    # what the collector does

    @property
    def collects(self) -> bool:
        return self.pipeline is not None and "collect" in self.pipeline["spec"]["stages"][-1]

    def alive(self) -> list[str]:
        """Drivers and executors whose process has not ended."""
        return [
            name for name, pod in self.spark.items() if pod["status"]["phase"] not in ("Succeeded", "Failed")
        ]

    def driver(self) -> str:
        """The one that is alive."""
        [name] = [name for name in self.alive() if names.ATTEMPT in self.spark[name]["metadata"]["labels"]]
        return name

    def add_executor(self) -> None:
        owner = self.driver()
        name = f"exec-{self._next()}"
        self.spark[name] = {
            "metadata": {
                "name": name,
                "uid": f"pod-{self._next()}",
                "labels": dict(names.labels("flights", names.EXECUTOR)),
                "ownerReferences": [{"uid": self.spark[owner]["metadata"]["uid"]}],
            },
            "status": {"phase": "Running"},
        }

    def end_driver(self, code: int, *, message: str = "", reason: str = "Error") -> None:
        """Its container has ended; its executors live on, until somebody sees to them."""
        ended = {"exitCode": code, "message": message, "reason": reason}
        self.spark[self.driver()]["status"] = {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [{"name": "collector", "state": {"terminated": ended}}],
        }

    def kubelet_of_spark(self) -> None:
        """Pods that are to go are gone; of those that owned others, these too."""
        for name, pod in list(self.spark.items()):
            if "deletionTimestamp" in pod["metadata"]:
                del self.spark[name]
        for name, pod in list(self.spark.items()):
            owners = {one["uid"] for one in pod["metadata"]["ownerReferences"]} - {"u-1"}
            there = {one["metadata"]["uid"] for one in self.spark.values()}
            if owners and not owners & there:
                del self.spark[name]

    # what the cluster does

    def kubelet(self, processed: int = 0) -> None:
        """The StatefulSet controller and the nodes, one round of each."""
        self.kubelet_of_spark()
        live = self.objects.get(("StatefulSet", "flights"))
        scale = live["spec"]["replicas"] if live else 0
        for index in [i for i in self.pods if i >= scale]:
            if self._node_lost(index):
                self.pods[index]["metadata"]["deletionTimestamp"] = "2023-11-14T22:13:20Z"
            else:
                self.end_pod(index)
        for index in range(scale):
            if index not in self.pods and live is not None:
                self._start_pod(index, live)
        for index, double in list(self.doubles.items()):
            if index not in self.broken:
                double.work(processed)
            self._show(index, double)
        if live is not None:
            live["status"] = {
                "observedGeneration": live["metadata"]["generation"],
                "currentRevision": "r",
                "updateRevision": "r",
            }

    def _start_pod(self, index: int, live: Object) -> None:
        self.pods[index] = {
            "metadata": {
                "name": f"flights-{index}",
                "uid": f"pod-{self._next()}",
                "annotations": {},
                "labels": {"controller-revision-hash": "r", "apps.kubernetes.io/pod-index": str(index)},
            },
            "spec": {
                "nodeName": f"n{self._count}" if f"n{self._count}" in self.nodes else "n1",
                "volumes": live["spec"]["template"]["spec"]["volumes"],
            },
        }
        cluster = self.broker.cluster(client_id=f"w{index}")
        self.doubles[index] = WorkerDouble(
            cluster, self.epoch, index, topic="flights", claims_group="air.flights.claims"
        )

    def end_pod(self, index: int) -> None:
        self.pods.pop(index, None)
        double = self.doubles.pop(index, None)
        if double is not None:
            double.end()

    def _node_lost(self, index: int) -> bool:
        return node_lost_since(self.nodes[self.pods[index]["spec"]["nodeName"]]) is not None

    def _show(self, index: int, double: WorkerDouble) -> None:
        ready = double.ready and index not in self.broken
        status: Object = {"conditions": [{"type": "Ready", "status": str(ready)}]}
        self.pods[index]["status"] = {**status, **self.broken.get(index, {})}

    def settle(self, rounds: int = 40, processed: int = 0) -> None:
        """Operator and cluster in turns until the operator has nothing to write. Raises AssertionError if that never is."""
        for _ in range(rounds):
            before = len(self.writes)
            outcome = self.reconcile()
            self.kubelet(processed)
            self.clock.advance(1.0)
            if len(self.writes) == before and not outcome.writes and self.quiet():
                return
        raise AssertionError(f"never quiet: {self.writes[-12:]}")

    def quiet(self) -> bool:
        """Whether another round would find nothing to do; it is made, to see."""
        before = len(self.writes)
        self.kubelet()
        self.reconcile()
        return len(self.writes) == before

    # looking

    def epoch(self) -> Epoch | None:
        found = self.objects.get(("ConfigMap", "flights-epoch"))
        return Epoch.decode(found["data"]["epoch.json"]) if found else None

    def published(self) -> Epoch:
        found = self.epoch()
        assert found is not None
        return found

    def claims(self) -> dict[int, int]:
        """Holder of each partition."""
        admin = self.broker.cluster(client_id="test").admin()
        records = admin.group_offsets("air.flights.claims", "flights", range(PARTITIONS), 1, stable=False)
        return {p: c.holder for p, r in records.items() if (c := Claim.decode(r.metadata))}

    def condition(self, kind: str) -> tuple[str, str]:
        assert self.pipeline is not None
        for c in self.pipeline["status"].get("conditions", []):
            if c["type"] == kind:
                return c["status"], c["reason"]
        return "", ""

    def change(self, **spec: object) -> None:
        assert self.pipeline is not None
        self.pipeline["spec"].update(spec)
        self.pipeline["metadata"]["generation"] += 1

    def delete(self) -> None:
        assert self.pipeline is not None
        self.pipeline["metadata"].setdefault("deletedAt", self.clock.time())
        if not self.pipeline["metadata"]["finalizers"]:
            self.pipeline = None
            self.objects.clear()

    @property
    def scale(self) -> int:
        return self.objects[("StatefulSet", "flights")]["spec"]["replicas"]

    def _next(self) -> int:
        self._count += 1
        return self._count


class _Store:
    """The epoch in a ConfigMap of the world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def read(self) -> Published | None:
        epoch = self._world.epoch()
        return Published(epoch, epoch.encode()) if epoch else None

    def publish(self, epoch: Epoch, expected: str | None) -> Published:
        found = self.read()
        if (found.version if found else None) != expected:
            raise EpochConflict("published meanwhile")
        ever = self._world.observed().epoch_ever
        if 0 < epoch.number <= ever:
            epoch = replace(epoch, number=ever + 1)
        self._world.writes.append(f"epoch {epoch.number}")
        self._world.objects["ConfigMap", "flights-epoch"] = {
            "kind": "ConfigMap",
            "metadata": {"name": "flights-epoch", "uid": "uid-epoch"},
            "data": {"epoch.json": epoch.encode()},
        }
        return Published(epoch, epoch.encode())
