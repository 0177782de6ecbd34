"""The stages that hold messages back for a while: batch and reduce."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from millrace_api.forms import Duration, FunctionRef, Taken
from millrace_api.model import Model
from millrace_api.produce import OnError
from millrace_api.times import duration_seconds

SHORTEST_HOLD: Final = "10ms"
LONGEST_HOLD: Final = "1h"
MOST_HELD: Final = 50_000  # half of the messages that a worker has in flight
MOST_HELD_BYTES: Final = 67_108_864


class BatchStage(Model):
    """A stage that makes one list of several values of a partition."""

    count: int = Field(
        default=1000,
        ge=1,
        le=MOST_HELD,
        description=f"Values until it hands on (1 to {MOST_HELD}, default 1000). All that the batch and reduce stages of a "
        f"worker hold, filtered messages included, is at most {MOST_HELD} messages and {MOST_HELD_BYTES} bytes; what "
        "would be more is handed on sooner.",
    )
    bytes: int | None = Field(
        default=None,
        ge=1,
        le=MOST_HELD_BYTES,
        description="Bytes of messages until it hands on, key and value as they are in the source: it does with the message "
        f"that reaches them (1 to {MOST_HELD_BYTES}). Default: no limit of its own.",
    )
    interval: Duration = Field(
        default="1s",
        description=f"Time until it hands on, from the first message it holds, as a duration with its unit ({SHORTEST_HOLD} "
        f"to {LONGEST_HOLD}; default 1s). As long the commit of those messages' offsets may wait.",
    )

    @property
    def interval_seconds(self) -> float:
        return duration_seconds(self.interval)


class ReduceStage(BatchStage):
    """A stage that folds several values of a partition into one for each key."""

    initial: FunctionRef = Field(
        description="The function, as module:name, that is called without arguments for the value to begin with, for "
        "example builtins:dict.",
    )
    accumulate: FunctionRef = Field(
        description="The function, as module:name, that gets what was accumulated and a value, with a third parameter also "
        "the message, and returns what is accumulated then. What it was given it may change and return.",
    )
    flush: FunctionRef | None = Field(
        default=None,
        description="The function, as module:name, that gets what was accumulated and returns the value to hand on. Its "
        "effects may be all that is wanted. Default: what was accumulated is handed on as it is.",
    )
    key: Taken | None = Field(
        default=None,
        description="What to accumulate by: a field of the value, with dots into fields of fields, or a function of the value "
        "(with a second parameter also of the message), as module:name. It becomes the key of what is handed on: bytes as "
        "they are, text as UTF-8, anything else as JSON. Default: all values of a partition together, and no key.",
    )
    on_error: OnError = Field(
        default="Stop",
        description="What an exception other than millrace.Invalid does: Stop (default) stops the worker; DeadLetter sends "
        "the message to the dead letters, one of flush all messages that were accumulated; it needs spec.deadLetter.",
    )
