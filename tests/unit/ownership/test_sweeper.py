"""A sweep finds and decides what a broker has left open, in every combination of what it can forget, and is none the worse for
being interrupted anywhere. The in-memory broker forgets; the contract suite shows that the real one does the same.
"""

from __future__ import annotations

import itertools

import pytest

from millrace.clock import Deadline, VirtualClock
from millrace.connectivity.memory import Call, MemoryBroker, Phase
from millrace.connectivity.memory.transactions import Transaction
from millrace.connectivity.ports import OffsetAndMetadata, TransactionalProducer
from millrace.ownership.claim import OP, Claim
from millrace.ownership.control_plane import ControlPlane
from millrace.ownership.control_rules import Fleet, Identity
from millrace.ownership.epoch import Epoch
from millrace.ownership.provenance import origin_header, writer_header
from millrace.ownership.sweeper import Sweep
from replica_stage import MemoryEpochs

pytestmark = pytest.mark.unit

SOURCE, OUTPUT, GROUP, CLAIMS = "source", "out", "g", "g.claims"
PLACES = 2  # partitions of the output


class Interrupted(BaseException):
    """The process dies."""


class World:
    """Worker 0, whose last transaction has an output of message 5 in each partition of `out`, and moves its claim to 6."""

    def __init__(self, *, commits: bool, forgets: frozenset[int]) -> None:
        """forgets: which of its markers are left out; 0, 1: of the outputs, 2: of the claims, 3: of the mirror."""
        self.clock = VirtualClock()
        self.broker = MemoryBroker(self.clock)
        source = self.broker.create_topic(SOURCE, 1)
        self.broker.create_topic(OUTPUT, PLACES)
        self.identity = Identity("u", SOURCE, source.id, GROUP, CLAIMS)
        self.write(OP, 0, [])
        producer = self.producer(0)
        self.write(0, 5, [4], producer)
        asked = itertools.count()
        self.broker.transactions.forgets = lambda _: next(asked) in forgets
        self.write(0, 6, [5], producer, commits=commits)
        self.broker.transactions.forgets = lambda _: False

    def producer(self, index: int, client: str = "w") -> TransactionalProducer:
        name = f"u-{index}" if index != OP else "u-op"
        producer = self.broker.cluster(client_id=client).transactional_producer(name)
        producer.init(5)
        return producer

    def write(
        self,
        index: int,
        claim: int,
        messages: list[int],
        producer: TransactionalProducer | None = None,
        *,
        commits: bool = True,
    ) -> None:
        producer = producer or self.producer(index)
        producer.begin()
        for place, message in itertools.product(range(PLACES), messages):
            headers = [origin_header(producer.transactional_id, 0, message, place)]
            producer.produce(OUTPUT, b"%d" % message, b"k", headers, place, 1_000 + message)
        if messages:
            producer.flush(5)
        text = Claim("u", self.identity.topic_id, 1, 0).encode()
        producer.send_offsets(CLAIMS, SOURCE, {0: OffsetAndMetadata(claim, text)}, 5)
        producer.send_offsets(GROUP, SOURCE, {0: OffsetAndMetadata(claim)}, 5)
        producer.commit(5) if commits else producer.abort(5)

    def sweep(self) -> TransactionalProducer:
        cluster, producer = self.broker.cluster(client_id="w"), self.producer(0)
        sweep = Sweep(cluster, cluster.admin(), producer, self.identity, 0, (OUTPUT,), self.clock)
        deadline = Deadline.after(self.clock, 60)
        while not sweep.advance(Deadline.after(self.clock, 5)):
            assert not deadline.expired(), sweep.waits
            self.clock.sleep(0.1)
        return producer

    def seen(self) -> list[list[bytes]]:
        records = self.broker.records(OUTPUT)
        return [[r.value() or b"" for r in records if r.partition() == p] for p in range(PLACES)]

    def claim(self) -> int:
        return self.broker.groups.read(CLAIMS, SOURCE, [0], stable=True)[0].offset

    def open(self) -> bool:
        return any(log.stable_end < log.end for log in self.broker.topic(OUTPUT).logs)


FORGETS = [frozenset(some) for n in range(5) for some in itertools.combinations(range(4), n)]


def check(world: World, *, commits: bool, forgets: frozenset[int]) -> None:
    """Outputs and claim agree, whatever comes next; and they are as the broker has said, as far as anybody could know."""
    done = world.claim() == 6
    known = not {0, 1, 2} <= forgets  # else nothing is left to tell that it was committed
    assert done == (commits and known)
    assert not world.open()
    assert world.seen() == [[b"4", b"5"] if done else [b"4"]] * PLACES


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("forgets", FORGETS, ids=lambda some: "".join(map(str, sorted(some))) or "none")
def test_it_decides_as_the_broker_had(commits: bool, forgets: frozenset[int]) -> None:
    world = World(commits=commits, forgets=forgets)
    producer = world.sweep()
    check(world, commits=commits, forgets=forgets)
    world.write(0, 7, [6], producer, commits=False)
    check(world, commits=commits, forgets=forgets)
    world.write(0, 7, [6], world.sweep())
    assert world.seen()[0][-1] == b"6"


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("forgets", FORGETS, ids=lambda some: "".join(map(str, sorted(some))) or "none")
def test_it_may_die_at_any_call_and_is_done_again(commits: bool, forgets: frozenset[int]) -> None:
    for nth in itertools.count(1):
        world = World(commits=commits, forgets=forgets)
        left = itertools.count(1)

        def die(call: Call, left: itertools.count[int] = left, nth: int = nth) -> None:
            if next(left) == nth:
                raise Interrupted

        world.broker.hook = die
        try:
            world.sweep()
            survived = True
        except Interrupted:
            survived = False
        world.broker.hook = lambda _: None
        world.sweep()
        check(world, commits=commits, forgets=forgets)
        if survived:
            return


