"""What a worker says of itself: one snapshot, made by the worker's loop, read by everything else.

The same structure is the answer of `/status`, the content of the status file, the source of `/metrics` and of the
local run's live view. It is made at most a few times a second and never touched again, so a reader on another thread
needs no lock.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from millrace.errors import ExitCode, MillraceError

STARTING, WAITING, RUNNING, DRAINING, STOPPED, FAILED = (
    "starting",
    "waiting",
    "running",
    "draining",
    "stopped",
    "failed",
)


class StageStatus(msgspec.Struct, frozen=True, rename="camel"):
    """Totals since the process began.

    Attributes:
        kind: as in the manifest; `decode` for the source's format, "" for the writing of dead letters.
        seconds: time spent in the stage's own work.
        late: rows that a collect stage left out as late.
        rejected: how often it has begun to refuse batches because its pool or the producer's buffer was full.
        held_back: seconds for which it did.
        in_flight: source messages that it has, and has not handed on, now.
        latencies: batches by the seconds from their coming to their results, in the classes of engine.stats.LATENCIES; not
            added up, and empty where they are of no interest.
        latency: sum of these seconds.
    """

    name: str
    kind: str
    received: int = 0
    emitted: int = 0
    dead: int = 0
    seconds: float = 0.0
    late: int = 0
    batches: int = 0
    rejected: int = 0
    held_back: float = 0.0
    in_flight: int = 0
    latencies: tuple[int, ...] = ()
    latency: float = 0.0


class StuckStage(msgspec.Struct, frozen=True, rename="camel"):
    """A stage with calls that have been under way for longer than they should; the first of them is told of.

    Attributes:
        partition, first, last: source messages that it is about, by their offsets.
        seconds: for how long it has been under way, at least.
        calls: how many there are.
    """

    stage: str
    partition: int
    first: int
    last: int
    seconds: float
    calls: int = 1

    @property
    def place(self) -> str:
        """Which messages, in words."""
        offsets = (
            f"offset {self.first}" if self.first == self.last else f"offsets {self.first} to {self.last}"
        )
        return f"partition {self.partition}, {offsets}"

    @property
    def words(self) -> str:
        """Why the worker does not get on, but for how long: words that change are written again and again."""
        return f"stage {self.stage} is stuck at {self.place}: the worker's log has its stack"


class Failure(msgspec.Struct, frozen=True, rename="camel"):
    """Why a worker ended, in the parts of a MillraceError; `code` is the exit code."""

    what: str
    where: str = ""
    remedy: str = ""
    code: int = ExitCode.FAILED

    @classmethod
    def of(cls, error: MillraceError) -> Failure:
        return cls(error.what, error.where, error.remedy, int(error.code))

    def error(self) -> MillraceError:
        return MillraceError(self.what, where=self.where, remedy=self.remedy, code=ExitCode(self.code))


class WorkerStatus(msgspec.Struct, frozen=True, rename="camel"):
    """A worker at one moment.

    Attributes:
        started, updated: seconds since the Unix epoch.
        state: starting | waiting (for what `reasons` says) | running | draining | stopped | failed.
        ready: the epoch is read, the producer initialised, the broker reached; holding a partition is no condition.
        positions: of each partition held, the offset up to which all is processed (committed, or to be so next).
        late_rows: of each partition held, rows that were late since the pipeline began; each counted once, whatever
            crashed. Committed, or to be so next, as positions are.
        messages: source messages taken since the process began.
        interruptions: how often it dropped everything and began again, as after a broker's restart.
        http: HOST:PORT of the health server, "" if there is none.
        stuck: stages that are; known also while the loop itself stands still, when all else here is as it was before.
    """

    index: int
    pid: int
    started: float
    updated: float
    state: str
    ready: bool = False
    reasons: tuple[str, ...] = ()
    epoch: int | None = None
    positions: dict[int, int] = {}
    late_rows: dict[int, int] = {}
    messages: int = 0
    interruptions: int = 0
    http: str = ""
    stages: tuple[StageStatus, ...] = ()
    error: Failure | None = None
    stuck: tuple[StuckStage, ...] = ()


def encode(status: WorkerStatus) -> bytes:
    return msgspec.json.encode(status)


def decode(content: bytes) -> WorkerStatus:
    """Raises msgspec.DecodeError (a ValueError) if it is not a worker's status."""
    return msgspec.json.decode(content, type=WorkerStatus, strict=False)


def read(path: Path) -> WorkerStatus | None:
    """The status in a file; None if there is none (yet), or none that can be read."""
    try:
        return decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
