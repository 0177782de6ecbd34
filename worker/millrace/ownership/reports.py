"""What the control plane tells of a pipeline: what it sees, what it did, and which step is next."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from millrace.ownership.control_rules import Identity, Records, Step
from millrace.ownership.epoch import Epoch
from millrace.ownership.epoch_store import Published


class Why(Enum):
    """What an offset was seeded from."""

    START_FROM = "what spec.source.startFrom says"
    GROUP = "the consumer group's own offset"
    BEGINNING = "partition added later: its beginning"
    ADOPTED = "the parked claim of an earlier pipeline"


@dataclass(frozen=True, slots=True)
class Seeded:
    """A partition got its first claim, or its first one under this uid."""

    partition: int
    offset: int
    holder: int
    why: Why


@dataclass(frozen=True, slots=True)
class Passed:
    """A claim was passed on behalf of a worker that is gone, or from OP."""

    partition: int
    offset: int
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class EpochPublished:
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Something was not done: another control plane acted as the same id, the outcome of a write is unknown, or the
    broker did not answer in time. Nothing is wrong; the next reconcile begins again.
    """

    reason: str


Event = Seeded | Passed | EpochPublished | Interrupted


@dataclass(frozen=True, slots=True)
class Observation:
    """What a look at the broker and the store gives. Not stable: good for status and for deciding what to try."""

    published: Published
    identity: Identity
    partitions: int
    claims: Records
    mirror: Records

    @property
    def epoch(self) -> Epoch:
        return self.published.epoch


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What a reconcile did, and the step that is next: its caller's if it is about workers."""

    epoch: Epoch
    step: Step
    events: tuple[Event, ...]
