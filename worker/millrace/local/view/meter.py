"""Totals and rates of a whole run, from the counters of workers that come and go.

A worker counts from zero when it is started again; what its predecessor counted last is kept, so totals never go
back. Rates are those of a sliding window, which is calm to look at and exact over its length.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from millrace.local.view.snapshot import StageSnapshot
from millrace.worker.status import StageStatus, WorkerStatus

WINDOW = 5.0  # seconds


class Rate:
    """Growth per second of a total over the last `window` seconds."""

    def __init__(self, window: float = WINDOW) -> None:
        self._window = window
        self._samples: deque[tuple[float, float]] = deque()

    def add(self, now: float, total: float) -> float:
        """The rate with this sample; 0 until there are two."""
        self._samples.append((now, total))
        while len(self._samples) > 2 and self._samples[1][0] <= now - self._window:
            self._samples.popleft()
        (since, before), (until, after) = self._samples[0], self._samples[-1]
        return max(0.0, (after - before) / (until - since)) if until > since else 0.0


class Meter:
    """Sums up the stages of all workers."""

    def __init__(self) -> None:
        self._last: dict[int, WorkerStatus] = {}
        self._gone: dict[str, StageStatus] = {}  # what workers counted that are no more
        self._gone_messages = 0
        self._rates: dict[str, Rate] = {}
        self._held: dict[str, Rate] = {}
        self._rate = Rate()
        self.rate = 0.0
        self.messages = 0
        self.stages: tuple[StageSnapshot, ...] = ()

    def update(self, now: float, statuses: Iterable[WorkerStatus]) -> None:
        """Take the latest statuses, at `now` on the monotonic clock."""
        for status in statuses:
            former = self._last.get(status.index)
            if former is not None and former.pid != status.pid:
                self._gone_messages += former.messages
                for stage in former.stages:
                    self._gone[stage.name] = _sum(self._gone.get(stage.name), stage)
            self._last[status.index] = status
        totals = dict(self._gone)
        for status in self._last.values():
            for stage in status.stages:
                totals[stage.name] = _sum(totals.get(stage.name), stage)
        self.messages = self._gone_messages + sum(status.messages for status in self._last.values())
        self.rate = self._rate.add(now, self.messages)
        order = max((status.stages for status in self._last.values()), key=len, default=())
        self.stages = tuple(self._stage(now, totals[stage.name]) for stage in order if stage.kind)

    def _stage(self, now: float, total: StageStatus) -> StageSnapshot:
        rate = self._rates.setdefault(total.name, Rate()).add(now, total.received)
        held = self._held.setdefault(total.name, Rate()).add(now, total.held_back) / max(1, len(self._last))
        in_flight = sum(
            stage.in_flight
            for status in self._last.values()
            for stage in status.stages
            if stage.name == total.name
        )
        return StageSnapshot(
            total.name,
            total.kind,
            rate,
            total.received,
            total.emitted,
            total.dead,
            total.seconds,
            total.late,
            round(min(1.0, held), 3),
            in_flight,
        )


def _sum(one: StageStatus | None, other: StageStatus) -> StageStatus:
    if one is None:
        return other
    return StageStatus(
        one.name,
        one.kind,
        one.received + other.received,
        one.emitted + other.emitted,
        one.dead + other.dead,
        one.seconds + other.seconds,
        one.late + other.late,
        one.batches + other.batches,
        one.rejected + other.rejected,
        one.held_back + other.held_back,
    )
