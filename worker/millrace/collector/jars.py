"""The jars of Spark's Kafka connector, which the PySpark wheel does not carry: those of spark-jars.lock. They fit one
version of PySpark and no other.
"""

import importlib.util
import re
from pathlib import Path

from millrace.errors import ExitCode, MillraceError
from millrace.host.jars import JarSet, read_lock

CONNECTOR = JarSet(
    name="spark-kafka",
    lock=Path(__file__).with_name("spark-jars.lock"),
    purpose="Spark's Kafka connector",
)


def check_pyspark() -> None:
    """See that PySpark is installed, in the connector's version. Does not import it. Raises MillraceError (SETUP)."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise MillraceError(
            "a collect stage runs on Spark, and PySpark is not installed",
            where="import pyspark",
            remedy="pip install 'millrace[spark]' (about 450 MB)",
            code=ExitCode.SETUP,
        )
    wanted = next(jar.version for jar in read_lock(CONNECTOR.lock) if "sql-kafka" in jar.artifact)
    # read, not imported: that takes a second
    text = Path(found.origin).with_name("version.py").read_text()
    match = re.search(r"__version__[^=]*= *['\"]([^'\"]+)", text)
    if match is None or match[1] != wanted:
        raise MillraceError(
            f"PySpark {match[1] if match else 'of an unknown version'} is installed; the collector was made for "
            f"{wanted}, and Spark's Kafka connector works with its own version only",
            where=found.origin,
            remedy=f"pip install 'pyspark=={wanted}'",
            code=ExitCode.SETUP,
        )
