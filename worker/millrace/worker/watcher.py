"""The thread that looks on: at what the stages are busy with, every few seconds, whatever the loop does meanwhile.

It reads what the stages keep for their own work, so they don't pay for being looked at; it stops nothing, and restarts
nothing. A stage that is stuck gets one line in the log, with the stack of what is stuck.

A function in C that keeps the interpreter to itself (a regular expression that goes astray) stops this thread too, and the
HTTP server. For that there is a timer in C, which each look sets anew: when it runs out, Python's faulthandler writes the
stacks of all threads to stderr, as plain text.
"""

from __future__ import annotations

import faulthandler
import threading
from collections.abc import Callable, Iterable

from millrace.clock import Clock
from millrace.engine.calls import Call
from millrace.worker import logs
from millrace.worker.status import StuckStage
from millrace.worker.stuck import Detector, Incident

LOOKS = 30  # within the time that a call may take
SILENT = 20.0  # s without a look: well before a kubelet gives up a worker that does not answer its probes

_TODO = "the stack shows what it waits for: give that a time limit, or the stage a timeout; docs/runbooks.md has more"


class Watcher:
    """Looks on from `start` until `close`.

    Args:
        calls: what is under way; asked on this object's thread.
        told: is given the stages that are stuck, after each look in which there are some, and when there are none any more.
        after: seconds that a call may take.
    """

    def __init__(
        self,
        calls: Callable[[], Iterable[Call]],
        told: Callable[[tuple[StuckStage, ...]], None],
        clock: Clock,
        after: float,
    ) -> None:
        self._calls, self._tell, self._clock = calls, told, clock
        self._every = after / LOOKS
        self._detector = Detector(after)
        self._log = logs.logger("millrace.watch")
        self._over = threading.Event()
        self._failed = False
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """It may be in a look, which is not waited for."""
        self._over.set()

    def look(self) -> None:
        """Once."""
        was_stuck = bool(self._detector.incidents)
        change = self._detector.look(self._clock.monotonic(), list(self._calls()))
        incidents = self._detector.incidents
        if incidents or was_stuck:
            self._tell(tuple(_told(one) for one in incidents.values()))
        for incident in change.begun:
            told, call = _told(incident), incident.call
            self._log.warning(
                "stage stuck",
                stage=told.stage,
                partition=told.partition,
                offsets=[told.first, told.last],
                seconds=told.seconds,
                calls=told.calls,
                stack=call.stack(),
                todo=_TODO,
            )
        for incident in change.ended:
            told = _told(incident)
            self._log.info("stage goes on", stage=told.stage, partition=told.partition, seconds=told.seconds)

    def look_safely(self) -> None:
        """Once, whatever comes of it: the worker goes on without being watched."""
        try:
            self.look()
        except Exception as error:  # noqa: BLE001 - see above
            if not self._failed:
                self._failed = True
                self._log.warning("can't look at the stages", exc_info=error)

    def _run(self) -> None:
        while not self._over.wait(self._every):
            faulthandler.dump_traceback_later(SILENT + self._every)
            self.look_safely()
        faulthandler.cancel_dump_traceback_later()


def _told(incident: Incident) -> StuckStage:
    call = incident.call
    return StuckStage(
        call.stage, call.partition, call.first, call.last, round(incident.seconds, 1), incident.calls
    )
