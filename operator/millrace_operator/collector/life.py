"""What comes next for a collector: pure, from the record of its attempts and the pods that there are.

The order in which things happen, whatever happens to the operator between any two of them:

1. A new attempt is written to the record, once no driver lives and no executor of one.
2. Its driver is made, under a name with the attempt's number: made twice it is the same one.
3. The driver's uid is written down. From then on a driver that is not there has been there, and is not made again.
4. Its end is written down: seen in the pod, or by its being gone. Only then may the pod be deleted.

So there is never a driver that the record does not know, and none is begun while another one lives. Nobody stops a driver
but by asking: it ends between two batches, and the kubelet kills it when its grace is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from millrace_operator.collector.attempts import Attempt, Record
from millrace_operator.collector.drivers import LOST, NEVER_AGAIN, SUCCEEDED, Driver, Executor
from millrace_operator.outcome import Deletion
from millrace_operator.times import unix

FINISHED_SECONDS: Final = 3600.0
"""How long a driver that is over is kept, for its log."""
FINISHED_KEPT: Final = 3
ENDED: Final = "Ended"
STOPPED: Final = "Stopped"
REPLACED: Final = "Replaced"
NOT_STARTED: Final = "NotStarted"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What should run.

    Attributes:
        digest: of the driver as it should be; "": not known now, so that one that runs goes on.
        generation: of the resource.
        on_lag: a job is started only if `due`, takes what is there, and ends.
        due: why one is to be started now, for people; "": it is not.
    """

    digest: str
    generation: int
    on_lag: bool = False
    due: str = ""


class Phase(Enum):
    NONE = "none"  # nothing is wanted, and nothing is there
    STOPPING = "stopping"  # something is there that is not wanted any more
    BLOCKED = "blocked"  # what it needs is not there
    WAITING = "waiting"  # there is nothing to do for now
    PAUSING = "pausing"  # the last attempt failed, the next one comes
    GIVEN_UP = "given up"  # the last attempt failed, and the next would fail alike
    STARTING = "starting"
    RUNNING = "running"


@dataclass(frozen=True, slots=True)
class Decision:
    """Attributes:
    record: to be written. What is to be created belongs to the record as it was read.
    create: the attempt whose driver is to be made now.
    wake: seconds after which time alone changes something; None: it does not.
    """

    record: Record
    phase: Phase
    create: Attempt | None = None
    deletions: tuple[Deletion, ...] = ()
    driver: Driver | None = None
    wake: float | None = None


def decide(
    record: Record,
    drivers: Sequence[Driver],
    executors: Sequence[Executor],
    wanted: Wanted | None,
    *,
    may_begin: bool,
    now: float,
) -> Decision:
    """wanted: None: nothing is to run. may_begin: all is there that a new attempt needs."""
    record = _found_again(record, drivers, now)
    alive = {driver.uid for driver in drivers if not driver.over}
    live_executors = [executor for executor in executors if not executor.over]
    mine: Driver | None = None
    create: Attempt | None = None
    going: list[Deletion] = []
    if (attempt := record.open) is not None:
        mine = next((one for one in drivers if _is(one, attempt)), None)
        strangers = alive - ({mine.uid} if mine is not None else set())
        if mine is not None:
            record = record if attempt.uid else record.changed(replace(attempt, uid=mine.uid))
            record, stop = _watched(record, mine, wanted, now)
            going += [_deletion(mine)] if stop and not mine.ending else []
        elif attempt.uid:
            record = _closed(record, LOST, "its pod was deleted", now)
        elif wanted is None or wanted.digest not in ("", attempt.digest):
            record = record.closed(NOT_STARTED, "", now, failed=False)
        elif not strangers and not live_executors and may_begin:
            create = attempt
    opened = record.open
    going += [
        _deletion(one)
        for one in drivers
        if not (one.over or one.ending) and (mine is None or one is not mine)
    ]
    owners = alive if mine is None or not mine.over else alive - {mine.uid}
    going += [
        Deletion("Pod", one.name, one.uid)
        for one in live_executors
        if not one.ending and one.driver not in owners
    ]
    finished, kept_for = _finished(drivers, opened, record, now)
    going += finished
    idle = not alive and not live_executors
    if opened is None and idle and wanted is not None and may_begin and _may_go_on(record, wanted, now):
        number = max((one.number + 1 for one in drivers), default=0)
        record = record.begun(wanted.digest, wanted.generation, now, number)
    phase = _phase(record, mine, wanted, idle=idle, may_begin=may_begin)
    pause = record.not_before - now if phase is Phase.PAUSING else None
    waits = [max(0.0, wait) for wait in (pause, kept_for) if wait is not None]
    return Decision(record, phase, create, tuple(going), mine, min(waits, default=None))


