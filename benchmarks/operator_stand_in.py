"""The operator as it is, but for its brokers: a stand-in behind the connectivity port, in its own process, with the workers
of all pipelines.

Thousands of pipelines' claims and topics are more than a broker beside them on two cores bears, and it is the operator
that is measured. So each look at Kafka is a look at the in-memory broker (the one that passes the real one's contract
suite), and before it the pipeline's workers are played by doubles that hold and pass on claims by the protocol. What they
cost is in the figures of time and memory. Run as a program: the arguments are those of millrace-operator.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import TextIO

from millrace.clock import SystemClock
from millrace.connectivity.memory import MemoryBroker
from millrace.connectivity.memory.faults import Call, Phase
from millrace.connectivity.ports import Cluster, OffsetAndMetadata
from millrace.ownership.claim import Claim
from millrace.ownership.control_plane import Event
from millrace.ownership.epoch import Epoch
from millrace.ownership.epoch_store import Published
from millrace_api import ConsumerPipeline
from millrace_api.spec import Kafka
from millrace_operator import main as program
from millrace_operator.epochs import EpochMap
from millrace_operator.kafka import PipelineKafka
from millrace_operator.observed import KafkaView
from millrace_operator.outcome import Cleanup, KafkaWork
from millrace_operator.readings import watch
from worker_double import WorkerDouble

PARTITIONS = 4


class StandIn:
    """All brokers there are, and all workers. Whoever uses it holds the lock."""

    def __init__(self) -> None:
        self.broker = MemoryBroker(SystemClock())
        self.lock = threading.RLock()
        self._epochs: dict[str, Epoch] = {}
        self._doubles: dict[tuple[str, int], WorkerDouble] = {}

    def connect(self, kafka: Kafka, secret: Mapping[str, str] | None, client_id: str) -> Cluster:
        del kafka, secret
        return self.broker.cluster(client_id=client_id)

    def have_source(self, pipeline: ConsumerPipeline) -> None:
        if self.broker.find_topic(pipeline.spec.source.topic) is None:
            self.broker.create_topic(pipeline.spec.source.topic, PARTITIONS)

    def told(self, epoch: Epoch) -> None:
        self._epochs[epoch.uid] = epoch

    def knows(self, uid: str) -> bool:
        return uid in self._epochs

    def remember(self, pipeline: ConsumerPipeline, epoch: Epoch) -> None:
        """What a broker would still have from before the operator's start: all claims where they belong."""
        self.have_source(pipeline)
        self.told(epoch)
        topic = self.broker.topic(pipeline.spec.source.topic)
        admin = self.broker.cluster(client_id="stand-in").admin()
        held = {}
        for partition in range(epoch.partitions if epoch.number else 0):
            claim = Claim(epoch.uid, topic.id, epoch.number, epoch.owner(partition), None)
            held[partition] = OffsetAndMetadata(0, claim.encode())
        if held:
            admin.commit_offsets(pipeline.claims_group, topic.name, held, 1.0)
            mirror = {partition: OffsetAndMetadata(0) for partition in held}
            admin.commit_offsets(pipeline.group_id, topic.name, mirror, 1.0)
        admin.close()

    def work(self, pipeline: ConsumerPipeline, uid: str) -> None:
        """A turn of the pipeline's workers."""
        epoch = self._epochs.get(uid)
        for index in range(epoch.replicas_ever if epoch is not None else 0):
            double = self._doubles.get((uid, index))
            if double is None:
                double = self._doubles[uid, index] = WorkerDouble(
                    self.broker.cluster(client_id=f"{uid}-{index}"),
                    lambda: self._epochs.get(uid),
                    index,
                    topic=pipeline.spec.source.topic,
                    claims_group=pipeline.claims_group,
                )
            double.work()


class _Kafka(PipelineKafka):
    """The operator's own, which lets the workers have their turn before it looks."""

    def look(self, within: float = 0.0) -> KafkaView:
        known = STAND_IN.knows(self._uid)
        before = None if known else self._store.read()
        with STAND_IN.lock:
            STAND_IN.have_source(self._pipeline)
            if before is not None:
                STAND_IN.remember(self._pipeline, before.epoch)
            STAND_IN.work(self._pipeline, self._uid)
        return super().look(within)

    def work(self, order: KafkaWork) -> Sequence[Event]:
        with STAND_IN.lock:
            return super().work(order)

    def clean(self, order: Cleanup) -> KafkaView:
        with STAND_IN.lock:
            return super().clean(order)


class _Watch(watch.Watch):
    def _read(self, questions):  # type: ignore[no-untyped-def]
        with STAND_IN.lock:
            return super()._read(questions)


class _Epochs(EpochMap):
    def publish(self, epoch: Epoch, expected: str | None) -> Published:
        published = super().publish(epoch, expected)
        STAND_IN.told(published.epoch)
        return published


def counted(file: TextIO) -> None:
    """Write down each call of a survey."""

    def hook(call: Call) -> None:
        if call.kind == "survey" and call.phase is Phase.BEFORE:
            file.write(f"{call.name} {call.about['count']}\n")
            file.flush()

    STAND_IN.broker.hook = hook


STAND_IN = StandIn()


def main() -> None:
    from millrace_operator import controller

    program.connect = STAND_IN.connect  # type: ignore[assignment]
    controller.PipelineKafka = _Kafka  # type: ignore[misc]
    controller.EpochMap = _Epochs  # type: ignore[misc]
    watch.Watch = _Watch  # type: ignore[misc]
    with open(os.environ.get("READINGS", os.devnull), "a") as file:
        counted(file)
        program.main()


if __name__ == "__main__":
    main()
