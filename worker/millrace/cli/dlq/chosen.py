"""Which dead letters are meant."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from millrace.cli.dlq.letters import Letter
from millrace.errors import ExitCode, MillraceError


@dataclass(frozen=True, slots=True)
class Chosen:
    """All conditions hold of a letter that is meant; an empty one holds of all.

    Attributes:
        stages: names of stages.
        reason: found somewhere in the reason.
        partitions: of the source.
        since, until: when the letter was written, milliseconds since the Unix epoch; from the first, before the second.
    """

    stages: frozenset[str] = frozenset()
    reason: re.Pattern[str] | None = None
    partitions: frozenset[int] = frozenset()
    since: int | None = None
    until: int | None = None

    @classmethod
    def of(
        cls,
        stages: Sequence[str],
        reason: str | None,
        partitions: Sequence[int],
        since: str | None,
        until: str | None,
    ) -> Chosen:
        """From the options of a command. Raises MillraceError (USAGE)."""
        try:
            pattern = None if reason is None else re.compile(reason)
        except re.error as error:
            raise MillraceError(
                f"{reason!r} is not a regular expression: {error}",
                where="--reason",
                remedy="put a \\ before characters that mean themselves",
                code=ExitCode.USAGE,
            ) from error
        return cls(
            frozenset(stages),
            pattern,
            frozenset(partitions),
            instant(since, "--since"),
            instant(until, "--until"),
        )

    def __contains__(self, letter: object) -> bool:
        if not isinstance(letter, Letter):
            return False
        written = letter.timestamp or 0
        return (
            (not self.stages or letter.stage in self.stages)
            and (self.reason is None or self.reason.search(letter.reason) is not None)
            and (not self.partitions or letter.source_partition in self.partitions)
            and (self.since is None or written >= self.since)
            and (self.until is None or written < self.until)
        )


def instant(text: str | None, option: str) -> int | None:
    """A time with its zone (RFC 3339) in milliseconds since the Unix epoch. Raises MillraceError (USAGE)."""
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is None:
            raise ValueError("it has no zone")
        return round(time.timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise MillraceError(
            f"{text!r} is not a time: {error}",
            where=option,
            remedy="write it with its zone, for example 2026-01-31T00:00:00Z",
            code=ExitCode.USAGE,
        ) from error
