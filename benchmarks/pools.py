"""Pools and vectorized functions: cases of benchmarks/engine.py, on its broker and its topic `bytes`.

What counts is client CPU per message, of this process and all its threads; of processes, whose own CPU the function decides,
that of the parent. The clock runs from the first message that is done to the last.

Beside the asyncio cases: a loop that one writes by hand, `consume(500)` on a thread, its messages put into an asyncio.Queue
from which a thousand coroutines pull. Beside the vectorized one: `consume(500)`, the same functions on its batches.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pool_functions
import yaml
from confluent_kafka import Consumer, TopicPartition
from report import Figure, compared

from millrace.chain import build, stage_stats
from millrace.chain.functions import load as load_functions
from millrace.clock import Deadline, SystemClock
from millrace.connectivity import settings
from millrace.connectivity.confluent import ConfluentCluster
from millrace.connectivity.ports import OffsetAndMetadata
from millrace.engine.engine import Engine
from millrace.engine.garbage import tune_garbage_collection
from millrace.engine.outbox import Outbox
from millrace.engine.tracker import OffsetTracker
from millrace_api import load

TOPIC, PARTITIONS = "bytes", 8
COMMIT_INTERVAL = 1.0  # s
CORES = os.cpu_count() or 1
CONCURRENCY = 1000


@dataclass(frozen=True)
class Case:
    """A chain of stages; `share` of the topic's messages are done."""

    stages: Sequence[Mapping[str, object]]
    share: float = 1.0


CASES: dict[str, Case] = {
    "processes, trivial": Case([{"map": {"function": "pool_functions:trivial", "pool": {"processes": 2}}}]),
    "processes, 100 us": Case(
        [{"map": {"function": "pool_functions:busy", "pool": {"processes": CORES}}}], share=0.1
    ),
    "one process, 100 us": Case([{"map": {"function": "pool_functions:busy"}}], share=0.1),
    "asyncio, trivial": Case(
        [{"map": {"function": "pool_functions:trivial_async", "pool": {"asyncio": CONCURRENCY}}}]
    ),
    "asyncio, 1 ms": Case([{"map": {"function": "pool_functions:waits", "pool": {"asyncio": CONCURRENCY}}}]),
    "vectorized": Case(
        [
            {"filter": {"function": "pool_functions:keep_all", "vectorized": True}},
            {"map": {"function": "pool_functions:map_all", "vectorized": True}},
        ]
    ),
}
Spent = tuple[float, float]
"""CPU and wall-clock time, us per message."""


def engine(bootstrap: str, case: str, group: str, messages: int) -> Spent:
    stages = [{"name": f"s{n}", **stage} for n, stage in enumerate(CASES[case].stages)]
    manifest = {
        "apiVersion": "millrace.dev/v1alpha1",
        "kind": "ConsumerPipeline",
        "metadata": {"name": "bench"},
        "spec": {
            "kafka": {"bootstrapServers": bootstrap},
            "source": {"topic": TOPIC, "format": "bytes"},
            "stages": stages,
        },
    }
    pipeline = load(yaml.safe_dump(manifest)).pipeline
    clock, tracker, outbox = SystemClock(), OffsetTracker(), Outbox()
    cluster = ConfluentCluster(bootstrap, client_id=group)
    producer = cluster.transactional_producer(group)
    producer.init(30.0)
    outbox.attach(producer)
    functions = load_functions(pipeline, Path(__file__).parent)
    chain = build(pipeline, functions, outbox, None, tracker.complete, stage_stats(pipeline), clock)
    consumer = cluster.consumer(TOPIC, group=group)
    loop = Engine(consumer, chain, tracker, clock)
    loop.hold(dict.fromkeys(range(PARTITIONS), 0))

    def commit() -> None:
        offsets = {p: OffsetAndMetadata(offset, "claim") for p, offset in loop.positions().items()}
        outbox.commit({group: offsets, f"{group}.claims": offsets}, TOPIC, Deadline.after(clock, 10.0))

    done = 0
    while not done:
        loop.step(0.05)
        done = sum(loop.positions().values())
    first, cpu, began = done, time.process_time(), time.monotonic()
    due = began + COMMIT_INTERVAL
    while done < messages:
        loop.step(0.05)
        done = sum(loop.positions().values())
        if time.monotonic() >= due:
            commit()
            due += COMMIT_INTERVAL
    commit()
    spent = time.process_time() - cpu, time.monotonic() - began
    loop.terminate()
    consumer.close()
    producer.close()
    return spent[0] / (done - first) * 1e6, spent[1] / (done - first) * 1e6


def bare_consumer(bootstrap: str, group: str) -> Consumer:
    consumer = Consumer(settings.consumer(settings.common(bootstrap, group, None), {}, group))
    consumer.assign([TopicPartition(TOPIC, p, 0) for p in range(PARTITIONS)])
    return consumer


def commit_bare(consumer: Consumer, positions: Mapping[int, int]) -> None:
    offsets = [TopicPartition(TOPIC, p, offset) for p, offset in positions.items()]
    consumer.commit(offsets=offsets, asynchronous=False)


