"""What a collector computes, as plain data: the manifest's `collect`, less all that is not about the query."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

EVENT_TIME = "__event_time"
"""The column with a row's event time while a query is built."""
ROW = "__row"
"""The column with a row's JSON."""


class Window(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Event-time windows: `size` and `slide` seconds (tumbling without a slide) on the column `time`. A row may come
    up to `lateness` seconds of event time behind the latest of its own partition. `size` None: a function makes them.

    The moments below are of event time, microseconds since the epoch. Windows begin at multiples of the slide.
    """

    size: float | None = None
    time: str
    lateness: float
    slide: float | None = None

    @property
    def late_after(self) -> int:
        """The lateness in microseconds."""
        return _micros(self.lateness)

    @property
    def step(self) -> int:
        """Microseconds from the end of a window to that of the next. Of a function's windows nothing is known: it is a
        time that matters little where rows may be so late, a second to a minute.
        """
        if self.size is None:
            return min(max(self.late_after // 100, 1_000_000), 60_000_000)
        return _micros(self.slide or self.size)

    @property
    def open_for(self) -> int:
        """Microseconds from the beginning of a window to its end; 0: only a function knows."""
        return _micros(self.size or 0)

    def end_by(self, moment: int) -> int:
        """The latest moment, not after this one, at which a window ends: the same windows end by either."""
        beyond = self.open_for % self.step
        return (moment - beyond) // self.step * self.step + beyond

    def last_end(self, moment: int) -> int:
        """When the last window ends that rows of this moment, or older ones, are in."""
        return moment // self.step * self.step + self.open_for


class Query(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """
    Attributes:
        schema: of the channel's rows, Spark DDL (`carrier string, scheduled timestamp, delay double`).
        window: None: there is no event time, which only a function can do without.
        aggregate: name of an output column -> Spark SQL aggregate (`count(*)`).
        function: `module:name`, instead of groups and aggregates.
        interval: seconds between the starts of batches.
        conf: Spark settings of the user.
    """

    schema: str
    group_by: tuple[str, ...] = ()
    window: Window | None = None
    aggregate: Mapping[str, str] = {}
    function: str | None = None
    interval: float = 10.0
    conf: Mapping[str, str] = {}

    def fingerprint(self) -> str:
        """Differs for two queries that can't go on from one another's state."""
        stateful = [self.schema, self.group_by, self.window, sorted(self.aggregate.items())]
        if self.function is not None:  # what it does is not seen here
            stateful.append(self.function)
        return hashlib.sha256(msgspec.json.encode(stateful)).hexdigest()[:16]


def _micros(seconds: float) -> int:
    return round(seconds * 1_000_000)
