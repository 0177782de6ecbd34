"""`millrace dlq purge`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import closing

import typer

from millrace.cli.dlq.access import DeadLetters, Place, dead_letters
from millrace.cli.dlq.chosen import instant
from millrace.cli.dlq.letters import PATIENCE, spans
from millrace.cli.dlq.listing import print_json
from millrace.cli.dlq.replay import left
from millrace.connectivity.ports import Span
from millrace.errors import ExitCode, MillraceError


def purge_letters(
    place: Place, *, everything: bool, replayed: bool, before: str | None, yes: bool, as_json: bool
) -> None:
    """Delete records up to a point of each partition, for good."""
    if [everything, replayed, before is not None].count(True) != 1:
        raise MillraceError(
            "what is to be deleted is not said, or said twice",
            where="millrace dlq purge",
            remedy="give exactly one of --all, --replayed and --before TIME",
            code=ExitCode.USAGE,
        )
    time = instant(before, "--before")
    with dead_letters(place) as there:
        found = spans(there.cluster, there.topic, there.clock)
        points = _points(there, found, replayed=replayed, time=time)
        points = {p: offset for p, offset in points.items() if offset > found[p].beginning}
        if points and not yes:
            _confirm(there.topic, points, found)
        if points:
            with closing(there.cluster.admin()) as admin:
                admin.delete_records(there.topic, points, PATIENCE)
    if as_json:
        print_json({"topic": there.topic, "deletedBelow": {str(p): points[p] for p in sorted(points)}})
    elif points:
        sys.stdout.write(f"deleted from {there.topic}: {_told(points)}\n")
    else:
        sys.stdout.write(f"nothing to delete in {there.topic}\n")


def _points(
    there: DeadLetters, found: Mapping[int, Span], *, replayed: bool, time: int | None
) -> Mapping[int, int]:
    if replayed:
        return left(there.cluster, there.topic, there.replay_group, there.clock)
    if time is None:
        return {p: span.end for p, span in found.items()}
    with closing(there.cluster.admin()) as admin:
        points = admin.offsets_at(there.topic, found, time, PATIENCE)
    # what a pending transaction holds beyond the end is not shown, so it is not deleted either
    return {p: min(offset, found[p].end) for p, offset in points.items()}


def _confirm(topic: str, points: Mapping[int, int], found: Mapping[int, Span]) -> None:
    if not sys.stdin.isatty():
        raise MillraceError(
            f"records of {topic} are about to be deleted for good",
            where="millrace dlq purge",
            remedy="add --yes if that is meant; nobody is there to be asked",
            code=ExitCode.USAGE,
        )
    whole = "all of it" if all(points.get(p) == s.end for p, s in found.items()) else _told(points)
    try:
        meant = typer.confirm(f"delete from {topic}: {whole}?", err=True)
    except typer.Abort:  # Ctrl-C, or the end of the input
        meant = False
    if not meant:
        raise MillraceError("nothing was deleted", code=ExitCode.INTERRUPTED)


def _told(points: Mapping[int, int]) -> str:
    return ", ".join(f"partition {p} below offset {points[p]}" for p in sorted(points))
