"""The class-data archive (JEP 350) that makes starts of Spark's JVM cheaper: the classes that a collector uses, read and
verified once. `local.collector.class_data` makes it; a job whose archive is not there, or is not taken by its JVM,
starts without, and only slower.

It is valid for one build of Java and one class path: the connector's jars, then PySpark's, each as it was. All of that
is in the archive's name; the JVM checks it once more.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterable
from pathlib import Path

from millrace.host.java import Java


def place(java: Java, connector: Path) -> Path | None:
    """Where the archive is, or will be, for this Java, PySpark and folder of the connector's jars; None: no PySpark."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        return None
    jars = [*sorted(connector.glob("*.jar")), *sorted(Path(found.origin).parent.glob("jars/*.jar"))]
    return connector.parent / f"classes-{java.build}-{_mark(jars)}.jsa"


def find(java: Java, connector: Path) -> Path | None:
    """The archive; None: it has not been made."""
    archive = place(java, connector)
    return archive if archive is not None and archive.exists() else None


def options(archive: Path) -> list[str]:
    """Java's, to use it. One that it can't use is passed over in silence (-Xshare:auto is the default)."""
    return [_quoted(f"-XX:SharedArchiveFile={archive}"), "-Xlog:cds*=off"]


def making(archive: Path) -> list[str]:
    """Java's, to leave one behind at the end. Only the quick compiler: nothing runs for long then."""
    return [_quoted(f"-XX:ArchiveClassesAtExit={archive}"), "-XX:TieredStopAtLevel=1"]


def _quoted(option: str) -> str:
    """As Spark's launcher takes options apart."""
    return '"{}"'.format(option.replace("\\", "\\\\").replace('"', '\\"'))


def _mark(jars: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for jar in jars:
        known = jar.stat()
        digest.update(f"{jar} {known.st_size} {known.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:12]
