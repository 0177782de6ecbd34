"""`millrace collector`: one attempt in the foreground."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Request:
    """See `millrace collector --help`; None: not given."""

    manifest: Path
    storage: Path
    stage: str | None = None
    secrets: Path | None = None
    kafka: str | None = None
    http: str | None = None
    notes: Path | None = None
    code: Path | None = None
    pending: bool = False
    until_end: bool = False
    spark_ui: bool = False
    conf: Sequence[str] = ()
    attempt: int = 1
    restarts: int = 0


def collector(request: Request) -> None:
    from millrace.collector.foreground import attend
    from millrace.collector.stage import check_collector, check_output, collector_job
    from millrace.connectivity.ports import TopicMissing
    from millrace.errors import ExitCode, MillraceError
    from millrace.worker.cluster import connect
    from millrace.worker.http import parse_address
    from millrace.worker.manifest import code_of, read

    if request.http is not None:
        parse_address(request.http)
    if request.pending and request.until_end:
        raise MillraceError(
            "--pending and --until-end are two ways to end",
            where="--pending",
            remedy="give one of them",
            code=ExitCode.USAGE,
        )
    place = _settings(request.conf)
    loaded = read(request.manifest)
    pipeline = loaded.pipeline
    cluster = connect(
        pipeline, bootstrap=request.kafka, secrets=request.secrets, client_id=f"{pipeline.group_id}-collector"
    )
    connector = check_collector(pipeline, request.secrets)
    check_output(pipeline, request.storage.absolute())
    with code_of(loaded, request.manifest, request.code) as code:
        job = (
            collector_job(
                pipeline,
                connector,
                storage=request.storage.absolute(),
                notes=(request.notes or request.storage / "collector").absolute(),
                bootstrap=request.kafka or pipeline.spec.kafka.bootstrap_servers,
                code=code,
                secrets=request.secrets,
                until_end=request.until_end,
                spark_ui=request.spark_ui,
                http=request.http,
                place=place,
            )
            if connector is not None
            else None
        )
        if job is None or request.stage not in (None, job.stage):
            raise MillraceError(
                f"the manifest has no collect stage {request.stage}"
                if job
                else "the manifest has no collect stage",
                where="--stage" if job else "spec.stages",
                remedy=f"its collect stage is {job.stage}" if job else "add one: see docs/collector.md",
                code=ExitCode.USAGE if job else ExitCode.MANIFEST,
            )
        admin = cluster.admin()
        try:
            described = admin.describe_topic(job.channel, 10.0)
        finally:
            admin.close()
        if described is None:
            raise TopicMissing(
                f"the channel {job.channel} is not there",
                where=f"topic {job.channel}",
                remedy="it is made before the chain starts, by the operator or by `millrace run`: start that first",
            )
        sys.exit(
            attend(
                job,
                described.partitions,
                pending=request.pending,
                attempt=request.attempt,
                restarts=request.restarts,
            )
        )


def _settings(given: Sequence[str]) -> Mapping[str, str]:
    """Spark's settings from KEY=VALUE."""
    from millrace.errors import ExitCode, MillraceError

    pairs = [one.partition("=") for one in given]
    wrong = next((key for key, sign, _ in pairs if not sign or not key.startswith("spark.")), None)
    if wrong is not None:
        raise MillraceError(
            f"{wrong!r} is no setting of Spark",
            where="--conf",
            remedy="give KEY=VALUE with a key that begins with spark.",
            code=ExitCode.USAGE,
        )
    return {key: value for key, _, value in pairs}
