"""From a manifest's collect stage to the job of its collector: the same for a local run and for `millrace collector`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from millrace.channel.backlog import OnLag
from millrace.channel.wire import END
from millrace.collector import kafka, plan, positions, sinks, versions
from millrace.collector.jars import CONNECTOR, check_pyspark
from millrace.collector.launch import locked
from millrace.collector.query import Query, Window
from millrace.collector.spec import JobSpec
from millrace.errors import ExitCode, MillraceError
from millrace.host import jars, java
from millrace_api import ConsumerPipeline
from millrace_api.collect import CollectStage


@dataclass(frozen=True, slots=True)
class CollectorJob:
    """What is to be collected, and where it is kept.

    Attributes:
        at: index of the stage in the manifest.
        storage: checkpoints are kept there, and results, where the manifest says nothing else.
        notes: folder of what the job says of itself: status, logs, Spark's event log.
        connector: the folder of Spark's Kafka connector.
        code: that of the manifest's functions.
        secrets: directory of the credentials.
        http: HOST:PORT of health and metrics; port 0: any.
        place: see JobSpec.
    """

    pipeline: ConsumerPipeline
    stage: str
    collect: CollectStage
    at: int
    storage: Path
    notes: Path
    bootstrap: str
    connector: Path
    code: Path | None = None
    secrets: Path | None = None
    until_end: bool = False
    spark_ui: bool = False
    http: str | None = "127.0.0.1:0"
    place: Mapping[str, str] = field(default_factory=dict)

    @property
    def channel(self) -> str:
        return self.pipeline.channel(self.stage)

    @property
    def group(self) -> str:
        """The consumer group that has the offsets up to which batches are done."""
        return self.pipeline.collector_group(self.stage)

    @property
    def home(self) -> Path:
        """The folder with the versions of the checkpoint."""
        return self.storage / self.pipeline.metadata.name / self.stage

    @property
    def log(self) -> Path:
        return self.notes / f"{self.stage}.log"

    @property
    def on_lag(self) -> OnLag | None:
        """How much has to wait until a job is started; None: one runs all the time."""
        given = self.collect.trigger.on_lag
        return OnLag(given.messages, given.age_seconds) if given is not None else None

    def choose(self, partitions: int, *, wait: float = 0.0) -> versions.Choice:
        """The job that reads so many partitions of the channel, on the version of the checkpoint that fits it.

        wait: seconds to wait for a former attempt to be gone.

        Raises: MillraceError (BUSY) if another attempt is at work, (CHECKPOINT) if what is there is damaged, (DISK).
        """
        wanted = JobSpec(
            name=f"{self.pipeline.metadata.name}.{self.stage}",
            query=query(self.collect),
            bootstrap=self.bootstrap,
            channel=self.channel,
            partitions=partitions,
            group=self.group,
            checkpoint=str(self.home / "v1"),
            sink=sink(self.collect, self.storage),
            code=str(self.code) if self.collect.function is not None and self.code is not None else None,
            where=f"spec.stages[{self.at}].collect",
            status_file=str(self.notes / f"{self.stage}.json"),
            log=str(self.notes / f"{self.stage}.spark.log"),
            events=str(self.notes / f"{self.stage}.events"),
            jars=str(self.connector),
            layout=plan.LAYOUT,
            until_end=self.until_end,
            http=self.http,
            ui=self.spark_ui,
            place=self.place,
            properties=self.pipeline.spec.kafka.properties,
            secrets=str(self.secrets.absolute()) if self.secrets is not None else None,
        )
        with locked(self.home, wait):
            return versions.choose(self.home, wanted)


_INTERVAL = 1.0  # seconds between the batches of a job that takes what is pending


def ended_before(spec: JobSpec) -> bool:
    """Whether a former run has closed all windows of this version: what comes now is late."""
    known = positions.read(Path(spec.checkpoint))
    return bool(known) and all(position.time == END for position in known.values())


def check_collector(pipeline: ConsumerPipeline, secrets: Path | None) -> Path | None:
    """See that a collect stage of the manifest can be run here. Returns the folder of Spark's Kafka connector, fetched
    if need be; None if there is no such stage.

    Raises: MillraceError (SETUP) if PySpark, Java or the connector is not to be had; (CREDENTIALS) if the credentials
        are of a form that Java's Kafka client can't take.
    """
    found = _stage(pipeline)
    if found is None:
        return None
    kafka.check(secrets)
    return connector()


def collector_job(
    pipeline: ConsumerPipeline,
    connector: Path,
    *,
    storage: Path,
    notes: Path,
    bootstrap: str,
    code: Path | None = None,
    secrets: Path | None = None,
    until_end: bool = False,
    spark_ui: bool = False,
    http: str | None = "127.0.0.1:0",
    place: Mapping[str, str] | None = None,
) -> CollectorJob | None:
    """The job of the manifest's collect stage; None if it has none. Starts nothing."""
    found = _stage(pipeline)
    if found is None:
        return None
    at, name, collect = found
    return CollectorJob(
        pipeline,
        name,
        collect,
        at,
        storage,
        notes,
        bootstrap,
        connector,
        code=code,
        secrets=secrets,
        until_end=until_end,
        spark_ui=spark_ui,
        http=http,
        place=place or {},
    )


def _stage(pipeline: ConsumerPipeline) -> tuple[int, str, CollectStage] | None:
    stages = enumerate(pipeline.spec.stages)
    return next(((at, stage.name, stage.collect) for at, stage in stages if stage.collect is not None), None)


def connector() -> Path:
    """The folder of Spark's Kafka connector, fetched if need be. Raises MillraceError (SETUP): none, nor PySpark or Java."""
    check_pyspark()
    java.find("the collector (Spark)")
    return jars.ensure(CONNECTOR)


def query(collect: CollectStage) -> Query:
    """What the stage computes."""
    window = collect.window
    return Query(
        schema=collect.row_schema,
        group_by=collect.group_by,
        window=Window(
            size=window.size_seconds,
            slide=window.slide_seconds if window.slide is not None else None,
            time=window.time,
            lateness=window.lateness_seconds,
        )
        if window is not None
        else None,
        aggregate=dict(collect.aggregate or {}),
        function=collect.function,
        interval=_INTERVAL if collect.trigger.on_lag is not None else collect.trigger.interval_seconds,
        conf=dict(collect.spark.settings) if collect.spark is not None else {},
    )


def sink(collect: CollectStage, storage: Path) -> sinks.Settings | None:
    """Where the stage's results go; relative paths are below the storage. None: its function writes."""
    wanted = collect.sink
    if wanted is None:
        return None
    if wanted.kafka is not None:
        return sinks.Kafka(topic=wanted.kafka.topic, key=wanted.kafka.key)
    if wanted.console is not None:
        return sinks.Console(rows=wanted.console.rows)
    assert wanted.parquet is not None  # one of them is there, which the manifest's check sees to
    return sinks.Parquet(path=str(storage / wanted.parquet.path), partition_by=wanted.parquet.partition_by)


def check_output(pipeline: ConsumerPipeline, storage: Path) -> None:
    """See that results can be written where the manifest wants them, before anything is started.

    Raises: MillraceError (DISK).
    """
    found = _stage(pipeline)
    if found is None or found[2].sink is None or found[2].sink.parquet is None:
        return
    path = storage / found[2].sink.parquet.path
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return
    raise MillraceError(
        f"results can't be written to {path}: {there} is {'not writable for this user' if there.is_dir() else 'no folder'}",
        where=f"spec.stages[{found[0]}].collect.sink.parquet.path",
        remedy="choose another path",
        code=ExitCode.DISK,
    )
