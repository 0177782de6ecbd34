"""The control plane on the in-memory broker: what is in the groups and in the store after it has acted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.clock import VirtualClock
from millrace.connectivity.memory import Call, Fate, MemoryBroker, Phase
from millrace.connectivity.ports import Fenced, OffsetAndMetadata, TopicMissing
from millrace.ownership.claim import OP, Claim
from millrace.ownership.control_plane import (
    ControlPlane,
    EpochPublished,
    Interrupted,
    Passed,
    Reconciled,
    Seeded,
    StartFrom,
    Why,
)
from millrace.ownership.control_rules import Fleet, Scale, Settled
from millrace.ownership.epoch import Epoch
from millrace.ownership.epoch_store import EpochConflict, EpochFile
from millrace.ownership.errors import ClaimLost, ForeignClaim

pytestmark = pytest.mark.unit


class World:
    """A broker with a topic, and an epoch file."""

    def __init__(self, folder: Path) -> None:
        self.clock = VirtualClock()
        self.broker = MemoryBroker(self.clock)
        self.topic = self.broker.create_topic("flights", 4)
        for p in range(4):
            self.broker.append("flights", p, [b"x"] * 10)
        self.store = EpochFile(folder / "epoch.json")

    def plane(self, *, uid: str = "u", start_from: StartFrom = "Earliest") -> ControlPlane:
        return ControlPlane(
            self.broker.cluster(client_id="op"),
            self.store,
            self.clock,
            uid=uid,
            topic="flights",
            group="g",
            claims_group="g.claims",
            start_from=start_from,
        )

    def committed(self, group: str = "g.claims") -> dict[int, OffsetAndMetadata]:
        return self.broker.groups.read(group, "flights", range(len(self.topic.logs)), stable=True)

    def holders(self) -> dict[int, int]:
        claims = {p: Claim.decode(r.metadata) for p, r in self.committed().items()}
        return {p: claim.holder for p, claim in claims.items() if claim}

    def offsets(self, group: str = "g.claims") -> dict[int, int]:
        return {p: r.offset for p, r in self.committed(group).items()}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def fleet(scale: int) -> Fleet:
    return Fleet(scale, frozenset(range(scale)), frozenset(range(scale)))


def settle(plane: ControlPlane, replicas: int) -> Reconciled:
    return plane.reconcile(replicas, fleet(replicas))


def test_epoch_0_is_there_before_any_worker(world: World) -> None:
    assert world.plane().open() == Epoch("u", 0, 0, 0, 0)
    assert world.store.epoch() == Epoch.first("u")


def test_a_new_pipeline_is_seeded_and_published(world: World) -> None:
    done = settle(world.plane(), 2)
    assert done.step == Settled()
    assert done.epoch == Epoch("u", 1, 4, 2, 2)
    assert world.store.epoch() == done.epoch
    assert world.holders() == {p: done.epoch.owner(p) for p in range(4)}
    assert world.offsets() == world.offsets("g") == dict.fromkeys(range(4), 0)
    assert done.events[-1] == EpochPublished(done.epoch)


@pytest.mark.parametrize(("start_from", "offset"), [("Earliest", 2), ("Latest", 10), (1_700_000_060_000, 6)])
def test_a_new_pipeline_begins_where_the_manifest_says(
    tmp_path: Path, start_from: StartFrom, offset: int
) -> None:
    world = World(tmp_path)
    late = world.broker.create_topic("late", 1)
    world.broker.append("late", 0, [b"x"] * 6)
    world.clock.advance(60)
    world.broker.append("late", 0, [b"x"] * 4)
    late.logs[0].delete_before(2)
    plane = ControlPlane(
        world.broker.cluster(client_id="op"),
        world.store,
        world.clock,
        uid="u",
        topic="late",
        group="g",
        claims_group="g.claims",
        start_from=start_from,
    )
    assert settle(plane, 1).events[0] == Seeded(0, offset, 0, Why.START_FROM)


def test_a_group_that_has_offsets_is_adopted_and_that_is_told(world: World) -> None:
    world.broker.groups.commit_plain("g", {("flights", 1): OffsetAndMetadata(5)})
    events = settle(world.plane(start_from="Latest"), 1).events
    assert Seeded(1, 5, 0, Why.GROUP) in events
    assert world.offsets() == {0: 10, 1: 5, 2: 10, 3: 10}


def test_partitions_added_later_begin_at_their_beginning(world: World) -> None:
    plane = world.plane(start_from="Latest")
    settle(plane, 1)
    world.topic.grow(6)
    world.broker.append("flights", 5, [b"x"] * 3)
    world.broker.groups.commit_plain("g", {("flights", 5): OffsetAndMetadata(2)})
    done = settle(plane, 1)
    assert done.epoch.partitions == 6
    assert Seeded(5, 0, done.epoch.owner(5), Why.BEGINNING) in done.events
    assert world.offsets() == {0: 10, 1: 10, 2: 10, 3: 10, 4: 0, 5: 0}


def test_a_second_reconcile_writes_nothing(world: World) -> None:
    plane = world.plane()
    settle(plane, 2)
    writes: list[str] = []

    def watch(call: Call) -> None:
        if call.kind != "admin":
            writes.append(call.name)

    world.broker.hook = watch
    assert settle(plane, 2).events == ()
    assert writes == []


def test_a_smaller_number_of_replicas_passes_claims_of_the_gone(world: World) -> None:
    settle(world.plane(), 3)
    plane = world.plane()
    assert plane.reconcile(2, Fleet(0)).step == Scale(2)
    done = plane.reconcile(2, fleet(2))
    assert done.epoch == Epoch("u", 2, 4, 2, 3)
    events = plane.reconcile(2, fleet(2)).events
    assert all(isinstance(event, Passed) and event.source == 2 for event in events)
    assert world.holders() == {p: done.epoch.owner(p) for p in range(4)}


def test_parked_and_taken_up_again(world: World) -> None:
    plane = world.plane()
    settle(plane, 2)
    plane.reconcile(0, Fleet(0))
    plane.reconcile(0, Fleet(0))
    assert set(world.holders().values()) == {OP}
    done = plane.reconcile(1, fleet(1))
    done = plane.reconcile(1, fleet(1))
    assert world.holders() == dict.fromkeys(range(4), 0)
    assert done.epoch.replicas_ever == 2


def test_parked_claims_are_renewed_daily(world: World) -> None:
    plane = world.plane()
    settle(plane, 1)
    for _ in range(2):
        plane.reconcile(0, Fleet(0))
    commits: list[str] = []

    def watch(call: Call) -> None:
        if call.name == "commit" and call.phase is Phase.AFTER:
            commits.append(call.client)

    world.broker.hook = watch
    for hours in (1, 24, 1, 24):
        world.clock.advance(hours * 3600)
        plane.reconcile(0, Fleet(0))
    assert len(commits) == 2


def test_parked_claims_of_a_deleted_pipeline_are_adopted(world: World, tmp_path: Path) -> None:
    former = world.plane(uid="former")
    settle(former, 2)
    for _ in range(2):
        former.reconcile(0, Fleet(0))
    zombie = world.broker.cluster(client_id="old").transactional_producer("former-op")
    zombie.init(1)
    world.store = EpochFile(tmp_path / "other.json")
    events = settle(world.plane(uid="new", start_from="Latest"), 2).events
    assert [e for e in events if isinstance(e, Seeded) and e.why is Why.ADOPTED]
    assert world.offsets() == dict.fromkeys(range(4), 0)
    assert {c.uid for r in world.committed().values() if (c := Claim.decode(r.metadata))} == {"new"}
    zombie.begin()
    with pytest.raises(Fenced):
        zombie.send_offsets("g.claims", "flights", {0: OffsetAndMetadata(0)}, 1)


def test_claims_of_a_pipeline_that_is_not_parked_are_foreign(world: World, tmp_path: Path) -> None:
    settle(world.plane(uid="other"), 1)
    world.store = EpochFile(tmp_path / "other.json")
    with pytest.raises(ForeignClaim, match="pipeline other"):
        settle(world.plane(uid="new"), 1)


def test_a_deleted_claims_group_stalls_the_pipeline(world: World) -> None:
    plane = world.plane()
    settle(plane, 1)
    world.broker.groups.delete("g.claims")
    with pytest.raises(ClaimLost) as caught:
        settle(plane, 1)
    assert caught.value.partitions == (0, 1, 2, 3)
    assert caught.value.last_known == dict.fromkeys(range(4), 0)


def test_a_deleted_group_with_a_new_state_takes_the_mirror_over(world: World, tmp_path: Path) -> None:
    """The way out where `millrace offsets repair` is not at hand: a pipeline made anew."""
    settle(world.plane(), 1)
    world.broker.groups.commit_plain("g", {("flights", 2): OffsetAndMetadata(8)})
    world.broker.groups.delete("g.claims")
    world.store = EpochFile(tmp_path / "new.json")
    settle(world.plane(uid="v"), 1)
    assert world.offsets() == {0: 0, 1: 0, 2: 8, 3: 0}


def test_a_missing_topic_says_so(world: World) -> None:
    world.broker.delete_topic("flights")
    with pytest.raises(TopicMissing, match="flights does not exist"):
        settle(world.plane(), 1)


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.REPLY_LOST])
def test_an_unknown_outcome_of_seeding_is_begun_again(world: World, fate: Fate) -> None:
    plane = world.plane()
    world.broker.faults.plan("commit", fate)
    first = settle(plane, 2)
    assert isinstance(first.events[-1], Interrupted)
    assert first.epoch.number == 0
    world.clock.advance(11)
    done = settle(plane, 2)
    assert done.step == Settled()
    assert world.holders() == {p: done.epoch.owner(p) for p in range(4)}


def test_of_two_control_planes_at_once_one_publishes(world: World) -> None:
    """The second one seeds and publishes while the first is about to."""
    first, second = world.plane(), world.plane()
    first.open()
    done: list[Reconciled] = []

    def interfere(call: Call) -> None:
        if call.name == "init" and not done:
            world.broker.hook = lambda _: None
            done.append(settle(second, 3))

    world.broker.hook = interfere
    late = settle(first, 2)
    assert done[0].epoch.number == 1
    assert isinstance(late.events[-1], Interrupted)
    assert world.store.epoch() == done[0].epoch


class TestEpochFile:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Iterator[EpochFile]:
        return EpochFile(tmp_path / "epoch.json")

    def test_nothing_is_there_at_first(self, file: EpochFile) -> None:
        assert file.read() is None
        assert file.epoch() is None

    def test_what_was_published_is_read(self, file: EpochFile) -> None:
        published = file.publish(Epoch("u", 1, 2, 3, 4), None)
        assert file.read() == published
        assert EpochFile(file.path).epoch() == Epoch("u", 1, 2, 3, 4)

    def test_a_stale_version_is_refused(self, file: EpochFile) -> None:
        first = file.publish(Epoch.first("u"), None)
        file.publish(Epoch("u", 1, 2, 3, 4), first.version)
        for stale in (None, first.version):
            with pytest.raises(EpochConflict):
                file.publish(Epoch("u", 9, 2, 3, 4), stale)
        assert file.epoch() == Epoch("u", 1, 2, 3, 4)
