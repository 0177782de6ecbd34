"""`python -m millrace.local`: fetch and prepare what the embedded broker and the collector need, so that their first
start is quick. Without PySpark the collector is left out.
"""

import importlib.util
import sys

from millrace.collector.jars import CONNECTOR
from millrace.errors import MillraceError
from millrace.host import jars, java
from millrace.local.broker import class_data
from millrace.local.broker.jars import BROKER


def main() -> int:
    try:
        class_data.ensure(java.find(), jars.ensure(BROKER))
        if importlib.util.find_spec("pyspark") is not None:
            jars.ensure(CONNECTOR)
    except MillraceError as error:
        sys.stderr.write(f"{error}\n")
        return error.code
    return 0


if __name__ == "__main__":
    sys.exit(main())
