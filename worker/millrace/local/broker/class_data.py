"""The class-data archive (JEP 350) that makes the broker's start about twice as quick.

It is valid for one build of Java and one set of jars, so it lies beside the jars, named by the build. It is made once,
by a broker that is started only to be stopped again; where that fails, brokers start without one.
"""

from __future__ import annotations

import contextlib
import fcntl
import subprocess
import tempfile
from pathlib import Path

from millrace.clock import Deadline, SystemClock
from millrace.host.java import Java
from millrace.local.broker import addresses, server
from millrace.local.broker.process import BrokerProcess

_MAKING_SECONDS = 120.0


def ensure(java: Java, jars: Path) -> Path | None:
    """The archive for this Java and these jars, made if need be (about 10 s); None if it can't be made here."""
    archive = jars.parent / f"classes-{java.build}.jsa"
    failed = archive.with_suffix(".failed")
    if archive.exists():
        return archive
    with (
        contextlib.suppress(OSError, subprocess.SubprocessError),
        (jars.parent / ".lock-classes").open("w") as lock,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists() and not failed.exists():
            with tempfile.TemporaryDirectory(prefix=".classes-", dir=jars.parent) as work:
                made = _make(java, jars, Path(work))
                if made:
                    made.rename(archive)
                else:
                    failed.touch()
    return archive if archive.exists() else None


def _make(java: Java, jars: Path, work: Path) -> Path | None:
    deadline = Deadline.after(SystemClock(), _MAKING_SECONDS)
    ports = addresses.choose(work)
    config, archive = work / "server.properties", work / "classes.jsa"
    config.write_text(server.properties(work / "data", ports))
    (work / "log4j2.yaml").write_text(server.LOGGING)
    command = server.format_command(java, jars, None, config, server.new_cluster_id())
    subprocess.run(command, check=True, capture_output=True, timeout=deadline.remaining())
    broker = BrokerProcess(server.dump_command(java, jars, archive, config), work / "broker.log")
    try:
        if broker.wait_until_ready(f"{server.HOST}:{ports.plain}", deadline):
            broker.terminate(deadline)
    finally:
        broker.kill()
    return archive if archive.exists() else None
