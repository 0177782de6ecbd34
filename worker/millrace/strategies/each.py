"""Call something for each message of a batch, at the speed of C while nothing fails, and exact when something does.

`list.extend(map(f, values))` runs the loop in C and, when f raises, keeps what it made before: the length of the list
is the index of the failed message, and the same map object goes on with the next. So each message is tried exactly
once, and no loop in Python is paid for while all is well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from threading import get_ident
from typing import TypeVar

from millrace.connectivity.ports import Record
from millrace.engine.batch import Batch, DeadLetter
from millrace.errors import MessageFailure, StageFailed

R = TypeVar("R")

_UNDER_WAY: dict[int, tuple[Sequence[Record], list[object]]] = {}  # by thread

Verdict = Callable[[Exception, Record], DeadLetter | StageFailed]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a stage made of a batch. With a failure, `batch` is the part before the failed message. `dead` is the number
    of dead letters in it that this stage has made.
    """

    batch: Batch
    failure: MessageFailure | None = None
    dead: int = 0


@dataclass(frozen=True, slots=True)
class Raised:
    """Stands in the place of a result: the call for this message raised."""

    error: Exception


@dataclass(slots=True)
class Attempt:
    """How it went. `results` has one entry per message tried, in order; those of messages that have become dead letters
    mean nothing.
    """

    results: list[object] = field(default_factory=list)
    dead: dict[int, DeadLetter] = field(default_factory=dict)  # by offset
    failure: StageFailed | None = None

    def fail(self, error: Exception, record: Record, verdict: Verdict) -> None:
        """Note that this record failed."""
        judged = verdict(error, record)
        if isinstance(judged, StageFailed):
            self.failure = judged
        else:
            self.dead.setdefault(record.offset(), judged)


def attempt(calls: Iterator[object], records: Sequence[Record], verdict: Verdict) -> Attempt:
    """Draw one result per record from `calls`, a map object that calls user code: exactly once each, up to the first
    failure that stops.
    """
    made, thread = Attempt(), get_ident()
    _UNDER_WAY[thread] = records, made.results
    try:
        _draw(made, calls, records, verdict)
    finally:
        del _UNDER_WAY[thread]
    return made


def record_at(thread: int) -> Record | None:
    """The record that a thread's `attempt` is at; None: it is in none. Safe on any thread: while C fills the list, its
    length is what there is.
    """
    records, results = _UNDER_WAY.get(thread, ((), ()))
    at = len(results)
    return records[at] if at < len(records) else None


def _draw(made: Attempt, calls: Iterator[object], records: Sequence[Record], verdict: Verdict) -> None:
    results = made.results
    while len(results) < len(records):
        try:
            results.extend(calls)
            if len(results) == len(records):
                break
            # User code raised StopIteration, which every loop in C takes for the end.
            error: Exception = StopIteration("raised by a stage function")
        except SystemExit as raised:  # would end the worker, with an exit code that means something else
            error = exited(raised)
        except Exception as raised:  # noqa: BLE001 - whatever user code raises is judged, not handled
            error = raised
        made.fail(error, records[len(results)], verdict)
        if made.failure is not None:
            break
        results.append(None)


def called(call: Callable[[], R]) -> R | Raised:
    """What a call of user code returns, or raises."""
    try:
        return call()
    except SystemExit as raised:  # would end the worker, with an exit code that means something else
        return Raised(exited(raised))
    except Exception as raised:  # noqa: BLE001 - whatever user code raises is judged, not handled
        return Raised(raised)


def exited(raised: SystemExit) -> RuntimeError:
    return RuntimeError(f"a stage function called sys.exit({raised.code!r})")


def gathered(results: list[object], records: Sequence[Record], verdict: Verdict) -> Attempt:
    """The same as `attempt` makes, of results that are there, some of them `Raised`."""
    made = Attempt(results)
    if Raised not in set(map(type, results)):
        return made
    for index, result in enumerate(results):
        if isinstance(result, Raised):
            made.fail(result.error, records[index], verdict)
            if made.failure is not None:
                made.results = results[:index]
                break
    return made


def conclude(
    batch: Batch,
    made: Attempt,
    shape: Callable[[Sequence[Record], list[object]], tuple[Sequence[Record], Sequence[object]]],
) -> Outcome:
    """Put the results into the batch. `shape` makes records and values of those that were tried and did not fail.

    A source message fails as a whole: if one of several values that a flatMap made of it fails, the others go too.
    """
    source = batch
    if made.failure is not None:
        source = batch.before(made.failure.offset)
    records, results, dead, own = source.records, made.results, source.dead, 0
    if len(results) > len(records):
        results = results[: len(records)]
    if made.dead:
        alive = [record.offset() not in made.dead for record in records]
        records, results = list(compress(records, alive)), list(compress(results, alive))
        letters = [
            one for offset, letter in made.dead.items() if offset < source.end for one in letter.apart()
        ]
        own = len(letters)
        dead = tuple(sorted([*dead, *letters], key=lambda letter: letter.record.offset()))
    records, values = shape(records, results)
    after = Batch(source.partition, source.start, source.end, source.source, records, values, dead)
    return Outcome(after, made.failure, own)


def as_they_are(
    records: Sequence[Record], results: list[object]
) -> tuple[Sequence[Record], Sequence[object]]:
    """A `shape`: each result is the value of its record."""
    return records, results
