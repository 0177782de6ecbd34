"""The streaming query, as Spark is told it: its beginning, the rows.

    channel, all partitions -> observe marks -> rows only ------+
                                                                +--> the rows, of which `compute` makes the result
    control files -> withWatermark -> nothing of them ----------+

Spark takes the largest event time of a stream for its watermark: where one partition is behind (its worker restarted in
a backlog), the others would carry it past that one's rows, which would be dropped as late. So rows have no part in it.
The only watermark is that of a second, tiny stream, of files that the driver writes (`control`): the least that marks
promise, over all partitions, minus the lateness (`books`). Marks are told to the driver with each batch's report, and go
no further.

Two things of Spark's are relied on. A union has the column of its *first* child, with the watermark that it bears: the
control stream comes first. Were that to change, Spark would refuse to start the query (append mode without a watermark).
And the optimiser moves a filter below EventTimeWatermark unless it mentions the event time, hence the shape of `NOTHING`:
control records are dropped above their watermark, or it would not see them. tests/integration/test_collector.py holds
both, docs/adr/0009-one-watermark-of-our-own.md says what else was tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from millrace.channel import wire
from millrace.collector import kafka
from millrace.collector.query import EVENT_TIME, ROW
from millrace.collector.spec import JobSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Count up when what Spark keeps in a checkpoint (sources, stateful operators and their columns) looks otherwise for the
# same query: a job then begins a new version of its checkpoint.
LAYOUT = 2  # 1: a source for each partition

OBSERVED = "channel"
"""Name under which a batch's figures are found in Spark's report: `rows`, a number, and `marks`, a list."""

NOTHING = f"{EVENT_TIME} IS NULL"
"""Never true, which the optimiser can't know."""

_PATIENCE = {
    # Of Java's clients, for one question with all that is tried again within it: half a minute and one by default.
    "kafka.request.timeout.ms": "20000",
    "kafka.default.api.timeout.ms": "20000",
    # The driver asks for offsets three times by default, each as long as the above.
    "fetchOffset.numRetries": "2",
    # A task waits for records that it knows to be there; two minutes by default, Spark's patience with executors.
    "kafkaConsumer.pollTimeoutMs": "30000",
}
"""How long a broker may be away before the attempt ends, and another one is tried with back-off. Spark does not wait for
a broker in any other way, and by default for some 200 s, in which nobody hears of it. With these it is told within a
minute; a restart of a broker, or another one's taking over, takes less than half of that.
"""

_NAMED = f"header -> header.key = '{wire.TIME}'"
# Rows have it first. Searching for it costs more than all else that is done to a row here.
_HEADER = (
    f"CASE WHEN get(headers, 0).key = '{wire.TIME}' THEN get(headers, 0).value "
    f"ELSE element_at(filter(headers, {_NAMED}), 1).value END"
)
_MICROS = f"CAST(CAST({_HEADER} AS STRING) AS BIGINT)"
_MARK = f"struct(partition, offset, unix_micros({EVENT_TIME}) AS time)"


def kafka_options(spec: JobSpec) -> Mapping[str, str]:
    """Options of the source that reads the channel. Partitions that are added are taken up by the next batch."""
    return {
        **kafka.options(spec.bootstrap, Path(spec.secrets) if spec.secrets else None, spec.properties),
        "kafka.isolation.level": "read_committed",
        "subscribe": spec.channel,
        "startingOffsets": "earliest",
        "failOnDataLoss": "true",
        "includeHeaders": "true",
        "groupIdPrefix": f"{spec.group}.reader",
        **_PATIENCE,
        "maxOffsetsPerTrigger": str(spec.records_per_batch),
    }


def build(spark: SparkSession, spec: JobSpec, control: Path) -> DataFrame:
    """The rows, a streaming DataFrame with the columns EVENT_TIME and ROW. control: the folder of control files."""
    from pyspark.sql import functions

    read = spark.readStream.format("kafka").options(**kafka_options(spec)).load()
    channel = read.select(
        functions.expr(f"timestamp_micros({_MICROS})").alias(EVENT_TIME),
        functions.col("value").cast("string").alias(ROW),
        "partition",
        "offset",
    )
    observed = channel.observe(
        OBSERVED,
        functions.expr(f"count({ROW})").alias("rows"),
        functions.expr(f"collect_list(CASE WHEN {ROW} IS NULL THEN {_MARK} END)").alias("marks"),
    )
    rows = observed.where(f"{ROW} IS NOT NULL").select(EVENT_TIME, ROW)
    if spec.query.window is None:
        return rows
    told = spark.readStream.text(str(control))
    timed = told.select(
        functions.expr("timestamp_micros(CAST(value AS BIGINT))").alias(EVENT_TIME),
        functions.lit(None).cast("string").alias(ROW),
    )
    return timed.withWatermark(EVENT_TIME, "0 seconds").where(NOTHING).union(rows)
