"""The part of `kubectl millrace offsets` that needs Kafka, where Kafka can be reached: in a pod beside the workers.

It has what a worker has (the manifest, the epoch, the Secret, all mounted) and answers on one line of its standard output,
among whatever else is written there.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

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

MARK: Final = "millrace-offsets: "
"""What the line begins with."""

Action = Literal["show", "reset", "repair"]


class Errand(msgspec.Struct, frozen=True):
    """What the pod is sent for. `stopped`: the pipeline's workers were seen to have ended."""

    action: Action
    stopped: bool
    request: Request | None = None


class Failed(msgspec.Struct, frozen=True):
    """The parts of a MillraceError."""

    what: str
    where: str
    remedy: str
    code: int


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of the three."""

    offsets: Offsets | None = None
    changes: Changes | None = None
    failed: Failed | None = None


@dataclass(frozen=True, slots=True)
class Mounted:
    manifest: Path
    epoch_file: Path
    secrets: Path | None


def answer(errand: str, mounted: Mounted) -> ExitCode:
    """Do it, write the line, and return what the process is to end with."""
    code = ExitCode.OK
    try:
        found = _done(msgspec.json.decode(errand, type=Errand), mounted)
    except MillraceError as error:
        code = error.code
        found = Answer(failed=Failed(error.what, error.where, error.remedy, int(code)))
    sys.stdout.write(f"\n{MARK}{msgspec.json.encode(found).decode()}\n")
    sys.stdout.flush()
    return code


def read_answer(log: str) -> Answer | None:
    """The line in what a pod has written; None: there is none, it ended before."""
    for line in reversed(log.splitlines()):
        if line.startswith(MARK):
            try:
                return msgspec.json.decode(line.removeprefix(MARK), type=Answer)
            except msgspec.DecodeError:
                return None
    return None


def _done(errand: Errand, mounted: Mounted) -> Answer:
    pipeline = read(mounted.manifest).pipeline
    rewriter = _rewriter(pipeline, mounted)
    try:
        if errand.action == "show" or errand.request is None:
            return Answer(offsets=work.show(rewriter, running=not errand.stopped))
        if errand.action == "reset":
            changed = work.reset(rewriter, pipeline, errand.request, stopped=errand.stopped)
        else:
            changed = work.repair(rewriter, pipeline, errand.request)
        return Answer(changes=changed)
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
