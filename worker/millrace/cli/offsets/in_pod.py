"""The part of `kubectl millrace offsets` that needs Kafka, where Kafka can be reached: in a pod beside the workers.

It has what a worker has: the manifest, the epoch, the Secret, all mounted.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from millrace.cli.offsets import work
from millrace.cli.offsets.answers import Changes, Offsets
from millrace.cli.offsets.requests import Request
from millrace.clock import SystemClock
from millrace.errors import ExitCode, MillraceError
from millrace.ownership.control_rules import Identity
from millrace.ownership.epoch_store import EpochFile
from millrace.ownership.rewriting import Rewriter
from millrace.worker.cluster import connect
from millrace.worker.manifest import read
from millrace_api import ConsumerPipeline
from millrace_api.needed import transactional


class Look(msgspec.Struct, frozen=True, tag="show"):
    """`stopped`: the pipeline's workers were seen to have ended. Answered by Offsets."""

    stopped: bool


class Change(msgspec.Struct, frozen=True, tag="change"):
    """`stopped`: as of Look. Answered by Changes."""

    action: Literal["reset", "repair"]
    stopped: bool
    request: Request


@dataclass(frozen=True, slots=True)
class Mounted:
    manifest: Path
    epoch_file: Path
    secrets: Path | None


def do(errand: str, mounted: Mounted) -> Offsets | Changes:
    """Raises MillraceError."""
    asked = msgspec.json.decode(errand, type=Look | Change)
    pipeline = read(mounted.manifest).pipeline
    rewriter = _rewriter(pipeline, mounted)
    try:
        if isinstance(asked, Look):
            return work.show(rewriter, running=not asked.stopped)
        if asked.action == "reset":
            return work.reset(rewriter, pipeline, asked.request, stopped=asked.stopped)
        return work.repair(rewriter, pipeline, asked.request)
    finally:
        rewriter.close()


def _rewriter(pipeline: ConsumerPipeline, mounted: Mounted) -> Rewriter:
    """uid and epoch are the operator's: what it has published."""
    epoch = EpochFile(mounted.epoch_file).epoch()
    if epoch is None:
        raise MillraceError(
            "the operator has published no epoch yet",
            where=str(mounted.epoch_file),
            remedy="`kubectl millrace status` says what it waits for",
            code=ExitCode.USAGE,
        )
    cluster = connect(pipeline, bootstrap=None, secrets=mounted.secrets, client_id="millrace-offsets")
    source = pipeline.spec.source.topic
    identity = Identity(epoch.uid, source, "", pipeline.group_id, pipeline.claims_group)
    return Rewriter(cluster, SystemClock(), identity, epoch, outputs=transactional(pipeline))
