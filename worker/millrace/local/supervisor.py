"""Keeps the worker processes of a local run alive.

A worker that was killed, or that ran into a bug, is started again with back-off. A worker that ended with an error
its user must mend (a failing stage, wrong credentials, a missing topic ...) is not: all others would end the same way
or wait for it, so that error ends the run.

Workers have a session of their own, so that Ctrl-C in the terminal reaches the parent only and it can end them in
order; they die with the parent (worker.orphan). Nothing here waits: `tick` looks at each process once.
"""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from millrace.clock import Clock
from millrace.errors import ExitCode, MillraceError
from millrace.local.backoff import Backoff
from millrace.local.state import StateDirectory
from millrace.local.view.figures import span
from millrace.local.view.snapshot import WorkerSnapshot
from millrace.worker import status as worker_status
from millrace.worker.files import disk_error
from millrace.worker.status import RUNNING, STARTING, Failure, WorkerStatus

_RESTARTED = frozenset({ExitCode.OK, ExitCode.FAILED, ExitCode.BROKER_UNREACHABLE, ExitCode.SUPERSEDED})
STUCK_AFTER = 330.0  # seconds without a new status; a batch of slow messages may take long
_ASK = 0.5  # seconds for the answer of /livez
_LAST_WORDS = 0.5  # seconds for a stuck worker to write down where it is
_LOG_LIMIT = 16 << 20  # bytes; a longer log is put aside as <i>.log.1 when its worker starts


@dataclass(slots=True)
class _Worker:
    index: int
    backoff: Backoff
    process: subprocess.Popen[bytes] | None = None
    born: float = 0.0  # monotonic
    due: float | None = None  # monotonic; to be started then
    restarts: int = 0
    last: WorkerStatus | None = None
    reached: dict[int, int] = field(default_factory=dict)  # the furthest position of each partition
    heard: float = 0.0  # monotonic; of the last status, or of its word that it is alive
    stuck: frozenset[str] = frozenset()  # stages of which it was told
    log_from: int = 0  # bytes of its log that are of the processes before
    doomed: float | None = None  # monotonic; stuck, and to be killed then


