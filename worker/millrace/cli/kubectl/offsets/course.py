"""Offsets of a running pipeline set by hand: stop it, set them, start it again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal

from millrace.cli.kubectl.changes import set_suspend
from millrace.cli.kubectl.errand.hearing import say
from millrace.cli.kubectl.errand.pod import SECRETS, Errand
from millrace.cli.kubectl.errand.sending import Place, rehearse, send
from millrace.cli.kubectl.status import pipeline
from millrace.cli.kubectl.view import Pipeline
from millrace.cli.offsets import shown
from millrace.cli.offsets.answers import Changes, Offsets
from millrace.cli.offsets.in_pod import Change, Look
from millrace.cli.offsets.requests import Request, parse_position
from millrace.clock import Deadline
from millrace.errors import ExitCode, MillraceError

_MOUNTED: Final = ("--manifest=", "--epoch-file=", SECRETS)
_AGAIN: Final = 0.5  # seconds between two looks
_CLAIMS: Final = ("ClaimLost", "ForeignClaim")


def show(at: Place, as_json: bool) -> None:
    """Raises MillraceError, KubectlFailed."""
    one = at.pipeline()
    shown.offsets(send(at, one, _errand(at, Look(_idle(one))), Offsets), shown.CLUSTER, as_json)


def reset(at: Place, request: Request, as_json: bool) -> None:
    """Raises MillraceError, KubectlFailed."""
    _change(at, "reset", request, as_json)


def repair(at: Place, request: Request, as_json: bool) -> None:
    """Raises MillraceError, KubectlFailed."""
    _change(at, "repair", request, as_json)


def _change(at: Place, action: Literal["reset", "repair"], request: Request, as_json: bool) -> None:
    parse_position(request)  # before anything is stopped for it
    one = at.pipeline()
    if action == "reset":
        _refuse_damaged(one)
    if request.dry_run:
        changes = send(at, one, _errand(at, Change(action, _idle(one), request)), Changes)
    else:
        errand = _errand(at, Change(action, True, request))
        rehearse(at, one, errand)
        with _stopped(at, one, action) as stopped:
            changes = send(at, stopped, errand, Changes)
            _still_stopped(at)
    shown.changes(changes, shown.CLUSTER, as_json)


def _errand(at: Place, asked: Look | Change) -> Errand:
    return Errand.of("offsets", asked, _MOUNTED, alone=True, patience=at.patience)


def _idle(one: Pipeline) -> bool:
    """Whether the operator says that no worker is left, of the spec as it is now."""
    return one.observed and one.spec.suspend and one.status.replicas == 0


@contextmanager
def _stopped(at: Place, one: Pipeline, action: str) -> Iterator[Pipeline]:
    """The pipeline without workers. They start again in any case, unless it was suspended before."""
    if one.spec.suspend:
        yield _await_idle(at, action)
        return
    say(f"{at.name} is paused: its workers finish what they have taken, and end")
    set_suspend(at.kubectl, at.name, suspended=True)
    try:
        yield _await_idle(at, action)
    finally:
        set_suspend(at.kubectl, at.name, suspended=False)
        say(f"{at.name} goes on")


def _await_idle(at: Place, action: str) -> Pipeline:
    """Wait until claims are parked and workers gone. Lost claims can't be parked: then it is enough that these are gone."""
    deadline = Deadline.after(at.clock, at.patience)
    while True:
        one = pipeline(at.kubectl, at.name)
        if not one.spec.suspend or one.metadata.deletion_timestamp is not None:
            raise _resumed(at)
        ready = one.condition("Ready")
        if _idle(one):
            if ready is not None and (ready.status, ready.reason) == ("True", "Suspended"):
                return one
            if action == "repair" and _of_claims(one):
                return one
        if one.observed and action == "reset":
            _refuse_damaged(one)
        if deadline.expired():
            raise _never(at, one)
        at.clock.sleep(_AGAIN)


def _still_stopped(at: Place) -> None:
    if not pipeline(at.kubectl, at.name).spec.suspend:
        say(
            f"warning: somebody has resumed {at.name} meanwhile. Offsets are set as told below, and workers that had begun "
            "elsewhere were fenced"
        )


def _of_claims(one: Pipeline) -> bool:
    stalled = one.condition("Stalled")
    return stalled is not None and stalled.reason in _CLAIMS


def _refuse_damaged(one: Pipeline) -> None:
    stalled = one.condition("Stalled")
    if stalled is None or stalled.reason not in _CLAIMS:
        return
    name = one.metadata.name
    raise MillraceError(
        stalled.message or f"pipeline {name} is stalled: {stalled.reason}",
        where=f"pipeline {name}",
        remedy=f"`kubectl millrace offsets repair {name} --from-group` (or --to) writes its claims anew",
        code=ExitCode.CLAIM_LOST if stalled.reason == "ClaimLost" else ExitCode.CLAIM_FOREIGN,
    )


def _resumed(at: Place) -> MillraceError:
    return _busy(
        f"somebody else has changed pipeline {at.name} meanwhile: it is to run again, or to go",
        "if its manifest is applied again and again (GitOps), set spec.suspend: true there first",
    )


def _never(at: Place, one: Pipeline) -> MillraceError:
    bad = next(
        (
            c
            for c in one.status.conditions
            if c.type in ("SourceReady", "WorkersReady") and c.status != "True"
        ),
        one.condition("Ready"),
    )
    why = "no operator has looked at it"
    if one.observed and bad is not None:
        why = f"{bad.reason}: {bad.message}" if bad.message else bad.reason
    return MillraceError(
        f"the workers of {at.name} have not ended after {at.patience:.0f} s ({why})",
        where=f"pipeline {at.name}",
        remedy=f"nothing was set. `kubectl millrace status {at.name}` says more; --timeout waits longer",
        code=ExitCode.BUSY,
    )


def _busy(what: str, remedy: str) -> MillraceError:
    return MillraceError(what, remedy=remedy, code=ExitCode.BUSY)
