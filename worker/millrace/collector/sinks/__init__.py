"""Where a collector's results go: one module for each kind of sink, `protocol` for what they have in common.

`settings` says what a sink is to do, as plain data that launches can pass on; `outlet` makes the sink of it, and is what
Spark calls for each batch. `places` gives the Parquet sink's folders their names in one step, `rows` makes JSON of
results for the others.

Spark may run a batch again, after a kill, under the same number. Each sink sees to it that this does no harm, by a
record of its own that comes into being together with what it writes: a marker in the batch's folder, offsets in the
batch's transaction. Nothing here knows the manifest, or how a result is computed.
"""

from millrace.collector.sinks.kafka import TRANSACTION_SECONDS
from millrace.collector.sinks.outlet import Outlet, make
from millrace.collector.sinks.settings import Console, Kafka, Parquet, Settings

__all__ = ["TRANSACTION_SECONDS", "Console", "Kafka", "Outlet", "Parquet", "Settings", "make"]
