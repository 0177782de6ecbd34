"""The state directory of a local run: what it holds, who may use it, what it belongs to.

lock            held (flock) by the process that uses the directory; the kernel frees it when that one dies
run.json        the uid of this pipeline's local life, and what must stay the same from run to run
epoch.json      the epoch as published to the workers
status.json     the last snapshot of the run, for `millrace status`
broker/         the embedded broker's data and log
code/           modules of the manifest's ConfigMap, if it has one
until.json      where a bounded run ends, for its workers
workers/<i>.json, <i>.log   status and log of each worker
collector/      status and logs of the collector
<pipeline>/<stage>/v<n>/    the collector's checkpoint
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from millrace.errors import ExitCode, ManifestError, MillraceError
from millrace.worker.files import disk_error, write_whole

KafkaKind = Literal["embedded", "external"]


class RunRecord(msgspec.Struct, frozen=True, rename="camel"):
    """run.json. `uid` prefixes the transactional ids; the rest may not change between runs."""

    uid: str
    pipeline: str
    group_id: str
    topic: str
    kafka: KafkaKind
    manifest: str = ""
    bootstrap: str = ""


class StateDirectory:
    """Paths, lock and run record of one state directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def record_file(self) -> Path:
        return self.path / "run.json"

    @property
    def epoch_file(self) -> Path:
        return self.path / "epoch.json"

    @property
    def status_file(self) -> Path:
        return self.path / "status.json"

    @property
    def broker(self) -> Path:
        return self.path / "broker"

    @property
    def code(self) -> Path:
        return self.path / "code"

    @property
    def bounds_file(self) -> Path:
        return self.path / "until.json"

    @property
    def collector(self) -> Path:
        return self.path / "collector"

    def worker_status(self, index: int) -> Path:
        return self.path / "workers" / f"{index}.json"

    def worker_log(self, index: int) -> Path:
        return self.path / "workers" / f"{index}.log"

    def create(self) -> None:
        """Make the directory and its folders. Raises MillraceError (DISK) if it can't be made or written."""
        try:
            (self.path / "workers").mkdir(parents=True, exist_ok=True)
            self.collector.mkdir(exist_ok=True)
            probe = self.path / f".probe.{os.getpid()}"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise disk_error(error, self.path / "workers") from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only user of the directory. Raises MillraceError (BUSY) at once if another process is."""
        try:
            descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise disk_error(error, self.path / "lock") from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise self._busy(os.pread(descriptor, 32, 0)) from None
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            yield
        finally:
            os.close(descriptor)

    def in_use(self) -> int | None:
        """The process id of the user, None if there is none. Does not disturb whoever has it."""
        try:
            descriptor = os.open(self.path / "lock", os.O_RDONLY)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            text = os.pread(descriptor, 32, 0).strip()
            return int(text) if text.isdigit() else 0
        finally:
            os.close(descriptor)
        return None

    def record(self) -> RunRecord | None:
        """What run.json says. Raises MillraceError (DISK) if it is there and can't be understood."""
        try:
            return msgspec.json.decode(self.record_file.read_bytes(), type=RunRecord)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise MillraceError(
                f"{self.record_file} can't be read: {error}",
                where=str(self.record_file),
                remedy="it holds the identity of this run's offsets: restore it, or begin anew with another --state",
                code=ExitCode.DISK,
            ) from error

    def belong_to(
        self, *, pipeline: str, group_id: str, topic: str, kafka: KafkaKind, manifest: str
    ) -> RunRecord:
        """Bind the directory to this pipeline at its first run; check that it is the same at each later one.

        Raises: ManifestError if it belongs to something else; MillraceError (DISK).
        """
        former = self.record()
        if former is None:
            record = RunRecord(uuid.uuid4().hex, pipeline, group_id, topic, kafka, manifest)
            self.write_record(record)
            return record
        for what, before, now, path in (
            ("pipeline", former.pipeline, pipeline, "metadata.name"),
            ("consumer group", former.group_id, group_id, "spec.source.groupId"),
            ("source topic", former.topic, topic, "spec.source.topic"),
        ):
            if before != now:
                raise ManifestError(
                    f"the state directory {self.path} belongs to {what} {before!r}, not {now!r}",
                    where=path,
                    remedy=f"give another --state, or go back to {before!r}",
                )
        if former.kafka != kafka:
            embedded = former.kafka == "embedded"
            raise ManifestError(
                f"the state directory {self.path} belongs to runs with "
                f"{'an embedded broker' if embedded else 'a broker of your own'}",
                where="--kafka",
                remedy=f"{'run with' if embedded else 'leave out'} --kafka embedded, or give another --state",
            )
        return former

    def write_record(self, record: RunRecord) -> None:
        write_whole(self.record_file, msgspec.json.format(msgspec.json.encode(record)) + b"\n", durable=True)

    def _busy(self, holder: bytes) -> MillraceError:
        pid = holder.strip().decode(errors="replace")
        return MillraceError(
            f"the state directory {self.path} is in use by another run"
            + (f" (process {pid})" if pid else ""),
            where=str(self.path / "lock"),
            remedy="stop that run first (Ctrl-C there, or `kill "
            + (pid or "PID")
            + "`), or give another --state",
            code=ExitCode.BUSY,
        )
