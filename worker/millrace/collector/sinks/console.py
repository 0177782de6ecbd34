"""Results to look at: the first rows of each batch, one event a row in the collector's log, from where `millrace run`
takes them to the terminal. A batch that is run again after a kill is shown again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from millrace.collector.sinks import settings
from millrace.collector.sinks.protocol import Batch
from millrace.collector.sinks.rows import pairs
from millrace.worker import logs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

ROW = "result"
"""The event of a row: `batch` is the batch's name, `row` the columns."""
MORE = "more results"
"""The event after a batch's rows if there are more than are shown: `batch`, and `rows`, how many more."""


class ConsoleSink:
    """Implements `protocol.Sink`."""

    def __init__(self, what: settings.Console) -> None:
        self._most = what.rows
        self._log = logs.logger("millrace.collector")

    def check(self, columns: StructType) -> None:
        pass

    def open(self, version: int, query: str | None) -> None:
        pass

    def former(self, version: int) -> tuple[int, int] | None:
        del version  # nothing of what was shown is known
        return None

    def write(self, rows: DataFrame, batch: Batch) -> int:
        count = 0
        for _, value in pairs(rows, ()):  # to the end: see `Sink`
            count += 1
            if count <= self._most:
                self._log.info(ROW, batch=batch.name, row=msgspec.json.decode(value))
        if count > self._most:
            self._log.info(MORE, batch=batch.name, rows=count - self._most)
        return count

    def close(self) -> None:
        pass
