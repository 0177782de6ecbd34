"""What a state of the model is, and what is fixed for a run of it.

The model is explicit-state: a state is a tuple, `steps` gives every state that may come next, and `search` visits them
all. It is of the protocol (docs/protocol.md), not of the code: workers, pods, a control plane, one broker with its
transactions and late requests, and the faults of all of them. A configuration fixes bounds, faults, and which rules are
followed, so that the protocol and each single mistake are runs of the same model.

Who is who. Workers have index 0..K-1. K stands for OP, the control plane as a holder and as a writer. A process is named
by a number: i is the process in pod i, K+i a zombie of index i (its pod object is gone, it lives on), 2K+k the k-th
instance of the control plane.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from millrace.ownership.plan import plan


class Record(NamedTuple):
    """A committed offset of the claims' group. epoch and holder are None where something else than a claim was written."""

    offset: int
    epoch: int | None
    holder: int | None


class Held(NamedTuple):
    """A worker has this partition: `base` is what it knows is committed, `position` what is processed."""

    base: int
    position: int
    passing: bool = False  # its pass is under way


class Read(NamedTuple):
    """A worker has read this record, and not acted on it yet."""

    record: Record | None


class Request(NamedTuple):
    """A commit under way: a claim of a partition. ended: EndTxn was accepted."""

    partition: int
    record: Record
    ended: bool


class Process(NamedTuple):
    """A worker's process. `partitions`: what it has of each, None for nothing. `stash`: an old read not looked at yet."""

    initialised: bool
    view: int  # place of the newest epoch it knows
    partitions: tuple[Held | Read | None, ...]
    request: Request | None = None
    stash: tuple[int, Record] | None = None


class Transaction(NamedTuple):
    """What a transactional id has under way. first: first message whose output is in it (ExactlyOnce)."""

    process: int
    partition: int
    record: Record
    first: int | None
    prepared: bool


class LateWrite(NamedTuple):
    """A plain commit that is still under way after its sender has given up on it."""

    partition: int
    record: Record


class LateEnd(NamedTuple):
    """An EndTxn(commit) that is still under way."""

    identity: int


class Acting(NamedTuple):
    """The control plane at work as a holder: fenced it, then has read `record`, then has sent its write."""

    stage: str  # "reading" | "read" | "written" | "read too early"
    holder: int
    why: str  # "pass" | "seed"
    partition: int = -1
    record: Record | None = None


class State(NamedTuple):
    """One state. Tuples are by index of worker, by partition, or by transactional id (workers, then OP)."""

    published: int  # place of the newest published epoch; 0: nothing yet
    scale: int  # StatefulSet.spec.replicas
    pods: tuple[bool, ...]
    crash_looping: tuple[bool, ...]
    records: tuple[Record | None, ...]
    done: tuple[tuple[int, ...], ...]  # per partition and message: times its effect is durable, at most 2
    ends: tuple[int, ...]  # log ends
    seeded: tuple[bool, ...]
    processes: tuple[Process | None, ...]
    zombies: tuple[Process | None, ...]
    current: tuple[int, ...]  # per id: the process whose producer is not fenced
    transactions: tuple[Transaction | None, ...]
    late: tuple[LateWrite | LateEnd, ...]
    planes: tuple[Acting | None, ...]
    budget: tuple[int, ...]  # what is left of each fault


FAULTS = (
    "crash",
    "node lost",
    "zombie restarts",
    "crash loop",
    "late",
    "stray",
    "expire",
    "plane crash",
    "wrongly gone",
    "fork",
    "stale read",
)


@dataclass(frozen=True)
class Config:
    """A run. The values here are the protocol; what a bug changes is named beside it."""

    epochs: tuple[tuple[int, int], ...] = ((1, 1), (1, 2), (1, 1))  # (P, N), published in this order
    messages: int = 2  # per partition
    produced_late: int = 0  # of these, while everything runs
    planes: int = 1
    faults: dict[str, int] = field(default_factory=dict)
    fenced: bool = True  # False: plain commits
    exactly_once: bool = False
    start: str = "Earliest"  # | "Latest"
    workers_seed: bool = False  # the planned owner, in its own view, seeds what has no claim
    seed_first: bool = True  # such a worker writes the seed before it fetches
    stable_reads: bool = True
    init_first: bool = True  # a worker initialises its producer before it reads
    plane_order: str = "fence, read, write"  # | "read, fence, write"
    plane_writes: str = "fenced"  # | "plain"
    unknown: str = "drop everything"  # | "retry": an unknown outcome is taken for a failure
    wait_for_epoch: bool = True  # a claim of an epoch newer than my view is left alone
    prefetch: bool = False  # a read from before the own pass may be used after it
    deadline: bool = True  # a claim that names an unresponsive worker does not hold up a shrink
    keep_passing: bool = True  # the control plane goes on passing claims of the gone after a shrink
    compare_and_set: bool = True
    fork: tuple[int, int] | None = None  # without it: this epoch is overwritten by that one
    numbers: tuple[int, ...] | None = None  # of the epochs, where they don't count up

    @cached_property
    def published(self) -> tuple[tuple[int, int], ...]:
        return ((0, 0), *self.epochs)

    @cached_property
    def workers(self) -> int:
        return max(n for _, n in self.epochs)

    @cached_property
    def op(self) -> int:
        return self.workers

    @cached_property
    def partitions(self) -> int:
        return max(p for p, _ in self.epochs)

    def number(self, epoch: int) -> int:
        return self.numbers[epoch] if self.numbers else epoch

    def owner(self, epoch: int, partition: int) -> int:
        """By the real plan; OP if there are no replicas. A partition that is alone, which the real plan would never
        move, belongs to the newest replica here, so that small models have something to pass.
        """
        replicas = self.published[epoch][1]
        if replicas == 0:
            return self.op
        return replicas - 1 if self.partitions == 1 else plan(self.partitions, replicas)[partition]

    def __hash__(self) -> int:
        return id(self)


def initial(c: Config) -> State:
    """Nothing runs, nothing is published."""
    k, p = c.workers, c.partitions
    return State(
        published=0,
        scale=0,
        pods=(False,) * k,
        crash_looping=(False,) * k,
        records=(None,) * p,
        done=((0,) * c.messages,) * p,
        ends=(c.messages - c.produced_late,) * p,
        seeded=(False,) * p,
        processes=(None,) * k,
        zombies=(None,) * k,
        current=(-1,) * (k + 1),
        transactions=(None,) * (k + 1),
        late=(),
        planes=(None,) * c.planes,
        budget=tuple(c.faults.get(fault, 0) for fault in FAULTS),
    )


def put(items: tuple, index: int, item: object) -> tuple:
    """A copy with one item replaced."""
    return (*items[:index], item, *items[index + 1 :])


def spend(s: State, fault: str) -> State | None:
    """The state with one less of this fault to come; None if there is none left."""
    index = FAULTS.index(fault)
    left = s.budget[index]
    return s._replace(budget=put(s.budget, index, left - 1)) if left else None
