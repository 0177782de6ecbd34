"""What Spark calls for each batch: the sink, and word of how it went."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from millrace.clock import Clock
from millrace.collector.sinks import settings
from millrace.collector.sinks.console import ConsoleSink
from millrace.collector.sinks.kafka import KafkaByBatch
from millrace.collector.sinks.parquet import ParquetByBatch
from millrace.collector.sinks.protocol import Batch, Sink
from millrace.connectivity.ports import Cluster
from millrace.errors import MillraceError
from millrace.worker.files import disk_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


class Outlet:
    """Takes batches (it is a foreachBatch function). Not thread-safe; Spark calls it for one batch at a time.

    Attributes:
        written: rows of results written by this process.
        failure: what it raised last. Spark passes on only the beginning of its text.
    """

    def __init__(self, sink: Sink, version: int, checkpoint: Path) -> None:
        self._sink, self._version, self._checkpoint = sink, version, checkpoint
        self._query: str | None = None
        self.written = 0
        self.failure: Exception | None = None

    def open(self, columns: StructType) -> None:
        """Raises MillraceError, before the first batch: results with these columns can't be written."""
        self._sink.check(columns)
        self._query = query_of(self._checkpoint)
        self._sink.open(self._version, self._query)

    def former(self) -> tuple[int, int] | None:
        """See `Sink`."""
        return self._sink.former(self._version)

    def __call__(self, rows: DataFrame, number: int) -> None:
        if self._query is None:  # it was new; now Spark has named it
            self._query = query_of(self._checkpoint) or ""
        try:
            self.written += self._sink.write(rows, Batch(self._version, number, self._query))
        except MillraceError as error:
            self.failure = error
            raise
        except OSError as error:
            self.failure = disk_error(error, Path(error.filename or "the results"))
            raise self.failure from error
        except Exception as error:
            self.failure = error  # whole, which its way through Java does not leave it
            raise

    def close(self) -> None:
        self._sink.close()


def make(
    what: settings.Settings,
    *,
    version: int,
    checkpoint: Path,
    group: str,
    cluster: Callable[[], Cluster],
    clock: Clock,
    where: str,
) -> Outlet:
    """The sink of these settings. cluster: called only for a sink that writes to Kafka; where: path in the manifest."""
    sink: Sink
    match what:
        case settings.Parquet():
            sink = ParquetByBatch(what, checkpoint, where)
        case settings.Kafka():
            sink = KafkaByBatch(what, cluster(), group, clock, where)
        case settings.Console():
            sink = ConsoleSink(what)
    return Outlet(sink, version, checkpoint)


def query_of(checkpoint: Path) -> str | None:
    """The id that Spark gave the checkpoint; None: there is none yet."""
    try:
        found = msgspec.json.decode((checkpoint / "metadata").read_bytes(), type=dict[str, str])
    except FileNotFoundError:
        return None
    return found.get("id")
