"""Which stages are stuck: a call of theirs, the same in look after look, has been under way for too long. Pure.

An incident is a stage's. It begins with the first call that takes too long, is told of once, and ends when no call does any
more. So sixteen threads that wait for one dead server are one incident.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace

from millrace.engine.calls import Call

STUCK_AFTER = 60.0
"""s that a call may take, unless its stage has a longer timeout: far beyond what a message should cost, and well before the
worker itself counts as stuck (five minutes), so that the stack is in the log by then."""

ENDED_WITHIN = 2.0  # s after its timeout in which a stage ends a call by itself


@dataclass(frozen=True, slots=True)
class Incident:
    """Attributes:
    call: the one that is told of.
    seconds: for how long that has been under way, as far as was seen.
    calls: how many take too long.
    """

    call: Call
    seconds: float
    calls: int

    @property
    def stage(self) -> str:
        return self.call.stage


@dataclass(frozen=True, slots=True)
class Change:
    """What has begun and ended with a look."""

    begun: tuple[Incident, ...]
    ended: tuple[Incident, ...]


class Detector:
    """Told in each look what calls there are.

    Args:
        after: seconds that a call may take; one of a stage with a longer timeout has that, and ENDED_WITHIN.
    """

    def __init__(self, after: float = STUCK_AFTER) -> None:
        self._after = after
        self._since: dict[Hashable, float] = {}  # by the mark of a call, when it was first seen
        self._looked: float | None = None
        self._incidents: dict[str, Incident] = {}  # by stage

    @property
    def incidents(self) -> Mapping[str, Incident]:
        """Those that have not ended."""
        return self._incidents

    def look(self, now: float, calls: Iterable[Call]) -> Change:
        """Take what there is at `now`, in seconds on a monotonic clock."""
        if self._looked is not None and now - self._looked > self._after / 2:
            self._since = {}  # all of the process stood still (SIGSTOP, a laptop asleep): that tells nothing of a stage
        self._looked = now
        before, since, late = self._since, dict[Hashable, float](), dict[str, list[tuple[float, Call]]]()
        for call in calls:
            begun = since[call.mark] = before.get(call.mark, now)
            if now - begun >= self._bound(call):
                late.setdefault(call.stage, []).append((begun, call))
        former, self._since = self._incidents, since
        self._incidents = {
            stage: self._incident(now, found, former.get(stage)) for stage, found in late.items()
        }
        fresh = tuple(one for stage, one in self._incidents.items() if stage not in former)
        ended = tuple(one for stage, one in former.items() if stage not in self._incidents)
        return Change(fresh, ended)

    def _bound(self, call: Call) -> float:
        return max(self._after, call.allowed + ENDED_WITHIN) if call.allowed else self._after

    def _incident(self, now: float, late: list[tuple[float, Call]], former: Incident | None) -> Incident:
        for begun, call in late:
            if former is not None and call.mark == former.call.mark:
                return replace(former, seconds=now - begun, calls=len(late))
        # Of coroutines the one that holds the event loop is to blame; the others wait for it.
        begun, call = min(late, key=lambda one: (not one[1].holding, one[0]))
        return Incident(call, now - begun, len(late))
