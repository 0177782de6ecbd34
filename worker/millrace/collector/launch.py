"""Starting and ending attempts of the collector's job: a process of its own that has a JVM for a child.

At most one attempt works on a stage's checkpoint, whatever its version. The lock that sees to it is held by the job and
by its JVM, which lives on for seconds when its Python is killed; so who gets the lock knows that both are gone. Both are
in a process group of their own, and the job dies with the process that launched it (`host.tether`), the JVM after it as
its standard input closes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec
import psutil

import millrace
import millrace_api
from millrace.clock import Clock, Deadline, SystemClock
from millrace.collector import class_data, status, versions
from millrace.collector import spec as specs
from millrace.collector.spec import JobSpec
from millrace.collector.status import CollectorStatus
from millrace.errors import ExitCode, MillraceError
from millrace.host import java
from millrace.host.tether import tethered
from millrace.worker.files import disk_error

_LARGEST_LOG = 16 << 20  # bytes; then it is put aside when the next attempt starts
_GONE_SECONDS = 30.0
_POLL = 0.05
_LOCK = "lock"


class Attempt:
    """One run of a job. Not thread-safe; start it in a thread that stays, for it dies with that thread (`tether`).

    Args:
        log: what the job says, one event a line; None: to this process's standard error. Spark's own log is `spec.log`.
        environment: of the job; this process's if None. PYTHONPATH is added to, JAVA_HOME set.
    """

    def __init__(
        self,
        spec: JobSpec,
        log: Path | None,
        *,
        environment: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.spec, self._log, self._clock = spec, log, clock or SystemClock()
        self._environment = dict(os.environ if environment is None else environment)
        self._checkpoint = Path(spec.checkpoint)
        self._home = self._checkpoint.parent
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Of the job's Python; its process group has the same number."""
        return self._process.pid if self._process else None

    @property
    def exit_code(self) -> int | None:
        """None while it runs, or before it was started; negative if a signal ended it."""
        return self._process.poll() if self._process else None

    def start(self, timeout: float = _GONE_SECONDS) -> None:
        """Start it; first wait, up to `timeout` s, until a former attempt's JVM is gone.

        Raises MillraceError: BUSY (another attempt works on this checkpoint), SETUP (no Java), DISK.
        """
        launcher = java.find("the collector (Spark)")
        try:
            with locked(self._home, timeout, self._clock) as lock:
                self._check_newest()
                self._checkpoint.mkdir(exist_ok=True)
                Path(self.spec.status_file).unlink(missing_ok=True)
                file = self._checkpoint / versions.JOB_FILE
                archive = class_data.find(launcher, Path(self.spec.jars))
                specs.write(msgspec.structs.replace(self.spec, archive=str(archive or "")), file)
                command = [sys.executable, "-P", "-m", "millrace.collector.job", "--spec", str(file)]
                self._process = self._spawn([*command, "--lock", str(lock)], launcher, lock)
                _sign(lock, self._process.pid)
        except OSError as error:
            raise disk_error(error, Path(error.filename or self._checkpoint)) from error

    def terminate(self) -> None:
        """Ask it to stop when the batch under way is done."""
        if self._process and self._process.poll() is None:
            self._process.terminate()

    def stop(self, timeout: float) -> None:
        """Ask it to stop, kill it after `timeout` s; it is gone when this returns."""
        self.terminate()
        if self._process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout)
        self.kill()

    def kill(self) -> None:
        """SIGKILL to Python and JVM; both are gone when this returns. What was not committed will be done again.
        Raises MillraceError (BUSY) if something outlives that.
        """
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._home.exists():
            with locked(self._home, _GONE_SECONDS, self._clock):
                pass

    def status(self) -> CollectorStatus | None:
        """The last that this attempt said of itself."""
        found = status.read(Path(self.spec.status_file))
        return found if found and self._process and found.pid == self._process.pid else None

    def failure(self) -> MillraceError | None:
        """Why it ended; None if it runs, or ended in order."""
        code = self.exit_code
        if code is None or code == 0:
            return None
        last = self.status()
        if last and last.error:
            return last.error.error()
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        said = self._last_word() if code > 0 else ""
        return MillraceError(
            f"the collector {how}{f': {said}' if said else ''}",
            where=str(self._log or self.spec.log),
            remedy="it goes on from its checkpoint at the next start",
        )

    def _spawn(self, command: list[str], launcher: java.Java, lock: int) -> subprocess.Popen[bytes]:
        with self._output() as output:
            return subprocess.Popen(
                tethered(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=_environment(self._environment, launcher, distributed=self.spec.distributed),
                pass_fds=[lock],
                start_new_session=True,
            )

    def _output(self) -> IO[bytes]:
        if self._log is None:
            return os.fdopen(os.dup(2), "wb")
        self._log.parent.mkdir(parents=True, exist_ok=True)
        if self._log.exists() and self._log.stat().st_size > _LARGEST_LOG:
            self._log.replace(self._log.with_suffix(".log.1"))
        return self._log.open("ab")

    def _last_word(self) -> str:
        """What it left unclassified: an import that failed, say."""
        if self._log is None:
            return ""
        with contextlib.suppress(OSError), self._log.open("rb") as file:
            file.seek(max(0, self._log.stat().st_size - 4096))
            lines = file.read().decode(errors="replace").strip().splitlines()
            return lines[-1][:500] if lines else ""
        return ""

    def _check_newest(self) -> None:
        """The version was chosen a moment ago, and somebody else may have begun a newer one since."""
        newest = versions.newest(self._home)
        if newest is not None and newest.spec.version > self.spec.version:
            raise MillraceError(
                f"another run has begun version {newest.spec.version} of this checkpoint, this one is for version "
                f"{self.spec.version}",
                where=str(self._home),
                remedy="start again: the version is chosen anew",
                code=ExitCode.BUSY,
            )


@contextmanager
def locked(home: Path, timeout: float, clock: Clock | None = None) -> Iterator[int]:
    """Be the only one at work on the versions of a checkpoint. Yields the lock's file descriptor; a process that
    inherits it goes on holding the lock.

    Raises MillraceError: BUSY, after `timeout` s; DISK.
    """
    clock = clock or SystemClock()
    deadline = Deadline.after(clock, timeout)
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock = os.open(home / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise disk_error(error, home / _LOCK) from error
    try:
        while not _taken(lock):
            if deadline.expired():
                raise _busy(home, lock)
            clock.sleep(_POLL)
        yield lock
    finally:
        os.close(lock)


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sign(lock: int, pid: int) -> None:
    """Write down who holds it from now on."""
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{pid} {os.getpid()}\n".encode(), 0)


def _busy(home: Path, lock: int) -> MillraceError:
    pids = [int(word) for word in os.pread(lock, 64, 0).split() if word.isdigit()]
    alive = [pid for pid in pids if psutil.pid_exists(pid)]
    if len(pids) == 2 and alive == pids:
        who, remedy = f": process {pids[0]}, started by process {pids[1]}", f"`kill {pids[1]}`"
    elif alive:
        who, remedy = f": process {alive[0]}", f"`kill {alive[0]}`"
    elif pids:
        who, remedy = f": the JVM that process {pids[0]} left", "wait some seconds: it ends by itself"
    else:
        who, remedy = "", "end the run that it belongs to"
    return MillraceError(
        f"another attempt of the collector works on this checkpoint{who}",
        where=str(home),
        remedy=f"end that run first: {remedy}" if alive else remedy,
        code=ExitCode.BUSY,
    )


def _environment(
    given: Mapping[str, str], launcher: java.Java, *, distributed: bool = False
) -> dict[str, str]:
    """Spark's own settings in it would override the job's, or send it elsewhere."""
    mine = {str(Path(file).parents[1]) for file in (millrace.__file__, millrace_api.__file__)}
    paths = [*sorted(mine), *filter(None, [given.get("PYTHONPATH")])]
    return {
        **{name: value for name, value in given.items() if not name.startswith(("SPARK_", "PYSPARK_"))},
        "PYTHONPATH": os.pathsep.join(paths),
        "JAVA_HOME": str(launcher.path.resolve().parents[1]),
        # executors' Python is this one
        "PYSPARK_PYTHON": sys.executable,
        # a laptop's host name may resolve to nowhere, or to an address that changes with the network
        **({} if distributed else {"SPARK_LOCAL_IP": "127.0.0.1"}),
        "PYTHONWARNINGS": "ignore::FutureWarning:pyspark.testing.utils",
    }
