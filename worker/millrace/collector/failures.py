"""What a failed query means to the one who must act: Spark's exceptions as MillraceErrors, and which of them a restart
may mend.

Spark says what went wrong in words only, some of them a class of Java's, some a condition of its own in brackets, some
an SQLSTATE. Who says it first in the chain of causes is not always who knows, so the table is in order of certainty.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from millrace.collector.spec import JobSpec
from millrace.collector.tracebacks import user_failure
from millrace.errors import ExitCode, MillraceError
from millrace.worker.files import disk_error


@dataclass(frozen=True, slots=True)
class Kind:
    """A way to fail. `signs`: a regular expression, found in what Spark says."""

    signs: re.Pattern[str]
    what: str
    remedy: str
    code: ExitCode


def _kind(signs: str, what: str, remedy: str, code: ExitCode) -> Kind:
    return Kind(re.compile(signs), what, remedy, code)


_MORE_MEMORY = (
    "give it more (spark.driver.memory in the stage's spark.conf), or take fewer records into a batch"
)
_AWAY = _kind(
    r"org\.apache\.kafka\.common\.errors\.\w*TimeoutException|DisconnectException|BrokerNotAvailableException|"
    r"No resolvable bootstrap urls|TimeoutException: Timed out waiting for a node assignment|"
    r"Timeout of \d+ms expired before|TimeoutException: Cannot fetch record for offset",
    "the broker does not answer the collector",
    "see that it runs and can be reached",
    ExitCode.BROKER_UNREACHABLE,
)
"""No function can be blamed for it, though it be in the middle of one that it is heard."""

KINDS = (
    _kind(
        r"OutOfMemoryError|GC overhead limit|SparkOutOfMemoryError|\[UNABLE_TO_ACQUIRE_MEMORY\]",
        "Spark ran out of memory",
        _MORE_MEMORY,
        ExitCode.OUT_OF_MEMORY,
    ),
    _kind(
        r"No space left on device|Disk quota exceeded",
        "the disk is full",
        "make room where the checkpoint and the results are",
        ExitCode.DISK,
    ),
    _kind(
        r"Read-only file system|\(Permission denied\)|AccessDeniedException",
        "a folder can't be written",
        "see that this user may write where the checkpoint and the results are",
        ExitCode.DISK,
    ),
    _kind(
        r"Sasl\w*AuthenticationException|SslAuthenticationException|SSLHandshakeException|\w*AuthorizationException|"
        r"in JAAS config|PEM SSL|Invalid PEM",
        "the broker refuses the collector",
        "see docs/credentials.md",
        ExitCode.CREDENTIALS,
    ),
    _kind(
        r"UnknownTopicOrPartitionException|UNKNOWN_TOPIC_OR_PARTITION",
        "the channel is not there",
        "it is made by Millrace before the chain starts: has it been deleted?",
        ExitCode.TOPIC,
    ),
    _kind(
        r"KAFKA_DATA_LOSS|OffsetOutOfRangeException|Some data may have been lost",
        "records of the channel are gone that were not read yet",
        "they were deleted from outside; what they held is lost to this checkpoint",
        ExitCode.OFFSET_GONE,
    ),
    _AWAY,
    _kind(
        r"Failed to find (the )?data source: kafka|"
        r"NoClassDefFoundError: org/apache/(spark/sql/)?kafka|ClassNotFoundException: org\.apache\.(spark\.sql\.)?kafka",
        "Spark's Kafka connector is missing or incomplete",
        "remove its folder in Millrace's cache: it is fetched again",
        ExitCode.SETUP,
    ),
    _kind(
        r"\[INVALID_(DRIVER|EXECUTOR)_MEMORY\]|\[INVALID_CONF|\[INVALID_SPARK_CONFIG",
        "Spark does not take its settings",
        "mend the stage's spark.conf",
        ExitCode.MANIFEST,
    ),
    _kind(
        r"JAVA_GATEWAY_EXITED",
        "Spark's JVM could not be started",
        "see Spark's settings in the stage's spark.conf, and the job's log for what Java says",
        ExitCode.SETUP,
    ),
    _kind(
        r"MALFORMED_RECORD_IN_PARSING|BadRecordException|is not a channel, or something else wrote",
        "a record of the channel is no row of the stage's schema",
        "all rows are checked as they are written: has something else written to the channel?",
        ExitCode.DATA,
    ),
    _kind(
        r"PythonException|FOREACH_BATCH_USER_FUNCTION_ERROR",
        "a function of the stage raised",
        "mend the function, and run again: it goes on with the batch that failed",
        ExitCode.STAGE_FAILED,
    ),
    _kind(
        r"STATE_STORE|StateSchemaNotCompatible|CANNOT_LOAD_STATE_STORE|STREAMING_CHECKPOINT|"
        r"CHECKPOINT\w*MISMATCH|STATE_DATA_SOURCE|delta file \S+ does not exist|Error reading delta file|"
        r"Error reading snapshot file|Incomplete log file|batch \d+ (doesn't|does not) exist|"
        r"Malformed log file|UNSUPPORTED_LOG_VERSION|LOG_VERSION",
        "the checkpoint is damaged, or does not fit the query",
        "restore it from a copy; or remove this version's folder with the stage's results, and what the channel still "
        "holds is counted anew",
        ExitCode.CHECKPOINT,
    ),
    _kind(
        r"SQLSTATE: 22\w{3}",
        "what the stage computes can't be computed of a row",
        "mend the stage's expressions so that they can take every value, with try_divide or try_cast for instance",
        ExitCode.DATA,
    ),
    _kind(
        r"SQLSTATE: 42\w{3}|SQLSTATE: 0A000",
        "Spark does not take the stage's query",
        "mend the stage's expressions: columns are those of its schema, functions those of Spark SQL",
        ExitCode.MANIFEST,
    ),
)

RESTARTS: Mapping[ExitCode, int | None] = {
    ExitCode.OK: 5,
    ExitCode.FAILED: 5,
    ExitCode.BUSY: 5,
    ExitCode.OUT_OF_MEMORY: 2,
    ExitCode.BROKER_UNREACHABLE: None,
}
"""Failures in a row after which there is no further attempt, if each got nowhere; None: it is tried for ever. With any
other code a restart would end the same way: somebody has to act first."""

_OUT_OF_MEMORY_EXITS = frozenset({3, 52})  # of -XX:+ExitOnOutOfMemoryError, and of Spark's own handler


def classify(error: BaseException, spec: JobSpec, jvm: int | None = None) -> MillraceError:
    """An error of ours as it is; one of Spark's by what it says; a JVM that is no more by how it ended.

    jvm: exit code of the JVM if it has ended, negative if a signal ended it.
    """
    if isinstance(error, MillraceError):
        return error
    if jvm is not None:
        return _jvm_ended(jvm, spec)
    if isinstance(error, OSError) and error.filename:
        return disk_error(error, Path(error.filename))
    said = _heard(str(error))
    if spec.query.function is not None and not _AWAY.signs.search(said):
        blamed = user_failure(str(error), spec.query.function, f"{spec.where}.function")
        if blamed is not None:
            return blamed
    for kind in KINDS:
        if kind.signs.search(said):
            return MillraceError(
                f"{kind.what}: {gist(said)}", where=spec.name, remedy=kind.remedy, code=kind.code
            )
    return MillraceError(
        f"the query failed: {type(error).__name__}: {gist(said)}", where=spec.name, remedy=f"see {spec.log}"
    )


def _jvm_ended(code: int, spec: JobSpec) -> MillraceError:
    if code in _OUT_OF_MEMORY_EXITS:
        return MillraceError(
            f"Spark ran out of memory: its JVM has ended, with a heap of {spec.heap}",
            where=spec.name,
            remedy=_MORE_MEMORY,
            code=ExitCode.OUT_OF_MEMORY,
        )
    if code == -signal.SIGKILL:
        return MillraceError(
            "Spark's JVM was killed",
            where=spec.name,
            remedy="by somebody, or by the kernel when the machine's or the container's memory ran out (`dmesg` says so): "
            "then give it more memory, or a smaller spark.driver.memory",
        )
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return MillraceError(f"Spark's JVM {how}", where=spec.name, remedy=f"see {spec.log}")


_STACK = re.compile(r"^\s*(at |\.\.\. \d+ more)")


def _heard(said: str) -> str:
    """What was said about the failure: no stack, none of what Spark adds about the query, which may have any word."""
    about, _, _ = said.partition("=== Streaming Query ===")
    return "\n".join(line for line in about.splitlines() if not _STACK.search(line))


_NOISE = re.compile(r"^(===|==|py4j\.|Traceback|File \"|\^+$|\+-|:- |'|!)|^\s*$")
_CONDITION = re.compile(r"\[[A-Z][A-Z0-9_]+(\.[A-Z0-9_]+)?\] .*?SQLSTATE: \w{5}", re.DOTALL)


def gist(said: str) -> str:
    """What an error says, without stack traces and plans; and what is at the bottom of it."""
    lines = [line.strip() for line in said.splitlines()]
    kept = [line for line in lines if not _NOISE.search(line)]
    causes = [line.removeprefix("Caused by: ") for line in kept if line.startswith("Caused by: ")]
    found = _CONDITION.search(said)
    first = " ".join(found[0].split()) if found else " ".join(kept[:3])
    first = first[:600]
    if causes and causes[-1][:80] not in first and "SQLSTATE" not in causes[-1]:
        return f"{first[:400]} ... {causes[-1][:300]}"
    return first
