"""Which Java runs what is written for it: the embedded broker, Spark."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from millrace.errors import ExitCode, MillraceError

OLDEST = 17  # Kafka 4's brokers are compiled for it (KIP-1013)
_INSTALL = (
    "install Java 17 or 21 (Debian, Ubuntu: `apt install openjdk-17-jre-headless`), or point JAVA_HOME at one"
)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java launcher. `build` is different for any two builds, for what is valid with one build only."""

    path: Path
    version: int
    build: str


def find(purpose: str = "the embedded broker") -> Java:
    """The Java of JAVA_HOME, else the first on PATH. purpose: what needs it, for people. Raises MillraceError (SETUP): none there, or too old."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        where = f"JAVA_HOME={home}" if home else "PATH"
        raise MillraceError(
            f"{purpose} needs Java, and there is none",
            where=where,
            remedy=_INSTALL,
            code=ExitCode.SETUP,
        )
    # the answer comes on the standard error stream: 'openjdk version "17.0.15" 2025-04-15' and two lines of build
    try:
        answer = subprocess.run(
            [found, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise MillraceError(
            f"`java -version` does not work: {error}", where=found, remedy=_INSTALL, code=ExitCode.SETUP
        ) from error
    match = re.search(r'version "(?:1\.)?(\d+)', answer)
    version = int(match[1]) if match else 0
    if version < OLDEST:
        first = answer.strip().partition("\n")[0]
        raise MillraceError(
            f"{purpose} needs Java {OLDEST} or newer; this one says: {first}",
            where=found,
            remedy=_INSTALL,
            code=ExitCode.SETUP,
        )
    real = Path(found).resolve()
    build = hashlib.sha256(f"{real}\n{answer}".encode()).hexdigest()[:12]
    return Java(Path(found), version, build)
