"""Sending dead letters again, on both brokers: which, where to, with what, and each once whatever happens meanwhile."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest

from millrace.cli.dlq.chosen import Chosen
from millrace.cli.dlq.letters import scan, spans
from millrace.cli.dlq.replay import Replay, Result, left, replay
from millrace.clock import Clock, SystemClock, VirtualClock
from millrace.connectivity.confluent import ConfluentCluster
from millrace.connectivity.memory import Call, Fate, MemoryBroker, Phase
from millrace.connectivity.ports import Cluster, OutcomeUnknown, Record, TopicMissing
from millrace.errors import ExitCode, MillraceError

pytestmark = pytest.mark.contract


class World:
    """A source of two partitions and its dead letters, each letter in a transaction of its own."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self.cluster, self.clock = cluster, clock
        name = uuid.uuid4().hex[:8]
        self.source, self.dead, self.other = f"source-{name}", f"dead-{name}", f"other-{name}"
        self.group = f"group-{name}.dlq.replay"
        with closing(cluster.admin()) as admin:
            for topic, partitions in ((self.source, 2), (self.dead, 1), (self.other, 1)):
                admin.create_topic(topic, partitions, 30.0)
        self._writer = cluster.transactional_producer(f"writer-{name}")
        self._writer.init(30.0)
        self._at = 0

    def die(self, *stages: str, partition: int = 1, topic: str | None = None) -> None:
        """A message dies in each of these stages."""
        for stage in stages:
            self._writer.begin()
            headers = [
                ("millrace-origin", b"1:%d:0@who wrote the letter" % self._at),
                ("millrace-reason", b"no rate for %d" % self._at),
                ("millrace-stage", stage.encode()),
                ("millrace-topic", (topic or self.source).encode()),
                ("millrace-partition", b"%d" % partition),
                ("millrace-offset", b"%d" % self._at),
                ("millrace-timestamp", b"1700000000123"),
                ("trace", b"x"),
                ("millrace-stage", b"of another pipeline"),
                ("millrace-origin", b"0:17:0@who wrote the message"),
            ]
            self._writer.produce(self.dead, b"value %d" % self._at, b"key", headers)
            self._writer.commit(30.0)
            self._at += 1

    def replay(self, chosen: Chosen = Chosen(), *, dry_run: bool = False, **fields: object) -> Result:  # noqa: B008
        what = Replay(self.dead, self.group, chosen, **fields)  # type: ignore[arg-type]
        return replay(self.cluster, what, self.clock, dry_run=dry_run)

    def records(self, topic: str) -> list[Record]:
        return list(scan(self.cluster, topic, spans(self.cluster, topic, self.clock), self.clock))

    def sent(self, topic: str | None = None) -> list[str]:
        return [(record.value() or b"").decode() for record in self.records(topic or self.source)]


@pytest.fixture(params=["memory", "kafka"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "memory":
        clock = VirtualClock()
        yield World(MemoryBroker(clock, max_buffered=2).cluster(client_id="test"), clock)
    else:
        kafka = request.getfixturevalue("kafka")
        yield World(ConfluentCluster(kafka.bootstrap, client_id="test"), SystemClock())


def test_a_letter_goes_back_to_where_it_came_from_as_it_was(world: World) -> None:
    world.die("score")
    assert world.replay(dry_run=True).by_topic == {world.source: 1}
    assert world.sent() == []
    assert world.replay().by_topic == {world.source: 1}
    (record,) = world.records(world.source)
    assert (record.partition(), record.key(), record.value()) == (1, b"key", b"value 0")
    assert record.timestamp()[1] == 1_700_000_000_123
    assert record.headers() == [
        ("trace", b"x"),
        ("millrace-stage", b"of another pipeline"),
        ("millrace-replayed", f"{world.dead}/0:0".encode()),
    ]


def test_each_goes_once_whatever_was_chosen_before_and_again_is_said(world: World) -> None:
    world.die("score", "decode", "score")
    only = Chosen(stages=frozenset({"score"}))
    assert world.replay(only).sent == 2
    result = world.replay()
    assert (result.sent, result.sent_before) == (1, 1), "the first is below what is looked at"
    assert world.replay().sent == 0
    assert sorted(world.sent()) == ["value 0", "value 1", "value 2"]
    world.die("score")
    assert world.replay().sent == 1
    assert world.replay(only, again=True).sent == 3
    assert world.replay().sent == 0
    assert len(world.sent()) == 7


def test_a_limit_leaves_the_rest_for_the_next_time(world: World) -> None:
    world.die(*["score"] * 5)
    assert [world.replay(limit=2).sent for _ in range(4)] == [2, 2, 1, 0]
    assert world.sent() == [f"value {n}" for n in range(5)]


def test_letters_are_chosen_by_reason_partition_and_time(world: World) -> None:
    world.die("score", partition=0)
    world.die("score")
    assert world.replay(Chosen(reason=re.compile("for [1-9]")), dry_run=True).sent == 1
    assert world.replay(Chosen(partitions=frozenset({0})), dry_run=True).sent == 1
    assert world.replay(Chosen(until=1), dry_run=True).sent == 0
    assert world.replay(Chosen(since=1), dry_run=True).left_out == 0


def test_another_topic_may_be_named_and_has_to_be_there(world: World) -> None:
    world.die("score")
    with pytest.raises(TopicMissing) as raised:
        world.replay(to="nowhere")
    assert "--to" in raised.value.remedy
    assert world.replay(to=world.other).by_topic == {world.other: 1}
    assert world.sent(world.other) == ["value 0"]


def test_a_partition_that_the_source_has_no_more_is_chosen_by_the_key(world: World) -> None:
    world.die("score", partition=17)
    world.replay()
    assert world.sent() == ["value 0"]


def test_purging_knows_up_to_where_all_were_sent(world: World) -> None:
    world.die("score", "score", "decode", "score")
    assert left(world.cluster, world.dead, world.group, world.clock) == {0: 0}
    world.replay(Chosen(stages=frozenset({"score"})))
    (third,) = [r.offset() for r in world.records(world.dead) if r.value() == b"value 2"]
    (point,) = left(world.cluster, world.dead, world.group, world.clock).values()
    assert point <= third
    with closing(world.cluster.admin()) as admin:
        admin.delete_records(world.dead, {0: point}, 30.0)
    result = world.replay()
    assert (result.sent, result.sent_before) == (1, 1)
    assert sorted(world.sent()) == [f"value {n}" for n in range(4)]


def test_what_is_no_dead_letter_is_told(world: World) -> None:
    with closing(world.cluster.producer()) as producer:
        producer.produce(world.dead, b"stray")
        producer.flush(30.0)
    with pytest.raises(MillraceError) as raised:
        world.replay()
    assert raised.value.code is ExitCode.TOPIC
    assert world.replay(to=world.other).sent == 1


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.CARRIED_OUT])
def test_after_a_commit_of_unknown_outcome_the_next_command_goes_on_exactly(fate: Fate) -> None:
    clock = VirtualClock()
    broker = MemoryBroker(clock)
    world = World(broker.cluster(client_id="test"), clock)
    world.die("score", "score")

    def lose_the_reply(call: Call) -> None:
        if call.name == "commit":
            if call.phase is Phase.BEFORE:
                call.fate = fate
            elif fate is Fate.CARRIED_OUT:
                raise OutcomeUnknown("the process is gone")

    broker.hook = lose_the_reply
    with pytest.raises(OutcomeUnknown):
        world.replay()
    broker.hook = lambda _: None
    assert world.replay().sent == (2 if fate is Fate.LOST else 0)
    assert world.sent() == ["value 0", "value 1"]
