"""Offsets set by hand on the in-memory broker, with what may come in between."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.clock import VirtualClock
from millrace.connectivity.memory import Call, Fate, MemoryBroker
from millrace.connectivity.memory.transactions import Coordinator
from millrace.connectivity.ports import Fenced, KafkaError, OffsetAndMetadata, TimedOut
from millrace.ownership.claim import OP, Claim, transactional_id
from millrace.ownership.control_plane import ControlPlane
from millrace.ownership.control_rules import Fleet, Identity, Settled
from millrace.ownership.epoch import Epoch
from millrace.ownership.epoch_store import EpochConflict, Published
from millrace.ownership.errors import ClaimLost, ForeignClaim
from millrace.ownership.provenance import origin_header
from millrace.ownership.repositioning import Position, To, ToOffset, ToTime
from millrace.ownership.rewriting import Rewriter
from worker_double import WorkerDouble

pytestmark = pytest.mark.unit

PARTITIONS = 4
TOPIC, GROUP, CLAIMS = "flights", "g", "g.claims"


class Crash(BaseException):
    """The end of the process."""


class Store:
    """An epoch in memory."""

    def __init__(self) -> None:
        self.published: Published | None = None

    def read(self) -> Published | None:
        return self.published

    def publish(self, epoch: Epoch, expected: str | None) -> Published:
        if (self.published.version if self.published else None) != expected:
            raise EpochConflict("another one")
        self.published = Published(epoch, f"{epoch.uid}-{epoch.number}")
        return self.published

    def epoch(self) -> Epoch:
        return self.published.epoch if self.published else Epoch.first("u")


class World:
    """A topic with ten messages in each partition, and the pipelines on it. Each write of a claim is held against R1."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.broker = MemoryBroker(self.clock)
        self.topic = self.broker.create_topic(TOPIC, PARTITIONS)
        for p in range(PARTITIONS):
            self.broker.append(TOPIC, p, [b"x"] * 10)
        self.stores: dict[str, Store] = {}
        self._completing = ""
        coordinator: Coordinator = self.broker.transactions
        self._complete, self._write = coordinator.complete, self.broker.groups.write
        coordinator.complete = self._completed  # type: ignore[method-assign]
        self.broker.groups.write = self._written  # type: ignore[method-assign]

    def _completed(self, transactional: str) -> None:
        self._completing = transactional
        self._complete(transactional)
        self._completing = ""

    def _written(self, group: str, offsets) -> None:  # type: ignore[no-untyped-def]
        if group == CLAIMS and self._completing:
            for _, p in offsets:
                before = self.records().get(p)
                claim = Claim.decode(before.metadata) if before else None
                if claim is not None:
                    assert self._completing == transactional_id(claim.uid, claim.holder), f"R1: partition {p}"
                else:
                    assert self._completing.endswith("-op"), f"R1: partition {p} is new"
        self._write(group, offsets)

    def store(self, uid: str = "u") -> Store:
        return self.stores.setdefault(uid, Store())

    def plane(self, uid: str = "u") -> ControlPlane:
        return ControlPlane(
            self.broker.cluster(client_id=f"{uid}-op"),
            self.store(uid),
            self.clock,
            uid=uid,
            topic=TOPIC,
            group=GROUP,
            claims_group=CLAIMS,
        )

    def settle(self, replicas: int = 2, uid: str = "u") -> Epoch:
        """A run's start, or an operator's work: until all is at its place."""
        everybody = frozenset(range(replicas))
        plane = self.plane(uid)
        for _ in range(20):
            done = plane.reconcile(replicas, Fleet(replicas, everybody, everybody))
            if isinstance(done.step, Settled) and not done.events:
                return done.epoch
            self.clock.advance(1)
        raise AssertionError(done)

    def worker(self, index: int, uid: str = "u") -> WorkerDouble:
        cluster = self.broker.cluster(client_id=f"{uid}-worker-{index}")
        return WorkerDouble(cluster, self.store(uid).epoch, index, topic=TOPIC, claims_group=CLAIMS)

    def rewriter(self, uid: str = "u", outputs: tuple[str, ...] = ()) -> Rewriter:
        identity = Identity(uid, TOPIC, "", GROUP, CLAIMS)
        cluster = self.broker.cluster(client_id="hand")
        return Rewriter(cluster, self.clock, identity, self.store(uid).epoch(), outputs=outputs)

    def reset(self, to: Position, partitions: range | list[int] = range(PARTITIONS)) -> None:
        rewriter = self.rewriter()
        rewriter.reset(rewriter.targets(rewriter.settled(), to, partitions))

    def repair(self, to: Position, uid: str = "u", partitions: range | list[int] = range(PARTITIONS)) -> None:
        rewriter = self.rewriter(uid)
        rewriter.repair(rewriter.targets(rewriter.settled(), to, partitions))

    def mirror_says(self, offset: int) -> None:
        """As a worker's commits have it."""
        offsets = {(TOPIC, p): OffsetAndMetadata(offset) for p in range(PARTITIONS)}
        self.broker.groups.commit_plain(GROUP, offsets)

    def records(self, group: str = CLAIMS) -> dict[int, OffsetAndMetadata]:
        return self.broker.groups.read(group, TOPIC, range(PARTITIONS), stable=False)

    def offsets(self, group: str = CLAIMS) -> dict[int, int]:
        return {p: record.offset for p, record in self.records(group).items()}

    def claims(self) -> dict[int, Claim]:
        return {p: claim for p, r in self.records().items() if (claim := Claim.decode(r.metadata))}


