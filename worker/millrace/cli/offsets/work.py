"""What `offsets` does to a pipeline's claims, wherever that runs: refused where it has to be, else carried out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millrace.cli.offsets.answers import Changes, Offsets, changes_of, offsets_of
from millrace.cli.offsets.requests import Request, parse_partitions, parse_position, usage
from millrace.errors import ExitCode, MillraceError
from millrace.ownership.control_rules import examine
from millrace.ownership.errors import ClaimLost, ForeignClaim, shorten
from millrace.ownership.repositioning import Change, Damage, again, damaged, repairs, resets
from millrace.ownership.rewriting import Rewriter, Sight
from millrace_api import ConsumerPipeline


def show(rewriter: Rewriter, *, running: bool) -> Offsets:
    return offsets_of(rewriter.look(), running=running)


def reset(rewriter: Rewriter, pipeline: ConsumerPipeline, request: Request, *, stopped: bool) -> Changes:
    """stopped: no worker is at work. If one may be, a dry run tells of the offsets as they are at the moment.

    Raises MillraceError: USAGE, ClaimLost, ForeignClaim, NoPosition, OutsideLog, what the clients raise.
    """
    position = parse_position(request)
    sight = rewriter.look()
    if sight.epoch.partitions == 0:
        raise usage(
            "no run has begun to process anything yet, so there is nothing to reset",
            "spec.source.startFrom says where the first one begins",
        )
    _examine(sight, rewriter)
    if not request.dry_run:
        rewriter.sweep()
    if stopped or not request.dry_run:
        sight = rewriter.settled()
        _examine(sight, rewriter)
    chosen = parse_partitions(request.partitions, range(sight.epoch.partitions))
    targets = rewriter.targets(sight, position, chosen)
    changes = resets(sight.identity, sight.claims, targets)
    check_again(pipeline, request, changes, sight)
    _carry_out(request, changes, lambda: rewriter.reset(targets))
    return changes_of("reset", changes, sight, pipeline, dry_run=request.dry_run)


def repair(rewriter: Rewriter, pipeline: ConsumerPipeline, request: Request) -> Changes:
    """Raises MillraceError: USAGE, CLAIM_FOREIGN, NoPosition, OutsideLog, what the clients raise."""
    position = parse_position(request)
    sight = rewriter.settled()
    bad = damaged(sight.identity, sight.epoch, sight.claims, sight.spans)
    chosen = [p for p in parse_partitions(request.partitions, range(len(sight.spans))) if p in bad]
    if not chosen:
        raise usage(
            f"no claim is lost: group {sight.identity.claims_group} has those of all partitions that are asked for",
            "`offsets show` shows them, `offsets reset` sets them elsewhere",
        )
    _check_take_over(request, sight, [p for p in chosen if bad[p] is Damage.FOREIGN])
    targets = rewriter.targets(sight, position, chosen)
    changes = repairs(sight.identity, sight.epoch, sight.claims, targets)
    check_again(pipeline, request, changes, sight)
    _carry_out(request, changes, lambda: rewriter.repair(targets))
    return changes_of("repair", changes, sight, pipeline, dry_run=request.dry_run)


def check_again(
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


def _check_take_over(request: Request, sight: Sight, partitions: Sequence[int]) -> None:
    if request.take_over or not partitions:
        return
    raise MillraceError(
        f"partitions {shorten(partitions)} belong to another pipeline or run, which may be alive",
        where=f"group {sight.identity.claims_group}",
        remedy="see to it that it is gone, then add --take-over: should it run after all, it is fenced and stops",
        code=ExitCode.CLAIM_FOREIGN,
    )
