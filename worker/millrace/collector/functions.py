"""A collect stage's function: found, called, and held to its contract.

    def collect(rows):                 # DataFrame in, DataFrame out: the stage's sink writes it
        return rows.groupBy(window("scheduled", "1 hour"), "carrier").count()

    def collect(rows, writer):         # returns nothing: it writes by itself
        writer(rows.where("delay > 60")).foreachBatch(save).start()

`writer(frame)` is frame.writeStream with the checkpoint, the trigger and the name that the collector needs; one query is
started with it, and none without.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from millrace.chain.functions import POSITIONAL, find, set_up
from millrace.collector.compute import check_names
from millrace.collector.failures import gist
from millrace.collector.query import Query
from millrace.errors import FunctionError, ManifestError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery


class Writer:
    """Starts queries as the collector wants them.

    Attributes:
        version: of the checkpoint. With another one batches are numbered from 0 again.
        query: the one that was started; None before.
    """

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        checkpoint: Path,
        trigger: Callable[[DataStreamWriter], None],
        version: int,
    ) -> None:
        self._spark, self._name, self._checkpoint, self._trigger = spark, name, checkpoint, trigger
        self.version = version
        self.query: StreamingQuery | None = None

    def __call__(self, frame: DataFrame) -> DataStreamWriter:
        """frame.writeStream with checkpoint, trigger and name set, in append mode until told otherwise."""
        writer = frame.writeStream.outputMode("append")
        writer = writer.option("checkpointLocation", str(self._checkpoint)).queryName(self._name)
        self._trigger(writer)
        begin = writer.start

        def start(*arguments: object, **options: object) -> StreamingQuery:
            if self.query is not None:
                raise RuntimeError("a second query was started with `writer`, and there is one checkpoint")
            self.query = begin(*arguments, **options)
            return self.query

        writer.start = start
        return writer

    def strays(self) -> list[str]:
        """Queries that were started without it."""
        return [
            query.name or "one without a name"
            for query in self._spark.streams.active
            if query.name != self._name
        ]


def load(reference: str, code: Path | None, where: str, *, setup: bool = True) -> Callable[..., object]:
    """Import a stage's function, from the folder `code` first. where: path of `function` in the manifest.

    Raises FunctionError.
    """
    module, function = find(reference, code, where)
    wants = "def collect(rows), or def collect(rows, writer)"
    try:
        signature = inspect.signature(function)
    except ValueError:
        signature = None
    if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
        raise FunctionError(f"{reference} is a generator, or async", where=where, remedy=f"write {wants}")
    if signature is not None and not 1 <= _required(signature) <= 2:
        raise FunctionError(f"{reference} takes {signature}", where=where, remedy=f"write {wants}")
    if setup:
        set_up(module, where)
    return function


def check(reference: str, code: Path | None, where: str) -> None:
    """Look at a stage's function without Spark, as far as its module can be imported so. Raises FunctionError."""
    try:
        load(reference, code, where, setup=False)
    except FunctionError as error:
        # a module may need a session as it is imported; there is one when the collector does it
        if "SESSION_OR_CONTEXT_NOT_EXISTS" not in str(error.__cause__):
            raise


def call(
    function: Callable[..., object], rows: DataFrame, writer: Writer, query: Query, where: str, *, sink: bool
) -> DataFrame | None:
    """The function's result; None if it has started a query of its own, which writes.

    Args:
        where: path of `collect` in the manifest.
        sink: whether the stage has one.

    Raises FunctionError.
    """
    from pyspark.sql import DataFrame

    name, place = query.function or "", f"{where}.function"
    try:
        result = function(rows, writer) if _required(inspect.signature(function)) == 2 else function(rows)
    except Exception as error:
        raise FunctionError(
            f"{name} failed: {told(error)}", where=place, remedy="mend the function"
        ) from error
    strays = writer.strays()
    if strays:
        raise FunctionError(
            f"{name} has started a query without `writer`: {', '.join(strays)}",
            where=place,
            remedy="start it with writer(frame)...start(): else it has no checkpoint of the collector's, and nobody sees to it",
        )
    if result is None and writer.query is not None:
        if sink:
            raise FunctionError(
                f"{name} writes by itself, and the stage has a sink that would get nothing",
                where=f"{where}.sink",
                remedy="take the sink out, or return a DataFrame and start nothing",
            )
        return None
    if not isinstance(result, DataFrame):
        what = "nothing, and has started nothing" if result is None else f"a {type(result).__name__}"
        raise FunctionError(
            f"{name} returned {what}",
            where=place,
            remedy="return a DataFrame; or write with writer(frame).foreachBatch(...).start() and return nothing",
        )
    if writer.query is not None:
        raise FunctionError(
            f"{name} returned a DataFrame, and has started a query as well",
            where=place,
            remedy="do one of them",
        )
    return _checked(result, name, where, sink)


def started(writer: DataStreamWriter, query: Query, where: str) -> StreamingQuery:
    """Start the query. Raises FunctionError, or ManifestError of a declared query: Spark takes it for no stream's."""
    from pyspark.errors import AnalysisException

    try:
        return writer.start()
    except AnalysisException as error:
        what = f"Spark does not start the query: {gist(str(error))}"
        if query.function is None:
            raise ManifestError(what, where=where) from error
        remedy = "a result in append mode needs windows of event time in what it groups by"
        raise FunctionError(what, where=f"{where}.function", remedy=remedy) from error


def told(error: BaseException) -> str:
    """Type and text of an error in user code, and where it was raised."""
    from pyspark.errors import PySparkException

    text = gist(str(error)) if isinstance(error, PySparkException) else " ".join(str(error).split())
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if "site-packages" not in frame.filename
    ]
    own = [frame for frame in frames if Path(frame.filename).parent != Path(__file__).parent]
    at = f" ({Path(own[-1].filename).name}:{own[-1].lineno}, in {own[-1].name})" if own else ""
    return f"{type(error).__name__}{f': {text}' if text else ''}{at}"


def _checked(result: DataFrame, name: str, where: str, sink: bool) -> DataFrame:
    place = f"{where}.function"
    if not sink:
        raise FunctionError(
            f"{name} returned a DataFrame, and the stage has no sink to write it",
            where=f"{where}.sink",
            remedy="add a sink, or write with writer(frame).foreachBatch(...).start() and return nothing",
        )
    if not result.isStreaming:
        raise FunctionError(
            f"{name} returned a DataFrame that is not made of the rows it was given",
            where=place,
            remedy="make it of them: what they were made of once is no stream",
        )
    check_names(result.schema, place)
    return result


def _required(signature: inspect.Signature) -> int:
    """How many arguments it wants; of those with a default the second counts if it is called writer."""
    positional = [p for p in signature.parameters.values() if p.kind in POSITIONAL]
    required = sum(p.default is inspect.Parameter.empty for p in positional)
    if any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in signature.parameters.values()):
        return 3
    if required < 2 and len(positional) > 1 and positional[1].name == "writer":
        return 2
    if not positional and any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values()):
        return 2
    return required or min(1, len(positional))
