"""Whole chains on both brokers: what is written, what is committed, and what a crash leaves of it."""

from __future__ import annotations

import itertools
import uuid
from collections import Counter
from collections.abc import Mapping

import msgspec
import pytest

import millrace
from chain_pipelines import pipeline_of
from millrace.chain import Functions, build, stage_stats
from millrace.channel.progress import Note
from millrace.channel.wire import END, Mark, MarkKind, Origin, parse
from millrace.clock import Clock, Deadline, SystemClock, VirtualClock
from millrace.connectivity.confluent import ConfluentCluster
from millrace.connectivity.memory import MemoryBroker
from millrace.connectivity.ports import (
    BufferFull,
    Cluster,
    OffsetAndMetadata,
    Producer,
    Record,
    Span,
    TimedOut,
    TransactionalProducer,
    Unstable,
)
from millrace.engine.bounds import Bounds
from millrace.engine.engine import Engine
from millrace.engine.marks import End
from millrace.engine.outbox import Outbox
from millrace.engine.tracker import OffsetTracker
from millrace.strategies import Function
from millrace_api import ConsumerPipeline

pytestmark = pytest.mark.contract

PARTITIONS = 3
EACH = 400  # messages a partition


@pytest.fixture(params=["memory", "kafka"])
def world(request: pytest.FixtureRequest) -> World:
    if request.param == "memory":
        clock = VirtualClock()
        return World(MemoryBroker(clock, max_buffered=50).cluster(client_id="test"), clock)
    kafka = request.getfixturevalue("kafka")
    return World(ConfluentCluster(kafka.bootstrap, client_id="test"), SystemClock())


def keep(value: int) -> bool:
    return value % 5 != 0


def change(value: int, message: millrace.Message) -> dict[str, int]:
    if value % 97 == 0:
        raise millrace.Invalid("divisible by 97")
    return {"value": value, "partition": message.partition}


FUNCTIONS = Functions({"keep": Function(keep), "change": Function(change, wants_message=True)})


