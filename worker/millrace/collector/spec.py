"""All that one attempt needs, in a file: who launches writes it, the job reads it. It holds no secret."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from millrace.collector.query import Query
from millrace.collector.sinks.settings import Settings
from millrace.errors import ExitCode, MillraceError


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """
    Attributes:
        name: of the pipeline and the stage, for logs.
        channel, partitions: the topic, and how many partitions of it are read (0 .. partitions - 1).
        group: consumer group that progress is committed to.
        checkpoint: folder of this version of the query, Spark's and ours.
        sink: where results go; None: the query's function writes by itself.
        code: folder of the function's module.
        where: path of the collect stage in the manifest, `spec.stages[4].collect`, for what is wrong there.
        status_file: written after each batch, see `status`.
        log: Spark's own log.
        version: of the checkpoint; a query that can't go on from another's state begins a new one.
        after: event time, microseconds since the epoch: windows that end at or before it are left out, since a former
            version has written them. None: there is no former version.
        layout: of the query's plan (`plan.LAYOUT`): what state looks like beside what the query says.
        until_end: stop when all partitions have ended and all windows are closed.
        pending: stop when what the channel held at the start is read, and the windows that it closes are written.
        jars: the folder of the Kafka connector.
        archive: of the JVM's classes, see `class_data`; "": there is none. Who launches sets it.
        attempt, restarts: see CollectorStatus.
        http: HOST:PORT to serve health and metrics at, port 0 for any; None: not served.
        ui: serve Spark's own UI, at an address that the status tells.
        events: folder of Spark's event log, where the user's settings ask for one and name none.
        master: Spark's; `memory`: the JVM's largest heap.
        place: settings of Spark by which it runs where it does, on a cluster say; they win over all others.
        records_per_batch: at most so many records are taken into one batch.
        properties: of the Kafka clients, the user's.
        secrets: directory of the credentials, read by each process that connects; None: there are none.
    """

    name: str
    query: Query
    bootstrap: str
    channel: str
    partitions: int
    group: str
    checkpoint: str
    status_file: str
    log: str
    jars: str
    where: str
    archive: str = ""
    sink: Settings | None = None
    code: str | None = None
    version: int = 1
    after: int | None = None
    layout: int = 1
    attempt: int = 1
    restarts: int = 0
    http: str | None = None
    ui: bool = False
    events: str = ""
    until_end: bool = False
    pending: bool = False
    master: str = "local[2]"
    memory: str = "1g"
    place: Mapping[str, str] = {}
    records_per_batch: int = 1_000_000
    properties: Mapping[str, str] = {}
    secrets: str | None = None

    @property
    def heap(self) -> str:
        """The JVM's largest heap, the user's word counting most."""
        return {"spark.driver.memory": self.memory, **self.place, **self.query.conf}["spark.driver.memory"]

    @property
    def distributed(self) -> bool:
        """Whether it has executors, which are elsewhere."""
        return not self.place.get("spark.master", self.master).startswith("local")


def write(spec: JobSpec, path: Path) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(spec)))


def read(path: Path) -> JobSpec:
    """Raises MillraceError (SETUP)."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=JobSpec)
    except (OSError, msgspec.DecodeError) as error:
        raise MillraceError(
            f"the collector's job can't read what it is to do: {error}",
            where=str(path),
            remedy="it is written by Millrace at each start: start again with one version of Millrace throughout",
            code=ExitCode.SETUP,
        ) from error