def bare_vectorized(bootstrap: str, _case: str, group: str, messages: int) -> Spent:
    consumer, positions = bare_consumer(bootstrap, group), dict[int, int]()
    taken = first = 0
    cpu = began = due = 0.0
    while taken < messages:
        batch = [message for message in consumer.consume(500, 0.05) if message.error() is None]
        if not batch:
            continue
        values = [message.value() for message in batch]
        keep = pool_functions.keep_all(values)
        pool_functions.map_all([value for value, kept in zip(values, keep, strict=True) if kept])
        for message in batch:
            positions[message.partition()] = message.offset() + 1
        taken += len(batch)
        if not first:
            first, cpu, began = taken, time.process_time(), time.monotonic()
            due = began + COMMIT_INTERVAL
        if time.monotonic() >= due:
            commit_bare(consumer, positions)
            due += COMMIT_INTERVAL
    commit_bare(consumer, positions)
    spent = time.process_time() - cpu, time.monotonic() - began
    consumer.close()
    return spent[0] / (taken - first) * 1e6, spent[1] / (taken - first) * 1e6


def bare_asyncio(bootstrap: str, case: str, group: str, messages: int) -> Spent:
    return asyncio.run(_bare_asyncio(bootstrap, case, group, messages))


async def _bare_asyncio(bootstrap: str, case: str, group: str, messages: int) -> Spent:
    function = pool_functions.waits if case.endswith("ms") else pool_functions.trivial_async
    consumer, positions = bare_consumer(bootstrap, group), dict[int, int]()
    queue: asyncio.Queue[object] = asyncio.Queue(2 * CONCURRENCY)
    done = 0

    async def pull() -> None:
        nonlocal done
        while True:
            message = await queue.get()
            await function(message.value())  # type: ignore[attr-defined]
            done += 1

    pullers = [asyncio.create_task(pull()) for _ in range(CONCURRENCY)]
    loop = asyncio.get_running_loop()
    taken = first = 0
    cpu = began = due = 0.0
    while taken < messages:
        for message in await loop.run_in_executor(None, consumer.consume, 500, 0.05):
            if message.error() is None:
                await queue.put(message)
                positions[message.partition()] = message.offset() + 1
                taken += 1
        if done and not first:
            first, cpu, began = done, time.process_time(), time.monotonic()
            due = began + COMMIT_INTERVAL
        if time.monotonic() >= due and first:
            commit_bare(consumer, positions)  # of what was taken: simpler than what is right
            due += COMMIT_INTERVAL
    while done < taken:
        await asyncio.sleep(0.001)
    commit_bare(consumer, positions)
    spent = time.process_time() - cpu, time.monotonic() - began
    for puller in pullers:
        puller.cancel()
    consumer.close()
    return spent[0] / (done - first) * 1e6, spent[1] / (done - first) * 1e6


CLIENTS: dict[str, Callable[[str, str, str, int], Spent]] = {
    "engine": engine,
    "bare vectorized": bare_vectorized,
    "bare asyncio": bare_asyncio,
}


def measure(bootstrap: str, messages: int, runs: int) -> list[Figure]:
    """All cases, each client in a process of its own, alternating; medians."""

    def medians(*pairs: tuple[str, str]) -> list[Spent]:
        spent: list[list[Spent]] = [[] for _ in pairs]
        for run in range(runs + 1):
            for at, (client, case) in enumerate(pairs):
                count = int(messages * CASES[case].share)
                command = [
                    sys.executable,
                    __file__,
                    client,
                    bootstrap,
                    case,
                    f"{client}-{case}-{run}",
                    str(count),
                ]
                command[5] = command[5].replace(" ", "").replace(",", "-")
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=300)
                if run:  # the first of each only warms the page cache
                    spent[at].append(json.loads(done.stdout))
        return [
            (statistics.median(cpu for cpu, _ in of), statistics.median(wall for _, wall in of))
            for of in spent
        ]

    figures = []
    ((cpu, _),) = medians(("engine", "processes, trivial"))
    figures.append(_absolute("processes, trivial function", "parent's CPU per message", cpu, 3.3))
    two, one = medians(("engine", "processes, 100 us"), ("engine", "one process, 100 us"))
    figures.append(
        compared(
            f"processes, 100 us of CPU, {CORES} cores",
            "time per message",
            two[1],
            "us",
            {"one process / cores": one[1] / CORES},
            1 / 0.9,
        )
    )
    for case in ("asyncio, trivial", "asyncio, 1 ms"):
        ours, bare = medians(("engine", case), ("bare asyncio", case))
        peers = {"confluent-kafka consume(500), 1,000 coroutines": bare[0]}
        figures.append(
            compared(f"{case}, 1,000 at a time", "client CPU per message", ours[0], "us", peers, 1.15)
        )
    ours, bare = medians(("engine", "vectorized"), ("bare vectorized", "vectorized"))
    peers = {"confluent-kafka consume(500)": bare[0]}
    figures.append(compared("filter, map, vectorized", "client CPU per message", ours[0], "us", peers, 1.1))
    return figures


def _absolute(case: str, figure: str, value: float, most: float) -> Figure:
    return Figure(case, figure, round(value, 3), "us", target=most, met=value <= most)


if __name__ == "__main__":
    client, bootstrap, case, group, count = sys.argv[1:]
    tune_garbage_collection()
    sys.stdout.write(json.dumps(CLIENTS[client](bootstrap, case, group, int(count))) + "\n")
