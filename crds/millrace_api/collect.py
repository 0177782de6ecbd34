"""The collect stage: what the collector makes of the rows that the chain passes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import Field

from millrace_api.ddl import Column, parse_columns
from millrace_api.forms import ColumnName, Duration, FunctionRef
from millrace_api.model import Model
from millrace_api.sinks import Sink
from millrace_api.spark import Spark
from millrace_api.times import duration_seconds, exact_seconds

# The collector's own columns in its result.
RESULT_COLUMNS: Final = ("window", "window_start", "window_end")
LONGEST_WINDOW: Final = "87600h"  # ten years, for sizes and lateness
SHORTEST_WINDOW: Final = "1s"
SHORTEST_TRIGGER: Final = "100ms"
LONGEST_TRIGGER: Final = "24h"
DEFAULT_TRIGGER: Final = "10s"
SHORTEST_AGE: Final = "1s"
LONGEST_AGE: Final = "168h"
MOST_MESSAGES: Final = 1_000_000_000


class Window(Model):
    """The windows in event time that rows are counted in."""

    size: Duration | None = Field(
        default=None,
        description="Length of a window, as a duration with its unit (1s to 87600h), for example 1h. Windows begin at "
        "multiples of it (or of slide) since 1970-01-01T00:00:00Z. Required with aggregate; with function there is none.",
    )
    slide: Duration | None = Field(
        default=None,
        description="Time from the beginning of a window to that of the next, a duration that divides size; a row is in "
        "as many windows. Default: size, so that windows do not overlap.",
    )
    time: ColumnName = Field(
        description="Column with the event time, of type timestamp. A row without it, or of a time before 1970, goes to the dead letters.",
    )
    lateness: Duration = Field(
        description="How far behind the latest row of its source partition a row may be, in event time: a duration with "
        "its unit (0s to 87600h), for example 24h. One that is further behind, as the rows come in the partition's "
        "order, is late. A window is closed, and its result written, when event time has passed its end by this much "
        "in every partition.",
    )
    late: Literal["Drop", "DeadLetter"] = Field(
        default="Drop",
        description="What becomes of a late row. Drop (default): it is counted and left out of the windows. DeadLetter: "
        "its message becomes a dead letter that names event times and lateness; this needs spec.deadLetter, and does "
        "not count towards the limits there.",
    )

    @property
    def size_seconds(self) -> float | None:
        return duration_seconds(self.size) if self.size is not None else None

    @property
    def slide_seconds(self) -> float | None:
        """The same as the size where windows do not overlap."""
        return duration_seconds(self.slide) if self.slide is not None else self.size_seconds

    @property
    def lateness_seconds(self) -> float:
        return duration_seconds(self.lateness)

    @property
    def lateness_micros(self) -> int:
        """Microseconds, the unit of event time; finer digits are cut off."""
        return int(exact_seconds(self.lateness) * 1_000_000)


class OnLag(Model):
    """How much has to wait in the channel until it is taken up: one of the two, or whichever comes first of both."""

    messages: int | None = Field(
        default=None,
        ge=1,
        le=MOST_MESSAGES,
        description="So many messages are not read yet, counted by the channel's offsets: rows, marks, and one for the "
        "end of each transaction.",
    )
    age: Duration | None = Field(
        default=None,
        description="The oldest message that is not read yet has waited for so long, a duration with its unit (1s to "
        "168h).",
    )

    @property
    def age_seconds(self) -> float | None:
        return duration_seconds(self.age) if self.age is not None else None


class Trigger(Model):
    """When the collector takes up what has come: one of interval and onLag."""

    interval: Duration | None = Field(
        default=None,
        description="Time between two batches of the collector, as a duration with its unit (100ms to 24h; "
        "default 10s where there is no onLag). The collector runs all the time.",
    )
    on_lag: OnLag | None = Field(
        default=None,
        description="No collector runs while there is little to do. When enough waits, a job takes what is there as it "
        "starts, and ends. With --until-end one runs for the rest.",
    )

    @property
    def interval_seconds(self) -> float:
        """Of a collector that runs all the time."""
        return duration_seconds(self.interval or DEFAULT_TRIGGER)


class CollectStage(Model):
    """Counts the rows that the chain passes on, by group and window of event time, in a Spark job of its own; or does
    with them in Spark what a function says.
    """

    row_schema: str = Field(
        alias="schema",
        min_length=1,
        max_length=16_384,
        description="Columns of a row, as Spark's DDL: carrier string, scheduled timestamp, delay double. A value of the "
        "chain is a mapping with these keys; others are left out, one that is missing is null. A value that does not "
        "fit goes to the dead letters, with the column named. Types: boolean, tinyint, smallint, int, bigint, float, "
        "double, decimal(p, s), string, binary, date, timestamp, array<...>, struct<...>, map<string, ...>; "
        "`not null` after a type.",
    )
    group_by: Annotated[tuple[ColumnName, ...], Field(strict=False)] = Field(
        default=(),
        max_length=32,
        description="Columns to group by, beside the window. Default: none, one group for each window.",
    )
    window: Window | None = Field(
        default=None,
        description="The windows in event time. With function it is optional, and says which column is the event time.",
    )
    aggregate: Mapping[ColumnName, Annotated[str, Field(min_length=1, max_length=1024)]] | None = Field(
        default=None,
        min_length=1,
        max_length=64,
        description="Columns of the result: a name, and the aggregate in Spark's SQL that it holds, for example "
        "flights: count(*). Either this or function.",
    )
    function: FunctionRef | None = Field(
        default=None,
        description="Instead of groupBy, window.size and aggregate: a function, as module:name, that gets a streaming "
        "DataFrame with the columns of schema and returns one with the result. With a second parameter it also gets "
        "`writer`, to write by itself with foreachBatch; then it returns nothing, and there is no sink.",
    )
    trigger: Trigger = Field(
        default=Trigger(interval=DEFAULT_TRIGGER), description="When the collector takes up what has come."
    )
    sink: Sink | None = Field(
        default=None,
        description="Where results go. Required with aggregate, and with a function that returns a DataFrame.",
    )
    spark: Spark | None = Field(default=None, description="What the Spark job runs with.")

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of `schema`."""
        return parse_columns(self.row_schema)
