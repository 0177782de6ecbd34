"""Breadth-first search over the model: shortest counter-examples, and liveness by backward reachability."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from model import broker, control, pods, worker
from model.broker import Step, lost
from model.state import Config, Held, State, initial

EVERY = ("LOSS", "BACK", "TWO", "DOUBLE", "STUCK")
"""LOSS: a claim covers a message that was not processed. BACK: a claim moved back. TWO: two holders may both commit.
DOUBLE: an output is there twice (ExactlyOnce). STUCK: a partition never again comes to its planned owner.
"""


def steps(c: Config, s: State) -> Iterator[Step]:
    """Everything that may happen next."""
    yield from broker.steps(c, s)
    yield from pods.steps(c, s)
    yield from worker.steps(c, s)
    yield from control.steps(c, s)


@dataclass
class Explored:
    """What was found: for each violation how it comes about; whether every state was visited."""

    found: dict[str, list[str]] = field(default_factory=dict)
    states: int = 0
    complete: bool = False


def explore(
    c: Config, want: tuple[str, ...] = EVERY, *, limit: int = 3_000_000, stop_at_first: bool = False
) -> Explored:
    """Visit the states that can be reached.

    STUCK is judged only when all were visited: a state from which, with no further fault and no further epoch, no state
    is reachable in which everything is as planned and which no normal step leaves for good. In a finite graph that is
    the same as: some strongly fair run without faults never settles.
    """
    first = initial(c)
    number, states = {first: 0}, [first]
    parent: list[tuple[int, str] | None] = [None]
    before: list[list[int]] = [[]]  # by normal steps
    result = Explored()
    at = 0
    while at < len(states) < limit:
        for label, kind, after, bad in steps(c, states[at]):
            index = number.get(after)
            violated = bad
            if index is None:
                index = number[after] = len(states)
                states.append(after)
                parent.append((at, label))
                before.append([])
                if two_holders(c, after):
                    violated = (*bad, "TWO")
            if kind == "normal":
                before[index].append(at)
            for violation in violated:
                if violation in want and violation not in result.found:
                    result.found[violation] = [*_trace(parent, at), label]
        at += 1
        if stop_at_first and result.found:
            break
    result.states, result.complete = len(states), at == len(states)
    if "STUCK" in want and result.complete:
        stuck = _stuck(c, states, before)
        if stuck is not None:
            result.found["STUCK"] = _trace(parent, stuck)
    return result


def _stuck(c: Config, states: list[State], before: list[list[int]]) -> int | None:
    good = [settled(c, s) for s in states]
    todo = [n for n, ok in enumerate(good) if not ok]
    while todo:  # settled states that a normal step leaves do not count
        for n in before[todo.pop()]:
            if good[n]:
                good[n] = False
                todo.append(n)
    todo = [n for n, ok in enumerate(good) if ok]
    while todo:
        for n in before[todo.pop()]:
            if not good[n]:
                good[n] = True
                todo.append(n)
    return next((n for n, ok in enumerate(good) if not ok), None)


def _trace(parent: list[tuple[int, str] | None], at: int) -> list[str]:
    labels = []
    while (step := parent[at]) is not None:
        at, label = step
        labels.append(label)
    return labels[::-1]


def two_holders(c: Config, s: State) -> bool:
    """Whether two processes have a partition and may both commit it (without the fence: two in living pods)."""
    for partition in range(c.partitions):
        holders = 0
        for i in range(c.workers):
            for process, pid in ((s.processes[i], i), (s.zombies[i], c.workers + i)):
                if process is None or (pid >= c.workers and not c.fenced):
                    continue
                have = process.partitions[partition]
                if isinstance(have, Held) and not have.passing and (not c.fenced or s.current[i] == pid):
                    holders += 1
        if holders > 1:
            return True
    return False


def settled(c: Config, s: State) -> bool:
    """Every partition of the newest epoch is held, unfenced, by its planned owner; or a claim is lost, and everything
    stands still until somebody decides (R6).
    """
    partitions, replicas = c.published[s.published]
    if any(lost(s.records[p]) for p in range(partitions)):
        return True
    for p in range(partitions if replicas else 0):
        owner = c.owner(s.published, p)
        if s.crash_looping[owner]:
            continue  # nothing helps but a working pod
        process, record = s.processes[owner], s.records[p]
        have = process.partitions[p] if process else None
        if not isinstance(have, Held) or have.passing or record is None or record.holder != owner:
            return False
        if c.fenced and s.current[owner] != owner:
            return False
    return True
