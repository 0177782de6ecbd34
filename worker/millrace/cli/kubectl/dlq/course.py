"""Dead letters handled by errands: looking runs beside anything, sending again and deleting exclude one another."""

from __future__ import annotations

from typing import Final

from millrace.cli.dlq.in_pod import Asked, Choice, List, LookUp, Purge, Replay, Show
from millrace.cli.dlq.listing import Listing, Whole, print_listing, print_whole
from millrace.cli.dlq.purging import Points, Which, confirm, print_points
from millrace.cli.dlq.replaying import Replayed, print_replayed
from millrace.cli.kubectl.errand.pod import SECRETS, Errand
from millrace.cli.kubectl.errand.sending import Place, send

_MOUNTED: Final = ("--manifest=", SECRETS)


def list_letters(at: Place, choice: Choice, limit: int, as_json: bool) -> None:
    """As all of these raises MillraceError, KubectlFailed."""
    chosen = choice.chosen()
    listing = send(at, at.pipeline(), _errand(at, List(choice, limit)), Listing)
    print_listing(listing, chosen, limit, as_json)


def show_letter(at: Place, partition: int, offset: int, as_json: bool) -> None:
    whole = send(at, at.pipeline(), _errand(at, Show(partition, offset)), Whole)
    print_whole(whole, as_json)


def replay_letters(at: Place, asked: Replay, as_json: bool) -> None:
    asked.choice.chosen()  # before a pod is made for what is refused anyway
    done = send(at, at.pipeline(), _errand(at, asked, alone=not asked.dry_run), Replayed)
    print_replayed(done, as_json)


def purge_letters(at: Place, which: Which, *, yes: bool, as_json: bool) -> None:
    """Who is asked says yes to offsets, and just these are deleted: a letter that comes meanwhile is not."""
    one = at.pipeline()
    if yes:
        points = send(at, one, _errand(at, Purge(which), alone=True), Points)
    else:
        points = send(at, one, _errand(at, LookUp(which)), Points)
        confirm(points)
        if points.below:
            points = send(at, one, _errand(at, Purge(which, points), alone=True), Points)
    print_points(points, as_json)


def _errand(at: Place, asked: Asked, *, alone: bool = False) -> Errand:
    return Errand.of("dlq", asked, _MOUNTED, alone=alone, patience=at.patience)
