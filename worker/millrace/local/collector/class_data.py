"""Makes the class-data archive of the collector's JVM (`collector.class_data`): once, by a small run of a collector over a
channel of an embedded broker, all in a temporary folder, whose JVM leaves the archive behind as it ends.

Nothing depends on it: where it can't be made, that is noted, and not tried again for a day.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from millrace.channel import wire
from millrace.clock import Deadline, SystemClock
from millrace.collector import Attempt, JobSpec, Query, Window, class_data
from millrace.collector.launch import locked
from millrace.collector.sinks import Parquet
from millrace.connectivity.confluent import ConfluentCluster
from millrace.errors import MillraceError
from millrace.host.java import Java
from millrace.local.broker.embedded import EmbeddedBroker
from millrace.ownership.provenance import origin_header

SECONDS = 900.0
"""The longest that it may take: half a minute on an idle machine, and there are others."""
_AGAIN = 86_400.0  # seconds after a failure
_KEPT = 3  # archives, of 200 MB: one for each environment with a PySpark of its own
_CHANNEL, _HOUR = "classes.channel", 3_600_000_000


def ensure(java: Java, connector: Path, notice: Callable[[str], None]) -> Path | None:
    """The archive for this Java, PySpark and connector, made if need be; None if it can't be made here.

    notice: told before it is made.
    """
    archive = class_data.place(java, connector)
    if archive is None or archive.exists():
        return archive
    failed = archive.with_suffix(".failed")
    try:
        with (archive.parent / ".lock-classes").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not archive.exists() and not _lately(failed):
                notice("making a class-data archive, for quick starts of Spark's JVM (once, half a minute)")
                failed.touch()
                with tempfile.TemporaryDirectory(prefix=".classes-", dir=archive.parent) as work:
                    _make(connector, Path(work)).rename(archive)
                failed.unlink()
                _forget(archive)
    except (OSError, subprocess.SubprocessError, MillraceError) as error:
        notice(f"no class-data archive: Spark's JVM starts without, and slower: {error}")
    return archive if archive.exists() else None


def _make(connector: Path, work: Path) -> Path:
    """Raises MillraceError, OSError."""
    deadline, made = Deadline.after(SystemClock(), SECONDS), work / "classes.jsa"
    with EmbeddedBroker(work / "broker") as broker:
        _fill(broker.bootstrap)
        spec = _job(broker.bootstrap, connector, work, made)
        attempt = Attempt(spec, work / "job.log")
        attempt.start()
        try:
            while attempt.exit_code is None and not deadline.expired():
                SystemClock().sleep(0.1)
            # the JVM ends after its Python, and writes the archive then
            with locked(Path(spec.checkpoint).parent, deadline.remaining()):
                pass
        finally:
            attempt.kill()
    if failure := attempt.failure():
        raise failure
    if not made.exists():
        raise MillraceError("the JVM has left none behind", where=str(made))
    return made


def _job(bootstrap: str, connector: Path, work: Path, archive: Path) -> JobSpec:
    return JobSpec(
        name="classes",
        query=Query(
            schema="kind string, at timestamp, size double",
            group_by=("kind",),
            window=Window(size=3600, time="at", lateness=3600),
            aggregate={"rows": "count(*)", "total": "sum(size)", "mean": "avg(size)", "most": "max(size)"},
            interval=0.5,
            conf={"spark.driver.extraJavaOptions": " ".join(class_data.making(archive))},
        ),
        bootstrap=bootstrap,
        channel=_CHANNEL,
        partitions=2,
        group="classes",
        checkpoint=str(work / "home" / "v1"),
        sink=Parquet(path=str(work / "results"), partition_by=("date(window_start)",)),
        where="spec.stages[0].collect",
        status_file=str(work / "status.json"),
        log=str(work / "spark.log"),
        jars=str(connector),
        until_end=True,
    )


def _fill(bootstrap: str) -> None:
    cluster = ConfluentCluster(bootstrap, client_id="classes")
    admin, producer = cluster.admin(), cluster.producer()
    admin.create_topic(_CHANNEL, 2, 60.0)
    for partition in range(2):
        for n in range(200):
            at = n * _HOUR // 10
            value = b'{"kind":"a","at":"1970-01-01T%02d:%02d:00.000000Z","size":1.5}' % (n // 10, n % 10 * 6)
            headers = wire.row_headers(at, origin_header("classes", partition, n))
            producer.produce(_CHANNEL, value, headers=list(headers), partition=partition)
        headers = wire.mark_headers(wire.MarkKind.END, wire.END, "classes", partition)
        producer.produce(_CHANNEL, None, headers=list(headers), partition=partition)
    producer.flush(60.0)
    producer.close()
    admin.close()


def _lately(failed: Path) -> bool:
    try:
        return time.time() - failed.stat().st_mtime < _AGAIN
    except FileNotFoundError:
        return False


def _forget(archive: Path) -> None:
    """Remove the archives of environments that are gone, or are not used: all but the newest few."""
    others = sorted(archive.parent.glob("classes-*.jsa"), key=lambda other: other.stat().st_mtime)
    for other in others[:-_KEPT]:
        os.unlink(other)
