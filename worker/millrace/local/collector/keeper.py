"""Keeps the collector of a local run alive: its job is started again with back-off when it was killed, ran into a bug or
lost its broker. A failure that its user must mend ends the run.

With the trigger `interval` a job runs all the time. With `onLag` none does until enough waits in the channel (`watch`);
then one takes what is there, and ends. When workers are at the end of a bounded run, one closes what is left.

Nothing here waits for long: `tick` looks once. Call it on the main thread, since an attempt dies with the thread that
started it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from math import inf
from typing import Protocol

import msgspec

from millrace.channel.backlog import Backlog, due
from millrace.clock import Clock
from millrace.collector import Attempt, CollectorStatus, JobSpec
from millrace.collector.ending import last_watermark
from millrace.collector.failures import RESTARTS
from millrace.collector.stage import CollectorJob, ended_before
from millrace.errors import ExitCode, MillraceError
from millrace.local.backoff import Backoff
from millrace.local.collector.shown import Shown
from millrace.local.view.snapshot import CollectorSnapshot

STOP = 70.0  # seconds for the batch under way, which the job gives itself 60 of


class Runs(Protocol):
    """What is used of a collector.Attempt."""

    @property
    def pid(self) -> int | None: ...
    @property
    def exit_code(self) -> int | None: ...
    def start(self, timeout: float = ...) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...
    def status(self) -> CollectorStatus | None: ...
    def failure(self) -> MillraceError | None: ...


class Extent(Enum):
    """How far a job goes."""

    ALL = "all"  # until it is asked to stop; in a bounded run to its end
    PENDING = "pending"  # what is in the channel as it starts
    REST = "rest"  # to the end of a bounded run, which the workers have reached


def patient() -> Backoff:
    """A start takes several seconds by itself, and a query that can't be run fails only after it. How often it is tried
    depends on the failure."""
    return Backoff(first=0.5, settled=120.0)


class CollectorKeeper:
    """Args:
    attempt: makes an attempt that is not started.
    notice: called with a text and a level for each thing that people should hear of.
    """

    def __init__(
        self,
        job: CollectorJob,
        attempt: Callable[[JobSpec], Runs],
        clock: Clock,
        notice: Callable[[str, str], None],
        backoff: Backoff | None = None,
    ) -> None:
        self.job, self._make, self._clock, self._notice = job, attempt, clock, notice
        self._backoff = backoff or patient()
        self._outages = replace(
            self._backoff
        )  # what is waited for as long as it takes says nothing of the job
        self._partitions: int | None = None
        self._spec: JobSpec | None = None  # with the version of the checkpoint; None: not chosen yet
        self._extent = Extent.ALL if job.on_lag is None else Extent.PENDING
        self._attempt: Runs | None = None
        self._last: CollectorStatus | None = None
        self._shown = Shown(job.log)
        self._backlog: Backlog | None = None
        self._due: float | None = None
        self._born = 0.0
        self._batches = self._restarts = self._attempts = 0
        self._rows = self._late = 0  # of attempts that are over
        self._ending = False
        self._waiting = False  # there is nothing to do for now
        self.finished = False  # all partitions have ended, and all windows are closed

    @property
    def started(self) -> bool:
        return self._partitions is not None

    def start(self, partitions: int) -> None:
        """Begin to read the channel, which has so many partitions. Raises the MillraceError that ends the run."""
        self._partitions = partitions
        self._begin()

    def tick(self) -> None:
        """Look once: read its status, start it again when due. Raises the MillraceError that ends the run."""
        attempt = self._attempt
        if attempt is None:
            if self._due is not None and not self._ending and self._clock.monotonic() >= self._due:
                if self._spec is None:
                    self._begin()
                else:
                    self._spawn()
            return
        code = attempt.exit_code
        self._look(attempt)
        if code is not None:
            self._attempt = None
            attempt.kill()  # the JVM outlives its Python by seconds
            self._ended(attempt, code)

    def watch(self, backlog: Backlog | None) -> None:
        """What waits in the channel, as it was seen last; starts a job if that is enough for the trigger."""
        self._backlog, trigger = backlog, self.job.on_lag
        if (
            trigger is None
            or backlog is None
            or not self._waiting
            or self._ending
            or self._attempt is not None
        ):
            return
        why = due(trigger, backlog, self._last.offsets if self._last is not None else None)
        if why:
            self._notice(f"collector {self.job.stage}: {why}", "info")
            self._spawn()

    def has_all(self, ends: Mapping[int, int]) -> bool:
        """Call it when workers are at the end of a bounded run: whether the collector has ended, too, and has read the
        channel up to these offsets. It goes on if not: with the end marks of a former run it may end too early.
        """
        if self._waiting and self._closed_all() and self._lag(ends) == 0:
            self._waiting, self.finished = (
                False,
                True,
            )  # a job for what was pending has read the end marks, too
        if self._waiting or (self.finished and self._lag(ends)):
            self.finished = False
            self._extent = Extent.REST
            self._spawn()
        return self.finished

    def terminate(self) -> None:
        """Ask it to end when the batch under way is done; `tick` and `running` tell when it has."""
        self._ending = True
        if self._attempt is not None:
            self._attempt.terminate()

    def running(self) -> bool:
        return self._attempt is not None

    def kill(self) -> None:
        """End it at once; what was not committed is done again by the next run."""
        self._ending = True
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.kill()

    def snapshot(self, ends: Mapping[int, int]) -> CollectorSnapshot:
        """ends: of the channel's partitions, as far as they are known."""
        last, going = self._last, self._attempt is not None
        shown = CollectorSnapshot(
            self.job.stage,
            self._state(),
            restarts=self._restarts,
            attempts=self._attempts,
            version=self._spec.version if self._spec is not None else None,
            rows=self._rows,
            late=self._late,
            lag=self._lag(ends),
        )
        if last is None:
            return shown
        return msgspec.structs.replace(
            shown,
            pid=last.pid if going else None,
            rate=last.rows_per_second if going else 0.0,
            rows=self._rows + last.rows,
            late=self._late + last.late,
            open=last.state_rows,
            state_bytes=last.state_bytes,
            batch=last.batch,
            seconds=last.seconds,
            watermark=last.watermark,
            http=last.http if going else "",
            ui=last.ui if going else "",
        )

    def _closed_all(self) -> bool:
        """Whether the last job has left no window open, nor any to come."""
        last, spec = self._last, self._spec
        closed = last_watermark(spec) if spec is not None else None
        return (
            last is not None
            and closed is not None
            and last.watermark is not None
            and last.watermark >= closed
            and last.state_rows == 0
        )

    def _lag(self, ends: Mapping[int, int]) -> int | None:
        known = self._last.offsets if self._last is not None else {}
        if not known and self._backlog is not None:
            return self._backlog.waiting()
        behind = [max(0, end - known[p]) for p, end in ends.items() if p in known]
        return sum(behind) if behind else None

    def _begin(self) -> None:
        """Choose the version of the checkpoint, and say what that means."""
        assert self._partitions is not None
        self._born, self._due = self._clock.monotonic(), None
        try:
            choice = self.job.choose(self._partitions)
        except MillraceError as error:
            if error.code not in RESTARTS:
                raise
            self._again(error, error.what.splitlines()[0])
            return
        self._spec = choice.spec
        if news := choice.news(self.job.stage):
            self._notice(news, "warning")
        if ended_before(choice.spec):
            if choice.spec.query.window is not None:  # else nothing is ever late
                self._notice(
                    f"collector {self.job.stage}: a former run has ended all windows; what comes now is late for them: "
                    "counted as late, and not in the results",
                    "warning",
                )
            # by the former run's end marks all is over already: it waits for those of this run's workers
            self._waiting = choice.spec.until_end
        # a new version has all to read that is there, which lag, by the former's offsets, does not tell
        self._waiting = self._waiting or (self._extent is Extent.PENDING and choice.former is None)
        if not self._waiting:
            self._spawn()

    def _spawn(self) -> None:
        assert self._spec is not None
        self._attempts += 1
        spec = msgspec.structs.replace(
            self._spec,
            until_end=self._spec.until_end and self._extent is not Extent.PENDING,
            pending=self._extent is Extent.PENDING,
            attempt=self._attempts,
            restarts=self._restarts,
        )
        attempt = self._make(spec)
        self._born, self._due, self._batches = self._clock.monotonic(), None, 0
        self._waiting = False
        if self._last is not None:
            self._rows, self._late = self._rows + self._last.rows, self._late + self._last.late
            self._last = None
        try:
            attempt.start(0.0)
        except MillraceError as error:
            if error.code not in RESTARTS:
                raise
            self._again(error, error.what.splitlines()[0])
        else:
            self._attempt = attempt

    def _look(self, attempt: Runs) -> None:
        for line in self._shown.new():
            self._notice(f"{self.job.stage}: {line}", "info")
        found = attempt.status()
        if found is None:
            return
        self._last = found
        if found.batches > self._batches:
            self._batches = found.batches
            self._backoff.progressed()
            self._outages.progressed()

    def _ended(self, attempt: Runs, code: int) -> None:
        failure = attempt.failure()
        pending = self._extent is Extent.PENDING
        bounded = pending or (self._spec is not None and self._spec.until_end)
        if failure is None and not self._ending and bounded:
            self.finished, self._waiting = not pending, pending
            return
        if failure is not None and code > 0 and failure.code not in RESTARTS:
            raise self._located(failure)
        if self._ending:
            if failure is not None and code not in (-signal.SIGTERM, -signal.SIGKILL):
                self._notice(f"collector {self.job.stage}: {failure.what.splitlines()[0]}", "warning")
            return
        self._again(failure, failure.what.splitlines()[0] if failure else "ended by itself")

    def _again(self, failure: MillraceError | None, why: str) -> None:
        now = self._clock.monotonic()
        patience = RESTARTS.get(failure.code if failure is not None else ExitCode.OK, 0)
        lived = now - self._born
        wait = self._outages.failed(lived, inf) if patience is None else self._backoff.failed(lived, patience)
        if wait is None:
            if failure is not None:
                raise self._located(failure)
            raise MillraceError(
                f"collector {self.job.stage} ended {self._backoff.failures} times in a row",
                where=str(self.job.log),
            )
        self._restarts += 1
        self._due = now + wait
        self._notice(f"collector {self.job.stage}: {why}; again in {wait:.1f} s", "warning")

    def _located(self, failure: MillraceError) -> MillraceError:
        where = failure.where if failure.where.startswith("spec.") else f"spec.stages[{self.job.at}].collect"
        where = f"{where} ({self.job.stage}), log {self.job.log}"
        return MillraceError(failure.what, where=where, remedy=failure.remedy, code=failure.code)

    def _state(self) -> str:
        if self.finished:
            return "finished"
        if self._waiting or not self.started:
            return "waiting"
        if self._attempt is None:
            return "restarting" if self._due is not None and not self._ending else "stopped"
        if self._ending:
            return "draining"
        return self._last.state if self._last is not None and self._last.state != "ended" else "starting"


def keeper_of(
    job: CollectorJob, environment: Mapping[str, str], clock: Clock, notice: Callable[[str, str], None]
) -> CollectorKeeper:
    """With real attempts."""
    return CollectorKeeper(
        job, lambda spec: Attempt(spec, job.log, environment=environment, clock=clock), clock, notice
    )
