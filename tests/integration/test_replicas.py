"""Replicas and the control plane on a real broker: partitions change hands while all run, and nothing is lost or doubled."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from millrace.clock import Deadline, SystemClock
from millrace.connectivity.confluent import ConfluentCluster
from millrace.connectivity.ports import Fenced
from millrace.engine.claims import Superseded
from millrace.engine.replica import Replica
from millrace.engine.settings import ReplicaSettings
from millrace.local.broker.embedded import EmbeddedBroker
from millrace.ownership.claim import OP, Claim
from millrace.ownership.control_plane import ControlPlane
from millrace.ownership.control_rules import Fleet
from millrace.ownership.epoch import Epoch
from millrace.ownership.errors import ClaimLost
from replica_stage import MemoryEpochs, copying

pytestmark = pytest.mark.integration

PATIENCE = 200.0  # s
PARTITIONS = 4


class Pipeline:
    """A source, an output, and whoever works on them."""

    def __init__(self, kafka: EmbeddedBroker, source: str, output: str) -> None:
        self.clock = SystemClock()
        self.bootstrap, self.source, self.output = kafka.bootstrap, source, output
        self.group, self.claims_group = f"g-{source}", f"g-{source}.claims"
        self.epochs = MemoryEpochs()
        self.cluster = self.connect("test")
        self.admin = self.cluster.admin()
        self.produced = 0
        self.plane = ControlPlane(
            self.connect("op"),
            self.epochs,
            self.clock,
            uid=f"u-{source}",
            topic=source,
            group=self.group,
            claims_group=self.claims_group,
            outputs=[output],
        )

    def connect(self, client_id: str) -> ConfluentCluster:
        return ConfluentCluster(self.bootstrap, client_id=client_id)

    def produce(self, messages: int) -> None:
        producer = self.cluster.producer()
        for number in range(messages):
            producer.produce(self.source, b"x", partition=number % PARTITIONS)
        producer.flush(PATIENCE)
        producer.close()
        self.produced += messages

    def publish(self, replicas: int) -> Epoch:
        everybody = frozenset(range(replicas))
        return self.plane.reconcile(replicas, Fleet(replicas, everybody, everybody)).epoch

    def replica(self, index: int, *, settings: ReplicaSettings | None = None) -> Replica:
        cluster = self.connect(f"worker-{index}")
        return Replica(
            cluster,
            topic=self.source,
            group=self.group,
            claims_group=self.claims_group,
            index=index,
            epoch_source=self.epochs.newest,
            chain=copying(self.clock, lambda _p, _o: None, output=self.output),
            clock=self.clock,
            settings=settings or ReplicaSettings(commit_interval=0.2, batch_size=50),
            outputs=[self.output],
        )

    def committed(self, group: str | None = None) -> dict[int, int]:
        return {p: r.offset for p, r in self._records(group or self.claims_group).items()}

    def holders(self) -> dict[int, int]:
        claims = {p: Claim.decode(r.metadata) for p, r in self._records(self.claims_group).items()}
        return {p: claim.holder for p, claim in claims.items() if claim}

    def _records(self, group: str):  # type: ignore[no-untyped-def]
        return self.admin.group_offsets(group, self.source, range(PARTITIONS), PATIENCE, stable=False)

    def done(self) -> bool:
        return sum(self.committed().values()) == self.produced

    def outputs(self) -> list[bytes]:
        """All that a read_committed reader sees, in the order of its text."""
        ends = {p: span.end for p, span in self.admin.spans(self.output, range(3), PATIENCE).items()}
        consumer = self.cluster.consumer(self.output, group="reader")
        consumer.assign(dict.fromkeys(ends, 0))
        found: list[bytes] = []
        reached: dict[int, int] = {}
        deadline = Deadline.after(self.clock, PATIENCE)
        while any(reached.get(p, 0) < end for p, end in ends.items()):
            assert not deadline.expired(), (reached, ends)
            found += [record.value() or b"" for record in consumer.fetch(1000, 0.1)]
            reached |= consumer.ends()
        consumer.close()
        return sorted(found)

    def expected(self) -> list[bytes]:
        spans = self.admin.spans(self.source, range(PARTITIONS), PATIENCE)
        return sorted(b"%d:%d" % (p, o) for p, span in spans.items() for o in range(span.end))


@pytest.fixture
def pipeline(kafka: EmbeddedBroker, make_topic: Callable[[int], str]) -> Pipeline:
    return Pipeline(kafka, make_topic(PARTITIONS), make_topic(3))


def run(until: Callable[[], bool], *replicas: Replica) -> None:
    deadline = Deadline.after(SystemClock(), PATIENCE)
    while not until():
        assert not deadline.expired(), [replica.snapshot() for replica in replicas]
        for replica in replicas:
            replica.step(0.02)


def close(*replicas: Replica) -> None:
    for replica in replicas:
        assert replica.close(Deadline.after(SystemClock(), 20))


def test_partitions_change_hands_while_all_run(pipeline: Pipeline) -> None:
    pipeline.produce(2_000)
    pipeline.publish(1)
    first, second = pipeline.replica(0), pipeline.replica(1)
    run(lambda: len(first.snapshot().positions) == PARTITIONS, first, second)
    pipeline.produce(2_000)
    two = pipeline.publish(2)
    run(lambda: pipeline.holders() == {p: two.owner(p) for p in range(PARTITIONS)}, first, second)
    run(pipeline.done, first, second)
    pipeline.publish(1)
    pipeline.produce(2_000)
    run(lambda: set(pipeline.holders().values()) == {0}, first, second)
    run(pipeline.done, first, second)
    close(first, second)
    assert pipeline.outputs() == pipeline.expected()
    assert pipeline.committed(pipeline.group) == pipeline.committed()


def test_a_dead_worker_and_its_successor_double_nothing(pipeline: Pipeline) -> None:
    """The former process has outputs in an open transaction; its successor's init aborts them."""
    pipeline.produce(4_000)
    pipeline.publish(1)
    former = pipeline.replica(0, settings=ReplicaSettings(commit_interval=0.3, batch_size=20))
    run(lambda: sum(pipeline.committed().values()) > 0, former)
    pipeline.produce(1_000)
    for _ in range(5):
        former.step(0.02)
    successor = pipeline.replica(0)
    run(pipeline.done, successor)
    with pytest.raises((Fenced, Superseded)):
        run(lambda: False, former)
    former.close(Deadline.after(pipeline.clock, 5))
    close(successor)
    assert pipeline.outputs() == pipeline.expected()


