"""A stage set for replicas: an in-memory broker, an epoch, a control plane, and chains that copy source to output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from millrace.clock import Clock
from millrace.connectivity.memory import MemoryBroker
from millrace.connectivity.ports import OffsetAndMetadata, Producer
from millrace.engine.batch import Batch
from millrace.engine.outbox import Outbox
from millrace.engine.replica import Replica
from millrace.engine.session import ChainFactory, OnComplete
from millrace.engine.settings import ReplicaSettings
from millrace.engine.stats import StageStats
from millrace.engine.strategy import Strategy
from millrace.ownership.claim import Claim
from millrace.ownership.control_plane import ControlPlane, StartFrom
from millrace.ownership.epoch import Epoch
from millrace.ownership.epoch_store import EpochStore, MemoryEpochs
from millrace.strategies import Commit, Inline, Outcome, Produce, produce_in_transaction

SOURCE, OUTPUT, GROUP, CLAIMS = "source", "output", "g", "g.claims"

Seen = Callable[[int, int], None]
"""Told of each message that a stage function sees: partition, offset."""


def valued(batch: Batch) -> Batch:
    """With values that say where each message came from."""
    return replace(
        batch, values=[b"%d:%d" % (record.partition(), record.offset()) for record in batch.records]
    )


def copying(clock: Clock, seen: Seen, plain: Producer | None = None, *, output: str = OUTPUT) -> ChainFactory:
    """A chain that writes each value to `output`, as where it came from: in the transaction, or by `plain`."""

    def work(batch: Batch) -> Outcome:
        for record in batch.records:
            seen(record.partition(), record.offset())
        return Outcome(valued(batch))

    def make(outbox: Outbox, on_complete: OnComplete) -> Strategy:
        chain: Strategy = Commit(on_complete, outbox)
        if plain is None:
            chain = produce_in_transaction(chain, outbox, output, "copy", StageStats(), clock)
        else:
            chain = Produce(chain, plain, output, "copy", StageStats(), clock)
        return Inline(chain, work, None, clock)

    return make


class Stage:
    """A broker with a source of `messages` messages per partition and an empty output."""

    def __init__(self, clock: Clock, *, partitions: int, messages: int, marker_delay: float = 0.0) -> None:
        self.clock = clock
        self.broker = MemoryBroker(clock, marker_delay=marker_delay)
        self.source = self.broker.create_topic(SOURCE, partitions)
        self.broker.create_topic(OUTPUT, 3)
        self.written = [OUTPUT]
        for partition in range(partitions):
            self.produce(partition, messages)
        self.epochs = MemoryEpochs()

    def produce(self, partition: int, messages: int) -> None:
        self.broker.append(SOURCE, partition, [b"x"] * messages, key=b"%d" % partition)

    def plane(
        self,
        name: str = "op",
        *,
        uid: str = "u",
        start_from: StartFrom = "Earliest",
        store: EpochStore | None = None,
    ) -> ControlPlane:
        return ControlPlane(
            self.broker.cluster(client_id=name),
            store or self.epochs,
            self.clock,
            uid=uid,
            topic=SOURCE,
            group=GROUP,
            claims_group=CLAIMS,
            start_from=start_from,
            outputs=self.written,
            timeout=15.0,
        )

    def replica(
        self,
        index: int,
        *,
        name: str | None = None,
        seen: Seen = lambda _p, _o: None,
        epochs: Callable[[], Epoch | None] | None = None,
        chain: ChainFactory | None = None,
        settings: ReplicaSettings | None = None,
        exactly_once: bool = True,
    ) -> Replica:
        cluster = self.broker.cluster(client_id=name or f"worker-{index}")
        plain = None if exactly_once else cluster.producer()
        return Replica(
            cluster,
            topic=SOURCE,
            group=GROUP,
            claims_group=CLAIMS,
            index=index,
            epoch_source=epochs or self.epochs.newest,
            chain=chain or copying(self.clock, seen, plain),
            clock=self.clock,
            settings=settings or ReplicaSettings(),
            outputs=self.written,
        )

    # what is there

    def open(self) -> list[tuple[str, int]]:
        """Partitions of outputs in which something is open, or has to be restored."""
        logs = [(topic, log) for topic in self.written for log in self.broker.topic(topic).logs]
        found = [(topic, log.stable_end) for topic, log in logs if log.stable_end < log.end]
        for topic in self.written:
            partitions = range(len(self.broker.topic(topic).logs))
            for index in range(8):
                noted = self.broker.groups.read(f"{CLAIMS}.{index}", topic, partitions, stable=False)
                found += [(topic, record.offset) for record in noted.values() if record.metadata]
        return found

    def records(self, group: str = CLAIMS) -> dict[int, OffsetAndMetadata]:
        return self.broker.groups.read(group, SOURCE, range(len(self.source.logs)), stable=False)

    def claims(self) -> dict[int, Claim]:
        found = {p: Claim.decode(record.metadata) for p, record in self.records().items()}
        return {p: claim for p, claim in found.items() if claim}

    def holders(self) -> dict[int, int]:
        return {p: claim.holder for p, claim in self.claims().items()}

    def offsets(self, group: str = CLAIMS) -> dict[int, int]:
        return {p: record.offset for p, record in self.records(group).items()}

    def ends(self) -> dict[int, int]:
        return {p: log.end for p, log in enumerate(self.source.logs)}

    def outputs(self) -> list[bytes]:
        """What a read_committed reader of the output has, sorted."""
        return sorted(record.value() or b"" for record in self.broker.records(OUTPUT))

    def expected(self) -> list[bytes]:
        return sorted(
            b"%d:%d" % (record.partition(), record.offset()) for record in self.broker.records(SOURCE)
        )
