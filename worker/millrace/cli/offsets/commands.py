"""`millrace offsets`: of a local run, found by its state directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from millrace.cli.offsets import shown, work
from millrace.cli.offsets.requests import Request, parse_position
from millrace.clock import SystemClock
from millrace.local.visit import Visit, visit
from millrace.ownership.control_rules import Identity
from millrace.ownership.epoch import Epoch
from millrace.ownership.epoch_store import EpochFile
from millrace.ownership.rewriting import Rewriter
from millrace.worker.manifest import read
from millrace_api import ConsumerPipeline
from millrace_api.needed import transactional


@dataclass(frozen=True, slots=True)
class Place:
    """Which pipeline, and where it runs: as `millrace run` was told."""

    manifest: Path
    kafka: str | None
    state: Path | None
    secrets: Path | None


def show(place: Place, as_json: bool) -> None:
    pipeline = read(place.manifest).pipeline
    with _open(place, pipeline, alone=False) as (rewriter, visited):
        answer = work.show(rewriter, running=visited.running is not None)
    shown.offsets(answer, shown.LOCAL, as_json)


def reset(place: Place, request: Request, as_json: bool) -> None:
    pipeline = read(place.manifest).pipeline
    parse_position(request)
    with _open(place, pipeline, alone=True) as (rewriter, _):
        answer = work.reset(rewriter, pipeline, request, stopped=True)
    shown.changes(answer, shown.LOCAL, as_json)


def repair(place: Place, request: Request, as_json: bool) -> None:
    pipeline = read(place.manifest).pipeline
    parse_position(request)
    with _open(place, pipeline, alone=True) as (rewriter, _):
        answer = work.repair(rewriter, pipeline, request)
    shown.changes(answer, shown.LOCAL, as_json)


@contextmanager
def _open(place: Place, pipeline: ConsumerPipeline, *, alone: bool) -> Iterator[tuple[Rewriter, Visit]]:
    with visit(
        pipeline,
        kafka=place.kafka,
        state=place.state,
        secrets=place.secrets,
        alone=alone,
        client_id="millrace-offsets",
    ) as visited:
        record = visited.record
        identity = Identity(record.uid, record.topic, "", record.group_id, pipeline.claims_group)
        epoch = EpochFile(visited.state.epoch_file).epoch() or Epoch.first(record.uid)
        rewriter = Rewriter(visited.cluster, SystemClock(), identity, epoch, outputs=transactional(pipeline))
        try:
            yield rewriter, visited
        finally:
            rewriter.close()
