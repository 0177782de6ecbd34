"""One local run from start to end: broker, topics, epochs, workers, collector; and all of it down again, in order.

The main thread looks a few times a second at what lives for itself, each bounded and none waited for: the broker's
keeper (a thread), the steward (a thread), the supervisor and the collector's keeper (processes). It carries word between
them, makes a snapshot and shows it. Whatever ends the run (the end of the input, Ctrl-C, an error) ends it the same way:
workers drain, then the collector finishes its batch, then the steward takes a last look, then the broker stops.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from millrace.clock import Clock, Deadline
from millrace.errors import ExitCode, MillraceError
from millrace.local.broker.keeper import BrokerKeeper
from millrace.local.collector.keeper import STOP, CollectorKeeper
from millrace.local.state import StateDirectory
from millrace.local.stewardship import Steward
from millrace.local.supervisor import Supervisor
from millrace.local.view.display import Display, save_picture
from millrace.local.view.figures import count, plural, span
from millrace.local.view.meter import Meter, Rate
from millrace.local.view.snapshot import Notice, RunSnapshot, encode
from millrace.ownership.control_rules import Fleet
from millrace.worker.files import write_whole
from millrace.worker.status import Failure

TICK = 0.25  # seconds between two looks
STATUS_EVERY = 1.0  # seconds between two writes of status.json
DRAIN = 40.0  # seconds; longer than a worker gives itself, after which it is killed
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_NOTICES = 200


class Killed(BaseException):
    """The second Ctrl-C. Not an Exception: nothing may swallow it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be run, as far as it is shown."""

    pipeline: str
    manifest: str
    delivery: str
    replicas: int
    until_end: bool
    bootstrap: str
    picture: Path | None = None


class LocalRun:
    """Composes keeper, steward, supervisor and collector. `carry_out` may be called once.

    Notices are collected by `notice`, which those are given.
    """

    def __init__(self, plan: Plan, state: StateDirectory, clock: Clock, display: Display) -> None:
        self._plan, self._state, self._clock, self._display = plan, state, clock, display
        self._born, self._started = clock.monotonic(), clock.time()
        self._notices: tuple[Notice, ...] = ()
        self._noticing = threading.Lock()
        self._meter, self._progress = Meter(), Rate(window=15.0)
        self._stops = 0
        self._scale = 0
        self._status_due = 0.0
        self._status_failed = False
        self._phase, self._name = "", "starting"
        self._error: Failure | None = None
        self.snapshot: RunSnapshot | None = None

    def notice(self, text: str, level: str = "info") -> None:
        """Tell people. May be called from any thread."""
        with self._noticing:
            at = self._clock.monotonic() - self._born
            self._notices = (*self._notices[-_NOTICES:], Notice(at, text, level))

    def carry_out(
        self,
        supervisor: Supervisor,
        open_steward: Callable[[], Steward],
        keeper: BrokerKeeper | None,
        collector: CollectorKeeper | None = None,
    ) -> ExitCode:
        """Run until the end. Raises the MillraceError that ended it, after all is down."""
        self._supervisor, self._keeper, self._collector = supervisor, keeper, collector
        self._steward: Steward | None = None
        with self._signals():
            try:
                try:
                    self._live(open_steward)
                except MillraceError as error:
                    self._error, self._name, self._phase = Failure.of(error), "failed", "stopping the others"
                    self.notice(error.what.splitlines()[0], "error")
                    self._down()
                    raise
                reached = not self._stops
                self._name, self._phase = ("running", "finishing") if reached else ("draining", "")
                self._down()
            except Killed:
                self._name, self._phase = "stopped", "killed"
                return ExitCode.INTERRUPTED
            finally:
                self._kill()
                self._look(final=True)
        if self._plan.until_end and not reached:
            return ExitCode.INTERRUPTED
        return ExitCode.OK

    # -- up ------------------------------------------------------------------------------------------------------

    def _live(self, open_steward: Callable[[], Steward]) -> None:
        if self._keeper is not None:
            self._phase = "the broker starts"
            self._keeper.start()
            self._until(lambda: self._keeper is None or self._keeper.ready)
        if self._stops:
            return
        self._steward = open_steward()
        self._steward.start()
        self._until(self._at_end)

    def _until(self, done: Callable[[], bool]) -> None:
        while not self._stops:
            self._look()
            if done():
                return
            self._clock.sleep(TICK)

    def _at_end(self) -> bool:
        sight = self._steward.sight if self._steward is not None else None
        if not (self._plan.until_end and sight is not None and sight.settled and sight.at_end):
            return False
        if self._collector is None:
            return True
        self._collector.watch(sight.backlog)  # it may be newer than what it was last told of
        # workers stay meanwhile, at their ends: so no end mark can be missing
        return self._collector.has_all(sight.channel)

    def _look(self, *, final: bool = False) -> None:
        """Carry word between the parts, and show where all is. Raises the error of the part that gave up."""
        try:
            self._check()
        finally:
            self._show(final)

    def _check(self) -> None:
        self._supervisor.tick()
        if self._collector is not None:
            self._collector.tick()
        if self._error is None and self._keeper is not None and self._keeper.error is not None:
            raise self._keeper.error
        steward = self._steward
        if steward is None:
            return
        if self._error is None and steward.error is not None:
            raise steward.error
        going = not self._stops and self._error is None
        if going and self._collector is not None and steward.partitions and not self._collector.started:
            self._collector.start(steward.partitions)
        if going and self._collector is not None and steward.sight is not None:
            self._collector.watch(steward.sight.backlog)
        workers = self._supervisor.snapshots()
        if going and steward.scale > self._scale:
            self._supervisor.start(range(self._scale, steward.scale))
            self._scale = steward.scale
        steward.fleet = Fleet(
            scale=self._scale,
            running=frozenset(worker.index for worker in workers if worker.pid is not None),
            ready=self._supervisor.ready(),
        )
        ready = len(steward.fleet.ready) == self._plan.replicas
        if self._name == "starting" and ready and steward.sight is not None and steward.sight.settled:
            self._name = "running"
        if self._name in ("starting", "running"):
            waiting = "" if ready or self._name == "running" else "workers start"
            self._phase = "the broker is away" if steward.away_since is not None else steward.phase or waiting

    # -- down ----------------------------------------------------------------------------------------------------

    def _down(self) -> None:
        """Workers, then the collector, then the steward, then the broker. The second signal cuts it short (Killed)."""
        if self._keeper is not None and self._keeper.error is not None:
            self._supervisor.kill()  # nothing can be committed any more
            if self._collector is not None:
                self._collector.kill()
        self._supervisor.drain()
        self._wait(lambda: not self._supervisor.running(), DRAIN)
        if self._supervisor.running():
            self.notice(
                f"not drained after {DRAIN:.0f} s: killed; nothing that was committed is lost", "warning"
            )
            self._supervisor.kill()
        self._stop_collector()
        if self._steward is not None:
            self._steward.stop()
            self._steward.join(10.0)
            if self._keeper is None or self._keeper.ready:
                self._steward.final_look()
        if self._keeper is not None:
            self._phase = "the broker stops"
            self._keeper.stop()
            self._wait(self._keeper.ended, 30.0)
        self._phase = ""
        if self._error is None:
            self._name = "stopped" if self._stops else "finished"

    def _stop_collector(self) -> None:
        collector = self._collector
        if collector is None:
            return
        collector.terminate()
        if collector.running():
            self._phase = "the collector finishes its batch"
            self._wait(lambda: not collector.running(), STOP)
            collector.kill()

    def _wait(self, done: Callable[[], bool], seconds: float) -> None:
        deadline = Deadline.after(self._clock, seconds)
        while not done() and not deadline.expired():
            try:
                self._look()
            except MillraceError as error:
                if self._error is None:
                    self._error = Failure.of(error)
                self.notice(error.what.splitlines()[0], "error")
            self._clock.sleep(TICK / 2)

    def _kill(self) -> None:
        self._supervisor.kill()
        if self._collector is not None:
            self._collector.kill()
        if self._steward is not None:
            self._steward.stop()
        if self._keeper is not None and not self._keeper.ended():
            self._keeper.kill()
            self._keeper.join(5.0)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        former = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._stops += 1
        if self._stops > 1:
            raise Killed
        self.notice(f"{signal.Signals(number).name}: draining; once more ends at once")

    # -- what is seen --------------------------------------------------------------------------------------------

    def _show(self, final: bool) -> None:
        snapshot = self._snapshot()
        self.snapshot = snapshot
        self._display.show(snapshot)
        if self._picture_due(snapshot):
            assert self._plan.picture is not None
            save_picture(snapshot, self._plan.picture, f"millrace run {self._plan.manifest}")
            self._plan = replace(self._plan, picture=None)
        now = self._clock.monotonic()
        if final or now >= self._status_due:
            self._status_due = now + STATUS_EVERY
            self._write(snapshot)

    def _write(self, snapshot: RunSnapshot) -> None:
        try:
            write_whole(self._state.status_file, encode(snapshot))
        except MillraceError as error:
            if not self._status_failed:  # nothing depends on it: say so once, and go on
                self._status_failed = True
                self.notice(error.what, "warning")

    def _snapshot(self) -> RunSnapshot:
        now = self._clock.monotonic()
        self._meter.update(now, self._supervisor.statuses())
        sight = self._steward.sight if self._steward is not None else None
        total, done = (sight.total, sight.done) if sight is not None else (None, 0)
        pace = self._progress.add(now, done)
        eta = (total - done) / pace if total is not None and pace > 0 else None
        plan = self._plan
        return RunSnapshot(
            pipeline=plan.pipeline,
            state=self._name,
            started=self._started,
            updated=self._clock.time(),
            elapsed=now - self._born,
            phase=self._phase,
            manifest=plan.manifest,
            kafka=plan.bootstrap,
            embedded=self._keeper is not None,
            delivery=plan.delivery,
            replicas=plan.replicas,
            epoch=sight.epoch.number if sight is not None else None,
            partitions=sight.partitions if sight is not None else (),
            workers=self._supervisor.snapshots(),
            stages=self._meter.stages,
            collector=self._collector.snapshot(sight.channel if sight else {}) if self._collector else None,
            rate=self._meter.rate,
            messages=self._meter.messages,
            done=done,
            total=total,
            late=sight.late if sight is not None and self._collector is not None else None,
            eta=eta,
            notices=self._notices,
            error=self._error,
        )

    def _picture_due(self, snapshot: RunSnapshot) -> bool:
        if self._plan.picture is None or self._name != "running":
            return False
        fraction = snapshot.fraction
        return fraction >= 0.3 if fraction is not None else snapshot.elapsed >= 20 and snapshot.rate > 0


def summary(snapshot: RunSnapshot) -> str:
    """How it ended, on one line; on further ones what is to be known of its figures."""
    end = f"{snapshot.state} after {span(snapshot.elapsed)}"
    taken, dead = f"{count(snapshot.messages)} messages", f"{count(snapshot.dead)} dead letters"
    rest = f", {count(snapshot.lag)} still to do" if snapshot.lag else ""
    if snapshot.collector is not None:
        late = f", {count(snapshot.late)} late" if snapshot.late else ""
        rest = f"{late}, {count(snapshot.collector.rows)} rows collected{rest}"
    restarts = sum(worker.restarts for worker in snapshot.workers)
    if not restarts and snapshot.messages <= snapshot.done:
        if not snapshot.messages and snapshot.state == "finished":
            return f"{end}: there was nothing new in the source{rest}"
        return f"{end}, {taken}{f', {dead}' if snapshot.dead else ''}{rest}"
    # What workers count says how much they worked; what is done is known from the committed offsets.
    why = f"with {plural(restarts, 'restart')} " if restarts else ""
    return (
        f"{end}, {count(snapshot.done)} messages done (by committed offsets){rest}\n"
        f"  {why}workers took {taken} and made {dead}:\n"
        "  uncommitted and repeated work is counted; each dead letter is in its topic once"
    )
