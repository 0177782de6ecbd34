"""Results as Parquet: a folder for each batch, whole or not there, and never changed once it is.

    <path>/batch=001-00000003/_SUCCESS                              the marker: version, batch, rows, query, as JSON
    <path>/batch=001-00000003/date=2013-01-31/part-....parquet      with partitionBy; else without the folder between

Spark's own file sink is exact only for readers that know its log; any other would read what a killed attempt left, and
read it twice. Here a batch is written elsewhere (`places`), its marker last, and then takes its place in one step. A
batch that is run again after a kill finds its marker and writes nothing, so that who reads meanwhile finds the files
that were listed. A batch without results leaves nothing.

Readers pass over names that begin with `_`, the marker's.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from millrace.collector.sinks import settings
from millrace.collector.sinks.places import put_in_place, workshop
from millrace.collector.sinks.protocol import Batch
from millrace.errors import ExitCode, ManifestError, MillraceError
from millrace.worker import logs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

MARKER = "_SUCCESS"
_ENTRY = re.compile(r"(?:(year|month|date|hour)\()?(\w+)\)?")


class Marker(msgspec.Struct, frozen=True):
    """Of a batch that is whole. See `Batch`; `rows`: of results."""

    version: int
    batch: int
    rows: int
    query: str


class ParquetByBatch:
    """Implements `protocol.Sink`. where: path of the sink in the manifest."""

    def __init__(self, what: settings.Parquet, checkpoint: Path, where: str) -> None:
        self._path, self._checkpoint, self._where = Path(what.path), checkpoint, f"{where}.parquet"
        self._entries = [(entry, *_parts(entry)) for entry in what.partition_by]
        self._workshop: Path | None = None

    def check(self, columns: StructType) -> None:
        from pyspark.sql.types import AtomicType, BinaryType, DateType, TimestampNTZType, TimestampType

        types = {field.name: field.dataType for field in columns.fields}
        for index, (entry, function, column) in enumerate(self._entries):
            where = f"{self._where}.partitionBy[{index}]"
            if column not in types:
                raise ManifestError(
                    f'"{column}" is not a column of the result',
                    where=where,
                    remedy=f"use one of {', '.join(types)}",
                )
            found, name = types[column], types[column].simpleString()
            if function and not isinstance(found, DateType | TimestampType | TimestampNTZType):
                raise ManifestError(
                    f'"{column}" is of type {name}',
                    where=where,
                    remedy=f"{function}(...) takes a column of type date or timestamp",
                )
            if not isinstance(found, AtomicType) or isinstance(found, BinaryType):
                raise ManifestError(
                    f'"{column}" is of type {name}',
                    where=where,
                    remedy="use a column of numbers, text, dates or timestamps",
                )
            if function and function in (known.lower() for known in types):
                raise ManifestError(
                    f'{entry} makes folders named "{function}", and the result has a column of that name',
                    where=where,
                    remedy="rename the column, or leave this out",
                )
        if {column for _, function, column in self._entries if not function} >= set(types):
            raise ManifestError(
                "no column would be left for the files",
                where=f"{self._where}.partitionBy",
                remedy="leave one out",
            )

    def open(self, version: int, query: str | None) -> None:
        self._workshop = workshop(self._path, self._checkpoint)
        folders = sorted(self._path.glob(f"batch={version:03}-*"))
        # all of one version are of one checkpoint, unless somebody has mixed them: the ends tell
        for folder in {*folders[:1], *folders[-1:]}:
            marker = _read(folder)
            if marker is not None and marker.query != query:
                raise MillraceError(
                    f"{self._path} has results of another checkpoint ({folder.name})",
                    where=f"{self._where}.path",
                    remedy="choose another path, or remove these results: the collector begins anew",
                    code=ExitCode.MANIFEST,
                )

    def former(self, version: int) -> tuple[int, int] | None:
        before = [f.name for f in self._path.glob("batch=*") if f.name < f"batch={version:03}-" and _read(f)]
        marker = _read(self._path / max(before)) if before else None
        return (marker.version, marker.batch) if marker is not None else None

    def write(self, rows: DataFrame, batch: Batch) -> int:
        from pyspark.sql import Observation, functions

        target = self._path / f"batch={batch.name}"
        marker = _read(target)
        done = marker is not None and marker.query == batch.query
        counted = Observation(f"batch {batch.name}")
        observed = rows.observe(counted, functions.count(functions.lit(1)).alias("rows"))
        assert self._workshop is not None
        pending = self._workshop / target.name
        if done:  # read all the same, for Spark's state
            observed.write.format("noop").mode("overwrite").save()
        else:
            self._write(observed, pending)
        count = int(counted.get["rows"])
        if done and marker is not None:
            if marker.rows != count:
                logs.logger("millrace.collector").warning(
                    "a batch that was run again has another result; the first one stays",
                    batch=batch.name,
                    rows=marker.rows,
                    now=count,
                )
            return 0
        if not count:
            shutil.rmtree(pending)
            return 0
        made = Marker(batch.version, batch.number, count, batch.query)
        (pending / MARKER).write_bytes(msgspec.json.encode(made))
        put_in_place(pending, target)
        return count

    def close(self) -> None:
        pass

    def _write(self, rows: DataFrame, pending: Path) -> None:
        from pyspark.sql import functions

        makers = {
            "year": functions.year,
            "month": functions.month,
            "date": functions.to_date,
            "hour": functions.hour,
        }
        for _, function, column in self._entries:
            if function:
                rows = rows.withColumn(function, makers[function](functions.col(f"`{column}`")))
        folders = [function or column for _, function, column in self._entries]
        if folders:  # one file in each, not one of each of Spark's partitions
            rows = rows.repartition(*(functions.col(f"`{folder}`") for folder in folders))
        writer = rows.write.mode("overwrite").option(
            "mapreduce.fileoutputcommitter.marksuccessfuljobs", "false"
        )
        writer.partitionBy(*folders).parquet(str(pending))


def _parts(entry: str) -> tuple[str, str]:
    """Function ("" if none) and column of an entry of partitionBy."""
    match = _ENTRY.fullmatch(entry)
    if match is None:
        raise ValueError(f"{entry!r} is no entry of partitionBy")
    return match[1] or "", match[2]


def _read(folder: Path) -> Marker | None:
    """The folder's marker; None if there is none that can be read: it is not whole then."""
    try:
        return msgspec.json.decode((folder / MARKER).read_bytes(), type=Marker)
    except (OSError, msgspec.DecodeError):
        return None
