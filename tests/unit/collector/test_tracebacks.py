"""What reaches the driver as text of a failure in user code, and what is made of it."""

from __future__ import annotations

import pytest

from millrace.collector.tracebacks import user_failure
from millrace.errors import ExitCode

pytestmark = pytest.mark.unit

UDF = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/pyspark/worker.py", line 3602, in main
    process()
  File "/home/me/flights.py", line 5, in family
    raise ValueError("no such: %r" % x)
ValueError: no such: 'ZZ'

    at org.apache.spark.X(Y.scala:1)
"""
BATCH = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/home/me/flights.py", line 8, in save
    raise Gone
flights.Gone

=== Streaming Query ===
"""
ARROW = """Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/pyspark/python/lib/pyspark.zip/pyspark/worker.py", line 3004, in read_udfs
    import pyarrow as pa
ModuleNotFoundError: No module named 'pyarrow'
"""


@pytest.mark.parametrize(
    ("said", "what", "code"),
    [
        (UDF, "flights:f failed: ValueError: no such: 'ZZ' (flights.py:5, in family)", ExitCode.STAGE_FAILED),
        (BATCH, "flights:f failed: Gone (flights.py:8, in save)", ExitCode.STAGE_FAILED),
        (
            BATCH + UDF,
            "flights:f failed: ValueError: no such: 'ZZ' (flights.py:5, in family)",
            ExitCode.STAGE_FAILED,
        ),
        (
            ARROW,
            "Python on Spark's executors lacks a module for flights:f: No module named 'pyarrow'",
            ExitCode.FUNCTION,
        ),
    ],
)
def test_the_line_of_the_users_code_is_told(said: str, what: str, code: ExitCode) -> None:
    failure = user_failure(said, "flights:f", "spec.stages[1].collect.function")
    assert failure is not None
    assert (failure.what, failure.where, failure.code) == (what, "spec.stages[1].collect.function", code)


def test_what_is_not_the_users_is_left_to_others() -> None:
    own = BATCH.replace("/home/me/flights.py", "/work/millrace/collector/sinks/kafka.py")
    assert user_failure(own, "m:f", "w") is None
    assert user_failure("java.lang.OutOfMemoryError: Java heap space", "m:f", "w") is None