@pytest.fixture
def world() -> Iterator[World]:
    return World()


def everywhere(offset: int) -> dict[int, int]:
    return dict.fromkeys(range(PARTITIONS), offset)


def test_a_reset_moves_offsets_and_leaves_their_holders(world: World) -> None:
    world.settle()
    held = world.claims()
    world.reset(ToOffset(7), [0, 2])
    assert world.offsets() == world.offsets(GROUP) == {0: 7, 1: 0, 2: 7, 3: 0}
    assert world.claims() == held
    world.settle()
    assert world.offsets() == {0: 7, 1: 0, 2: 7, 3: 0}


def test_positions_mean_what_they_say(world: World) -> None:
    world.settle()
    world.topic.logs[1].delete_before(3)
    world.clock.advance(60)
    at = int(world.clock.time() * 1000)
    world.broker.append(TOPIC, 2, [b"later"])
    world.reset(To.LATEST)
    assert world.offsets() == {0: 10, 1: 10, 2: 11, 3: 10}
    world.reset(To.EARLIEST)
    assert world.offsets() == {0: 0, 1: 3, 2: 0, 3: 0}
    world.reset(ToTime(at))
    assert world.offsets() == {0: 10, 1: 10, 2: 10, 3: 10}


def test_what_was_set_on_the_mirror_changes_nothing_until_it_is_made_so(world: World) -> None:
    """R7."""
    world.settle()
    outside = {(TOPIC, 1): OffsetAndMetadata(4), (TOPIC, 3): OffsetAndMetadata(9)}
    world.broker.groups.commit_plain(GROUP, outside)
    world.settle()
    assert world.offsets() == everywhere(0)
    world.reset(To.GROUP)
    assert world.offsets() == world.offsets(GROUP) == {0: 0, 1: 4, 2: 0, 3: 9}


def test_parked_claims_are_reset_as_the_control_plane(world: World) -> None:
    world.settle()
    for index in range(2):
        world.worker(index).work()
    world.settle()
    everybody = [world.worker(index) for index in range(2)]
    world.plane().reconcile(0, Fleet(2, frozenset({0, 1}), frozenset({0, 1})))
    for worker in everybody:
        worker.work()
    assert {claim.holder for claim in world.claims().values()} == {OP}
    world.reset(ToOffset(5))
    assert world.offsets() == everywhere(5)
    assert {claim.holder for claim in world.claims().values()} == {OP}


