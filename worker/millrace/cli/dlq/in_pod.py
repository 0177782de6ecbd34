"""The part of `kubectl millrace dlq` that needs Kafka, where Kafka can be reached: in a pod beside the workers."""

from __future__ import annotations

from pathlib import Path

import msgspec

from millrace.cli.dlq.access import beside_workers
from millrace.cli.dlq.chosen import Chosen
from millrace.cli.dlq.listing import Listing, Whole, found, listed
from millrace.cli.dlq.purging import Points, Which, deleted, looked_up, still_there
from millrace.cli.dlq.replaying import Replayed, replayed
from millrace.cli.errand.in_pod import Say


class Choice(msgspec.Struct, frozen=True):
    """The options that a Chosen is of."""

    stages: tuple[str, ...] = ()
    reason: str | None = None
    partitions: tuple[int, ...] = ()
    since: str | None = None
    until: str | None = None

    def chosen(self) -> Chosen:
        """Raises MillraceError (USAGE)."""
        return Chosen.of(self.stages, self.reason, self.partitions, self.since, self.until)


class List(msgspec.Struct, frozen=True, tag="list"):
    """Answered by Listing."""

    choice: Choice
    limit: int


class Show(msgspec.Struct, frozen=True, tag="show"):
    """Answered by Whole."""

    partition: int
    offset: int


class Replay(msgspec.Struct, frozen=True, tag="replay"):
    """Answered by Replayed."""

    choice: Choice
    to: str | None
    again: bool
    limit: int | None
    dry_run: bool


class LookUp(msgspec.Struct, frozen=True, tag="look-up"):
    """What a purge would delete. Answered by Points."""

    which: Which


class Purge(msgspec.Struct, frozen=True, tag="purge"):
    """`agreed`: delete exactly that, which somebody was asked about. Answered by Points."""

    which: Which
    agreed: Points | None = None


Asked = List | Show | Replay | LookUp | Purge


def do(errand: str, manifest: Path, secrets: Path | None, say: Say) -> Listing | Whole | Replayed | Points:
    """Raises MillraceError."""
    asked: Asked = msgspec.json.decode(errand, type=Asked)
    there = beside_workers(manifest, secrets)
    match asked:
        case List(choice, limit):
            return listed(there, choice.chosen(), limit)
        case Show(partition, offset):
            return found(there, partition, offset)
        case Replay(choice, to, again, limit, dry_run):
            return replayed(there, choice.chosen(), to=to, again=again, limit=limit, dry_run=dry_run, say=say)
        case LookUp(which):
            return looked_up(there, which)
        case Purge(which, agreed):
            points = looked_up(there, which) if agreed is None else still_there(there, agreed)
            deleted(there, points)
            return points
