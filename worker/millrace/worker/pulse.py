"""What the loop tells the world: that it comes round, and twice a second how everything stands; and what is known when it
does not come round.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from millrace.clock import Clock
from millrace.errors import MillraceError
from millrace.worker import logs
from millrace.worker.files import write_whole
from millrace.worker.status import (
    DRAINING,
    FAILED,
    STARTING,
    STOPPED,
    Failure,
    StuckStage,
    WorkerStatus,
    encode,
)

PUBLISH_EVERY = 0.5  # seconds


class Pulse:
    """Keeps the worker's status: in memory for the HTTP server, in the status file for the parent.

    Args:
        status_file: None: nobody reads one.
        live_within: seconds without a `beat` after which the worker counts as stuck.
    """

    def __init__(
        self, index: int, clock: Clock, status_file: Path | None, *, live_within: float = 300.0
    ) -> None:
        self._clock, self._file = clock, status_file
        self._base = WorkerStatus(
            index, os.getpid(), clock.time(), clock.time(), STARTING, reasons=("starting",)
        )
        self._fill: Callable[[WorkerStatus], WorkerStatus] = lambda status: status
        self._latest = self._base
        self._stuck: tuple[StuckStage, ...] = ()
        self._writing = threading.Lock()
        self._beaten = self._published = clock.monotonic()
        self._file_failed = False
        self.bound = live_within

    def serves_at(self, address: str) -> None:
        """HOST:PORT of the health server, for whoever reads the status file."""
        self._base = msgspec.structs.replace(self._base, http=address)

    def fill_from(self, fill: Callable[[WorkerStatus], WorkerStatus]) -> None:
        """From now on a snapshot is what `fill` makes of the bare one. Called on the loop's thread."""
        self._fill = fill

    def status(self) -> WorkerStatus:
        """The latest snapshot. Safe on any thread."""
        return self._told()

    def since_progress(self) -> float:
        """Seconds since the loop came round. Safe on any thread."""
        return self._clock.monotonic() - self._beaten

    def beat(self) -> None:
        """The loop came round."""
        self._beaten = self._clock.monotonic()
        if self._beaten - self._published >= PUBLISH_EVERY:
            self.publish()

    def publish(self) -> None:
        """Make a snapshot now."""
        self._latest = self._fill(msgspec.structs.replace(self._base, updated=self._clock.time()))
        self._published = self._clock.monotonic()
        self._write()

    def stuck(self, stages: tuple[StuckStage, ...]) -> None:
        """These are stuck now, no others. On a thread that is not the loop's; the rest of the status stays as it is, with
        the time at which the loop made it.
        """
        self._stuck = stages
        self._write()

    def draining(self) -> None:
        self._end(state=DRAINING, ready=False, reasons=("draining",))

    def stopped(self) -> None:
        self._end(state=STOPPED, ready=False, reasons=("stopped",))

    def failed(self, error: MillraceError) -> None:
        self._end(state=FAILED, ready=False, reasons=(error.what.splitlines()[0],), error=Failure.of(error))

    def _end(self, **changes: object) -> None:
        try:
            self._latest = self._fill(self._base)
        except Exception as error:  # noqa: BLE001  what is told last must not depend on what has just failed
            logs.logger("millrace.worker").warning("no last snapshot", reason=str(error))
        self._latest = msgspec.structs.replace(self._latest, updated=self._clock.time(), **changes)
        self._write()

    def _told(self) -> WorkerStatus:
        status, stuck = self._latest, self._stuck
        if not stuck or status.state in (STOPPED, FAILED):
            return status
        reasons = (*(one.words for one in stuck), *status.reasons)
        return msgspec.structs.replace(status, stuck=stuck, reasons=reasons)

    def _write(self) -> None:
        if self._file is None:
            return
        try:
            with self._writing:
                write_whole(self._file, encode(self._told()))
        except MillraceError as error:
            if not self._file_failed:  # nothing depends on it: say so once, and go on
                self._file_failed = True
                logs.logger("millrace.worker").warning("no status file", reason=error.what, todo=error.remedy)