def given_up(record: Record, wanted: Wanted) -> bool:
    """Whether another attempt would end as the last one did, for all that is known."""
    last = record.last
    return (
        last is not None
        and last.outcome in NEVER_AGAIN
        and last.digest == wanted.digest
        and last.generation == wanted.generation
    )


def _found_again(record: Record, drivers: Sequence[Driver], now: float) -> Record:
    """With a driver that the record does not know: only somebody who took away the status can bring that about."""
    known = max((one.number for one in record.attempts), default=0)
    newest = max((one for one in drivers if one.ours), key=lambda one: one.number, default=None)
    if newest is None or newest.number <= known or record.open is not None:
        return record
    found = record.begun(newest.digest, 0, now, newest.number)
    last = found.attempts[-1]
    return found.changed(replace(last, uid=newest.uid, started=newest.created or last.started))


def _is(driver: Driver, attempt: Attempt) -> bool:
    return driver.ours and driver.number == attempt.number and attempt.uid in ("", driver.uid)


def _watched(record: Record, mine: Driver, wanted: Wanted | None, now: float) -> tuple[Record, bool]:
    """The record, and whether the driver is to be stopped."""
    attempt = record.attempts[-1]
    if mine.over:
        outcome, message = mine.outcome, mine.message
        if (
            outcome == SUCCEEDED
            and wanted is not None
            and wanted.digest == attempt.digest
            and not wanted.on_lag
        ):
            outcome, message = ENDED, "the job ended by itself"
        return _closed(record, outcome, message, now), False
    if wanted is not None and wanted.digest in ("", attempt.digest):
        return record, bool(attempt.stopping)
    if attempt.stopping:
        return record, True
    return record.changed(replace(attempt, stopping=STOPPED if wanted is None else REPLACED)), True


def _closed(record: Record, outcome: str, message: str, now: float) -> Record:
    attempt = record.attempts[-1]
    if attempt.stopping and outcome in (SUCCEEDED, ENDED, LOST):
        return record.closed(attempt.stopping, "", now, failed=False)
    return record.closed(outcome, message, now, failed=outcome != SUCCEEDED)


def _finished(
    drivers: Sequence[Driver], opened: Attempt | None, record: Record, now: float
) -> tuple[list[Deletion], float | None]:
    """Drivers that are over and have been kept for long enough, or are too many; and when the next one has."""
    ended = {one.uid: unix(one.ended) or 0.0 for one in record.attempts if one.uid and one.ended}
    over = sorted((one for one in drivers if one.over), key=lambda one: -one.number)
    over = [one for one in over if opened is None or one.uid != opened.uid]
    going, waits = [], []
    for place, driver in enumerate(over):
        left = ended.get(driver.uid, 0.0) + FINISHED_SECONDS - now
        if driver.ending:
            continue
        if place >= FINISHED_KEPT or left <= 0:
            going.append(_deletion(driver))
        else:
            waits.append(left)
    return going, min(waits, default=None)


def _may_go_on(record: Record, wanted: Wanted, now: float) -> bool:
    if not wanted.digest or given_up(record, wanted):
        return False
    last = record.last
    if last is not None and last.digest == wanted.digest and now < record.not_before:
        return False
    return not wanted.on_lag or bool(wanted.due) or _unfinished(record, wanted)


def _unfinished(record: Record, wanted: Wanted) -> bool:
    """A bounded job that did not get to its end is done again, whatever waits; and a new query reads all there is."""
    last = record.last
    return last is not None and (last.outcome != SUCCEEDED or last.digest != wanted.digest)


def _phase(
    record: Record, mine: Driver | None, wanted: Wanted | None, *, idle: bool, may_begin: bool
) -> Phase:
    attempt = record.open
    if wanted is None:
        return Phase.NONE if attempt is None and idle else Phase.STOPPING
    if attempt is not None:
        if attempt.stopping:
            return Phase.STOPPING
        if mine is None and not may_begin:
            return Phase.BLOCKED
        return Phase.RUNNING if mine is not None and mine.ready else Phase.STARTING
    if given_up(record, wanted):
        return Phase.GIVEN_UP
    if not may_begin:
        return Phase.BLOCKED
    if not idle:
        return Phase.STOPPING
    return Phase.PAUSING if record.failures else Phase.WAITING


def _deletion(driver: Driver) -> Deletion:
    return Deletion("Pod", driver.name, driver.uid)
