"""What the loop tells the world: that it comes round, and twice a second how everything stands."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from millrace.clock import Clock
from millrace.errors import MillraceError
from millrace.worker import logs
from millrace.worker.files import write_whole
from millrace.worker.status import DRAINING, FAILED, STARTING, STOPPED, Failure, WorkerStatus, encode

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
        return self._latest

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

    def _write(self) -> None:
        if self._file is None:
            return
        try:
            write_whole(self._file, encode(self._latest))
        except MillraceError as error:
            if not self._file_failed:  # nothing depends on it: say so once, and go on
                self._file_failed = True
                logs.logger("millrace.worker").warning("no status file", reason=error.what, todo=error.remedy)