def test_stopped_with_one_number_and_started_with_another(pipeline: Pipeline) -> None:
    pipeline.produce(1_000)
    pipeline.publish(3)
    three = [pipeline.replica(i) for i in range(3)]
    run(lambda: sum(pipeline.committed().values()) > 0, *three)
    close(*three)
    two = pipeline.publish(2)
    pipeline.plane.reconcile(2, Fleet(2))
    assert pipeline.holders() == {p: two.owner(p) for p in range(PARTITIONS)}
    pipeline.produce(1_000)
    pair = [pipeline.replica(i) for i in range(2)]
    run(pipeline.done, *pair)
    close(*pair)
    assert pipeline.outputs() == pipeline.expected()


def test_parked_with_the_control_plane_and_taken_up_again(pipeline: Pipeline) -> None:
    pipeline.produce(400)
    pipeline.publish(1)
    worker = pipeline.replica(0)
    run(pipeline.done, worker)
    pipeline.publish(0)
    run(lambda: set(pipeline.holders().values()) == {OP}, worker)
    pipeline.publish(1)
    pipeline.publish(1)
    pipeline.produce(400)
    run(pipeline.done, worker)
    close(worker)
    assert pipeline.outputs() == pipeline.expected()


def test_a_deleted_claims_group_is_noticed(pipeline: Pipeline) -> None:
    pipeline.produce(400)
    pipeline.publish(1)
    worker = pipeline.replica(0)
    run(pipeline.done, worker)
    known = pipeline.committed()
    close(worker)
    pipeline.admin.delete_group(pipeline.claims_group, PATIENCE)
    with pytest.raises(ClaimLost) as caught:
        pipeline.publish(1)
    assert caught.value.last_known == known
