"""What a sink is to do, as plain data: part of the job's spec."""

from __future__ import annotations

import msgspec


class Parquet(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag="parquet"):
    """
    Attributes:
        path: folder of the results, absolute.
        partition_by: folders within a batch's: `column`, or `date(column)`, `year(...)`, `month(...)`, `hour(...)`.
    """

    path: str
    partition_by: tuple[str, ...] = ()


class Kafka(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag="kafka"):
    """`key`: columns that make a record's key; none: records have none."""

    topic: str
    key: tuple[str, ...] = ()


class Console(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag="console"):
    """`rows`: at most so many of each batch are shown."""

    rows: int = 20


Settings = Parquet | Kafka | Console
