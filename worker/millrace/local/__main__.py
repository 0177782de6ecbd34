"""`python -m millrace.local`: fetch and prepare what the embedded broker and the collector need, so that their first
start is quick. Without PySpark the collector is left out.
"""

import importlib.util
import sys

from millrace.collector.jars import CONNECTOR
from millrace.errors import MillraceError
from millrace.host import jars, java
from millrace.local.broker import class_data as broker_classes
from millrace.local.broker.jars import BROKER
from millrace.local.collector import class_data as collector_classes


def main() -> int:
    try:
        found = java.find()
        broker_classes.ensure(found, jars.ensure(BROKER))
        if importlib.util.find_spec("pyspark") is not None:
            collector_classes.ensure(found, jars.ensure(CONNECTOR), _say)
    except MillraceError as error:
        sys.stderr.write(f"{error}\n")
        return error.code
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"setup: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
