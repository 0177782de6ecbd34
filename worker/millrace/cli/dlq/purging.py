"""`millrace dlq purge`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import closing

import msgspec
import typer

from millrace.cli.dlq.access import DeadLetters, Place, dead_letters
from millrace.cli.dlq.chosen import instant
from millrace.cli.dlq.letters import PATIENCE, spans
from millrace.cli.dlq.listing import print_json
from millrace.cli.dlq.replay import left
from millrace.errors import ExitCode, MillraceError


class Which(msgspec.Struct, frozen=True):
    """One of the three. `before`: milliseconds since the Unix epoch."""

    everything: bool = False
    replayed: bool = False
    before: int | None = None

    @classmethod
    def of(cls, *, everything: bool, replayed: bool, before: str | None) -> Which:
        """From the options of a command. Raises MillraceError (USAGE)."""
        if [everything, replayed, before is not None].count(True) != 1:
            raise MillraceError(
                "what is to be deleted is not said, or said twice",
                remedy="give exactly one of --all, --replayed and --before TIME",
                code=ExitCode.USAGE,
            )
        return cls(everything, replayed, instant(before, "--before"))


class Points(msgspec.Struct, frozen=True):
    """For each partition the offset that all below is (to be) deleted of. `whole`: that is all there is."""

    topic: str
    below: dict[int, int]
    whole: bool


def purge_letters(
    place: Place, *, everything: bool, replayed: bool, before: str | None, yes: bool, as_json: bool
) -> None:
    """Delete records up to a point of each partition, for good."""
    which = Which.of(everything=everything, replayed=replayed, before=before)
    with dead_letters(place) as there:
        points = looked_up(there, which)
        if not yes:
            confirm(points)
        deleted(there, points)
    print_points(points, as_json)


def looked_up(there: DeadLetters, which: Which) -> Points:
    """Deletes nothing yet."""
    found = spans(there.cluster, there.topic, there.clock)
    if which.replayed:
        points = left(there.cluster, there.topic, there.replay_group, there.clock)
    elif which.before is None:
        points = {p: span.end for p, span in found.items()}
    else:
        with closing(there.cluster.admin()) as admin:
            points = admin.offsets_at(there.topic, found, which.before, PATIENCE)
        # what a pending transaction holds beyond the end is not shown, so it is not deleted either
        points = {p: min(offset, found[p].end) for p, offset in points.items()}
    below = {p: offset for p, offset in points.items() if offset > found[p].beginning}
    return Points(there.topic, below, all(below.get(p) == s.end for p, s in found.items()))


def still_there(there: DeadLetters, points: Points) -> Points:
    """Of points that were looked up before, those that mean anything now: nobody has deleted further, or made the topic anew."""
    found = spans(there.cluster, there.topic, there.clock)
    below = {p: o for p, o in points.below.items() if p in found and found[p].beginning < o <= found[p].end}
    return Points(there.topic, below, points.whole)


def deleted(there: DeadLetters, points: Points) -> None:
    if points.below:
        with closing(there.cluster.admin()) as admin:
            admin.delete_records(there.topic, points.below, PATIENCE)


def confirm(points: Points) -> None:
    """Ask, if there is anything to delete. Raises MillraceError: the answer is no, or nobody is there to be asked."""
    if not points.below:
        return
    if not sys.stdin.isatty():
        raise MillraceError(
            f"records of {points.topic} are about to be deleted for good",
            where="dlq purge",
            remedy="add --yes if that is meant; nobody is there to be asked",
            code=ExitCode.USAGE,
        )
    what = "all of it" if points.whole else _told(points.below)
    try:
        meant = typer.confirm(f"delete from {points.topic}: {what}?", err=True)
    except typer.Abort:  # Ctrl-C, or the end of the input
        meant = False
    if not meant:
        raise MillraceError("nothing was deleted", code=ExitCode.INTERRUPTED)


def print_points(points: Points, as_json: bool) -> None:
    if as_json:
        below = {str(p): points.below[p] for p in sorted(points.below)}
        print_json({"topic": points.topic, "deletedBelow": below})
    elif points.below:
        sys.stdout.write(f"deleted from {points.topic}: {_told(points.below)}\n")
    else:
        sys.stdout.write(f"nothing to delete in {points.topic}\n")


def _told(below: Mapping[int, int]) -> str:
    return ", ".join(f"partition {p} below offset {below[p]}" for p in sorted(below))
