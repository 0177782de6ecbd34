"""Client CPU per message of consume, filter, map, commit: the engine beside the bare client's loop.

Both read the same topic of a real broker with the same librdkafka settings, call the same functions, and commit every
second: the loop by a plain commit, the engine in the transaction that its claims need. Each run is a process of its own;
its CPU time (user and system, all threads) is taken from its first message to its last commit. They alternate, and the
median of each is compared.

    python benchmarks/engine.py             QUICK=1: a tenth of the messages, three runs each
    python benchmarks/engine.py --pools     only the cases of pools.py
    python benchmarks/engine.py --profile   where the engine spends its time in Python, per case
"""

from __future__ import annotations

import cProfile
import json
import os
import pstats
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pools
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from report import Figure, compared, publish

from millrace.chain import Functions, build, stage_stats
from millrace.clock import Deadline, SystemClock
from millrace.connectivity import settings
from millrace.connectivity.confluent import ConfluentCluster
from millrace.connectivity.ports import KafkaError, OffsetAndMetadata
from millrace.engine.engine import Engine
from millrace.engine.garbage import tune_garbage_collection
from millrace.engine.outbox import Outbox
from millrace.engine.tracker import OffsetTracker
from millrace.local.broker.embedded import EmbeddedBroker
from millrace.strategies import Function
from millrace_api import load

QUICK = os.environ.get("QUICK", "") not in ("", "0")
PARTITIONS = 8
MESSAGES = 200_000 if QUICK else 1_000_000
RUNS = 3 if QUICK else 7
SIZE = 200  # bytes of a value
COMMIT_INTERVAL = 1.0  # s
TARGET = 1.3


def keep_bytes(value: bytes) -> bool:
    return value[0] != 48


def map_bytes(value: bytes) -> bytes:
    return value[:100]


def keep_json(value: dict[str, object]) -> bool:
    return value["cancelled"] is not True


def map_json(value: dict[str, object]) -> dict[str, object]:
    return {"carrier": value["carrier"], "delay": value["delay"]}


CASES: dict[str, tuple[Callable[..., bool], Callable[..., object]]] = {
    "bytes": (keep_bytes, map_bytes),
    "json": (keep_json, map_json),
}
Run = Callable[[str, str, str], float]


def engine(bootstrap: str, case: str, group: str) -> float:
    """CPU seconds of our own."""
    keep, change = CASES[case]
    manifest = {
        "apiVersion": "millrace.dev/v1alpha1",
        "kind": "ConsumerPipeline",
        "metadata": {"name": "bench"},
        "spec": {
            "kafka": {"bootstrapServers": bootstrap},
            "source": {"topic": case, "format": case},
            "stages": [
                {"name": "keep", "filter": {"function": "a:b"}},
                {"name": "change", "map": {"function": "a:b"}},
            ],
        },
    }
    pipeline = load(yaml.safe_dump(manifest)).pipeline
    clock, tracker, outbox = SystemClock(), OffsetTracker(), Outbox()
    cluster = ConfluentCluster(bootstrap, client_id=group)
    producer = cluster.transactional_producer(group)
    producer.init(30.0)
    outbox.attach(producer)
    functions = Functions({"keep": Function(keep), "change": Function(change)})
    chain = build(pipeline, functions, outbox, None, tracker.complete, stage_stats(pipeline), clock)
    consumer = cluster.consumer(case, group=group)
    loop = Engine(consumer, chain, tracker, clock)
    loop.hold(dict.fromkeys(range(PARTITIONS), 0))

    def commit() -> None:
        offsets = {p: OffsetAndMetadata(offset, "claim") for p, offset in loop.positions().items()}
        outbox.commit({group: offsets, f"{group}.claims": offsets}, case, Deadline.after(clock, 10.0))

    taken = 0
    while not taken:
        taken = loop.step(0.05)
    began, due = time.process_time(), time.monotonic() + COMMIT_INTERVAL
    while taken < MESSAGES:
        taken += loop.step(0.05)
        if time.monotonic() >= due:
            commit()
            due += COMMIT_INTERVAL
    commit()
    spent = time.process_time() - began
    if sum(loop.positions().values()) != MESSAGES:
        raise RuntimeError(f"committed {loop.positions()}, of {MESSAGES} messages")
    consumer.close()
    producer.close()
    return spent


