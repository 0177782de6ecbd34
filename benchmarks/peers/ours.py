"""The engine as a worker has it, with its sessions, claims and fenced commits: our program in bench-engine.

The contract: child.py. The functions are the same as the peers'.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import yaml
from child import Meter, Work, work

from millrace.chain import build, load, stage_stats
from millrace.clock import Deadline, SystemClock
from millrace.connectivity.confluent import ConfluentCluster
from millrace.connectivity.ports import Admin, OffsetAndMetadata, TimedOut
from millrace.engine.garbage import tune_garbage_collection
from millrace.engine.outbox import Outbox
from millrace.engine.session import OnComplete, Session
from millrace.engine.settings import ReplicaSettings
from millrace.engine.strategy import Strategy
from millrace.ownership.claim import Claim
from millrace.ownership.control_rules import Identity
from millrace.ownership.epoch import Epoch
from millrace_api import ConsumerPipeline
from millrace_api import load as load_manifest

CONCURRENCY = 1000
STEP = 0.05  # s, as a worker's

Stage = Mapping[str, object]
CASES: Mapping[str, list[Stage]] = {
    "functions": [{"filter": {"function": "functions:keep"}}, {"map": {"function": "functions:change"}}],
    "json": [{"filter": {"function": "functions:keep_json"}}, {"map": {"function": "functions:change_json"}}],
    "vectorized": [
        {"filter": {"function": "functions:keep_all", "vectorized": True}},
        {"map": {"function": "functions:change_all", "vectorized": True}},
    ],
    "produce": [{"map": {"function": "functions:turn"}}],
    "trivial": [{"map": {"function": "functions:trivial"}}],
    "busy": [{"map": {"function": "functions:busy"}}],
    "asyncio-trivial": [{"map": {"function": "functions:trivial_async", "pool": {"asyncio": CONCURRENCY}}}],
    "asyncio-1ms": [{"map": {"function": "functions:waits", "pool": {"asyncio": CONCURRENCY}}}],
}


def manifest_of(todo: Work) -> ConsumerPipeline:
    """`way`: processes (the function runs in them), or exactly-once."""
    stages = [{"name": f"s{n}", **stage} for n, stage in enumerate(CASES[todo.case])]
    if todo.way == "processes":
        (only,) = stages
        only["map"] = {**only["map"], "pool": {"processes": todo.processes}}  # type: ignore[dict-item]
    if todo.output:
        stages.append({"name": "out", "produce": {"topic": todo.output, "format": "bytes"}})
    spec: dict[str, object] = {
        "kafka": {"bootstrapServers": todo.bootstrap},
        "source": {
            "topic": todo.topic,
            "groupId": todo.group,
            "format": "json" if todo.case == "json" else "bytes",
        },
        "stages": stages,
        "delivery": "ExactlyOnce" if todo.way == "exactly-once" else "AtLeastOnce",
    }
    document = {
        "apiVersion": "millrace.dev/v1alpha1",
        "kind": "ConsumerPipeline",
        "metadata": {"name": "bench"},
        "spec": spec,
    }
    return load_manifest(yaml.safe_dump(document)).pipeline


def session_of(todo: Work, pipeline: ConsumerPipeline) -> tuple[Session, Epoch]:
    """A session of the only worker, to which claims on all partitions have been given."""
    clock = SystemClock()
    cluster = ConfluentCluster(todo.bootstrap, client_id=todo.group)
    admin = cluster.admin()
    described = admin.describe_topic(todo.topic, 10.0)
    if described is None:
        raise RuntimeError(f"there is no topic {todo.topic}")
    uid = f"uid-{todo.group}"
    identity = Identity(uid, todo.topic, described.id, todo.group, pipeline.claims_group)
    claim = Claim(uid, described.id, 1, 0).encode()
    _seed(admin, identity, {p: OffsetAndMetadata(0, claim) for p in range(todo.partitions)})
    transactional, plain = cluster.transactional_producer(todo.group), cluster.producer()
    transactional.init(30.0)
    functions, stats = load(pipeline, Path(__file__).parent), stage_stats(pipeline)

    def chain(outbox: Outbox, on_complete: OnComplete) -> Strategy:
        return build(pipeline, functions, outbox, plain, on_complete, stats, clock)

    view = Epoch(uid, 1, todo.partitions, 1, 1)
    session = Session(
        identity,
        0,
        view,
        producer=transactional,
        consumer=cluster.consumer(todo.topic, group=todo.group),
        admin=admin,
        chain=chain,
        clock=clock,
        settings=ReplicaSettings(commit_interval=todo.interval),
    )
    return session, view


def _seed(admin: Admin, identity: Identity, claims: Mapping[int, OffsetAndMetadata]) -> None:
    deadline = Deadline.after(SystemClock(), 30.0)
    while True:
        try:
            admin.commit_offsets(identity.claims_group, identity.topic, claims, 5.0)
            return
        except TimedOut:  # a fresh broker may not have the group's coordinator yet
            if deadline.expired():
                raise
            time.sleep(0.1)


def run(todo: Work, meter: Meter) -> None:
    session, view = session_of(todo, manifest_of(todo))
    tune_garbage_collection()
    step, positions = session.step, session.engine.positions
    done = 0
    while done < todo.messages:
        taken = step(view, STEP)
        done = sum(positions().values())
        # processes have to start first; and what is produced is done in large steps, when all of it is acknowledged
        first = done if todo.way == "processes" else taken
        if first and not meter.began:
            meter.begin(first)
    if todo.way == "processes":
        meter.end(done)  # before the last commit, for it ends them
    session.finish(view, Deadline.after(SystemClock(), 30.0))
    if todo.way != "processes":
        meter.end(done)
    session.drop()


def main() -> None:
    todo = work()
    meter = Meter(watch_memory=todo.watch_memory)
    run(todo, meter)
    meter.tell()


if __name__ == "__main__":
    main()