def test_a_worker_that_was_left_running_is_fenced_and_can_move_nothing(world: World) -> None:
    epoch = world.settle()
    left = [world.worker(index) for index in range(2)]
    for worker in left:
        worker.work(processed=4)
    assert world.offsets() == everywhere(4)
    world.reset(ToOffset(1))
    for worker in left:
        worker.work(processed=3)
    assert [worker.fenced for worker in left] == [True, True]
    assert world.offsets() == everywhere(1)
    successors = [world.worker(index) for index in range(2)]
    for worker in successors:
        worker.work(processed=2)
    assert world.offsets() == everywhere(3)
    assert {p: claim.holder for p, claim in world.claims().items()} == {
        p: epoch.owner(p) for p in range(PARTITIONS)
    }


def test_what_a_dead_worker_left_pending_is_waited_for_and_ended(world: World) -> None:
    world.settle(1)
    dead = world.broker.cluster(client_id="dead").transactional_producer("u-0")
    dead.init(1)
    dead.begin()
    dead.send_offsets(CLAIMS, TOPIC, {0: world.records()[0]}, 1)
    world.reset(ToOffset(2))
    assert world.offsets() == everywhere(2)


def test_lost_claims_are_written_anew_and_the_next_run_goes_on_there(world: World) -> None:
    world.settle()
    zombies = [world.worker(index) for index in range(2)]
    for worker in zombies:
        worker.work(processed=4)
    world.mirror_says(4)
    world.broker.groups.expire(CLAIMS, TOPIC, [1, 2])
    with pytest.raises(ClaimLost, match="partitions 1-2"):
        world.settle()

    world.repair(To.GROUP)
    assert world.offsets() == everywhere(4)
    assert {p for p, claim in world.claims().items() if claim.holder == OP} == {1, 2}
    for worker in zombies:  # of a lost claim nobody knows whose it was: all are fenced
        worker.work(processed=3)
    assert [worker.fenced for worker in zombies] == [True, True]

    epoch = world.settle()
    for index in range(2):
        world.worker(index).work(processed=1)
    assert world.offsets() == everywhere(5)
    assert all(claim.holder == epoch.owner(p) for p, claim in world.claims().items())


def test_a_whole_group_that_was_deleted(world: World) -> None:
    world.settle()
    world.broker.groups.delete(CLAIMS)
    world.broker.groups.delete(GROUP)
    world.repair(ToOffset(6))
    assert world.settle().number == 1
    assert world.offsets() == world.offsets(GROUP) == everywhere(6)


def test_another_pipelines_claims_are_taken_over_and_it_is_fenced(world: World) -> None:
    """A state directory was deleted; a run of it is, against what was said, still there."""
    world.settle(uid="former")
    left = [world.worker(index, uid="former") for index in range(2)]
    for worker in left:
        worker.work(processed=3)
    world.plane().open()
    with pytest.raises(ForeignClaim):
        world.settle()
    world.mirror_says(3)

    world.repair(To.GROUP)
    for worker in left:
        assert worker._producer is not None
        worker._producer.begin()
        with pytest.raises(Fenced):
            worker._producer.send_offsets(CLAIMS, TOPIC, {0: OffsetAndMetadata(0)}, 1)
    with pytest.raises(ForeignClaim):
        world.settle(uid="former")
    world.settle()
    for index in range(2):
        world.worker(index).work(processed=1)
    assert world.offsets() == everywhere(4)
    assert {claim.uid for claim in world.claims().values()} == {"u"}


def test_claims_of_an_earlier_topic_and_text_that_is_none(world: World) -> None:
    world.settle()
    old = world.records()
    world.broker.delete_topic(TOPIC)
    world.topic = world.broker.create_topic(TOPIC, PARTITIONS)
    stale = {(TOPIC, p): old[p] for p in (0, 1, 2)} | {(TOPIC, 3): OffsetAndMetadata(8, "stray")}
    world.broker.groups.commit_plain(CLAIMS, stale)
    with pytest.raises(ForeignClaim):
        world.settle()
    world.repair(To.EARLIEST)
    world.settle()
    assert world.offsets() == everywhere(0)


def test_what_is_as_it_should_be_is_left_alone_by_a_repair(world: World) -> None:
    world.settle()
    before = world.records()
    world.repair(ToOffset(9))
    assert world.records() == before


