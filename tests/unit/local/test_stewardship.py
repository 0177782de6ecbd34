"""The operator's part in a local run, on the in-memory broker."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from millrace.channel.progress import Note
from millrace.clock import SystemClock
from millrace.connectivity.memory import MemoryBroker
from millrace.connectivity.ports import Admin, BrokerUnreachable, OffsetAndMetadata
from millrace.engine.bounds import Bounds
from millrace.errors import ExitCode
from millrace.local.stewardship import Steward
from millrace.ownership.claim import Claim
from millrace.ownership.control_plane import ControlPlane
from millrace.ownership.control_rules import Fleet
from millrace.ownership.epoch_store import EpochFile
from millrace_api.needed import NeededTopic

pytestmark = pytest.mark.unit

SOURCE = NeededTopic("flights", "spec.source", 4)
OUTPUT = NeededTopic("scored", "spec.stages[1].produce", 2)


class World:
    """A broker, and stewards of one state directory."""

    def __init__(self, directory: Path) -> None:
        self.clock = SystemClock()
        self.broker = MemoryBroker(self.clock)
        self.directory = directory
        self.notices: list[str] = []
        self.away = False
        self.opened = 0

    def steward(
        self,
        replicas: int = 2,
        *,
        source: NeededTopic = SOURCE,
        until_end: bool = False,
        channel: str | None = None,
    ) -> Steward:
        return Steward(
            self._open,
            self.clock,
            lambda text, _level: self.notices.append(text),
            topic="flights",
            topics=[source, OUTPUT],
            replicas=replicas,
            channel=channel,
            bounds_file=self.directory / "until.json" if until_end else None,
        )

    def _open(self) -> tuple[ControlPlane, Admin]:
        self.opened += 1
        if self.away:
            raise BrokerUnreachable("no broker answers")
        cluster = self.broker.cluster(client_id="op")
        plane = ControlPlane(
            cluster, EpochFile(self.directory / "epoch.json"), self.clock,
            uid="u", topic="flights", group="g", claims_group="g.claims",
        )  # fmt: skip
        return plane, cluster.admin()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def until(condition: Callable[[], bool], steward: Steward, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert steward.error is None, steward.error
        assert time.monotonic() < deadline, f"not within {seconds} s; {steward.phase}"
        time.sleep(0.01)


def settled(steward: Steward) -> bool:
    """Plays the workers: whatever is asked for runs and is ready."""
    everybody = frozenset(range(steward.scale))
    steward.fleet = Fleet(steward.scale, everybody, everybody)
    return steward.sight is not None and steward.sight.settled


def stop(steward: Steward) -> None:
    steward.stop()
    steward.join(10)


def test_topics_are_created_workers_asked_for_partitions_seeded_and_the_epoch_published(world: World) -> None:
    steward = world.steward()
    steward.start()
    until(lambda: settled(steward), steward)
    stop(steward)
    assert steward.sight is not None
    assert steward.sight.epoch.replicas == 2
    assert {p.holder for p in steward.sight.partitions} == {0, 1}
    assert world.notices[:2] == [
        "topic flights created with 4 partitions",
        "topic scored created with 2 partitions",
    ]


def test_nothing_is_seeded_before_the_workers_are_ready(world: World) -> None:
    steward = world.steward()
    steward.start()
    until(lambda: steward.scale == 2, steward)
    until(lambda: steward.phase == "waiting for workers", steward)
    assert steward.sight is None or steward.sight.epoch.number == 0
    until(lambda: settled(steward), steward)
    stop(steward)


def test_a_later_run_with_another_number_of_workers_publishes_another_epoch(world: World) -> None:
    for replicas, number in ((3, 1), (1, 2), (2, 3)):
        steward = world.steward(replicas)
        steward.start()
        until(lambda steward=steward: settled(steward), steward)  # type: ignore[misc]
        stop(steward)
        assert steward.sight is not None
        assert (steward.sight.epoch.number, steward.sight.epoch.replicas) == (number, replicas)


def test_a_missing_topic_that_may_not_be_created_is_an_error_with_its_place(world: World) -> None:
    steward = world.steward(source=NeededTopic("flights", "spec.source", None))
    steward.start()
    steward.join(10)
    assert steward.error is not None
    assert (steward.error.code, steward.error.where) == (ExitCode.TOPIC, "spec.source.topic")
    assert "create: {partitions: N}" in steward.error.remedy


def test_a_topic_with_other_partitions_than_create_says_is_left_so_and_told(world: World) -> None:
    world.broker.cluster(client_id="x").admin().create_topic("flights", 3, 5.0)
    steward = world.steward()
    steward.start()
    until(lambda: settled(steward), steward)
    stop(steward)
    assert steward.sight is not None
    assert len(steward.sight.partitions) == 3
    assert "topic flights has 3 partitions and is left so (spec.source.create says 4)" in world.notices


def test_the_end_of_the_input_is_what_was_there_at_the_start(world: World) -> None:
    cluster = world.broker.cluster(client_id="x")
    cluster.admin().create_topic("flights", 2, 5.0)
    producer = cluster.producer()
    for partition in (0, 0, 1):
        producer.produce("flights", b"1", partition=partition)
    producer.flush(5.0)
    steward = world.steward(1, until_end=True, channel="g.by-kind.channel")
    steward.start()
    until(lambda: settled(steward), steward)
    producer.produce("flights", b"later", partition=0)
    producer.flush(5.0)
    until(lambda: steward.sight is not None and steward.sight.partitions[0].end == 3, steward)
    stop(steward)
    assert steward.sight is not None
    assert [p.target for p in steward.sight.partitions] == [2, 1]
    assert (steward.sight.done, steward.sight.total, steward.sight.at_end) == (0, 3, False)
    assert Bounds.decode((world.directory / "until.json").read_text()) == Bounds({0: 2, 1: 1})


def test_late_rows_of_this_run_are_known_from_the_claims(world: World) -> None:
    def late_so_far(partition: int, rows: int) -> None:
        """As the holder of the partition has it."""
        groups = world.broker.groups
        record = groups.read("g.claims", "flights", [partition], stable=False)[partition]
        claim = Claim.decode(record.metadata)
        assert claim is not None
        text = replace(claim, note=Note(late=rows).encode()).encode()
        groups.commit_plain("g.claims", {("flights", partition): OffsetAndMetadata(record.offset, text)})

    def until_late(rows: int) -> None:
        until(lambda: steward.sight is not None and steward.sight.late == rows, steward)

    steward = world.steward(1)
    steward.start()
    until(lambda: settled(steward), steward)
    late_so_far(0, 5)
    late_so_far(3, 2)
    until_late(7)
    stop(steward)
    steward = world.steward(1)
    steward.start()
    until(lambda: settled(steward), steward)
    assert steward.sight is not None
    assert steward.sight.late == 0
    late_so_far(3, 4)
    until_late(2)
    stop(steward)


def test_a_channel_has_the_partitions_of_its_source(world: World) -> None:
    admin = world.broker.cluster(client_id="x").admin()
    admin.create_topic("flights", 3, 5.0)
    admin.create_topic("g.by-kind.channel", 2, 5.0)
    for channel in ("g.by-kind.channel", "g.new.channel"):
        steward = world.steward(1, channel=channel)
        steward.start()
        until(lambda steward=steward: steward.partitions is not None, steward)  # type: ignore[misc]
        stop(steward)
        described = admin.describe_topic(channel, 5.0)
        assert described is not None
        assert described.partitions == steward.partitions == 3


def test_a_broker_that_is_away_in_mid_run_is_waited_for_with_new_clients(world: World) -> None:
    steward = world.steward()
    steward.start()
    until(lambda: settled(steward), steward)
    world.away = True
    steward._close()  # as after a failure: the next round opens new clients
    until(lambda: steward.away_since is not None, steward)
    opened = world.opened
    world.away = False
    until(lambda: steward.away_since is None, steward)
    assert world.opened > opened
    stop(steward)
    assert steward.error is None
