"""What one writes by hand, without Millrace, for what the collector does in bench-collector: one stream over all of the
topic, Spark's own watermark, a folder of Parquet for each batch. It knows no marks and needs no event time in headers,
and it ends by itself when it has read what there is (availableNow).

    python benchmarks/collector_peer.py FILE    a Work as JSON
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
from pyspark import SparkConf
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import avg, col, count, from_json, lit, max, min, sum, window


class Work(msgspec.Struct):
    """`schema`: of the rows, Spark DDL; `lateness` in hours; `settings`: Spark's."""

    bootstrap: str
    topic: str
    checkpoint: str
    output: str
    records_per_batch: int
    schema: str
    lateness: int
    settings: dict[str, str]


def main(file: Path) -> None:
    work = msgspec.json.decode(file.read_bytes(), type=Work)
    conf = SparkConf(loadDefaults=False)
    for key, value in work.settings.items():
        conf.set(key, value)
    spark = SparkSession.builder.config(conf=conf).getOrCreate()

    def write(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(f"{work.output}/batch={number}")

    rows = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", work.bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", work.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", work.records_per_batch)
        .load()
        .where(col("value").isNotNull())
        .select(from_json(col("value").cast("string"), work.schema).alias("row"))
        .select("row.*")
    )
    grouped = (
        rows.withWatermark("scheduled", f"{work.lateness} hours")
        .groupBy(window("scheduled", "1 hour"), "carrier")
        .agg(
            count(lit(1)).alias("flights"),
            sum("delay").alias("total"),
            avg("delay").alias("average"),
            min("delay").alias("least"),
            max("delay").alias("most"),
        )
    )
    result = grouped.select(
        "carrier",
        col("window.start").alias("window_start"),
        col("window.end").alias("window_end"),
        *("flights", "total", "average", "least", "most"),
    )
    query = (
        result.writeStream.foreachBatch(write)
        .outputMode("append")
        .option("checkpointLocation", work.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
