"""What can go wrong, made to be read by the one who must act.

Every failure that a user can cause or mend is a `MillraceError`: what is wrong, where (a path in the manifest, a
file, a partition), and what to do. The command line prints exactly these three and exits with `code`; a traceback is
for bugs, and for `--debug`.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every `millrace` command; documented for users in docs/exit-codes.md."""

    OK = 0
    FAILED = 1  # a bug, or a comparison that did not hold
    USAGE = 2  # the command line itself (typer's own code)
    MANIFEST = 3  # the manifest can't be read or is invalid
    FUNCTION = 4  # a function can't be imported, is not callable, or its setup() failed
    BROKER_UNREACHABLE = 5
    CREDENTIALS = 6  # authentication, authorisation, TLS
    TOPIC = 7  # a topic is missing, or not as it must be
    STAGE_FAILED = 8  # a stage's function raised and its onError is Stop
    DEAD_LETTER_LIMIT = 9
    CLAIM_LOST = 10
    CLAIM_FOREIGN = 11
    BUSY = 12  # the state directory is in use by another run; a port is taken
    DISK = 13  # no space left, or a path can't be written
    SETUP = 14  # something that must be installed is missing (Java, broker jars)
    SUPERSEDED = 15  # another process acts as this index now (fenced)
    OFFSET_GONE = 16  # the committed offset is no longer in the log (retention overtook it, topic made anew)
    OUT_OF_MEMORY = 17  # the collector's JVM has no memory left
    CHECKPOINT = 18  # the collector's checkpoint is damaged, or does not fit what is to go on from it
    DATA = 19  # what the collector computes can't be computed of a row, or a record is none
    INTERRUPTED = 130


class MillraceError(Exception):
    """A failure that its reader can act on.

    Args:
        what: what is wrong, one sentence, with the value at fault.
        where: a path in the manifest (`spec.stages[1].map.function`), a file, a partition and offset; "" if nowhere.
        remedy: what to do about it; "" only if nothing can be said.
    """

    code: ExitCode = ExitCode.FAILED

    def __init__(self, what: str, *, where: str = "", remedy: str = "", code: ExitCode | None = None) -> None:
        super().__init__(what)
        self.what, self.where, self.remedy = what, where, remedy
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.remedy:
            lines.append(f"  to do: {self.remedy}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:  # an exception must not lose its reason when pickled
        return (_rebuild, (type(self), self.what, self.where, self.remedy, self.code))


def _rebuild(cls: type[MillraceError], what: str, where: str, remedy: str, code: ExitCode) -> MillraceError:
    error = cls.__new__(cls)
    MillraceError.__init__(error, what, where=where, remedy=remedy, code=code)
    return error


class ManifestError(MillraceError):
    """The manifest can't be read, or says something that is not allowed."""

    code = ExitCode.MANIFEST


class FunctionError(MillraceError):
    """A function of the manifest can't be imported, is not callable, or its module's setup() failed."""

    code = ExitCode.FUNCTION


class MessageFailure(MillraceError):
    """A failure at one message of the source: everything before it is done, nothing from it on.

    Attributes:
        stage: name of the stage that failed.
        partition, offset: of the source message; it is the first that is not processed.
    """

    def __init__(self, what: str, *, stage: str, partition: int, offset: int, remedy: str = "") -> None:
        super().__init__(what, where=f"stage {stage}, partition {partition}, offset {offset}", remedy=remedy)
        self.stage, self.partition, self.offset = stage, partition, offset

    def __reduce__(self) -> tuple[object, ...]:
        return (
            _rebuild_at,
            (type(self), self.what, self.stage, self.partition, self.offset, self.remedy),
        )


def _rebuild_at(
    cls: type[MessageFailure], what: str, stage: str, partition: int, offset: int, remedy: str
) -> MessageFailure:
    return cls(what, stage=stage, partition=partition, offset=offset, remedy=remedy)


class StageFailed(MessageFailure):
    """A stage's function raised and the stage's onError is Stop, or a message has to become a dead letter and the
    pipeline has none. The original exception is the cause (`__cause__`).
    """

    code = ExitCode.STAGE_FAILED


class DeadLetterLimit(MessageFailure):
    """More messages went to dead letters than the manifest allows."""

    code = ExitCode.DEAD_LETTER_LIMIT
