"""A pipeline's whole life from one seed: workers, their supervisor, control planes, a broker, and misfortune.

Everything under test is the real code: Replica, Session, Engine, strategies, ControlPlane, on the in-memory broker. A
seed draws the pipeline, the schedule, and what goes wrong: processes crash at any client call, stall, or live on as
zombies beside their successors; requests and replies are lost or late; the broker goes away; the number of replicas
and of partitions changes. After a while misfortune ends, and then everything has to come to its end.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from millrace.clock import Deadline
from millrace.connectivity.memory import Call, Fate, Phase
from millrace.connectivity.memory.transactions import Transaction, TransactionState
from millrace.connectivity.ports import BrokerUnreachable, Fenced, TimedOut
from millrace.engine.claims import Superseded
from millrace.engine.replica import Replica
from millrace.engine.settings import ReplicaSettings
from millrace.ownership.control_rules import Fleet, Scale, Settled
from millrace.ownership.epoch import Epoch
from replica_stage import GROUP, Stage
from simulator.chains import chain
from simulator.checks import Checks, Violation
from simulator.scheduler import Crashed, Process, Scheduler

TROUBLE = 25.0  # virtual seconds in which things go wrong
PEACE = 150.0  # within which everything must have come to its end after that
TOLD = ("init", "commit", "send_offsets", "abort")

EVENTS = {  # what happens to a world, and how often beside the others
    "replicas": 3,
    "partitions": 1,
    "messages": 2,
    "outage": 1,
    "choke": 1,
    "zombie": 2,
    "kill": 2,
    "plane": 1,
    "overdue": 1,
    "late": 2,
}


@dataclass(slots=True)
class Worker:
    """A process of an index. A zombie lives on although its supervisor has forgotten it."""

    index: int
    process: Process
    replica: Replica | None = None


@dataclass(slots=True)
class Odds:
    """What a seed makes of the world; probabilities are per client call."""

    crash: float = 0.0
    stall: float = 0.0
    lost_read: float = 0.0
    fates: dict[str, float] = field(default_factory=dict)
    forgets: float = 0.0  # per marker of a transaction
    planes: int = 1
    events: int = 6


class World:
    """One seed's."""

    def __init__(self, seed: int, *, replica: type[Replica] = Replica) -> None:
        self.seed, self._replica = seed, replica
        self.rng = rng = random.Random(seed)
        self.scheduler = Scheduler()
        self.clock = self.scheduler.clock
        self.exactly_once = rng.random() < 0.75
        self.trace: list[str] = []
        self.odds = Odds(
            crash=rng.choice([0, 0, 0.002, 0.01]),
            stall=rng.choice([0, 0, 0.002]),
            lost_read=rng.choice([0, 0.01]),
            fates={
                name: rng.choice([0, 0, 0.02, 0.1]) for name in ("init", "commit", "send_offsets", "deliver")
            },
            planes=rng.choice([1, 1, 1, 2]),
            forgets=rng.choice([0, 0, 0.05, 0.5]),
            events=rng.randint(2, 9),
        )
        self.stage = Stage(
            self.clock,
            partitions=rng.randint(1, 5),
            messages=rng.randint(0, 15),
            marker_delay=rng.choice([0.0, 0.05, 1.0]),
        )
        self.stage.broker.max_buffered = rng.choice([2, 5, 1000])
        self.stage.broker.hook = self._on_call
        self.stage.broker.transactions.forgets = self._forgets
        self.stage.broker.settle = self._settle  # type: ignore[method-assign]
        self.scheduler.on_end = self._ended
        self.desired, self.scale = rng.randint(1, 3), 0
        self.workers: dict[int, Worker] = {}  # by index: the supervised ones
        self.zombies: list[Worker] = []
        self.overdue: set[int] = set()
        self.planes: list[Process] = []
        self.peace = self.settled = False
        self.failure: Exception | None = None
        self._incarnations, self._choked_until = 0, 0.0
        self._owners: dict[str, Process] = {}  # who has initialised a transactional id last
        self._doomed: set[str] = set()
        self._published: list[tuple[float, Epoch]] = []
        self.checks = Checks(self.stage, exactly_once=self.exactly_once, replicas=lambda: self._replicas())

    def run(self) -> None:
        """Raises Violation."""
        self.tell(
            f"seed {self.seed}: {len(self.stage.source.logs)} partitions, {self.desired} replicas, "
            f"{'exactly' if self.exactly_once else 'at least'} once, {self.odds}"
        )
        for number in range(self.odds.planes):
            self._start_plane(number)
        for _ in range(self.odds.events):
            self.scheduler.call(self.rng.uniform(0, TROUBLE), self._event)
        self.scheduler.run(TROUBLE, lambda: self.failure is not None)
        if self.failure is None:
            self._make_peace()
            done = self.scheduler.run(PEACE, lambda: self.failure is not None or self._finished())
            if not done:
                raise Violation(f"STUCK: {self._situation()}")
        if self.failure is not None:
            raise self.failure
        self.checks.at_the_end()

    def tell(self, what: str) -> None:
        who = self.scheduler.current.name if self.scheduler.current else "world"
        self.trace.append(f"{self.clock.monotonic():9.3f} {who:10} {what}")

    # misfortune

    def _on_call(self, call: Call) -> None:
        process = self.scheduler.current
        if process is None:
            return
        self._settle()
        if call.name == "init" and call.phase is Phase.AFTER:
            self._owners[str(call.about["transactional_id"])] = process
        rng, odds = self.rng, self.odds
        if call.phase is Phase.BEFORE and not self.peace:
            likely = odds.fates.get(call.name, odds.lost_read if call.kind == "admin" else 0.0)
            if call.name == "deliver" and self.clock.monotonic() < self._choked_until:
                call.fate = Fate.LOST
            elif rng.random() < likely:
                fates = [Fate.LOST, Fate.REPLY_LOST, Fate.LATE]
                call.fate = rng.choice([*fates, Fate.REFUSED] if call.name == "commit" else fates)
        if call.name in TOLD and (call.phase is Phase.AFTER or call.fate is not Fate.CARRIED_OUT):
            about = {k: v for k, v in call.about.items() if k in ("transactional_id", "group")}
            offsets = call.about.get("offsets")
            if isinstance(offsets, dict):
                about["offsets"] = {
                    p: (record.offset, _holder(record.metadata)) for p, record in offsets.items()
                }
            self.tell(f"{call.name} {call.fate.value} {call.phase.value} {about}")
        if not self.peace and rng.random() < odds.crash:
            self.tell(f"CRASH {call.phase.value} {call.name}")
            raise Crashed
        if not self.peace and rng.random() < odds.stall:
            seconds = rng.uniform(1, 15)
            self.tell(f"stalls for {seconds:.1f} s {call.phase.value} {call.name}")
            self.scheduler.pause(seconds)
        elif rng.random() < 0.5:
            self.scheduler.pause(rng.uniform(0, 0.004))

    def _settle(self) -> None:
        """As the broker's; whoever is to die with it does nothing more after that."""
        self.stage.broker.transactions.settle()
        process = self.scheduler.current
        if process is not None and process.name in self._doomed:
            self._doomed.discard(process.name)
            self.tell("CRASH with the broker")
            raise Crashed

    def _forgets(self, transaction: Transaction) -> bool:
        """Whether the broker leaves a marker out (docs/adr/0007). Where that was a commit's, it is the death of broker and
        writer at once: a writer that lives on could abort its next transaction, and that this one along with it, before
        anybody looks, which nobody could undo.
        """
        name = transaction.transactional_id
        if self.peace or name.endswith("-op") or self.rng.random() >= self.odds.forgets:
            return False
        self.tell(f"FORGOTTEN a marker of {name}, {transaction.state.value}")
        owner = self._owners.get(name)
        if transaction.state is TransactionState.PREPARED_COMMIT and owner is not None and owner.alive:
            self._doomed.add(owner.name)
        return True

    def _event(self) -> None:
        """One thing happens to the world."""
        rng = self.rng
        (kind,) = rng.choices(list(EVENTS), list(EVENTS.values()))
        partitions = len(self.stage.source.logs)
        if kind == "replicas":
            self.desired = rng.choice([0, 1, 1, 2, 3, 4])
            self.tell(f"EVENT {self.desired} replicas are wanted")
        elif kind == "partitions":
            self.stage.source.grow(partitions + rng.randint(1, 2))
            self.stage.produce(partitions, rng.randint(0, 9))
            self.tell(f"EVENT the topic has {len(self.stage.source.logs)} partitions")
        elif kind == "messages":
            for partition in range(partitions):
                self.stage.produce(partition, rng.randint(0, 9))
        elif kind == "outage" and self.stage.broker.faults.up:
            seconds = rng.uniform(0.2, 15)
            self.tell(f"EVENT the broker is away for {seconds:.1f} s")
            self.stage.broker.faults.up = False
            self.scheduler.call(seconds, self._broker_back)
        elif kind == "zombie" and self.workers:
            worker = self.workers.pop(rng.choice(sorted(self.workers)))
            self.tell(f"EVENT {worker.process.name} becomes a zombie")
            self.zombies.append(worker)
            self._start_worker_later(worker.index, rng.uniform(0.1, 3))
        elif kind == "kill" and self.workers:
            self._kill(self.workers[rng.choice(sorted(self.workers))].process)
        elif kind == "plane" and self.planes:
            self._kill(rng.choice(self.planes))
        elif kind == "choke":
            seconds = rng.uniform(1, 7)
            self.tell(f"EVENT nothing that is produced gets through for {seconds:.1f} s")
            self._choked_until = self.clock.monotonic() + seconds
            self.desired = rng.randint(1, 3)
        elif kind == "overdue":
            index = rng.randrange(4)
            self.tell(f"EVENT worker {index} is taken for overdue")
            self.overdue.add(index)
            self.scheduler.call(rng.uniform(1, 5), lambda: self.overdue.discard(index))
        elif kind == "late" and self.stage.broker.late:
            request = rng.choice(self.stage.broker.late)
            accepted = self.stage.broker.land(request)
            self.tell(f"EVENT late {request} lands, {'accepted' if accepted else 'rejected'}")

    def _kill(self, process: Process) -> None:
        self.tell(f"EVENT {process.name} is killed")
        process.crash()

    def _kill_later(self, process: Process, seconds: float) -> None:
        self.scheduler.call(seconds, lambda: self._kill(process) if process.alive else None)

    def _broker_back(self) -> None:
        self.tell("EVENT the broker is back")
        self.stage.broker.faults.up = True

    def _make_peace(self) -> None:
        self.peace = True
        self.tell("PEACE")
        self._broker_back()
        self.overdue.clear()
        self.desired = self.desired or 2
        for request in list(self.stage.broker.late):
            self.stage.broker.land(request)
        for worker in self.zombies:
            if self.rng.random() < 0.7:
                self._kill(worker.process)

    # workers and their supervisor

    def _replicas(self) -> Iterator[Replica]:
        for worker in [*self.workers.values(), *self.zombies]:
            if worker.process.alive and worker.replica is not None:
                yield worker.replica

    def _start_worker_later(self, index: int, seconds: float) -> None:
        self.scheduler.call(seconds, lambda: self._start_worker(index))

    def _start_worker(self, index: int) -> None:
        if index >= self.scale or index in self.workers:
            return
        self._incarnations += 1
        name = f"w{index}.{self._incarnations}"
        lag = self.rng.choice([0.0, 0.1, 2.0])
        own = random.Random(self.rng.random())
        delay = 0.0 if self.peace else self.rng.choice([0.0, 0.1, 4.0])
        # a session feels its way to larger batches, and worlds are short: most begin with whole ones
        first, patience = self.rng.choice([1, 4, 4]), self.rng.choice([0.3, 0.5, 2.0])
        settings = replace(SETTINGS, first_batch=first, drain_deadline=patience)

        def body(process: Process) -> None:
            cluster = self.stage.broker.cluster(client_id=name)
            replica = worker.replica = self._replica(
                cluster,
                topic="source",
                group="g",
                claims_group="g.claims",
                index=index,
                epoch_source=lambda: self._epoch_seen(lag),
                chain=chain(self.clock, own, None if self.exactly_once else cluster.producer()),
                clock=self.clock,
                settings=settings,
                outputs=self.stage.written,
            )
            while not process.stopping:
                replica.step(0.2)
                self.clock.sleep(0.002)
            complete = replica.close(Deadline.after(self.clock, 5))
            self.tell(f"closed, {'complete' if complete else 'incomplete'}")

        worker = self.workers[index] = Worker(index, self.scheduler.start(name, body, after=delay))

    def _epoch_seen(self, lag: float) -> Epoch | None:
        """What the mounted file shows: the truth of a moment ago."""
        history = self.stage.epochs.history
        while len(self._published) < len(history):
            self._published.append((self.clock.monotonic(), history[len(self._published)]))
        visible = [epoch for when, epoch in self._published if when + lag <= self.clock.monotonic()]
        return visible[-1] if visible else None

    def _set_scale(self, replicas: int) -> None:
        self.tell(f"{replicas} workers are run")
        self.scale = replicas
        for index in range(replicas):
            self._start_worker(index)
        for index in [i for i in self.workers if i >= replicas]:
            worker = self.workers[index]
            worker.process.stopping = True
            self._kill_later(worker.process, 8.0)

    def _ended(self, process: Process) -> None:
        if process.error is not None:
            self.tell(f"{process.name} ended with {type(process.error).__name__}: {process.error}")
        if process.error is not None and not isinstance(process.error, (Fenced, Superseded)):
            self.failure = self.failure or process.error  # type: ignore[assignment]
        for index, worker in list(self.workers.items()):
            if worker.process is process:
                del self.workers[index]
                self._start_worker_later(index, self.rng.uniform(0.1, 2))
        if process in self.planes:
            number = self.planes.index(process)
            self.scheduler.call(self.rng.uniform(0.1, 3), lambda: self._start_plane(number))

    # control planes

    def _start_plane(self, number: int) -> None:
        def body(_: Process) -> None:
            plane = self.stage.plane(process.name)
            while True:
                try:
                    done = plane.reconcile(self.desired, self._fleet())
                except (TimedOut, BrokerUnreachable) as error:
                    self.tell(f"reconcile: {error.what}")
                else:
                    for event in done.events:
                        self.tell(f"{event}")
                    if isinstance(done.step, Scale) and done.step.replicas != self.scale:
                        self._set_scale(done.step.replicas)
                    self.settled = isinstance(done.step, Settled) and not done.events
                self.clock.sleep(self.rng.uniform(0.2, 1.0))

        process = self.scheduler.start(f"op{number}", body)
        if number < len(self.planes):
            self.planes[number] = process
        else:
            self.planes.append(process)

    def _fleet(self) -> Fleet:
        ready = {i for i, w in self.workers.items() if w.replica is not None and w.replica.snapshot().ready}
        return Fleet(self.scale, frozenset(self.workers), frozenset(ready), frozenset(self.overdue))

    # the end

    def _finished(self) -> bool:
        stage, newest = self.stage, self.stage.epochs.newest()
        if newest is None or not self.settled or newest.partitions != len(stage.source.logs):
            return False
        return (
            not stage.open()
            and stage.offsets() == stage.ends() == stage.offsets(GROUP)
            and newest.replicas == self.desired == self.scale
            and stage.holders() == {p: newest.owner(p) for p in range(newest.partitions)}
        )

    def _situation(self) -> str:
        snapshots = {w.process.name: w.replica.snapshot() for w in self.workers.values() if w.replica}
        return (
            f"open {self.stage.open()}, claims {self.stage.offsets()} of {self.stage.ends()}, holders {self.stage.holders()}, "
            f"epoch {self.stage.epochs.newest()}, wanted {self.desired}, run {self.scale}, {snapshots}"
        )


def _holder(metadata: str | None) -> str:
    """What a claim's metadata say that changes, or all of a note beside the mirror's offset."""
    return metadata[max(metadata.find('"epoch"'), 0) :].rstrip("}") if metadata else ""


SETTINGS = ReplicaSettings(
    commit_interval=0.5,
    commit_messages=20,
    idle_commit=6.0,
    claim_check=3.0,
    claim_wait=0.2,
    drain_deadline=2.0,
    batch_size=4,
    max_in_flight=30,
)
