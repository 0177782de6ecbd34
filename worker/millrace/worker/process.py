"""The worker process from start to end: what is put together, the loop, the drain, the exit code.

One thread does all the work (the HTTP server's only reads snapshots). The loop asks the replica for one bounded step
after the other, and between steps looks at the signals, at its parent, and at the clock for the next snapshot.
"""

from __future__ import annotations

import faulthandler
import os
import signal

from millrace.clock import Clock, Deadline, SystemClock
from millrace.errors import ExitCode, MillraceError
from millrace.worker import logs
from millrace.worker.http import HealthServer, parse_address, site_of
from millrace.worker.orphan import end_if_orphaned
from millrace.worker.pulse import Pulse
from millrace.worker.settings import Settings
from millrace.worker.stop import StopRequest

_OF_THE_USER = frozenset({ExitCode.FUNCTION, ExitCode.STAGE_FAILED})
STEP = 0.05  # seconds a step may wait for messages: how soon a signal is seen


def run(settings: Settings) -> ExitCode:
    """Work until told to stop, or until something fails. Returns the exit code; what failed is logged and in the
    status.
    """
    clock = SystemClock()
    logs.configure(worker=settings.index)
    log = logs.logger("millrace.worker")
    faulthandler.enable()  # a crash in C leaves its Python stack in the log
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # `kill -USR1`: where is it?
    stop = StopRequest()
    stop.install()
    pulse = Pulse(settings.index, clock, settings.status_file, live_within=settings.live_within)
    server: HealthServer | None = None
    try:
        if settings.http is not None:
            server = HealthServer(parse_address(settings.http), site_of(pulse))
            pulse.serves_at(server.address)
            log.info("serving", http=server.address)
        pulse.publish()
        _work(settings, clock, stop, pulse)
    except Exception as error:
        failure = _as_failure(error)
        if failure is not error and failure.code == ExitCode.FAILED:
            log.error("unexpected", exc_info=error)
        elif error.__cause__ is not None and failure.code in _OF_THE_USER:
            log.error("cause", exc_info=error.__cause__)  # where in the user's code
        log.error(
            "failed", what=failure.what, where=failure.where, todo=failure.remedy, code=int(failure.code)
        )
        pulse.failed(failure)
        return failure.code
    else:
        pulse.stopped()
        log.info("stopped")
        return ExitCode.OK
    finally:
        if server is not None:
            server.close()


def _work(settings: Settings, clock: Clock, stop: StopRequest, pulse: Pulse) -> None:
    # imported here: what can't be imported must be told like any other failure, and the server is up meanwhile
    from millrace.engine.garbage import tune_garbage_collection
    from millrace.worker.assembly import assembled

    log = logs.logger("millrace.worker")
    with assembled(settings, clock, pulse) as replica:
        tune_garbage_collection()  # modules and what setup() has loaded are there now
        try:
            while not stop:
                replica.step(STEP)
                pulse.beat()
                if settings.parent is not None:
                    end_if_orphaned(settings.parent)
            log.info("draining", signal=stop.signal.name if stop.signal else "")
            pulse.draining()
        except BaseException:
            # what came before the failure is complete and counts: the successor shall not do it again
            replica.close(Deadline.after(clock, settings.drain))
            raise
        if not replica.close(Deadline.after(clock, settings.drain)):
            log.warning("not drained", todo="nothing: what was not committed is done again by the successor")


def _as_failure(error: Exception) -> MillraceError:
    if isinstance(error, MillraceError):
        return error
    # as in cli.failure: only where the models were loaded, and then they are
    from millrace_api import InvalidManifest

    if isinstance(error, InvalidManifest):
        return MillraceError(str(error), remedy="mend the manifest", code=ExitCode.MANIFEST)
    return MillraceError(
        f"unexpected {type(error).__name__}: {error}",
        where=f"process {os.getpid()}",
        remedy="this is a bug in Millrace; please report it with the traceback in the worker's log",
    )