def bare(bootstrap: str, case: str, group: str) -> float:
    """CPU seconds of the loop that one writes by hand."""
    keep, change = CASES[case]
    decode = msgspec.json.Decoder().decode if case == "json" else None
    consumer = Consumer(settings.consumer(settings.common(bootstrap, group, None), {}, group))
    consumer.assign([TopicPartition(case, p, 0) for p in range(PARTITIONS)])
    positions: dict[int, int] = {}

    def consume() -> int:
        taken = 0
        for message in consumer.consume(500, 0.05):
            if message.error() is not None:
                continue
            value = message.value()
            if decode is not None:
                value = decode(value)
            if keep(value):
                change(value)
            positions[message.partition()] = message.offset() + 1
            taken += 1
        return taken

    def commit() -> None:
        offsets = [TopicPartition(case, p, offset) for p, offset in positions.items()]
        consumer.commit(offsets=offsets, asynchronous=False)

    taken = 0
    while not taken:
        taken = consume()
    began, due = time.process_time(), time.monotonic() + COMMIT_INTERVAL
    while taken < MESSAGES:
        taken += consume()
        if time.monotonic() >= due:
            commit()
            due += COMMIT_INTERVAL
    commit()
    spent = time.process_time() - began
    consumer.close()
    return spent


CLIENTS: dict[str, Run] = {"engine": engine, "bare": bare}


def fill(bootstrap: str) -> None:
    """Two topics of the same shape, each message SIZE bytes."""
    admin = ConfluentCluster(bootstrap, client_id="bench").admin()
    producer = Producer(
        {"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 20, "partitioner": "murmur2_random"}
    )
    chance = random.Random(7)
    for case in CASES:
        admin.create_topic(case, PARTITIONS, 30.0)
        for n in range(MESSAGES):
            value = _json(chance, n) if case == "json" else b"%d" % chance.randrange(1000)
            while True:
                try:
                    producer.produce(case, value.ljust(SIZE, b" "), partition=n * 7 % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush()
    _first_transaction(bootstrap)


def _first_transaction(bootstrap: str) -> None:
    """A fresh broker makes its internal topics now, not within a measured run."""
    producer = ConfluentCluster(bootstrap, client_id="bench").transactional_producer("bench")
    deadline = Deadline.after(SystemClock(), 30.0)
    while True:
        try:
            producer.init(5.0)
            break
        except KafkaError:
            if deadline.expired():
                raise
            time.sleep(0.2)
    producer.close()


def _json(chance: random.Random, n: int) -> bytes:
    flight = {
        "flight": n,
        "carrier": chance.choice(["UA", "DL", "AA"]),
        "cancelled": chance.random() < 0.03,
        "scheduled": "2013-01-01T05:00:00Z",
        "delay": chance.random() * 60,
        "origin": "EWR",
        "dest": "IAH",
    }
    return msgspec.json.encode(flight)


def measure(bootstrap: str) -> list[Figure]:
    figures = []
    for case in CASES:
        spent: dict[str, list[float]] = {client: [] for client in CLIENTS}
        for run in range(RUNS + 1):
            for client in CLIENTS:
                seconds = child(bootstrap, client, case, f"{client}-{case}-{run}")
                if run:  # the first of each only warms the page cache
                    spent[client].append(seconds / MESSAGES * 1e6)
        median = {client: statistics.median(values) for client, values in spent.items()}
        say(f"{case}: " + "; ".join(f"{c} {' '.join(f'{v:.2f}' for v in vs)}" for c, vs in spent.items()))
        peers = {"confluent-kafka consume(500)": median["bare"]}
        figure = "client CPU per message: consume, filter, map, commit"
        figures.append(compared(f"{SIZE} B, {case}", figure, median["engine"], "us", peers, TARGET))
    return figures


def child(bootstrap: str, client: str, case: str, group: str) -> float:
    command = [sys.executable, __file__, "--child", client, bootstrap, case, group]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=120)
    return float(json.loads(done.stdout))


def profile(bootstrap: str) -> None:
    for case in CASES:
        profiler = cProfile.Profile()
        profiler.enable()
        engine(bootstrap, case, f"profile-{case}")
        profiler.disable()
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def main() -> None:
    if "--child" in sys.argv:
        client, bootstrap, case, group = sys.argv[2:]
        tune_garbage_collection()  # as a worker does; the bare loop, which keeps no batch, is the same with and without
        say(json.dumps(CLIENTS[client](bootstrap, case, group)))
        return
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as directory:
        broker = EmbeddedBroker(Path(directory))
        broker.start()
        try:
            fill(broker.bootstrap)
            if "--profile" in sys.argv:
                profile(broker.bootstrap)
                return
            figures = [] if "--pools" in sys.argv else measure(broker.bootstrap)
            figures += pools.measure(broker.bootstrap, MESSAGES, RUNS)
        finally:
            broker.stop()
    publish("engine", figures, {"messages": MESSAGES, "runs": RUNS, "partitions": PARTITIONS, "quick": QUICK})


if __name__ == "__main__":
    main()
