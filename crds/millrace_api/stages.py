"""The stages of a chain, and which of them may end it.

A new kind is a new optional field of `Stage` with a model of its own, and a name in `KINDS`; one that ends a chain is
named in `TERMINAL_KINDS` too, in the order in which such stages may follow each other.
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from millrace_api.collect import CollectStage
from millrace_api.forms import DnsLabel, Duration, FunctionRef
from millrace_api.gather import BatchStage, ReduceStage
from millrace_api.model import Model
from millrace_api.pools import Ordering, Pool, Retry
from millrace_api.produce import OnError, ProduceStage
from millrace_api.times import duration_seconds

Kind = Literal["map", "flatMap", "filter", "batch", "reduce", "produce", "collect"]

KINDS: Final[tuple[Kind, ...]] = ("map", "flatMap", "filter", "batch", "reduce", "produce", "collect")
FUNCTION_KINDS: Final[tuple[Kind, ...]] = ("map", "flatMap", "filter")
GATHER_KINDS: Final[tuple[Kind, ...]] = ("batch", "reduce")
ON_ERROR_KINDS: Final[tuple[Kind, ...]] = (*FUNCTION_KINDS, "reduce", "produce")
TERMINAL_KINDS: Final[tuple[Kind, ...]] = ("produce", "collect")
IN_ORDER_KINDS: Final[tuple[Kind, ...]] = (*GATHER_KINDS, "collect")
# A stage's own names are made as <groupId>.<stage>; and figures, errors and dead letters know stages by their names.
RESERVED_STAGE_NAMES: Final = {
    "claims": "<groupId>.claims is the consumer group that holds the claims",
    "decode": "errors and dead letters call the reading of the source's format so",
    "dead-letter": "figures call the writing of dead letters so",
}


class FunctionStage(Model):
    """A stage that calls a Python function once for each message, or for each batch of them."""

    function: FunctionRef = Field(
        description="The function, as module:name. It gets the value; with a second parameter also the message (key, "
        "headers, timestamp, partition, offset). map returns the new value, filter a bool, flatMap an iterable. "
        '`raise millrace.Invalid("why")` sends the message to the dead letters.',
    )
    on_error: OnError = Field(
        default="Stop",
        description="What an exception other than millrace.Invalid does: Stop (default) stops the worker, which "
        "names stage, partition and offset; DeadLetter sends the message to the dead letters, and needs "
        "spec.deadLetter.",
    )
    retry: Retry | None = Field(
        default=None,
        description="Call the function again after an exception, before onError applies. Default: never.",
    )
    pool: Pool | None = Field(
        default=None,
        description="What executes the function. Default: the worker's own thread, one message after the other.",
    )
    ordering: Ordering = Field(
        default="Partition",
        description="With a pool, in which order messages leave the stage. Partition (default): in the order of their "
        "partition, though functions run at the same time. Key: the function is called for messages of one key one after "
        "the other, and they leave in that order; different keys do not wait for each other. None: each leaves when it is "
        "done. Key and None not with delivery: ExactlyOnce, and not in a chain with a batch, reduce or collect stage.",
    )
    timeout: Duration | None = Field(
        default=None,
        description="With a pool, how long a call may take, a duration with its unit (1ms to 1h). What takes longer "
        "counts as a TimeoutError: retry and onError apply. Default: no limit.",
    )
    vectorized: bool = Field(
        default=False,
        description="The function gets a whole batch at once (default false): a list of values, or a pyarrow.RecordBatch "
        "where its first parameter is annotated as such. It returns as many results, in the same order; an instance of "
        "millrace.Invalid in the place of one sends that message to the dead letters.",
    )

    @property
    def timeout_seconds(self) -> float | None:
        return None if self.timeout is None else duration_seconds(self.timeout)


class Stage(Model):
    """One named step: `name` and exactly one of the kinds."""

    name: DnsLabel = Field(
        description="Name of the stage, unique in the pipeline: a DNS label, other than `claims`, `decode` and "
        "`dead-letter`. It names the stage in errors, metrics and dead letters.",
    )
    map: FunctionStage | None = Field(
        default=None, description="Replace each value by what the function returns."
    )
    flat_map: FunctionStage | None = Field(
        default=None,
        description="Replace each value by those in the iterable that the function returns; none drops the message.",
    )
    filter: FunctionStage | None = Field(
        default=None, description="Keep the messages for which the function returns True, drop the others."
    )
    batch: BatchStage | None = Field(
        default=None,
        description="Hand on lists of the values of a partition, for a function that does many at once. Not as the last "
        "stage.",
    )
    reduce: ReduceStage | None = Field(
        default=None,
        description="Fold the values of a partition into one for each key, and hand on these. As the last stage only with "
        "flush.",
    )
    produce: ProduceStage | None = Field(
        default=None, description="Write each message to a topic. Only as the last stage, or before collect."
    )
    collect: CollectStage | None = Field(
        default=None,
        description="Pass each value on to a Spark job that counts by group and window. Only as the last stage.",
    )

    @property
    def kind(self) -> Kind:
        """The stage's kind, as in the manifest: `map`, `flatMap`, ..."""
        return next(kind for kind in KINDS if getattr(self, _ATTRIBUTES[kind]) is not None)

    @property
    def function_stage(self) -> FunctionStage | None:
        """The stage's function and what goes with it; None for a kind without one."""
        return self.map or self.flat_map or self.filter

    @property
    def gathering(self) -> BatchStage | None:
        """How a batch or reduce stage holds; None for other kinds."""
        return self.batch or self.reduce


_ATTRIBUTES: Final = {
    field.alias or name: name for name, field in Stage.model_fields.items() if name != "name"
}
