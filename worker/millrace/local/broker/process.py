"""One run of the broker's Java process: start, readiness, end, and what it said."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import LatestSpec, OffsetSpec

from millrace.clock import Deadline
from millrace.host.tether import tethered

_UP = "Kafka Server started"  # server.LOGGING has this line written
_LARGEST_LOG = 8 << 20  # bytes; then the log starts anew, with one former log kept


class BrokerProcess:
    """Runs a command of `server` with its output in a log file. It dies with the process that made it."""

    def __init__(self, command: Sequence[str], log: Path, *, keep_open: Sequence[int] = ()) -> None:
        """keep_open: file descriptors that stay open as long as the process runs (the lock of its directory)."""
        if log.exists() and log.stat().st_size > _LARGEST_LOG:
            log.replace(log.with_suffix(".log.1"))
        self._log = log
        with log.open("ab") as output:
            self._said_from = output.tell()
            self._process = subprocess.Popen(
                tethered(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=keep_open,
                start_new_session=True,  # Ctrl-C in a terminal is for the parent, which stops the broker last
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative if a signal ended it."""
        return self._process.poll()

    def wait_until_ready(self, bootstrap: str, deadline: Deadline) -> bool:
        """Whether the broker answered. False: it ended, or the deadline came."""
        # librdkafka's pause between attempts grows to 10 s by default, which would be most of the start
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 50,
            "log_level": 0,
        }
        admin = AdminClient(settings)
        while self.exit_code is None and not deadline.expired():
            try:
                # to a controller that is still starting a request may go unanswered: ask again soon
                if _UP in self.said() and _leads_all(admin):
                    return True
            except KafkaException:
                pass
            deadline.clock.sleep(0.02)
        return False

    def terminate(self, deadline: Deadline) -> None:
        """Ask it to stop in order (SIGTERM); when the deadline comes, kill it."""
        self._process.terminate()
        try:
            self._process.wait(deadline.remaining())
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self._process.kill()
        self._process.wait()

    def said(self) -> str:
        """What this run wrote to its log, at most the last 64 KiB."""
        with self._log.open("rb") as log:
            end = log.seek(0, 2)
            log.seek(max(self._said_from, end - (64 << 10)))
            return log.read().decode(errors="replace")


def _leads_all(admin: AdminClient) -> bool:
    """Whether it acts as leader of every partition. For a moment after a start it says that it is, and refuses. Raises
    KafkaException.
    """
    topics = admin.list_topics(timeout=0.5).topics
    last: OffsetSpec = LatestSpec()  # type: ignore[no-untyped-call]  # the library does not say
    asked = {
        TopicPartition(name, partition): last for name in topics for partition in topics[name].partitions
    }
    if asked:
        for answer in admin.list_offsets(asked, request_timeout=0.5).values():
            answer.result()
    return True


def last_meaningful_lines(said: str, count: int = 6) -> str:
    """The last errors of a log without their stack traces; if it has none, its last lines."""
    lines = [line.rstrip() for line in said.splitlines() if line.strip()]
    telling = [
        line
        for line in lines
        if not line.lstrip().startswith(("at ", "..."))
        and any(
            word in line
            for word in (" ERROR ", " FATAL ", "Exception", "Error:", "Error occurred", "Caused by")
        )
    ]
    return "\n".join((telling or lines)[-count:])
