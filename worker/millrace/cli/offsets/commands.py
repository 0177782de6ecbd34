"""What `millrace offsets` does: the requests understood, refused where they have to be, and carried out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from millrace.cli.offsets import shown
from millrace.clock import SystemClock
from millrace.errors import ExitCode, MillraceError
from millrace.local.visit import Visit, visit
from millrace.ownership.control_rules import Identity, examine
from millrace.ownership.epoch import Epoch
from millrace.ownership.epoch_store import EpochFile
from millrace.ownership.errors import ClaimLost, ForeignClaim, shorten
from millrace.ownership.repositioning import (
    Change,
    Damage,
    Position,
    To,
    ToOffset,
    ToTime,
    again,
    damaged,
    repairs,
    resets,
)
from millrace.ownership.rewriting import Rewriter, Sight
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


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be set: `to` or `from_group`; `partitions` as text, None: all (that are damaged)."""

    to: str | None
    from_group: bool
    partitions: str | None
    dry_run: bool
    again: bool
    take_over: bool = False


def show(place: Place, as_json: bool) -> None:
    pipeline = read(place.manifest).pipeline
    with _open(place, pipeline, alone=False) as (rewriter, visited):
        shown.stand(rewriter.look(), visited.running, as_json)


def reset(place: Place, request: Request, as_json: bool) -> None:
    pipeline, position = read(place.manifest).pipeline, parse_position(request)
    with _open(place, pipeline, alone=True) as (rewriter, _):
        sight = rewriter.look()
        if sight.epoch.partitions == 0:
            raise _usage(
                "no run has begun to process anything yet, so there is nothing to reset",
                "spec.source.startFrom says where the first one begins",
            )
        _examine(sight, rewriter)
        if not request.dry_run:
            rewriter.sweep()
        sight = rewriter.settled()
        _examine(sight, rewriter)
        seeded = range(sight.epoch.partitions)
        chosen = parse_partitions(request.partitions, seeded)
        targets = rewriter.targets(sight, position, chosen)
        changes = resets(sight.identity, sight.claims, targets)
        _check_again(pipeline, request, changes, sight)
        _carry_out(request, changes, lambda: rewriter.reset(targets))
    shown.changes("reset", changes, sight, pipeline, request.dry_run, as_json)


def repair(place: Place, request: Request, as_json: bool) -> None:
    pipeline, position = read(place.manifest).pipeline, parse_position(request)
    with _open(place, pipeline, alone=True) as (rewriter, _):
        sight = rewriter.settled()
        bad = damaged(sight.identity, sight.epoch, sight.claims, sight.spans)
        chosen = [p for p in parse_partitions(request.partitions, range(len(sight.spans))) if p in bad]
        if not chosen:
            raise _usage(
                f"no claim is lost: group {sight.identity.claims_group} has those of all partitions that are asked for",
                "`millrace offsets show` shows them, `millrace offsets reset` sets them elsewhere",
            )
        _check_take_over(request, sight, [p for p in chosen if bad[p] is Damage.FOREIGN])
        targets = rewriter.targets(sight, position, chosen)
        changes = repairs(sight.identity, sight.epoch, sight.claims, targets)
        _check_again(pipeline, request, changes, sight)
        _carry_out(request, changes, lambda: rewriter.repair(targets))
    shown.changes("repair", changes, sight, pipeline, request.dry_run, as_json)


def parse_position(request: Request) -> Position:
    """Raises MillraceError (USAGE)."""
    if (request.to is None) != request.from_group:
        raise _usage(
            "give one of --to and --from-group",
            "--to earliest, latest, an offset or a time; --from-group: what the consumer group's offsets are",
        )
    if request.to is None:
        return To.GROUP
    text = request.to.strip()
    if text.lower() in (To.EARLIEST.value, To.LATEST.value):
        return To(text.lower())
    if text.isascii() and text.isdigit():
        return ToOffset(int(text))
    from millrace_api.times import timestamp_ms

    try:
        return ToTime(timestamp_ms(text))
    except ValueError:
        raise _usage(
            f"{text!r} is no position",
            "give earliest, latest, an offset, or a time with its zone such as 2026-01-31T00:00:00Z",
            "--to",
        ) from None


def parse_partitions(text: str | None, there: range) -> list[int]:
    """`0,3-5`; None: all. Raises MillraceError (USAGE) for what is no list or is not there."""
    if text is None:
        return list(there)
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,9})(?:\s*-\s*(\d{1,9}))?\s*", part)
        if match is None:
            raise _usage(f"{text!r} names no partitions", "give them as in 0,3-5", "--partitions")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last not in there:
            known = f"there are {shorten(there)}" if there else "there are none yet"
            raise _usage(f"partitions {part.strip()} are not there", f"{known}", "--partitions")
        found.update(range(first, last + 1))
    return sorted(found)


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


def _examine(sight: Sight, rewriter: Rewriter) -> None:
    """R6. What looks lost may be a commit that is not complete yet: only a stable read tells."""
    try:
        examine(sight.identity, sight.epoch, sight.claims, sight.mirror)
    except (ClaimLost, ForeignClaim):
        sight = rewriter.settled()
        examine(sight.identity, sight.epoch, sight.claims, sight.mirror)


def _carry_out(request: Request, changes: Sequence[Change], work: Callable[[], None]) -> None:
    if changes and not request.dry_run:
        work()


def _check_again(
    pipeline: ConsumerPipeline, request: Request, changes: Sequence[Change], sight: Sight
) -> None:
    """A channel has each row once, and nobody can take rows back that a collector has had."""
    partitions = again(changes, sight.mirror, sight.spans)
    found = [(at, s) for at, s in enumerate(pipeline.spec.stages) if s.collect is not None]
    if request.again or not partitions or not found:
        return
    at, stage = found[0]
    raise MillraceError(
        f"partitions {shorten(partitions)} would be processed again, and the collector of stage {stage.name} has their rows "
        "already: they would count twice where windows are open, and be late where they are closed",
        where=f"spec.stages[{at}].collect",
        remedy="for results that are computed anew: another spec.source.groupId, a new --state, and another place for "
        "results (docs/offsets.md). --again does it nevertheless",
        code=ExitCode.USAGE,
    )


def _check_take_over(request: Request, sight: Sight, partitions: Sequence[int]) -> None:
    if request.take_over or not partitions:
        return
    raise MillraceError(
        f"partitions {shorten(partitions)} belong to another pipeline or run, which may be alive",
        where=f"group {sight.identity.claims_group}",
        remedy="see to it that it is gone, then add --take-over: should it run after all, it is fenced and stops",
        code=ExitCode.CLAIM_FOREIGN,
    )


def _usage(what: str, remedy: str, where: str = "") -> MillraceError:
    return MillraceError(what, where=where, remedy=remedy, code=ExitCode.USAGE)
