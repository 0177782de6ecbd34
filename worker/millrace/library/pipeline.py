"""A pipeline of a program's own: its spec as plain data, checked, and run against a broker."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import structlog

from millrace.chain import Functions, load
from millrace.clock import Clock, Deadline, SystemClock
from millrace.connectivity.ports import Cluster
from millrace.engine.bounds import Bounds
from millrace.errors import ManifestError
from millrace.library.sole import SoleWorker
from millrace.library.spec import written
from millrace.ownership.epoch_store import MemoryEpochs
from millrace.ownership.topics import ensure
from millrace.worker.cluster import connect
from millrace.worker.manifest import refuse_owned
from millrace_api import ConsumerPipeline
from millrace_api.needed import needed

DRAIN = 30.0  # s in which what was taken is brought to its end
_STEP = 0.05  # s that a step may wait for messages: how soon `stop` is seen
_UIDS = uuid.UUID("6f3c0e0a-8f60-4d5c-9f5d-0c6a3f5ad6a1")


class Pipeline:
    """A pipeline that is written in Python.

    Args:
        name: as `metadata.name` of a manifest.
        spec: as `spec` of a manifest (docs/manifest.md). Wherever that has a `module:name` a function may stand. A stage
            may also be `{"name": ..., "strategy": make}`: `make(next, clock)` returns a Strategy that hands on to `next`.
        code: a directory in which modules are looked for that are named as text; None: the Python path only.

    Raises:
        InvalidManifest, ManifestError: with the place in the spec. FunctionError: a function in processes that other
        processes can't import.
    """

    def __init__(self, name: str, spec: Mapping[str, object], *, code: Path | str | None = None) -> None:
        found = written(name, spec)
        refuse_owned(found.pipeline)
        self.manifest: ConsumerPipeline = found.pipeline
        self.code = None if code is None else Path(code).resolve()
        self._written = found

    def functions(self) -> Functions:
        """Import what is named as text, check how each function is to be called, and call their modules' `setup()`.

        Raises FunctionError.
        """
        loaded = load(self.manifest, self.code, given=self._written.functions)
        return replace(loaded, strategies=self._written.strategies)

    def run(
        self,
        *,
        until_end: bool = False,
        stop: threading.Event | None = None,
        secrets: Path | None = None,
    ) -> None:
        """Work, on this thread, as the only worker of this pipeline; progress is kept in Kafka, so the next run goes on
        where this one was. Another program that runs it takes over. Several workers are the affair of `millrace run`.

        What was taken is brought to its end and committed before this returns or raises, KeyboardInterrupt included, within
        DRAIN seconds.

        Args:
            until_end: return when everything that is in the source now is committed.
            stop: return when this is set.
            secrets: a directory with the keys of the Secret that `kafka.credentials` names.

        Raises:
            MillraceError: what a human has to see to; the exit codes in docs/exit-codes.md say what there is.
        """
        for index, stage in enumerate(self.manifest.spec.stages):
            if stage.collect is not None:
                raise ManifestError(
                    "a collect stage needs a job beside its workers",
                    where=f"spec.stages[{index}].collect",
                    remedy="use `millrace run`, or the operator",
                )
        functions, clock = self.functions(), SystemClock()
        cluster = connect(
            self.manifest, bootstrap=None, secrets=secrets, client_id=f"{self.manifest.group_id}-0"
        )
        bounds = self._prepare(cluster, clock, until_end)
        uid = str(uuid.uuid5(_UIDS, self.manifest.group_id))
        worker = SoleWorker(
            self.manifest, functions, cluster, clock, uid=uid, epochs=MemoryEpochs(), bounds=bounds
        )
        try:
            while not worker.at_end() and not (stop is not None and stop.is_set()):
                worker.step(_STEP)
        finally:
            worker.close(Deadline.after(clock, DRAIN))

    def _prepare(self, cluster: Cluster, clock: Clock, until_end: bool) -> Bounds | None:
        """See to the topics. Returns the ends of the source, if the run ends there."""
        log = structlog.get_logger("millrace.library")
        topic, deadline = self.manifest.spec.source.topic, Deadline.after(clock, 30.0)
        with closing(cluster.admin()) as admin:
            ensure(admin, needed(self.manifest), deadline, lambda text, level: getattr(log, level)(text))
            if not until_end:
                return None
            described = admin.describe_topic(topic, deadline.remaining())
            partitions = range(described.partitions if described is not None else 0)
            spans = admin.spans(topic, partitions, deadline.remaining())
            return Bounds({partition: span.end for partition, span in spans.items()})
