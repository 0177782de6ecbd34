"""The collector's program: `python -m millrace.collector.job --spec FILE [--lock FD]`.

It runs in Spark's driver, one attempt of it at a time (`launch` sees to that). SIGTERM stops it between two batches;
whatever it is killed in the middle of is done again by the next attempt, with the same result.
"""

from __future__ import annotations

import argparse
import logging
import os
import queue
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from millrace.clock import Clock, Deadline, SystemClock
from millrace.collector import (
    compute,
    ending,
    functions,
    plan,
    progress,
    session,
    sinks,
    spec,
    status,
    versions,
)
from millrace.collector.books import Books
from millrace.collector.failures import classify
from millrace.collector.jars import CONNECTOR
from millrace.collector.metrics import Site
from millrace.collector.positions import Positions
from millrace.connectivity.confluent import ConfluentCluster
from millrace.connectivity.credentials import Credentials
from millrace.connectivity.ports import Admin, Cluster, TopicMissing
from millrace.errors import MillraceError
from millrace.host.jars import substitutes
from millrace.worker import logs
from millrace.worker.http import HealthServer, parse_address
from millrace.worker.status import Failure
from millrace.worker.stop import StopRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

_KAFKA_SECONDS = 30.0
_DYING_SECONDS = 3.0  # until a JVM that does not answer has ended, if it is about to
_STOP_SECONDS = 60.0  # for the batch under way, when asked to stop
_END_INTERVAL = (
    1.0  # seconds between batches at most, when it is to end by itself: nobody waits for those between
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="millrace.collector.job")
    parser.add_argument("--spec", type=Path, required=True)
    parser.add_argument("--lock", type=int, help="file descriptor of the checkpoint's lock")
    given = parser.parse_args(arguments)
    stop = StopRequest()
    stop.install()
    try:
        job = Job(spec.read(given.spec), stop, SystemClock())
    except MillraceError as error:
        sys.stderr.write(f"{error}\n")
        return error.code
    logs.configure(collector=job.spec.name)
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it tells of each connection
    return job.run(() if given.lock is None else (given.lock,))