class Supervisor:
    """The workers 0 .. n-1.

    Args:
        command: the command line of the worker with an index.
        environment: of the workers.
        notice: called with a text and a level for each thing that people should hear of.
    """

    def __init__(
        self,
        state: StateDirectory,
        clock: Clock,
        command: Callable[[int], Sequence[str]],
        environment: Mapping[str, str],
        notice: Callable[[str, str], None],
        *,
        backoff: Callable[[], Backoff] = Backoff,
        stuck_after: float = STUCK_AFTER,
    ) -> None:
        self._state, self._clock, self._command = state, clock, command
        self._environment, self._notice, self._backoff = dict(environment), notice, backoff
        self._stuck_after = stuck_after
        self._workers: dict[int, _Worker] = {}
        self._ending = False

    def start(self, indices: Iterable[int]) -> None:
        """Start these workers. Raises MillraceError (DISK) if a log can't be written."""
        for index in indices:
            worker = self._workers.setdefault(index, _Worker(index, self._backoff()))
            self._spawn(worker)

    def tick(self) -> None:
        """Look at each worker once: read its status, restart it when due. Raises the MillraceError that ends the run."""
        now = self._clock.monotonic()
        for worker in self._workers.values():
            if worker.process is None:
                if worker.due is not None and now >= worker.due and not self._ending:
                    self._spawn(worker)
                continue
            self._read_status(worker)
            code = worker.process.poll()
            if code is None:
                self._end_if_stuck(worker, now)
            else:
                self._read_status(worker)
                self._ended(worker, code, now)

    def drain(self) -> None:
        """Ask all to drain and end (SIGTERM); `tick` and `running` tell when they have."""
        self._ending = True
        for worker in self._workers.values():
            worker.due = None
            self._signal(worker, signal.SIGTERM)

    def kill(self) -> None:
        """End all at once and wait for them; nothing that was not committed counts."""
        self._ending = True
        for worker in self._workers.values():
            worker.due = None
            self._signal(worker, signal.SIGKILL)
        for worker in self._workers.values():
            if worker.process is not None:
                worker.process.wait()
                worker.process = None

    def running(self) -> int:
        """Processes that have not ended."""
        return sum(worker.process is not None for worker in self._workers.values())

    def ready(self) -> frozenset[int]:
        """Indices whose present process says that it is ready."""
        return frozenset(
            worker.index
            for worker in self._workers.values()
            if worker.process is not None
            and worker.last is not None
            and worker.last.pid == worker.process.pid
            and worker.last.ready
        )

    def statuses(self) -> Sequence[WorkerStatus]:
        """The last status of each worker that has one, by index."""
        return [worker.last for worker in self._workers.values() if worker.last is not None]

    def snapshots(self) -> tuple[WorkerSnapshot, ...]:
        return tuple(self._snapshot(worker) for worker in self._workers.values())

    def _spawn(self, worker: _Worker) -> None:
        log, status = self._state.worker_log(worker.index), self._state.worker_status(worker.index)
        try:
            status.unlink(missing_ok=True)
            if log.exists() and log.stat().st_size > _LOG_LIMIT:
                os.replace(log, log.with_name(log.name + ".1"))
            with open(log, "ab") as out:
                worker.log_from = out.tell()
                worker.process = subprocess.Popen(
                    self._command(worker.index),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    env=self._environment,
                    start_new_session=True,
                )
        except OSError as error:
            raise disk_error(error, log) from error
        worker.born, worker.due, worker.doomed = self._clock.monotonic(), None, None

    def _read_status(self, worker: _Worker) -> None:
        found = worker_status.read(self._state.worker_status(worker.index))
        if found is None or worker.process is None or found.pid != worker.process.pid:
            return
        if worker.last is None or found.updated != worker.last.updated:
            worker.heard = self._clock.monotonic()
        worker.last = found
        for one in found.stuck:
            if one.stage not in worker.stuck:
                self._notice(
                    f"worker {worker.index}: stage {one.stage} is stuck at {one.place}; stack in its log",
                    "warning",
                )
        worker.stuck = frozenset(one.stage for one in found.stuck)
        # Further than any process of this index was before: one that dies at the same message again and again takes
        # messages each time, and gets nowhere.
        if any(position > worker.reached.get(p, position) for p, position in found.positions.items()):
            worker.backoff.progressed()
        for partition, position in found.positions.items():
            worker.reached[partition] = max(position, worker.reached.get(partition, position))

    def _end_if_stuck(self, worker: _Worker, now: float) -> None:
        """What the kubelet does: a loop that does not come round is ended, leaving its stack in the log.

        A status that is old is reason to ask the worker, no more: where the disk is full it can't write one.
        """
        if worker.process is None or worker.last is None or worker.last.state == STARTING or self._ending:
            return
        if worker.doomed is None and now - worker.heard > self._stuck_after and _alive(worker.last.http):
            worker.heard = now - self._stuck_after * 0.9
        if now - worker.heard > self._stuck_after:
            self._notice(f"worker {worker.index} made no progress for {self._stuck_after:.0f} s", "warning")
            worker.heard, worker.doomed = now, now + _LAST_WORDS
            worker.process.send_signal(signal.SIGUSR1)
        if worker.doomed is not None and now >= worker.doomed:
            worker.process.kill()

    def _ended(self, worker: _Worker, code: int, now: float) -> None:
        assert worker.process is not None
        pid, worker.process = worker.process.pid, None
        failure = worker.last.error if worker.last is not None and worker.last.pid == pid else None
        failure = failure or _logged(self._state.worker_log(worker.index), worker.log_from)
        # A code by itself says nothing: the user's own code may have ended the process with whatever number.
        final = failure is not None and failure.code == code and code not in _RESTARTED
        if self._ending:
            if code not in (0, -signal.SIGTERM, -signal.SIGKILL):
                self._notice(f"worker {worker.index} {_reason(code, failure)}", "warning")
            if final:
                raise self._fatal(worker, failure)
            return
        if final:
            raise self._fatal(worker, failure)
        wait = worker.backoff.failed(now - worker.born)
        if wait is None:
            raise self._gave_up(worker, code, failure)
        worker.restarts += 1
        worker.due = now + wait
        self._notice(f"worker {worker.index} {_reason(code, failure)}; again in {wait:.1f} s", "warning")

    def _fatal(self, worker: _Worker, failure: Failure | None) -> MillraceError:
        assert failure is not None
        where = f"{failure.where}; worker {worker.index}" if failure.where else f"worker {worker.index}"
        return MillraceError(
            failure.what,
            where=f"{where}, log {self._state.worker_log(worker.index)}",
            remedy=failure.remedy,
            code=ExitCode(failure.code),
        )

    def _gave_up(self, worker: _Worker, code: int, failure: Failure | None) -> MillraceError:
        log = self._state.worker_log(worker.index)
        last = f": {_last_line(log)}" if failure is None and code > 0 else ""
        return MillraceError(
            f"worker {worker.index} failed {worker.backoff.failures} times in a row; "
            f"at last it {_reason(code, failure)}{last}",
            where=str(log),
            remedy="see the worker's log, mend the cause, and run again: it goes on where it stopped",
            code=ExitCode(failure.code) if failure is not None else ExitCode.FAILED,
        )

    def _signal(self, worker: _Worker, number: signal.Signals) -> None:
        if worker.process is not None:
            worker.process.send_signal(number)  # checks first that it has not ended

    def _snapshot(self, worker: _Worker) -> WorkerSnapshot:
        last = worker.last
        if worker.process is None:
            if worker.due is None:
                return WorkerSnapshot(worker.index, "stopped", restarts=worker.restarts)
            wait = max(0.0, worker.due - self._clock.monotonic())
            return WorkerSnapshot(
                worker.index, "restarting", f"back in {wait:.1f} s", restarts=worker.restarts
            )
        if last is None or last.pid != worker.process.pid:
            return WorkerSnapshot(worker.index, "starting", pid=worker.process.pid, restarts=worker.restarts)
        if last.stuck and last.state == RUNNING:
            stuck = last.stuck[0]
            detail = f"{stuck.stage} stuck {span(stuck.seconds)}"
            return WorkerSnapshot(worker.index, "stuck", detail, last.pid, worker.restarts)
        detail = last.reasons[0] if last.reasons and last.state != RUNNING else ""
        return WorkerSnapshot(worker.index, last.state, detail, last.pid, worker.restarts)


