"""What Spark says when it fails, and what becomes of it. The texts are Spark's own (4.2.0), cut to their beginnings; each was
provoked once on a real session, but for those that say otherwise.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from collector_specs import job_spec, query
from millrace.collector.failures import KINDS, RESTARTS, classify
from millrace.errors import ExitCode, MillraceError

pytestmark = pytest.mark.unit

PLAN = """

=== Streaming Query ===
Identifier: flights [id = ee0fd87d-a812-41e4-8d55-86a3b0d426c9, runId = 75db9d97-b8cd-45b2-9aa4-1c8f780ff7ca]
Current Committed Offsets: {FileStreamSource[file:/storage/checkpoint/STATE_STORE/OutOfMemoryError]: {"logOffset":0}}
Current Available Offsets: {KafkaV2[Assign[t-7a8c17a7.collect.channel-0]]: {"t-7a8c17a7.collect.channel":{"0":15}}}

Current State: ACTIVE
Thread State: RUNNABLE
"""
AWAY_FROM_A_TASK = (
    ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times\n"
    "Caused by: java.util.concurrent.TimeoutException: Cannot fetch record for offset 517 in 30000 milliseconds\n"
)
FAILURES = {
    "a record that is no JSON": (
        "An error occurred while calling o183.parquet.\n: org.apache.spark.SparkException: "
        "[MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed records are detected in record parsing: [null,null].\n"
        "Parse Mode: FAILFAST. To process malformed records as null result, try setting the option 'mode' as 'PERMISSIVE'.  "
        "SQLSTATE: 22023\n\tat org.apache.spark.sql.errors.QueryExecutionErrors$.malformedRecordsDetectedInRecordParsing\n"
        "Caused by: com.fasterxml.jackson.core.JsonParseException: Unexpected character ('n' (code 110)): was expecting "
        "double-quote to start field name\n",
        ExitCode.DATA,
        "a record of the channel is no row of the stage's schema",
    ),
    "a division by zero": (
        "[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate divisor being 0 and return NULL instead. If "
        'necessary set "spark.sql.ansi.enabled" to "false" to bypass this error. SQLSTATE: 22012\n'
        "== SQL (line 1, position 5) ==\nsum(1/(delay-5))\n    ^^^^^^^^^^^\n",
        ExitCode.DATA,
        "what the stage computes can't be computed of a row",
    ),
    "a cast that can't be": (
        '[CAST_INVALID_INPUT] The value \'AA\' of the type "STRING" cannot be cast to "INT" because it is malformed. '
        "Correct the value as per the syntax, or change its target type. SQLSTATE: 22018\n",
        ExitCode.DATA,
        "what the stage computes can't be computed of a row",
    ),
    "a column that is none": (
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name `nowhere` cannot be "
        "resolved. Did you mean one of the following? [`carrier`, `delay`, `scheduled`, `window`]. SQLSTATE: 42703; line 1 "
        "pos 4;\n'Aggregate [window#37-T86400000ms, carrier#30]\n+- ~Project [__event_time#18-T86400000ms]\n",
        ExitCode.MANIFEST,
        "Spark does not take the stage's query",
    ),
    "an aggregate that is none": (
        "[UNRESOLVED_ROUTINE] Cannot resolve routine `summ` on search path [`system`.`builtin`, `system`.`session`, "
        "`spark_catalog`.`default`]. SQLSTATE: 42883; line 1 pos 0",
        ExitCode.MANIFEST,
        "Spark does not take the stage's query",
    ),
    "no connector": (
        "Failed to find data source: kafka. Please deploy the application as per the deployment section of Structured "
        "Streaming + Kafka Integration Guide.",
        ExitCode.SETUP,
        "Spark's Kafka connector is missing or incomplete",
    ),
    "half a connector": (
        "An error occurred while calling o71.load.\n: java.lang.NoClassDefFoundError: "
        "org/apache/kafka/common/serialization/ByteArraySerializer\n\tat org.apache.spark.sql.kafka010.KafkaSourceProvider\n"
        "Caused by: java.lang.ClassNotFoundException: org.apache.kafka.common.serialization.ByteArraySerializer\n"
        "\t... 97 more\n",
        ExitCode.SETUP,
        "Spark's Kafka connector is missing or incomplete",
    ),
    "no room for results": (
        "An error occurred while calling o200.parquet.\n: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed "
        "while writing rows to file:/small/results/.pending-1. SQLSTATE: 58030\n\tat org.apache.spark.sql.errors\n"
        "Caused by: org.apache.parquet.util.AutoCloseables$ParquetCloseResourceException: Unable to close resource\n"
        "Caused by: java.io.IOException: No space left on device\n",
        ExitCode.DISK,
        "the disk is full",
    ),
    "no room for state": (
        "An error occurred while calling o183.parquet.\n: org.apache.spark.SparkException: Job aborted due to stage failure: "
        "Task 1 in stage 1.0 failed 1 times, most recent failure: Lost task 1.0 in stage 1.0 (TID 2) (localhost executor "
        "driver): org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device\n",
        ExitCode.DISK,
        "the disk is full",
    ),
    "too small a heap to begin with": (
        "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n: "
        "org.apache.spark.SparkIllegalArgumentException: [INVALID_DRIVER_MEMORY] System memory 101384192 must be at least "
        "471859200.\nPlease increase heap size using the --driver-memory option. SQLSTATE: F0000\n",
        ExitCode.MANIFEST,
        "Spark does not take its settings",
    ),
    "state of another aggregate": (
        "[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] Provided value schema does not match existing state value schema.\nPlease "
        "check number and type of fields.\nExisting value_schema=StructType(StructField(count,LongType,false)) and new "
        "value_schema=StructType(StructField(count,LongType,false),StructField(max,DoubleType,true)). SQLSTATE: XXKST\n",
        ExitCode.CHECKPOINT,
        "the checkpoint is damaged, or does not fit the query",
    ),
    "state of other groups": (
        "[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema does not match existing state key schema. SQLSTATE: XXKST",
        ExitCode.CHECKPOINT,
        "the checkpoint is damaged, or does not fit the query",
    ),
    "state that is gone": (
        "An error occurred while calling o183.parquet.\n: org.apache.spark.SparkException: "
        "[CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_NOT_EXISTS] An error occurred during loading state. Error reading "
        "delta file file:/c/v1/state/0/1/1.delta of HDFSStateStoreProvider: file:/c/v1/state/0/1/1.delta does not exist. "
        "SQLSTATE: 58030\nCaused by: java.io.FileNotFoundException: File file:/c/v1/state/0/1/1.delta does not exist\n",
        ExitCode.CHECKPOINT,
        "the checkpoint is damaged, or does not fit the query",
    ),
    "state that is garbled": (
        "An error occurred while calling o183.parquet.\n: org.apache.spark.SparkException: "
        "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.  SQLSTATE: 58030\n"
        "Caused by: java.io.EOFException\n",
        ExitCode.CHECKPOINT,
        "the checkpoint is damaged, or does not fit the query",
    ),
    "a broker that went away": (
        "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment. Call: listNodes\n",
        ExitCode.BROKER_UNREACHABLE,
        "the broker does not answer the collector",
    ),
    "a broker that a task has waited for": (
        f"An error occurred while calling o183.parquet.\n{AWAY_FROM_A_TASK}",
        ExitCode.BROKER_UNREACHABLE,
        "the broker does not answer the collector",
    ),
    "records that were deleted": (
        "An error occurred while calling o183.parquet.\n: org.apache.spark.sql.kafka010.KafkaIllegalStateException: Some "
        "data may have been lost because they are not available in Kafka any more; either the data was aged out by Kafka or "
        "the topic may have been deleted before all the data in the topic was processed.\n"
        "Caused by: org.apache.kafka.clients.consumer.OffsetOutOfRangeException: Fetch position is out of range\n",
        ExitCode.OFFSET_GONE,
        "records of the channel are gone that were not read yet",
    ),
    # not provoked: written after Spark's and Kafka's sources
    "a function of Python's in Spark": (
        "[PYTHON_EXCEPTION] PythonException: An exception was thrown from the Python worker. Please see the stack trace "
        'below.\nTraceback (most recent call last):\n  File "flights.py", line 3, in late\nValueError: no delay\n',
        ExitCode.STAGE_FAILED,
        "a function of the stage raised",
    ),
    "a heap that is full": (
        "An error occurred while calling o183.parquet.\n: java.lang.OutOfMemoryError: Java heap space\n",
        ExitCode.OUT_OF_MEMORY,
        "Spark ran out of memory",
    ),
    "a password that is wrong": (
        "org.apache.kafka.common.KafkaException: Failed to construct kafka consumer\nCaused by: "
        "org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed: Invalid username or password\n",
        ExitCode.CREDENTIALS,
        "the broker refuses the collector",
    ),
    "a right that is missing": (
        "org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized to access topics: [flights.channel]",
        ExitCode.CREDENTIALS,
        "the broker refuses the collector",
    ),
    "something else": (
        "java.lang.IllegalStateException: whatever",
        ExitCode.FAILED,
        "the query failed: RuntimeError",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.parametrize("beyond", ["", PLAN], ids=["", "with the query's plan"])
def test_a_failure_has_its_code_and_message(name: str, beyond: str) -> None:
    said, code, what = FAILURES[name]
    found = classify(RuntimeError(said + beyond), job_spec())
    assert found.code is code
    assert found.what.startswith(what)
    assert found.remedy
    assert found.where == "numbers.by-kind"
    for noise in ("\n", "Streaming Query", "\tat ", "+- ", "'Aggregate", "=="):
        assert noise not in found.what


def test_a_function_that_was_writing_when_the_broker_went_is_not_to_blame() -> None:
    said = (
        "[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach batch sink. Reason: "
        "An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):\n"
        '  File "/code/flights.py", line 7, in save\n    frame.write.parquet(path)\n'
        "py4j.protocol.Py4JJavaError: An error occurred while calling o183.parquet.\n" + AWAY_FROM_A_TASK
    )
    by_function = job_spec(query=query(function="flights:collect", window=None, aggregate={}, group_by=()))
    assert classify(RuntimeError(said), by_function).code is ExitCode.BROKER_UNREACHABLE
    own = said.replace(AWAY_FROM_A_TASK, ": java.lang.IllegalStateException: what it writes to is closed\n")
    assert classify(RuntimeError(own), by_function).code is ExitCode.STAGE_FAILED


def test_what_is_at_the_bottom_is_said() -> None:
    found = classify(RuntimeError(FAILURES["a record that is no JSON"][0]), job_spec())
    assert found.what.endswith(
        "JsonParseException: Unexpected character ('n' (code 110)): was expecting double-quote to start field name"
    )


@pytest.mark.parametrize(
    ("exit_code", "code", "what"),
    [
        (3, ExitCode.OUT_OF_MEMORY, "its JVM has ended, with a heap of 2g"),
        (52, ExitCode.OUT_OF_MEMORY, "its JVM has ended, with a heap of 2g"),
        (-9, ExitCode.FAILED, "Spark's JVM was killed"),
        (-6, ExitCode.FAILED, "Spark's JVM was ended by SIGABRT"),
        (1, ExitCode.FAILED, "Spark's JVM ended with exit code 1"),
    ],
)
def test_a_jvm_that_is_gone_is_told_by_how_it_ended(exit_code: int, code: ExitCode, what: str) -> None:
    """Python hears only that nobody answers."""
    spec = job_spec(query=query(conf={"spark.driver.memory": "2g"}))
    found = classify(ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), spec, exit_code)
    assert found.code is code
    assert what in found.what


def test_an_error_of_ours_and_one_of_the_system_are_as_they_are() -> None:
    ours = MillraceError("the channel is not there", code=ExitCode.TOPIC)
    assert classify(ours, job_spec(), 3) is ours
    full = classify(OSError(errno.ENOSPC, "No space left on device", "/results/batch"), job_spec())
    assert full.code is ExitCode.DISK
    assert full.where == str(Path("/results/batch"))


def test_only_what_may_mend_itself_is_tried_again() -> None:
    tried = {kind.code for kind in KINDS} & set(RESTARTS)
    assert tried == {ExitCode.OUT_OF_MEMORY, ExitCode.BROKER_UNREACHABLE}
    assert RESTARTS[ExitCode.BROKER_UNREACHABLE] is None
