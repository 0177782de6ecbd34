"""The strategies: what a stage of each kind does with a batch. None knows of manifests, or of who owns a partition.

A stage that works at once is an `Inline` around something pure that makes an `Outcome` of a batch: `Decode`, `Map`,
`Filter`, `FlatMap`, `Encode`, `Check`, `Limits`. A function that runs elsewhere, or again after a wait, is
the affair of `pool` and `processes`. Those that write (`Produce`, `produce_in_transaction`,
`collect_rows`, `write_dead_letters`) are links of their own, for they may have to stop in the middle of a batch; so is
`Gather`, the stage of batch and reduce, which holds batches back to make one of several, and `Listed` or `Folded` of their
values. `Marker` adds to their transactions what no message asks for. `Commit` ends each chain. A whole chain is decode, the
functions, encode, check, limits, produce, collect, dead letters, commit: what can still turn a message into a dead letter
comes before the limits, and these come before the first effect. (Late rows are told by collect alone: see there.)
"""

from millrace.strategies.collect import Check, collect_rows
from millrace.strategies.commit import Commit, OnComplete
from millrace.strategies.dead_letter import DEAD_LETTER_STAGE, write_dead_letters
from millrace.strategies.each import Outcome
from millrace.strategies.formats import DECODE_STAGE, Decode, Encode
from millrace.strategies.functions import Filter, FlatMap, Function, Map
from millrace.strategies.gather import Gather
from millrace.strategies.hold import Fill, Listed, Room
from millrace.strategies.judge import Judge
from millrace.strategies.limits import Limits
from millrace.strategies.link import Inline, Link, Work
from millrace.strategies.marker import Marker
from millrace.strategies.produce import Produce, WriteInTransaction, produce_in_transaction
from millrace.strategies.reduce import Folded
from millrace.strategies.retry import Retry
from millrace.strategies.vectorized import Vectorized

__all__ = [
    "DEAD_LETTER_STAGE",
    "DECODE_STAGE",
    "Check",
    "Commit",
    "Decode",
    "Encode",
    "Fill",
    "Filter",
    "FlatMap",
    "Folded",
    "Function",
    "Gather",
    "Inline",
    "Judge",
    "Limits",
    "Link",
    "Listed",
    "Map",
    "Marker",
    "OnComplete",
    "Outcome",
    "Produce",
    "Retry",
    "Room",
    "Vectorized",
    "Work",
    "WriteInTransaction",
    "collect_rows",
    "produce_in_transaction",
    "write_dead_letters",
]
