"""The partitions whose claims are ours: held by the engine, being drained (leaving), or drained of it (parting).

A partition is ours from the moment its claim is read until a commit is confirmed that passes it on. In between the plan
may take it away and give it back any number of times.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from millrace.clock import Clock, Deadline
from millrace.engine.engine import Engine
from millrace.engine.settings import ReplicaSettings


class Holdings:
    """What we hold, and what we know to be committed of it."""

    def __init__(self, engine: Engine, clock: Clock, settings: ReplicaSettings) -> None:
        self._engine, self._clock, self._settings = engine, clock, settings
        self.committed: dict[int, int] = {}  # all that are ours, each with the offset known to be committed
        self._written: dict[int, float] = {}  # when
        self._leaving: dict[int, Deadline] = {}
        self._parting: dict[int, int] = {}  # the engine holds these no longer; to be passed on at this offset

    @property
    def leaving(self) -> frozenset[int]:
        """All that are on their way to another."""
        return frozenset(self._leaving) | frozenset(self._parting)

    def take_up(self, partition: int, offset: int, *, planned: bool) -> None:
        """Its claim names us. Work on it if that is planned; else it is only to be passed on."""
        self.committed[partition] = offset
        self._written[partition] = self._clock.monotonic()
        if planned:
            self._engine.hold({partition: offset})
        else:
            self._parting[partition] = offset

    def plan(self, planned: Set[int]) -> None:
        """A newer epoch gives us these: begin to drain all others."""
        leaving = set(self._engine.held()) - planned - self._leaving.keys()
        if leaving:
            self._engine.drain(leaving)
            for partition in leaving:
                self._leaving[partition] = Deadline.after(self._clock, self._settings.drain_deadline)

    def overdue(self) -> set[int]:
        """Those whose drain is over its deadline."""
        return {
            p for p, deadline in self._leaving.items() if deadline.expired() and not self._engine.drained(p)
        }

    def abandon(self, partitions: Set[int]) -> None:
        """Give their drains up: the last complete offset is what will be passed on."""
        self._parting.update(self._engine.abandon(partitions))
        for partition in partitions:
            del self._leaving[partition]

    def keep(self, planned: Set[int]) -> None:
        """Go on with what was given back to us meanwhile, as soon as it is drained."""
        for partition in planned & self._leaving.keys():
            if self._engine.drained(partition):
                del self._leaving[partition]
                self._engine.hold({partition: self._engine.release(partition)})
        for partition in planned & self._parting.keys():
            self._engine.hold({partition: self._parting.pop(partition)})

    def passable(self) -> bool:
        """Whether there is something that can be passed on now."""
        return bool(self._parting) or any(self._engine.drained(p) for p in self._leaving)

    def draining(self) -> bool:
        """Whether there is something that can't be passed on yet."""
        return any(not self._engine.drained(p) for p in self._leaving)

    def positions(self) -> dict[int, int]:
        return dict(self._engine.positions())

    def progress(self, also: Set[int] = frozenset()) -> dict[int, int]:
        """Positions to be committed: of what has moved, of what has not been written for long (R3g), and of these."""
        idle = self._clock.monotonic() - self._settings.idle_commit
        return {
            partition: position
            for partition, position in self._engine.positions().items()
            if position > self.committed[partition] or self._written[partition] <= idle or partition in also
        }

    def passing(self, *, closing: bool) -> dict[int, int]:
        """Offsets at which partitions are passed on by the next commit; closing: also those not drained."""
        positions = self._engine.positions()
        drained = {p: positions[p] for p in self._leaving if closing or self._engine.drained(p)}
        return self._parting | drained

    def confirm(self, staying: Mapping[int, int], passed: Mapping[int, int]) -> None:
        """These were committed, and those passed on: they are ours no longer."""
        now = self._clock.monotonic()
        for partition, position in staying.items():
            self.committed[partition] = position
            self._written[partition] = now
        for partition in passed:
            if self._leaving.pop(partition, None) is not None:
                self._engine.abandon({partition})  # drained, or we are closing
            self._parting.pop(partition, None)
            del self.committed[partition], self._written[partition]
