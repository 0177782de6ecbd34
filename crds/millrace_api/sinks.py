"""Where a collector's results go: one model for each kind of sink.

A new kind is a new optional field of `Sink` with a model of its own, and a name in `SINK_KINDS`.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from millrace_api.forms import ColumnName, PartitionColumn, TopicName
from millrace_api.model import Model
from millrace_api.topic import NewTopic

SINK_KINDS: Final = ("parquet", "kafka", "console")


class ParquetSink(Model):
    """Parquet files in a folder."""

    path: str = Field(
        min_length=1,
        max_length=1024,
        description="Folder for the files. A relative path is below the pipeline's storage; `millrace run` takes the "
        "state directory for it.",
    )
    partition_by: Annotated[tuple[PartitionColumn, ...], Field(strict=False)] = Field(
        default=(),
        max_length=8,
        description="Folders within each batch's folder, from the outermost: a column of the result, or year, month, "
        "date or hour of one, for example date(window_start), which makes folders such as date=2013-01-31.",
    )


class KafkaSink(Model):
    """A topic, written in one transaction for each batch."""

    topic: TopicName = Field(
        description="The topic to write to, in JSON. It can't be another topic of the pipeline."
    )
    key: Annotated[tuple[ColumnName, ...], Field(strict=False)] = Field(
        default=(),
        max_length=32,
        description="Columns of the result that make a record's key: the text of one column, a JSON list of several. "
        "Default: none, records without a key.",
    )
    create: NewTopic | None = Field(
        default=None,
        description="Make the topic if it is not there. Without this a topic that is missing is an error.",
    )
    format: Literal["json"] = Field(
        default="json", description="How a result is written: json (default), an object with all its columns."
    )


class ConsoleSink(Model):
    """What a person sees."""

    rows: int = Field(
        default=20,
        ge=1,
        le=1000,
        description="At most so many rows of each batch are shown (1 to 1000, default 20).",
    )


class Sink(Model):
    """Where results go: exactly one kind."""

    parquet: ParquetSink | None = Field(
        default=None, description="Write Parquet files, one folder for each batch."
    )
    kafka: KafkaSink | None = Field(
        default=None, description="Write to a Kafka topic, each batch in a transaction of its own."
    )
    console: ConsoleSink | None = Field(
        default=None, description="Show the first rows of each batch in the terminal of `millrace run`."
    )
