"""Offsets set by hand on a real broker: as whom they are written, and that nobody of before can move them any more."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millrace.clock import SystemClock
from millrace.connectivity.confluent import ConfluentCluster
from millrace.connectivity.ports import Fenced, OffsetAndMetadata
from millrace.local.broker.embedded import EmbeddedBroker
from millrace.ownership.claim import Claim, transactional_id
from millrace.ownership.control_plane import ControlPlane
from millrace.ownership.control_rules import Fleet, Identity
from millrace.ownership.epoch_store import EpochFile
from millrace.ownership.errors import ClaimLost, ForeignClaim
from millrace.ownership.repositioning import To, ToOffset
from millrace.ownership.rewriting import Rewriter

pytestmark = pytest.mark.integration

PARTITIONS = 4
PATIENCE = 120.0  # seconds


class Pipeline:
    """Its control plane with two workers that are ready; none of them does anything."""

    def __init__(self, kafka: EmbeddedBroker, topic: str, folder: Path, uid: str) -> None:
        self.topic, self.group, self.uid = topic, f"{topic}.group", uid
        self.claims_group = f"{self.group}.claims"
        self.cluster = ConfluentCluster(kafka.bootstrap, credentials=None, properties={}, client_id=uid)
        self.store = EpochFile(folder / f"{uid}.json")
        self.admin = self.cluster.admin()
        self.plane = ControlPlane(
            self.cluster,
            self.store,
            SystemClock(),
            uid=uid,
            topic=topic,
            group=self.group,
            claims_group=self.claims_group,
            timeout=PATIENCE,
        )

    def settle(self) -> None:
        everybody = frozenset({0, 1})
        for _ in range(2):
            self.plane.reconcile(2, Fleet(2, everybody, everybody))

    def rewriter(self) -> Rewriter:
        identity = Identity(self.uid, self.topic, "", self.group, self.claims_group)
        epoch = self.plane.open()
        return Rewriter(self.cluster, SystemClock(), identity, epoch, timeout=PATIENCE)

    def claims(self) -> dict[int, tuple[int, str, int]]:
        """Offset, uid and holder of each."""
        found = self._offsets(self.claims_group)
        decoded = {p: (record.offset, Claim.decode(record.metadata)) for p, record in found.items()}
        return {p: (offset, claim.uid, claim.holder) for p, (offset, claim) in decoded.items() if claim}

    def mirror(self) -> dict[int, int]:
        return {p: record.offset for p, record in self._offsets(self.group).items()}

    def _offsets(self, group: str) -> dict[int, OffsetAndMetadata]:
        return dict(self.admin.group_offsets(group, self.topic, range(PARTITIONS), PATIENCE, stable=True))


@pytest.fixture
def make(
    kafka: EmbeddedBroker, make_topic: Callable[[int], str], tmp_path: Path
) -> Iterator[Callable[[], Pipeline]]:
    """make(): another pipeline on the same topic, with ten messages in each partition."""
    topic = make_topic(PARTITIONS)
    made: list[Pipeline] = []

    def new() -> Pipeline:
        made.append(Pipeline(kafka, topic, tmp_path, uuid.uuid4().hex))
        return made[-1]

    producer = new().cluster.producer()
    for n in range(10 * PARTITIONS):
        producer.produce(topic, b"%d" % n, partition=n % PARTITIONS)
    producer.flush(PATIENCE)
    producer.close()
    yield new
    for pipeline in made:
        pipeline.plane.close()
        pipeline.admin.close()


def test_offsets_are_reset_lost_repaired_and_taken_over(make: Callable[[], Pipeline]) -> None:
    pipeline = make()
    pipeline.settle()
    owners = {p: pipeline.plane.open().owner(p) for p in range(PARTITIONS)}
    assert pipeline.claims() == {p: (0, pipeline.uid, owners[p]) for p in range(PARTITIONS)}

    # a worker that was left alive, with a transaction open on one of its claims
    zombie = pipeline.cluster.transactional_producer(transactional_id(pipeline.uid, owners[0]))
    zombie.init(PATIENCE)
    zombie.begin()
    zombie.send_offsets(pipeline.claims_group, pipeline.topic, {0: OffsetAndMetadata(9, "")}, PATIENCE)
    rewriter = pipeline.rewriter()
    rewriter.reset({0: 7, 1: 7, 2: 7, 3: 0})
    rewriter.close()
    assert pipeline.claims() == {p: (7 if p < 3 else 0, pipeline.uid, owners[p]) for p in range(PARTITIONS)}
    assert pipeline.mirror() == {0: 7, 1: 7, 2: 7, 3: 0}
    with pytest.raises(Fenced):
        zombie.commit(PATIENCE)
    zombie.close()

    # the mirror is set from outside, and made so (R7)
    pipeline.admin.commit_offsets(pipeline.group, pipeline.topic, {3: OffsetAndMetadata(4)}, PATIENCE)
    rewriter = pipeline.rewriter()
    rewriter.reset(rewriter.targets(rewriter.settled(), To.GROUP, range(PARTITIONS)))
    rewriter.close()
    assert {p: offset for p, (offset, _, _) in pipeline.claims().items()} == {0: 7, 1: 7, 2: 7, 3: 4}

    # lost, and repaired (R6)
    pipeline.admin.delete_group(pipeline.claims_group, PATIENCE)
    with pytest.raises(ClaimLost) as lost:
        pipeline.settle()
    assert lost.value.last_known == {0: 7, 1: 7, 2: 7, 3: 4}
    rewriter = pipeline.rewriter()
    rewriter.repair(rewriter.targets(rewriter.settled(), To.GROUP, range(PARTITIONS)))
    rewriter.close()
    pipeline.settle()
    expected = {p: (7 if p < 3 else 4, owners[p]) for p in range(PARTITIONS)}
    assert pipeline.claims() == {p: (at, pipeline.uid, holder) for p, (at, holder) in expected.items()}

    # another one, whose state was new, takes them over
    other = make()
    with pytest.raises(ForeignClaim):
        other.settle()
    rewriter = other.rewriter()
    rewriter.repair(rewriter.targets(rewriter.settled(), ToOffset(5), range(PARTITIONS)))
    rewriter.close()
    other.settle()
    assert other.claims() == {p: (5, other.uid, owners[p]) for p in range(PARTITIONS)}
    with pytest.raises(ForeignClaim):
        pipeline.settle()