def test_what_is_restored_is_what_it_was() -> None:
    world = World(commits=True, forgets=frozenset({0}))
    before = world.broker.records(OUTPUT, read_committed=False)
    world.sweep()
    (lost,) = [r for r in before if r.partition() == 0 and r.value() == b"5"]
    (restored,) = [r for r in world.broker.records(OUTPUT) if r.partition() == 0 and r.value() == b"5"]
    assert restored.offset() > lost.offset()
    for field in ("key", "value", "headers", "timestamp"):
        assert getattr(restored, field)() == getattr(lost, field)()


def test_it_waits_for_the_transactions_of_others_below_its_own() -> None:
    """Above what another has open nobody can tell."""
    world = World(commits=True, forgets=frozenset())
    other = world.producer(1)
    other.begin()
    other.produce(OUTPUT, b"theirs", b"k", [writer_header("u-1")], 0)
    other.flush(5)
    world.write(0, 7, [6])
    cluster, producer = world.broker.cluster(client_id="w"), world.producer(0)
    sweep = Sweep(cluster, cluster.admin(), producer, world.identity, 0, (OUTPUT,), world.clock)
    for _ in range(3):
        assert not sweep.advance(Deadline.after(world.clock, 5))
        assert "another producer" in sweep.waits
        world.clock.sleep(1.0)
    other.commit(5)
    assert sweep.advance(Deadline.after(world.clock, 5))
    assert not sweep.waits
    assert world.seen()[0] == [b"4", b"5", b"theirs", b"6"]


def test_where_nothing_is_open_nothing_is_written() -> None:
    world = World(commits=True, forgets=frozenset())
    calls: list[str] = []
    world.broker.hook = lambda call: calls.append(call.name) if call.phase is Phase.BEFORE else None
    world.sweep()
    assert not {"commit", "abort", "send_offsets", "fetch"} & set(calls)


def test_the_control_plane_sweeps_before_it_passes_claims_on() -> None:
    """Or the successor would do again what is left open, and the claim would be above it."""
    world = World(commits=False, forgets=frozenset({0, 1}))
    plane = plane_of(world, Epoch("u", 2, 1, 2, 2), owner_of_all=1)
    done = plane.reconcile(2, Fleet(2, frozenset({1}), frozenset({1}), overdue=frozenset({0})))
    while Claim.decode(world.broker.groups.read(CLAIMS, SOURCE, [0], stable=False)[0].metadata).holder == 0:  # type: ignore[union-attr]
        world.clock.sleep(1.0)
        done = plane.reconcile(2, Fleet(2, frozenset({1}), frozenset({1}), overdue=frozenset({0})))
    assert done.events
    assert not world.open()
    assert world.seen() == [[b"4"]] * PLACES


@pytest.mark.parametrize("commits", [True, False])
def test_the_control_plane_finds_what_nobody_else_would(commits: bool) -> None:
    """The worker is gone and no claim names it: its last transaction has passed it on, or it never came to that."""
    world = World(commits=commits, forgets=frozenset({0}))
    plane = plane_of(world, Epoch("u", 2, 1, 1, 3))
    world.broker.groups.write(
        CLAIMS,
        {(SOURCE, 0): OffsetAndMetadata(world.claim(), Claim("u", world.identity.topic_id, 2, 1).encode())},
    )
    fleet = Fleet(0)
    for _ in range(30):
        plane.reconcile(1, fleet)
        world.clock.sleep(1.0)
    assert not world.open()
    assert world.seen()[0] == [b"4", b"5"] if commits else [b"4"]


def plane_of(world: World, epoch: Epoch, owner_of_all: int | None = None) -> ControlPlane:
    epochs = MemoryEpochs()
    if owner_of_all is not None:
        epoch = _Owned(epoch.uid, epoch.number, epoch.partitions, epoch.replicas, epoch.replicas_ever)
    epochs.publish(epoch, None)
    return ControlPlane(
        world.broker.cluster(client_id="op"),
        epochs,
        world.clock,
        uid="u",
        topic=SOURCE,
        group=GROUP,
        claims_group=CLAIMS,
        outputs=[OUTPUT],
    )


class _Owned(Epoch):
    """One partition, of worker 1."""

    def owner(self, partition: int) -> int:
        return 1


def test_a_transaction_says_which_of_its_markers_are_forgotten() -> None:
    world = World(commits=True, forgets=frozenset())
    asked: list[Transaction] = []
    world.broker.transactions.forgets = lambda transaction: bool(asked.append(transaction))
    world.write(0, 7, [6])
    assert len(asked) == PLACES + 2