def test_a_broker_that_never_answers_a_write_is_told_at_last(world: World) -> None:
    world.settle()

    def never(call: Call) -> None:
        if call.name == "commit":
            call.fate = Fate.LOST

    world.broker.hook = never
    with pytest.raises(TimedOut, match="could not be done in time") as caught:
        world.reset(ToOffset(3))
    assert "run the command again" in caught.value.remedy


@pytest.mark.parametrize("name", ["init", "send_offsets", "commit", "group_offsets"])
@pytest.mark.parametrize("fate", [Fate.LOST, Fate.REPLY_LOST, Fate.LATE])
def test_a_lost_reply_is_begun_again_at_init(world: World, name: str, fate: Fate) -> None:
    world.settle()
    rewriter = world.rewriter()
    targets = rewriter.targets(rewriter.settled(), ToOffset(3), range(PARTITIONS))
    world.broker.faults.plan(name, fate, client="hand")
    try:
        rewriter.reset(targets)
    except KafkaError:
        assert name == "group_offsets"  # a question that has no answer is the user's to ask again
        world.reset(ToOffset(3))
    for request in list(world.broker.late):
        world.broker.land(request)
    world.clock.advance(20)
    world.settle()
    assert world.offsets() == everywhere(3)


@pytest.mark.parametrize("forgotten", range(3))
def test_outputs_that_a_broker_has_left_open_are_decided_before_claims_are_moved(
    world: World, forgotten: int
) -> None:
    """R8: by the claims as they were, an output below them was meant to count."""
    world.settle(1)
    world.broker.create_topic("out", 1)
    worker = world.broker.cluster(client_id="worker").transactional_producer("u-0")
    worker.init(5)
    asked = itertools.count()
    world.broker.transactions.forgets = lambda _: (
        next(asked) == forgotten
    )  # marker of output, claims or mirror
    worker.begin()
    worker.produce("out", b"5", b"k", [origin_header("u-0", 0, 5)], 0)
    worker.flush(5)
    worker.send_offsets(CLAIMS, TOPIC, {0: OffsetAndMetadata(6, world.records()[0].metadata)}, 5)
    worker.send_offsets(GROUP, TOPIC, {0: OffsetAndMetadata(6)}, 5)
    worker.commit(5)
    world.broker.transactions.forgets = lambda _: False

    rewriter = world.rewriter(outputs=("out",))
    rewriter.reset({0: 2})
    assert [record.value() for record in world.broker.records("out")].count(b"5") == 1
    assert world.offsets()[0] == 2


@given(data=st.data())
def test_whatever_ends_it_in_between_it_is_finished_by_doing_it_again(data: st.DataObject) -> None:
    """Some partitions are set then, and others not, never another offset; who holds what does not change; R1 holds."""
    world = World()
    world.settle(data.draw(st.integers(1, 4), "replicas"))
    for index in range(4):
        world.worker(index).work(processed=data.draw(st.integers(0, 5)))
    before, held = world.offsets(), {p: claim.holder for p, claim in world.claims().items()}
    target = data.draw(st.integers(0, 10), "target")
    repairing = data.draw(st.booleans(), "repairing")
    lost = data.draw(st.sets(st.integers(0, 3)), "lost") if repairing else set()
    world.broker.groups.expire(CLAIMS, TOPIC, lost)
    left = data.draw(st.integers(0, 60), "calls until the crash")

    def crash(call: Call) -> None:
        nonlocal left
        left -= call.client == "hand"
        if left < 0:
            raise Crash

    work = world.repair if repairing else world.reset
    world.broker.hook = crash
    with suppress(Crash):
        work(ToOffset(target))
    world.broker.hook = lambda call: None
    world.clock.advance(11)  # what was left open is over
    for p, offset in world.offsets().items():
        assert offset == target or (offset == before[p] and p not in lost)

    work(ToOffset(target))
    assert world.offsets() == {
        p: target if p in lost or not repairing else before[p] for p in range(PARTITIONS)
    }
    now = {p: claim.holder for p, claim in world.claims().items()}
    assert now == {p: OP if p in lost else held[p] for p in range(PARTITIONS)}
