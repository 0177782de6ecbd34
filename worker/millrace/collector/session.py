"""The Spark session of a collector: its settings and why, its JVM, its reports."""

from __future__ import annotations

import subprocess
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from millrace.collector import class_data
from millrace.collector.spec import JobSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGGING = """\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSSX}}{{UTC}} %p %c{{1}} %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 16MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
# it warns at each batch of what is meant so
logger.admin.name = org.apache.spark.sql.kafka010.KafkaOffsetReaderAdmin
logger.admin.level = error
logger.client.name = org.apache.kafka
logger.client.level = error
"""


def settings(spec: JobSpec, logging: Path) -> Mapping[str, str]:
    """Spark's configuration: ours that suit most, then the user's, then ours that would be wrong otherwise. Where the place
    it runs in has its own, that is one of the first kind if it is a size of the JVM, else of the last.
    """
    jars = ":".join(sorted(str(jar) for jar in Path(spec.jars).glob("*.jar")))
    # where Python on executors looks for the function's module: this machine, or the same path on another
    code = {} if spec.code is None else {"spark.executorEnv.PYTHONPATH": spec.code}
    return {
        "spark.driver.memory": spec.heap,
        # state is small and Spark's default of 200 costs four times the CPU; a checkpoint keeps its first value
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.enabled": "true" if spec.ui else "false",
        "spark.ui.showConsoleProgress": "false",
        # the defaults keep 100 batches of state files; a few suffice to go on
        "spark.sql.streaming.minBatchesToRetain": "10",
        # nobody asks Spark for reports again, which have all marks of a batch in them
        "spark.sql.streaming.numRecentProgressUpdates": "1",
        **({"spark.eventLog.dir": Path(spec.events).absolute().as_uri()} if spec.events else {}),
        **spec.query.conf,
        **code,
        "spark.app.name": spec.name,
        "spark.master": spec.master,
        "spark.driver.extraClassPath": jars,
        "spark.executor.extraClassPath": jars,
        "spark.driver.extraJavaOptions": " ".join(
            [
                *filter(None, [spec.query.conf.get("spark.driver.extraJavaOptions")]),
                f"-Dlog4j2.configurationFile={logging.as_uri()}",
                *(class_data.options(Path(spec.archive)) if spec.archive else ()),
                # a JVM without memory may live on and do nothing: its end is seen, and by its code known
                "-XX:+ExitOnOutOfMemoryError",
            ]
        ),
        # timestamps mean UTC everywhere, and are Parquet's own and not Impala's
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # batches without data are what closes windows
        "spark.sql.streaming.noDataMicroBatches.enabled": "true",
        **{key: value for key, value in spec.place.items() if key != "spark.driver.memory"},
    }


def start(spec: JobSpec, *, keep_open: tuple[int, ...] = ()) -> SparkSession:
    """Start the JVM and the session.

    keep_open: file descriptors that the JVM holds as long as it lives. The lock of the checkpoint is one: a JVM lives
    on for seconds after its Python was killed.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    logging = Path(spec.log).with_suffix(".log4j2.properties").absolute()
    logging.parent.mkdir(parents=True, exist_ok=True)
    logging.write_text(_LOGGING.format(log=Path(spec.log).absolute()))
    conf = SparkConf(loadDefaults=False)
    chosen = settings(spec, logging)
    for key, value in chosen.items():
        conf.set(key, value)
    if chosen.get("spark.eventLog.enabled") == "true" and "spark.eventLog.dir" not in spec.query.conf:
        Path(spec.events).mkdir(parents=True, exist_ok=True)  # Spark does not
    gateway = launch_gateway(conf, {"pass_fds": keep_open})
    return SparkSession(SparkContext(conf=conf, gateway=gateway))


def ui_of(spark: SparkSession) -> str:
    """Address of Spark's UI; "" if it has none."""
    return spark.sparkContext.uiWebUrl or ""


def jvm_ended(spark: SparkSession, timeout: float) -> int | None:
    """With what the JVM has ended, as a shell says it (a signal negative); None if it is alive after `timeout` s."""
    process: subprocess.Popen[bytes] | None = getattr(spark.sparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        return None


def killed_while_starting(error: BaseException) -> int | None:
    """The signal, negative, that ended the JVM before it could be reached, if the error says that it has ended so early.

    Bad settings end it, too, but not by a signal. PySpark says no more than that there is none, and keeps the process
    to itself: it is found where the error was raised.
    """
    for frame, _ in traceback.walk_tb(error.__traceback__):
        process = frame.f_locals.get("proc")
        if frame.f_code.co_name == "launch_gateway" and isinstance(process, subprocess.Popen):
            code = process.poll()
            return code if code is not None and code < 0 else None
    return None


class Reports:
    """Has Spark hand over the report of each batch, as JSON; of the events of a query that is all that is asked for.

    PySpark's own StreamingQueryListener asks the JVM for each figure of each source in turn, some ten calls a source.
    """

    def __init__(self, spark: SparkSession, take: Callable[[str], None]) -> None:
        self._take = take
        jvm = spark.sparkContext._jvm
        from pyspark.java_gateway import ensure_callback_server_started

        ensure_callback_server_started(spark.sparkContext._gateway)
        spark._jsparkSession.streams().addListener(
            jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(self)
        )

    # the names are Java's
    def onQueryStarted(self, event: object) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: object) -> None:  # noqa: N802
        self._take(event.progress().json())  # type: ignore[attr-defined]

    def onQueryIdle(self, event: object) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: object) -> None:  # noqa: N802
        pass

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)
