"""What a local run looks like at one moment: the only input of the live view, and the content of status.json."""

from __future__ import annotations

import msgspec

from millrace.worker.status import Failure


class PartitionSnapshot(msgspec.Struct, frozen=True, rename="camel"):
    """A source partition. `holder`: index named by its claim, -1 the operator, None unclaimed (not seeded yet).

    Attributes:
        position: the claimed (committed) offset.
        end: the end of the log for a read_committed reader.
        target: `--until-end`: the end when the run began.
        late: rows of it that were late since the pipeline began, by what is committed.
    """

    partition: int
    holder: int | None = None
    position: int | None = None
    end: int | None = None
    target: int | None = None
    late: int = 0

    @property
    def lag(self) -> int:
        if self.position is None or self.end is None:
            return 0
        return max(0, self.end - self.position)


class WorkerSnapshot(msgspec.Struct, frozen=True, rename="camel"):
    """A worker as its parent sees it. `state` also knows `restarting` and `stuck`, with the reason in `detail`."""

    index: int
    state: str
    detail: str = ""
    pid: int | None = None
    restarts: int = 0


class CollectorSnapshot(msgspec.Struct, frozen=True, rename="camel"):
    """The collector of a collect stage. `state`: waiting (for something to do) | starting | running | draining |
    restarting | finished | stopped.

    Attributes:
        attempts: how many were started, restarts among them.
        version: of the checkpoint.
        batch, seconds: the last batch, and how long it took.
        rate: rows of the channel per second, in its last batch that had any.
        rows, late: read since the run began (a batch that is repeated counts again), and groups dropped as late.
        open: groups whose window is not closed yet; state_bytes: their memory.
        watermark: event time up to which windows are closed, microseconds since the Unix epoch; None: not known yet.
        lag: offsets of the channel that are not read yet, those of transactions' ends among them; None: not known.
        http: HOST:PORT of its health and metrics; ui: address of Spark's own UI. "" if there is none.
    """

    name: str
    state: str
    pid: int | None = None
    restarts: int = 0
    rate: float = 0.0
    rows: int = 0
    late: int = 0
    open: int = 0
    watermark: int | None = None
    lag: int | None = None
    attempts: int = 0
    version: int | None = None
    batch: int | None = None
    seconds: float = 0.0
    state_bytes: int = 0
    http: str = ""
    ui: str = ""


HELD_BACK = 0.1  # share of the time from which on it is told


class StageSnapshot(msgspec.Struct, frozen=True, rename="camel"):
    """A stage over all workers since the run began.

    Attributes:
        rate: messages received per second, lately.
        held_back: share of the time, lately, for which it took no more and held back all before it; 1: always, everywhere.
        in_flight: source messages that it has and has not handed on.
    """

    name: str
    kind: str
    rate: float = 0.0
    received: int = 0
    emitted: int = 0
    dead: int = 0
    seconds: float = 0.0
    late: int = 0
    held_back: float = 0.0
    in_flight: int = 0


class Notice(msgspec.Struct, frozen=True, rename="camel"):
    """Something that happened. `at`: seconds since the run began; `level`: info | warning | error."""

    at: float
    text: str
    level: str = "info"


class RunSnapshot(msgspec.Struct, frozen=True, rename="camel"):
    """A local run at one moment.

    Attributes:
        state: starting | running | draining | finished | stopped | failed.
        phase: what it is busy with, a few words.
        started, updated: seconds since the Unix epoch.
        messages: source messages that workers took, repeats after a crash included.
        done, total: `--until-end`: offsets behind, and to go through, since this run began; total None: open end.
        late: rows that were late in this run; each counted once, whatever crashed. None: nothing is collected.
        eta: seconds to the end of the input, None if not known.
    """

    pipeline: str
    state: str
    started: float
    updated: float
    elapsed: float
    phase: str = ""
    manifest: str = ""
    kafka: str = ""
    embedded: bool = False
    delivery: str = ""
    replicas: int = 0
    epoch: int | None = None
    partitions: tuple[PartitionSnapshot, ...] = ()
    workers: tuple[WorkerSnapshot, ...] = ()
    stages: tuple[StageSnapshot, ...] = ()
    collector: CollectorSnapshot | None = None
    rate: float = 0.0
    messages: int = 0
    done: int = 0
    total: int | None = None
    late: int | None = None
    eta: float | None = None
    notices: tuple[Notice, ...] = ()
    error: Failure | None = None

    @property
    def lag(self) -> int:
        return sum(partition.lag for partition in self.partitions)

    @property
    def dead(self) -> int:
        return sum(stage.dead for stage in self.stages)

    @property
    def held_back_by(self) -> StageSnapshot | None:
        """The stage that holds back the others, if one does for a good part of the time."""
        slowest = max(self.stages, key=lambda stage: stage.held_back, default=None)
        return slowest if slowest is not None and slowest.held_back >= HELD_BACK else None

    @property
    def fraction(self) -> float | None:
        """How much of the input present at the start is done, 0 to 1; None without `--until-end`."""
        if self.total is None:
            return None
        return min(1.0, self.done / self.total) if self.total else 1.0


def encode(snapshot: RunSnapshot) -> bytes:
    return msgspec.json.encode(snapshot)


def decode(content: bytes) -> RunSnapshot:
    """Raises msgspec.DecodeError."""
    return msgspec.json.decode(content, type=RunSnapshot)
