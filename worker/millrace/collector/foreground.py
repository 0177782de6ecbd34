"""One attempt of a collector in the foreground, for a pod or a terminal: this process waits for the job, passes signals
on to it, and sees that job and JVM are gone before it ends.
"""

from __future__ import annotations

import sys

import msgspec

from millrace.clock import Clock, Deadline, SystemClock
from millrace.collector.launch import Attempt
from millrace.collector.stage import CollectorJob
from millrace.errors import ExitCode
from millrace.worker.files import disk_error
from millrace.worker.stop import StopRequest

_LOOK = 0.1  # seconds
_STOP_SECONDS = 70.0  # for the batch under way, which the job gives itself 60 of
_GONE_SECONDS = 30.0  # for the JVM of a former attempt


def attend(
    job: CollectorJob,
    partitions: int,
    *,
    pending: bool = False,
    attempt: int = 1,
    restarts: int = 0,
    clock: Clock | None = None,
) -> ExitCode:
    """Run the attempt to its end; its log goes to the standard error stream. OK if it has done what it was to do, or was
    asked to stop and has.

    Raises: MillraceError of the attempt's failure, with its exit code; BUSY if another attempt is at work.
    """
    clock = clock or SystemClock()
    try:
        job.notes.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(error, job.notes) from error
    choice = job.choose(partitions, wait=_GONE_SECONDS)
    if news := choice.news(job.stage):
        sys.stderr.write(f"{news}\n")
    spec = msgspec.structs.replace(choice.spec, pending=pending, attempt=attempt, restarts=restarts)
    stop = _Stop()
    stop.install()
    running = Attempt(spec, None, clock=clock)
    running.start(_GONE_SECONDS)
    try:
        asked: Deadline | None = None
        while running.exit_code is None:
            if stop and asked is None:
                running.terminate()
                asked = Deadline.after(clock, _STOP_SECONDS)
            if stop.count > 1 or (asked is not None and asked.expired()):
                return ExitCode.INTERRUPTED
            clock.sleep(_LOOK)
        failure = running.failure()
        if failure is not None:
            raise failure
        return ExitCode.OK
    finally:
        running.kill()


class _Stop(StopRequest):
    """The second signal is looked at like the first: the JVM has to be seen to."""

    def at_once(self) -> None:
        pass