def _reason(code: int, failure: Failure | None) -> str:
    if code < 0:
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"
    if failure is not None:
        return f"failed: {failure.what.splitlines()[0] if failure.what else ExitCode(failure.code).name}"
    return f"ended with exit code {code}" if code else "ended by itself"


def _alive(address: str) -> bool:
    """Whether a worker says, at HOST:PORT, that its loop comes round."""
    if not address:
        return False
    connection = http.client.HTTPConnection(address, timeout=_ASK)
    try:
        connection.request("GET", "/livez")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class _Said(msgspec.Struct):
    """The line of a worker's log that tells why it ends."""

    what: str
    code: int
    where: str = ""
    todo: str = ""


def _logged(log: Path, start: int) -> Failure | None:
    """The failure that a worker has left in its log, from this byte on; its status may have found no room."""
    for line in reversed(_tail(log, start)):
        try:
            said = msgspec.json.decode(line, type=_Said)
            return Failure(said.what, said.where, said.todo, ExitCode(said.code))
        except (msgspec.DecodeError, ValueError):
            continue
    return None


def _last_line(log: Path) -> str:
    lines = _tail(log, 0)
    return lines[-1][:500] if lines else "its log is empty"


def _tail(log: Path, start: int) -> Sequence[str]:
    """The last lines that say something, from this byte on; none if the log can't be read."""
    try:
        with open(log, "rb") as file:
            file.seek(max(start, log.stat().st_size - 4096))
            return [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ()
