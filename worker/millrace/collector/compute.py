"""What is computed of the rows: as the manifest declares it, or by its function.

Both begin with the rows as `plan` reads them (columns EVENT_TIME, which has the watermark, and ROW, JSON) and end with
the result, a streaming DataFrame. What Spark refuses is told with the place in the manifest that it is of: found here,
before the query starts, it ends the run instead of being tried again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from millrace.collector.failures import gist
from millrace.collector.query import EVENT_TIME, ROW, Query
from millrace.errors import FunctionError, ManifestError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.group import GroupedData
    from pyspark.sql.types import StructType


def parsed(rows: DataFrame, query: Query) -> DataFrame:
    """The rows with the columns of the schema, in its order."""
    from pyspark.sql import functions
    from pyspark.sql.types import StructType

    whole = StructType.fromDDL(query.schema)
    time = query.window.time if query.window is not None else None
    # The time column is the header's value, which has the watermark; text need not be made a timestamp once more.
    schema = StructType([field for field in whole if field.name != time])
    # the writer has checked each row; FAILFAST would show that it has not
    row = functions.from_json(ROW, schema, {"mode": "FAILFAST"}).alias("row")
    if time is None:
        return rows.select(row).select("row.*")
    both = rows.select(functions.col(EVENT_TIME).alias(time), row).select(time, "row.*")
    return both.select(*(functions.col(_quoted(field.name)) for field in whole))


def declared(rows: DataFrame, query: Query, where: str) -> DataFrame:
    """The result of groupBy, window and aggregate. where: path of `collect` in the manifest.

    Raises ManifestError that names the aggregate at fault.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import functions

    window = query.window
    if window is None or window.size is None:
        raise ValueError("a declared query has windows of some size")
    size, slide = _interval(window.size), _interval(window.slide or window.size)
    of_time = functions.window(window.time, size, slide).alias("window")
    grouped = parsed(rows, query).groupBy(of_time, *query.group_by)
    try:
        result = _aggregated(grouped, query.aggregate.items())
    except PySparkException as error:
        for name, expression in query.aggregate.items():
            try:
                _aggregated(grouped, [(name, expression)])
            except PySparkException as its_own:
                raise ManifestError(
                    f"Spark refuses {expression!r}: {gist(str(its_own))}",
                    where=f"{where}.aggregate.{name}",
                    remedy="write an aggregate of Spark's SQL over the columns of the schema",
                ) from its_own
        raise ManifestError(
            f"Spark refuses the aggregates: {gist(str(error))}", where=f"{where}.aggregate"
        ) from error
    return result.select(
        *query.group_by,
        functions.col("window.start").alias("window_start"),
        functions.col("window.end").alias("window_end"),
        *query.aggregate,
    )


def check_names(columns: StructType, where: str) -> None:
    """Raises FunctionError: two columns of a function's result have one name."""
    seen: dict[str, str] = {}
    for name in columns.names:
        if name.lower() in seen:
            raise FunctionError(
                f"two columns of the result are named {name}"
                if seen[name.lower()] == name
                else f"two columns of the result are named alike, {seen[name.lower()]} and {name}",
                where=where,
                remedy="give each a name of its own; case makes no difference",
            )
        seen[name.lower()] = name


def _aggregated(grouped: GroupedData, aggregate: Iterable[tuple[str, str]]) -> DataFrame:
    """Raises PySparkException, also for what Spark refuses of streams only (`count(distinct ...)`)."""
    from pyspark.sql import functions

    result = grouped.agg(*(functions.expr(expression).alias(name) for name, expression in aggregate))
    check_streaming(result)
    return result


def check_streaming(result: DataFrame) -> None:
    """Raises PySparkException: it is nothing that a stream can have in append mode. Spark would say so as the query
    starts.
    """
    sql = result.sparkSession._jvm.org.apache.spark.sql
    append = sql.streaming.OutputMode.Append()
    sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(
        result._jdf.queryExecution().analyzed(), append
    )


def _interval(seconds: float) -> str:
    return f"{round(seconds * 1_000_000)} microseconds"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
