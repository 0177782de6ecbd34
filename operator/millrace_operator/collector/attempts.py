"""Attempts as the resource's status tells them: the record that outlives the operator.

An attempt is written there before anything of it is made, and its end before anything of it is deleted. So whoever reads
the record and looks at the pods knows where things stand, whatever was interrupted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from millrace_api.tree import Tree
from millrace_operator.objects import entries, mapping, number, text
from millrace_operator.times import unix, written

KEPT: Final = 5
"""Attempts that the status tells of."""
SETTLED: Final = 300.0
"""Seconds after which an attempt that fails is a first failure."""
_FIRST_PAUSE: Final = 2.0
_LONGEST_PAUSE: Final = 300.0
_LONGEST_MESSAGE: Final = 512
_OPTIONAL: Final = ("uid", "stopping", "ended", "outcome", "message")


@dataclass(frozen=True, slots=True)
class Attempt:
    """See millrace_api.status.AttemptView; "" where there is nothing."""

    number: int
    digest: str
    generation: int
    started: str
    uid: str = ""
    stopping: str = ""
    ended: str = ""
    outcome: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """The last attempts, by their numbers, and how many have failed in a row."""

    attempts: tuple[Attempt, ...] = ()
    failures: int = 0

    @property
    def last(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None

    @property
    def open(self) -> Attempt | None:
        """The one that has not ended."""
        last = self.last
        return last if last is not None and not last.ended else None

    @property
    def not_before(self) -> float:
        """When the next one may begin (Unix seconds): a pause that doubles from failure to failure."""
        last = self.last
        if last is None or not self.failures:
            return 0.0
        return (unix(last.ended) or 0.0) + min(_FIRST_PAUSE * 2.0 ** (self.failures - 1), _LONGEST_PAUSE)

    def begun(self, digest: str, generation: int, now: float, number: int = 0) -> Record:
        """With one more. number: at least this one."""
        highest = max([number, *(one.number + 1 for one in self.attempts), 1])
        attempts = (*self.attempts, Attempt(highest, digest, generation, written(now)))
        return replace(self, attempts=attempts[-KEPT:])

    def changed(self, last: Attempt) -> Record:
        """With another last one."""
        return replace(self, attempts=(*self.attempts[:-1], last))

    def closed(self, outcome: str, message: str, now: float, *, failed: bool) -> Record:
        """With the end of the open one."""
        last = self.attempts[-1]
        lived = now - (unix(last.started) or now)
        failures = (1 if lived >= SETTLED else self.failures + 1) if failed else 0
        told = message[:_LONGEST_MESSAGE]
        ended = self.changed(replace(last, ended=written(now), outcome=outcome, message=told))
        return replace(ended, failures=failures)


def recorded(status: Tree) -> Record:
    """What the status of the resource tells."""
    told = mapping(status, "collector")
    attempts = [
        Attempt(
            number(one, "number"),
            text(one, "digest"),
            number(one, "generation"),
            text(one, "started"),
            **{field: text(one, field) for field in _OPTIONAL},
        )
        for one in entries(told, "attempts")
    ]
    return Record(tuple(sorted(attempts, key=lambda one: one.number)), number(told, "failures"))


def as_status(record: Record) -> dict[str, object]:
    """As `recorded` reads it."""
    return {
        "attempts": [_entry(one) for one in record.attempts],
        **({"failures": record.failures} if record.failures else {}),
    }


def _entry(attempt: Attempt) -> Tree:
    given = {field: getattr(attempt, field) for field in _OPTIONAL}
    return {
        "number": attempt.number,
        "digest": attempt.digest,
        "generation": attempt.generation,
        "started": attempt.started,
        **{field: value for field, value in given.items() if value},
    }


def named(pipeline: str, stage: str, attempt: int) -> str:
    """The driver's pod. Neither pipelines nor stages have a dot in their names, nor has a worker's pod."""
    return f"{pipeline}.{stage}.{attempt}"