class World:
    """A source with input, an output and a dead-letter topic."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self.cluster, self.clock, self.admin = cluster, clock, cluster.admin()
        self.id = uuid.uuid4().hex[:8]
        self.source, self.out, self.dead = (f"{name}-{self.id}" for name in ("source", "out", "dead"))
        for topic in (self.source, self.out, self.dead):
            self.admin.create_topic(topic, PARTITIONS, 30.0)

    def deadline(self) -> Deadline:
        return Deadline.after(self.clock, 60.0)

    def fill(self) -> None:
        """Numbers 1... in each partition, every 101st undecodable."""
        producer = self.cluster.producer()
        for n, partition in itertools.product(range(1, EACH + 1), range(PARTITIONS)):
            produce(producer, self.source, b"{" if n % 101 == 0 else b"%d" % n, partition)
        producer.flush(30.0)
        producer.close()

    def expected(self) -> tuple[Counter[bytes], Counter[int]]:
        outputs, dead = Counter[bytes](), Counter[int]()
        for n, partition in itertools.product(range(1, EACH + 1), range(PARTITIONS)):
            if n % 101 == 0 or (keep(n) and n % 97 == 0):
                dead[n - 1] += 1
            elif keep(n):
                outputs[msgspec.json.encode({"value": n, "partition": partition})] += 1
        return outputs, dead

    def pipeline(self, delivery: str) -> ConsumerPipeline:
        return pipeline_of(
            {"name": "keep", "filter": {"function": "a:b"}},
            {"name": "change", "map": {"function": "a:b"}},
            {"name": "write", "produce": {"topic": self.out}},
            source={"topic": self.source},
            deadLetter={"topic": self.dead},
            delivery=delivery,
        )

    def read(self, topic: str) -> list[Record]:
        """All that a read_committed reader sees."""
        consumer, records, ends = self.cluster.consumer(topic, group="reader"), [], dict[int, int]()
        consumer.assign(dict.fromkeys(range(PARTITIONS), 0))
        deadline = self.deadline()
        while len(ends) < PARTITIONS and not deadline.expired():
            records += consumer.fetch(500, 0.05)
            ends.update(consumer.ends())
        consumer.close()
        return records

    def await_ends(self, writer: TransactionalProducer, end: int) -> None:
        """Until each partition of the source is that long, counting what is not committed."""
        deadline = self.deadline()
        while {span.end for span in self._uncommitted().values()} != {end}:
            assert not deadline.expired(), f"{self._uncommitted()}, not {end}"
            writer.poll()
            self.clock.sleep(0.01)

    def _uncommitted(self) -> Mapping[int, Span]:
        return self.admin.spans(self.source, range(PARTITIONS), 30.0, read_committed=False)

    def committed(self) -> Mapping[int, int]:
        deadline, group = self.deadline(), f"g-{self.id}"
        while True:
            try:
                found = self.admin.group_offsets(group, self.source, range(PARTITIONS), 30.0, stable=True)
                break
            except (
                TimedOut,
                Unstable,
            ):  # a fresh broker's coordinator is still loading; a transaction is pending
                if deadline.expired():
                    raise
                self.clock.sleep(0.1)
        return {partition: offset.offset for partition, offset in found.items()}


def produce(producer: Producer | TransactionalProducer, topic: str, value: bytes, partition: int) -> None:
    while True:
        try:
            producer.produce(topic, value, None, None, partition)
            return
        except BufferFull:
            producer.poll()


def initialise(producer: TransactionalProducer, world: World) -> None:
    deadline = world.deadline()
    while True:
        try:
            producer.init(30.0)
            return
        except TimedOut:
            if deadline.expired():
                raise
            world.clock.sleep(0.1)


class Worker:
    """An engine with a chain, from the committed offsets on."""

    def __init__(self, world: World, delivery: str) -> None:
        self.world, self.outbox, tracker = world, Outbox(), OffsetTracker()
        self.fence = world.cluster.transactional_producer(f"txn-{world.id}")
        initialise(self.fence, world)
        self.outbox.attach(self.fence)
        self.producer = world.cluster.producer()
        self.consumer = world.cluster.consumer(world.source, group=f"g-{world.id}")
        pipeline = world.pipeline(delivery)
        chain = build(
            pipeline,
            FUNCTIONS,
            self.outbox,
            self.producer,
            tracker.complete,
            stage_stats(pipeline),
            world.clock,
        )
        self.engine = Engine(self.consumer, chain, tracker, world.clock, batch_size=40)
        self.engine.hold({**dict.fromkeys(range(PARTITIONS), 0), **world.committed()})

    def commit(self) -> None:
        deadline = self.world.deadline()
        while self.outbox.open and not deadline.expired():
            self.engine.poll()
            self.world.clock.sleep(0.001)
        offsets = {p: OffsetAndMetadata(offset) for p, offset in self.engine.positions().items()}
        self.outbox.commit({f"g-{self.world.id}": offsets}, self.world.source, deadline)

    def until(self, total: int, commit_every: int = 7) -> None:
        """Step, and commit now and then, until so many offsets are complete."""
        deadline = self.world.deadline()
        for n in itertools.count(1):
            if sum(self.engine.positions().values()) >= total or deadline.expired():
                break
            self.engine.step(0.05)
            if n % commit_every == 0:
                self.commit()

    def end(self) -> None:
        self.engine.terminate()
        self.consumer.close()
        self.producer.close()
        self.fence.close()


def values(records: list[Record]) -> Counter[bytes]:
    return Counter(record.value() or b"" for record in records)


def dead_offsets(records: list[Record]) -> Counter[int]:
    return Counter(int(dict(record.headers() or ())["millrace-offset"] or b"") for record in records)


def test_exactly_once_outputs_and_dead_letters_are_there_once_after_a_crash(world: World) -> None:
    world.fill()
    worker = Worker(world, "ExactlyOnce")
    worker.until(600)
    worker.engine.step(0.05)  # something uncommitted, perhaps half of a batch
    worker.end()
    committed = sum(world.committed().values())
    assert 0 < committed < PARTITIONS * EACH
    worker = Worker(world, "ExactlyOnce")
    worker.until(PARTITIONS * EACH)
    worker.commit()
    worker.end()
    outputs, dead = world.expected()
    assert values(world.read(world.out)) == outputs
    assert dead_offsets(world.read(world.dead)) == dead
    assert sum(world.committed().values()) == PARTITIONS * EACH


def test_at_least_once_nothing_is_committed_before_it_is_acknowledged_and_nothing_lost(world: World) -> None:
    world.fill()
    worker = Worker(world, "AtLeastOnce")
    worker.until(600)
    worker.engine.step(0.05)
    worker.commit()
    done = world.committed()
    written = values(world.read(world.out))
    for n, partition in itertools.product(range(1, EACH + 1), range(PARTITIONS)):
        wanted = msgspec.json.encode({"value": n, "partition": partition})
        if n - 1 < done[partition] and wanted in world.expected()[0]:
            assert written[wanted] == 1
    worker.end()
    worker = Worker(world, "AtLeastOnce")
    worker.until(PARTITIONS * EACH)
    worker.commit()
    worker.end()
    outputs, dead = world.expected()
    assert values(world.read(world.out)) >= outputs
    assert values(world.read(world.out)).keys() == outputs.keys()
    assert dead_offsets(world.read(world.dead)) == dead


def test_what_lies_at_the_end_of_a_transactional_source_is_committed_past(world: World) -> None:
    writer = world.cluster.transactional_producer(f"writer-{world.id}")
    initialise(writer, world)
    for n in range(4):
        writer.begin()
        for partition in range(PARTITIONS):
            produce(writer, world.source, b"%d" % (n * 5 + 1), partition)
        if n % 2:
            world.await_ends(
                writer, 2 * n + 1
            )  # an abort of what is not in the log would leave nothing there
            writer.abort(30.0)
        else:
            writer.commit(30.0)
        world.await_ends(writer, 2 * n + 2)  # the marker
    writer.close()
    spans = world.admin.spans(world.source, range(PARTITIONS), 30.0)
    worker = Worker(world, "ExactlyOnce")
    worker.until(sum(span.end for span in spans.values()))
    worker.commit()
    worker.end()
    assert world.committed() == {partition: span.end for partition, span in spans.items()}
    assert len(world.read(world.out)) == 2 * PARTITIONS


def test_rows_and_marks_of_a_channel_are_there_as_written(world: World) -> None:
    collect = {
        "schema": "n int, t timestamp",
        "window": {"size": "1h", "time": "t", "lateness": "1h"},
        "aggregate": {"count": "count(*)"},
        "sink": {"parquet": {"path": "results"}},
    }
    pipeline = pipeline_of(
        {"name": "by", "collect": collect}, source={"topic": world.source, "groupId": f"g-{world.id}"}
    )
    channel = pipeline.channel("by")
    world.admin.create_topic(channel, PARTITIONS, 30.0)
    producer = world.cluster.producer()
    for n, partition in itertools.product(range(20), range(PARTITIONS - 1)):
        produce(producer, world.source, b'{"n":%d,"t":"2026-01-31T00:00:00Z"}' % n, partition)
    producer.flush(30.0)
    producer.close()

    outbox, tracker = Outbox(), OffsetTracker()
    fence = world.cluster.transactional_producer(f"txn-{world.id}")
    initialise(fence, world)
    outbox.attach(fence)
    figures = stage_stats(pipeline)
    chain = build(pipeline, Functions({}), outbox, None, tracker.complete, figures, world.clock)
    bounds = Bounds(dict.fromkeys(range(PARTITIONS - 1), 15))
    consumer = world.cluster.consumer(world.source, group=f"g-{world.id}")
    engine = Engine(consumer, chain, tracker, world.clock, bounds=bounds)
    engine.hold(dict.fromkeys(range(PARTITIONS), 0))
    deadline = world.deadline()
    while set(engine.ends().values()) != {End.BOUND} and not deadline.expired():
        engine.step(0.05)
    assert outbox.marks is not None
    assert outbox.marks.write(engine.ends()) == set(range(PARTITIONS))
    offsets = {p: OffsetAndMetadata(at, outbox.marks.note(p)) for p, at in engine.positions().items()}
    outbox.commit({f"g-{world.id}": offsets}, world.source, deadline)
    engine.terminate()
    consumer.close()
    fence.close()

    found = [(r.partition(), parse(r.value(), r.headers())) for r in world.read(channel)]
    for partition in range(PARTITIONS):
        *rows, mark = [record for at, record in found if at == partition]
        count = 15 if partition < PARTITIONS - 1 else 0
        assert [row.origin for row in rows] == [Origin(partition, n, 0) for n in range(count)]
        assert mark == Mark(MarkKind.END, END)
    noted = world.admin.group_offsets(f"g-{world.id}", world.source, [0, 2], 30.0, stable=False)
    assert Note.decode(noted[0].metadata) == Note(1_769_817_600_000_000, "end", END, of="by.t")
    assert Note.decode(noted[2].metadata) == Note(None, "end", END, of="by.t")