class Job:
    """One attempt: start, take Spark's reports until it is over, say how it went."""

    def __init__(self, what: spec.JobSpec, stop: StopRequest, clock: Clock) -> None:
        self.spec, self._stop, self._clock = what, stop, clock
        self._checkpoint = Path(what.checkpoint)
        self._reports: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._log = logs.logger("millrace.collector")
        now = clock.time()
        self._status = status.CollectorStatus(
            pid=os.getpid(),
            started=now,
            updated=now,
            state=status.STARTING,
            version=what.version,
            attempt=what.attempt,
            restarts=what.restarts,
        )
        self._outlet: sinks.Outlet | None = None
        self._spark: SparkSession | None = None
        self._ending: ending.Ending = ending.Never()
        self._beaten = clock.monotonic()

    def run(self, keep_open: tuple[int, ...] = ()) -> int:
        """The exit code. Failures are logged and in the status file."""
        server: HealthServer | None = None
        try:
            if self.spec.http is not None:
                server = self._serve(self.spec.http)
            self._say()
            cluster = self._cluster()
            admin = cluster.admin()
            self._check_channel(admin)
            books = Books(self.spec, cluster, admin, self._clock, self._log)
            books.open()
            self._ending = self._how_it_ends(admin, books.positions)
            query = self._start(keep_open, books.control.folder)
            self._say(state=status.RUNNING)
            ended = self._follow(query, books)
            books.close()
        except Exception as error:  # noqa: BLE001  # the program's last resort: whatever it was is classified and said
            failure = self._failure(error)
            self._log.error(
                "the collector failed",
                what=failure.what,
                where=failure.where,
                todo=failure.remedy,
                code=int(failure.code),
                exc_info=error if failure is not error else None,
            )
            self._say(state=status.FAILED, error=Failure.of(failure))
            return failure.code
        finally:
            if server is not None:
                server.close()
        self._say(state=status.ENDED if ended else status.STOPPED)
        self._log.info("ended" if ended else "stopped", batches=self._status.batches, rows=self._status.rows)
        return 0

    def _serve(self, address: str) -> HealthServer:
        site = Site(lambda: self._status, lambda: self._clock.monotonic() - self._beaten, self._clock)
        server = HealthServer(parse_address(address), site)
        self._status = msgspec.structs.replace(self._status, http=server.address)
        self._log.info("serving", http=server.address)
        return server

    def _failure(self, error: Exception) -> MillraceError:
        """Of a JVM that is dying Python hears first that it does not answer."""
        from_java = type(error).__module__.startswith(("py4j", "pyspark")) or isinstance(
            error, ConnectionError
        )
        jvm: int | None = None
        if from_java and self._spark is not None:
            jvm = session.jvm_ended(self._spark, _DYING_SECONDS)
        elif from_java:
            jvm = session.killed_while_starting(error)
        return classify((self._outlet and self._outlet.failure) or error, self.spec, jvm)

    def _cluster(self, transaction_timeout: float | None = None) -> Cluster:
        secrets = self.spec.secrets
        return ConfluentCluster(
            self.spec.bootstrap,
            credentials=Credentials.from_directory(Path(secrets)) if secrets is not None else None,
            properties=self.spec.properties,
            client_id=f"{self.spec.group}.driver",
            transaction_timeout=transaction_timeout,
        )

    def _check_channel(self, admin: Admin) -> None:
        """Raises TopicMissing. Spark would take half a minute to find out, and say it at length."""
        wanted, channel = self.spec.partitions, self.spec.channel
        found = admin.describe_topic(channel, _KAFKA_SECONDS)
        if found is None or found.partitions < wanted:
            what = f"has {found.partitions} partitions, not {wanted}" if found else "is not there"
            raise TopicMissing(
                f"the channel {channel} {what}",
                where=f"topic {channel}",
                remedy="Millrace makes it before the chain starts: if it was deleted, what it held is lost to the collector",
            )

    def _how_it_ends(self, admin: Admin, at: Positions) -> ending.Ending:
        if self.spec.until_end:
            return ending.AllClosed(self.spec)
        if self.spec.pending:
            spans = admin.spans(self.spec.channel, range(self.spec.partitions), _KAFKA_SECONDS)
            return ending.AllTaken({p: span.end for p, span in spans.items()}, at, self.spec)
        return ending.Never()

    def _start(self, keep_open: tuple[int, ...], control: Path) -> StreamingQuery:
        spark = self._spark = session.start(self.spec, keep_open=keep_open)
        session.Reports(spark, self._reports.put)
        interval = self.spec.query.interval
        if self.spec.until_end:
            interval = min(interval, _END_INTERVAL)
        for substitute in substitutes(CONNECTOR):
            self._log.info(substitute)
        self._say(ui=session.ui_of(spark))
        self._log.info(
            "the session is up",
            spark=spark.version,
            master=spark.sparkContext.master,
            version=self.spec.version,
            ui=self._status.ui,
        )
        rows = plan.build(spark, self.spec, control)
        writer = functions.Writer(
            spark,
            self.spec.name,
            self._checkpoint,
            lambda writer: writer.trigger(processingTime=f"{round(interval * 1000)} milliseconds"),
            self.spec.version,
        )
        return self._compute(rows, writer)

    def _compute(self, rows: DataFrame, writer: functions.Writer) -> StreamingQuery:
        """Start the query over the rows. Raises ManifestError, FunctionError, and what opening the sink raises."""
        what, where = self.spec, self.spec.where
        if what.query.function is None:
            result: DataFrame | None = compute.declared(rows, what.query, where)
        else:
            code = Path(what.code) if what.code is not None else None
            function = functions.load(what.query.function, code, f"{where}.function")
            timed = compute.parsed(rows, what.query)
            result = functions.call(function, timed, writer, what.query, where, sink=what.sink is not None)
        if result is None:
            assert writer.query is not None
            return writer.query
        assert what.sink is not None
        self._outlet = sinks.make(
            what.sink,
            version=what.version,
            checkpoint=self._checkpoint,
            group=what.group,
            cluster=lambda: self._cluster(sinks.TRANSACTION_SECONDS),
            clock=self._clock,
            where=f"{where}.sink",
        )
        self._outlet.open(result.schema)
        if what.query.function is None:
            result = versions.beyond(
                result, versions.settle(self._checkpoint, what.after, self._outlet.former())
            )
        return functions.started(writer(result).foreachBatch(self._outlet), what.query, where)

    def _follow(self, query: StreamingQuery, books: Books) -> bool:
        """Take the reports until the query is over. True: all that was to do is done; False: it was asked to stop."""
        deadline: Deadline | None = None
        tidied = False
        while True:
            self._beaten = self._clock.monotonic()
            report = self._next_report()
            if report is not None:
                batch = progress.parse(report, self.spec.channel)
                books.enter(batch)
                self._done(batch)
                if not tidied:  # this version has committed a batch
                    tidied = True
                    versions.remove_outlived(self._checkpoint, self.spec.version, self._log)
                if self._ending.after(batch, books.positions, self._beaten):
                    query.stop()
                    return True
            elif not query.isActive:
                if error := query.exception():
                    raise error
                return False
            elif self._ending.idle(self._beaten, lambda: bool(query.status["isTriggerActive"])):
                query.stop()
                return True
            books.look_after()
            if self._stop:
                deadline = deadline or Deadline.after(self._clock, _STOP_SECONDS)
                # a report means that a batch has just ended: what the next may have begun by now is not worth a wait
                if report is not None or deadline.expired() or not query.status["isTriggerActive"]:
                    query.stop()
                    return False

    def _next_report(self) -> str | None:
        try:
            return self._reports.get(timeout=0.2)
        except queue.Empty:
            return None

    def _done(self, batch: progress.BatchProgress) -> None:
        last = self._status
        self._say(
            batch=batch.batch,
            batches=last.batches + 1,
            seconds=batch.seconds,
            busy=last.busy + batch.seconds,
            rows=last.rows + batch.rows,
            rows_per_second=batch.rows / batch.seconds
            if batch.rows and batch.seconds
            else last.rows_per_second,
            written=self._outlet.written if self._outlet else 0,
            state_rows=batch.state_rows,
            state_bytes=batch.state_bytes,
            watermark=batch.watermark,
            offsets={**last.offsets, **batch.ends},
            latest={**last.latest, **batch.latest},
            late=last.late + batch.late,
        )
        now = self._status
        self._log.info(
            "batch done",
            batch=batch.batch,
            rows=batch.rows,
            seconds=batch.seconds,
            rows_per_second=round(batch.rows / batch.seconds) if batch.seconds else 0,
            written=now.written - last.written,
            state_rows=batch.state_rows,
            state_bytes=batch.state_bytes,
            watermark=batch.watermark,
            lag=sum(max(0, end - now.offsets.get(p, 0)) for p, end in now.latest.items()),
            late=batch.late,
        )

    def _say(self, **changes: object) -> None:
        self._status = msgspec.structs.replace(self._status, updated=self._clock.time(), **changes)
        status.write(self._status, Path(self.spec.status_file))


if __name__ == "__main__":
    sys.exit(main())
