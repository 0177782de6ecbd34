"""A real Kafka broker in a directory, for `millrace run --kafka embedded` and for tests."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from millrace.clock import Deadline, SystemClock
from millrace.errors import ExitCode, MillraceError
from millrace.host import jars, java
from millrace.local.broker import addresses, class_data, server
from millrace.local.broker.jars import BROKER
from millrace.local.broker.process import BrokerProcess, last_meaningful_lines
from millrace.local.broker.server import Ports, Tls

__all__ = ["EmbeddedBroker", "Tls"]

_LEAST_FREE = 64 << 20  # bytes of disk without which a start makes no sense
_LOCK_SECONDS = 10.0  # how long a broker that was killed with its parent may need to be gone


class EmbeddedBroker:
    """One broker whose data, address and log live in `directory`; what it holds survives stop, kill and restart.

    It dies with the process that started it (see `host.tether`). Not thread-safe.

    Args:
        directory: made if need be: data/, server.properties, ports.json, broker.log, broker.lock.
        port: of the plain listener; chosen and kept in the directory if None.
        heap: the largest Java heap ("512m").
        tls: adds a second listener, `secure_bootstrap`, with TLS; with `users` also SASL.
        users: names and passwords, for PLAIN and SCRAM (SCRAM's are laid down when the directory is new). Needs `tls`.
        properties: of the broker, overriding those of `server.properties`.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        heap: str = "512m",
        tls: Tls | None = None,
        users: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        if users and not tls:
            raise ValueError("users (SASL) need tls: passwords do not travel in the clear")
        self.directory = directory.absolute()
        self._port, self._heap, self._tls, self._users = port, heap, tls, users
        self._properties = properties
        self._ports: Ports | None = None
        self._process: BrokerProcess | None = None
        self._clock = SystemClock()

    @property
    def bootstrap(self) -> str:
        """HOST:PORT of the plain listener; the same for all the life of the directory, known before the start."""
        return f"{server.HOST}:{self._kept_ports().plain}"

    @property
    def secure_bootstrap(self) -> str:
        """HOST:PORT of the listener with TLS (its certificate must be for `localhost`)."""
        return f"localhost:{self._kept_ports().secure}"

    @property
    def log(self) -> Path:
        return self.directory / "broker.log"

    @property
    def pid(self) -> int | None:
        """Of the Java process; None if it does not run."""
        return self._process.pid if self._process and self.alive() else None

    def start(self, timeout: float = 240.0) -> None:
        """Return when the broker answers. A broker that runs already is left alone.

        Raises MillraceError: SETUP (no Java, no jars, a start that failed: with what the log says), BUSY (a port, or
        the directory, is in use), DISK.
        """
        if self.alive():
            return
        setup = java.find()
        jar_folder = jars.ensure(BROKER)
        archive = class_data.ensure(setup, jar_folder)
        deadline = Deadline.after(self._clock, timeout)
        with self._disk_errors():
            self.directory.mkdir(parents=True, exist_ok=True)
            self._check_space()
            with (self.directory / "broker.lock").open("a") as lock:
                self._take(lock, deadline)
                self._check_ports()
                config = self._configure()
                if not (self.directory / "data" / "meta.properties").exists():
                    self._format(setup, jar_folder, archive, config, deadline)
                command = server.run_command(setup, jar_folder, archive, config, self._heap)
                self._process = BrokerProcess(command, self.log, keep_open=[lock.fileno()])
        try:
            ready = self._process.wait_until_ready(self.bootstrap, deadline)
        except BaseException:
            self._process.kill()
            raise
        if not ready:
            code = self._process.exit_code
            self._process.kill()
            how = (
                f"was not ready after {timeout:.0f} s"
                if code is None
                else f"ended with code {code} while starting"
            )
            raise self._explain(f"the embedded broker {how}", ExitCode.SETUP)

    def stop(self, timeout: float = 20.0) -> None:
        """Stop it in order; kill it after `timeout`. A broker that does not run is no error."""
        if self._process:
            self._process.terminate(Deadline.after(self._clock, timeout))
            self._process = None

    def kill(self) -> None:
        """SIGKILL, as a crash would be; `start` brings it back with all that it had acknowledged."""
        if self._process:
            self._process.kill()
            self._process = None

    def alive(self) -> bool:
        return self._process is not None and self._process.exit_code is None

    def failure(self) -> MillraceError | None:
        """Why a broker that was neither stopped nor killed by this object is not running any more; None if it is."""
        if self._process is None or self._process.exit_code is None:
            return None
        return self._explain(
            f"the embedded broker ended by itself with code {self._process.exit_code}",
            ExitCode.BROKER_UNREACHABLE,
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _kept_ports(self) -> Ports:
        if self._ports is None:
            with self._disk_errors():
                self.directory.mkdir(parents=True, exist_ok=True)
                self._ports = addresses.kept(self.directory / "ports.json", self.directory, self._port)
        return self._ports

    @contextlib.contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise MillraceError(
                f"the broker's directory can't be used: {error.strerror or error}",
                where=str(error.filename or self.directory),
                remedy="make room or make the folder writable, or choose another",
                code=ExitCode.DISK,
            ) from error

    def _check_space(self) -> None:
        free = shutil.disk_usage(self.directory).free
        if free < _LEAST_FREE:
            raise self._disk_full(f"only {free >> 20} MB of disk are left for the embedded broker")

    def _disk_full(self, what: str) -> MillraceError:
        return MillraceError(
            what,
            where=str(self.directory),
            remedy="make room on this disk, or choose a directory on another; nothing that was acknowledged is lost",
            code=ExitCode.DISK,
        )

    def _take(self, lock: IO[str], deadline: Deadline) -> None:
        """The lock is the Java process's own as well, and so held as long as that lives."""
        wait = Deadline.after(self._clock, min(_LOCK_SECONDS, deadline.remaining()))
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if wait.expired():
                    raise MillraceError(
                        "another broker runs in this directory",
                        where=str(self.directory),
                        remedy="end it (it ends with the `millrace run` that started it), or choose another directory",
                        code=ExitCode.BUSY,
                    ) from None
                self._clock.sleep(0.05)

    def _check_ports(self) -> None:
        ports = self._kept_ports()
        for port in (ports.plain, ports.controller, *([ports.secure] if self._tls else [])):
            if not addresses.is_free(port):
                kept = self.directory / "ports.json"
                raise MillraceError(
                    f"port {port}, an address of the embedded broker, is in use by {addresses.listener(port)}",
                    where=str(kept),
                    remedy="end that process, or choose another with --kafka embedded:PORT"
                    if self._port is not None
                    else "end that process; or delete this file, and other ports are chosen at the next start",
                    code=ExitCode.BUSY,
                )

    def _configure(self) -> Path:
        config = self.directory / "server.properties"
        text = server.properties(
            self.directory / "data",
            self._kept_ports(),
            tls=self._tls,
            users=self._users,
            more=self._properties,
        )
        (self.directory / "log4j2.yaml").write_text(server.LOGGING)
        # it may hold passwords
        with os.fdopen(os.open(config, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
            stream.write(text)
        return config

    def _format(
        self, setup: java.Java, jar_folder: Path, archive: Path | None, config: Path, deadline: Deadline
    ) -> None:
        data = self.directory / "data"
        shutil.rmtree(data, ignore_errors=True)  # what an interrupted format left
        command = server.format_command(
            setup, jar_folder, archive, config, server.new_cluster_id(), self._users
        )
        try:
            subprocess.run(
                command,
                check=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=deadline.remaining(),
            )
        except subprocess.SubprocessError as error:
            shutil.rmtree(data, ignore_errors=True)
            said = (
                last_meaningful_lines(error.output)
                if isinstance(error, subprocess.CalledProcessError)
                else str(error)
            )
            if "No space left" in said:
                raise self._disk_full("the disk is full") from error
            raise MillraceError(
                f"a new data directory for the embedded broker can't be made:\n{said}",
                where=str(data),
                code=ExitCode.SETUP,
            ) from error

    def _explain(self, what: str, code: ExitCode) -> MillraceError:
        said = self._process.said() if self._process else ""
        if "No space left on device" in said:
            return self._disk_full(f"{what}: the disk is full")
        busy = "Address already in use" in said
        return MillraceError(
            f"{what}; the last that its log says:\n{last_meaningful_lines(said)}",
            where=str(self.log),
            remedy="end the process that has its port" if busy else "see the log",
            code=ExitCode.BUSY if busy else code,
        )
