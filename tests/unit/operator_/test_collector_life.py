"""One attempt at a time, under crashes of the operator between any two writes and what it sees being old: the decisions
alone, in a world of records and pods.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_operator.collector.attempts import Attempt, Record, as_status, recorded
from millrace_operator.collector.drivers import Driver, Executor
from millrace_operator.collector.life import Decision, Phase, Wanted, decide
from millrace_operator.outcome import Deletion

pytestmark = pytest.mark.unit

START = 1_700_000_000.0


@dataclass
class World:
    """An API server with the record and the pods, kubelets, and an operator that may see an old record."""

    now: float = START
    records: list[Record] = field(default_factory=lambda: [Record()])
    pods: dict[str, Driver] = field(default_factory=dict)
    executors: dict[str, Executor] = field(default_factory=dict)
    wanted: Wanted | None = field(default_factory=lambda: Wanted("a", 1))
    may_begin: bool = True
    made: int = 0
    count: int = 0
    phase: Phase = Phase.NONE

    @property
    def record(self) -> Record:
        return self.records[-1]

    def alive(self) -> list[Driver]:
        return [pod for pod in self.pods.values() if not pod.over]

    def step(self, parts: int = 100, age: int = 0) -> Decision:
        """Decide by a record that is `age` writes old, and carry out at most so many parts of it."""
        seen = self.records[max(0, len(self.records) - 1 - age)]
        decision = decide(
            recorded({"collector": as_status(seen)}),
            list(self.pods.values()),
            list(self.executors.values()),
            self.wanted,
            may_begin=self.may_begin,
            now=self.now,
        )
        parts_of_it: list[object] = [decision.create] if decision.create else []
        parts_of_it += [*decision.deletions]
        if decision.record != seen:
            parts_of_it.append((seen, decision.record))
        for part in parts_of_it[:parts]:
            match part:
                case Attempt():
                    self._create(part)
                case Deletion():
                    self._delete(part)
                case (before, after):
                    if before == self.record:  # else the API server refuses: it is another version
                        assert isinstance(after, Record)
                        self.records.append(after)
        self.phase = decision.phase
        return decision

    def _create(self, attempt: Attempt) -> None:
        name = f"p.s.{attempt.number}"
        if name in self.pods:
            return
        others = [pod.name for pod in self.alive()]
        executors = [one.name for one in self.executors.values() if not one.over]
        assert not others, f"{name} beside {others}"
        assert not executors, f"{name} beside {executors}"
        assert attempt.number in {one.number for record in self.records for one in record.attempts}
        self.count += 1
        self.pods[name] = Driver(
            name, attempt.number, f"uid-{self.count}", attempt.digest, "2023-11-14T22:13:20Z", ready=True
        )

    def _delete(self, deletion: Deletion) -> None:
        pod = self.pods.get(deletion.name)
        if pod is not None and pod.uid == deletion.uid:
            self.pods[deletion.name] = replace(pod, ending=True)
        executor = self.executors.get(deletion.name)
        if executor is not None and executor.uid == deletion.uid:
            self.executors[deletion.name] = replace(executor, ending=True)

    def end(self, outcome: str) -> None:
        for pod in self.alive():
            self.pods[pod.name] = replace(pod, over=True, ready=False, outcome=outcome)

    def kubelet(self) -> None:
        for name in [name for name, pod in self.pods.items() if pod.ending]:
            del self.pods[name]
        there = {pod.uid for pod in self.pods.values()}
        for name, one in list(self.executors.items()):
            if one.ending or one.driver not in there:
                del self.executors[name]

    def move(self, what: str, value: int) -> None:
        match what:
            case "step":
                self.step(parts=value)
            case "stale":
                self.step(age=value)
            case "end":
                self.end(("Succeeded", "Failed", "Killed", "DataRefused")[value % 4])
            case "force":
                self.pods = {name: pod for name, pod in self.pods.items() if pod.over}
            case "executor":
                for pod in self.alive():
                    self.count += 1
                    self.executors[f"e-{self.count}"] = Executor(
                        f"e-{self.count}", f"uid-{self.count}", pod.uid
                    )
            case "want":
                self.wanted = (None, Wanted("a", value), Wanted("b", value), Wanted("", value))[value % 4]
            case "block":
                self.may_begin = value % 2 == 0
            case "wipe":
                self.records.append(Record())
            case "kubelet":
                self.kubelet()
            case "time":
                self.now += 10.0 ** (value % 5)


MOVES = st.lists(
    st.tuples(
        st.sampled_from(
            ["step"] * 6
            + ["kubelet"] * 2
            + ["stale", "end", "force", "executor", "want", "block", "wipe", "time"]
        ),
        st.integers(0, 7),
    ),
    max_size=40,
)


@settings(max_examples=400, deadline=None)
@given(MOVES)
def test_no_driver_is_made_beside_another_or_unrecorded_and_in_the_end_there_is_one(
    moves: list[tuple[str, int]],
) -> None:
    world = World()
    for what, value in moves:
        world.move(what, value)  # which asserts at each driver that is made
    world.wanted, world.may_begin = Wanted("c", 99), True
    for _ in range(40):
        world.step()
        world.kubelet()
        world.now += 30.0

    assert world.phase is Phase.RUNNING
    assert [pod.number for pod in world.alive()] == [world.record.attempts[-1].number]
    assert not world.record.attempts[-1].ended
    before = len(world.records)
    decision = world.step()
    assert (decision.create, decision.deletions, len(world.records)) == (None, (), before)


@given(MOVES)
def test_numbers_of_attempts_rise_and_at_most_the_last_is_open(moves: list[tuple[str, int]]) -> None:
    world = World()
    for what, value in moves:
        if what == "wipe":
            continue
        world.move(what, value)
        numbers = [one.number for one in world.record.attempts]
        assert numbers == sorted(set(numbers))
        assert all(one.ended for one in world.record.attempts[:-1])


def test_nothing_runs_where_nothing_is_wanted() -> None:
    world = World(wanted=None)
    for _ in range(5):
        world.step()

    assert world.phase is Phase.NONE
    assert (world.pods, world.records) == ({}, [Record()])


def test_a_driver_is_asked_to_stop_once_and_then_waited_for() -> None:
    world = World()
    for _ in range(3):
        world.step()
    world.wanted = None
    [deletion] = world.step().deletions
    assert deletion.grace is None  # the pod's own
    assert world.step().deletions == ()
    assert world.phase is Phase.STOPPING
    world.kubelet()
    world.step()

    assert world.record.attempts[-1].outcome == "Stopped"
    assert world.step().phase is Phase.NONE
