"""The stages that are a user's function: map, filter, flatMap. Each takes a whole batch and gives its `Outcome`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress, repeat
from operator import truth
from typing import Protocol

from millrace.connectivity.ports import Record
from millrace.engine.batch import Batch
from millrace.message import Message
from millrace.strategies.each import Attempt, Outcome, as_they_are, attempt, conclude
from millrace.strategies.judge import Judge


@dataclass(frozen=True, slots=True)
class Function:
    """A stage function: called with the value, and with a Message too where it wants one.

    Attributes:
        asynchronous: calling it gives a coroutine (or, for a flatMap, an asynchronous generator).
        arrow: vectorized, and wants a pyarrow.RecordBatch in place of a list of values.
        retry_on: exceptions after which it may be called again for the same message.
    """

    call: Callable[..., object]
    wants_message: bool = False
    asynchronous: bool = False
    arrow: bool = False
    retry_on: tuple[type[Exception], ...] = (Exception,)

    def over(self, batch: Batch) -> Iterator[object]:
        """An iterator that calls it for each value of the batch; it can go on after an exception."""
        if self.wants_message:
            return map(self.call, batch.values, map(message_of, batch.records, batch.values))
        return map(self.call, batch.values)

    def at(self, batch: Batch, index: int) -> object:
        """What it returns for one value of the batch."""
        value = batch.values[index]
        if self.wants_message:
            return self.call(value, message_of(batch.records[index], value))
        return self.call(value)


class FunctionWork(Protocol):
    """The work of a stage that is a function, in its parts, for those who call the function elsewhere."""

    @property
    def function(self) -> Function: ...

    @property
    def judge(self) -> Judge: ...

    def accept(self, returned: object) -> object:
        """The result of a message, of what the function returned for it. May raise what counts as raised by the function."""

    def conclude(self, batch: Batch, made: Attempt) -> Outcome:
        """The outcome, of results that `accept` has made."""

    def __call__(self, batch: Batch) -> Outcome: ...


@dataclass(frozen=True, slots=True)
class Map:
    """Replace each value by what the function returns."""

    function: Function
    judge: Judge

    def __call__(self, batch: Batch) -> Outcome:
        return self.conclude(batch, attempt(self.function.over(batch), batch.records, self.judge.judge))

    def accept(self, returned: object) -> object:
        return returned

    def conclude(self, batch: Batch, made: Attempt) -> Outcome:
        return conclude(batch, made, as_they_are)


@dataclass(frozen=True, slots=True)
class Filter:
    """Keep the values for which the function returns something true."""

    function: Function
    judge: Judge

    def __call__(self, batch: Batch) -> Outcome:
        # within the attempt: truth of a user's object may raise too
        verdicts = map(truth, self.function.over(batch))
        return self.conclude(batch, attempt(verdicts, batch.records, self.judge.judge))

    def accept(self, returned: object) -> object:
        return truth(returned)

    def conclude(self, batch: Batch, made: Attempt) -> Outcome:
        values = batch.values
        if made.dead:
            values = [
                v for v, record in zip(values, batch.records, strict=True) if record.offset() not in made.dead
            ]

        def kept(records: Sequence[Record], keep: list[object]) -> tuple[Sequence[Record], Sequence[object]]:
            return list(compress(records, keep)), list(compress(values, keep))

        return conclude(batch, made, kept)


@dataclass(frozen=True, slots=True)
class FlatMap:
    """Replace each value by all those that the function's iterable gives: none, one or many. If it raises half-way, none
    of this message's are used.
    """

    function: Function
    judge: Judge

    def __call__(self, batch: Batch) -> Outcome:
        calls = map(_listed, self.function.over(batch))
        return self.conclude(batch, attempt(calls, batch.records, self.judge.judge))

    def accept(self, returned: object) -> object:
        return _listed(returned)

    def conclude(self, batch: Batch, made: Attempt) -> Outcome:
        return conclude(batch, made, _flattened)


def message_of(record: Record, value: object) -> Message:
    """What a function with a second parameter gets."""
    kind, milliseconds = record.timestamp()
    return Message(
        value,
        record.key(),
        tuple(record.headers() or ()),
        milliseconds if kind else None,
        record.partition(),
        record.offset(),
    )


def _listed(result: object) -> list[object]:
    if isinstance(result, list):
        return result
    # no return at all; text and mappings are iterable, and never what was meant
    if result is None or isinstance(result, (str, bytes, Mapping)):
        raise TypeError(
            f"a flatMap function has to give an iterable of values, not a {type(result).__name__}"
        )
    return list(result)  # type: ignore[call-overload, no-any-return]


def _flattened(records: Sequence[Record], results: list[object]) -> tuple[Sequence[Record], Sequence[object]]:
    lists: list[list[object]] = results  # type: ignore[assignment]
    owners = chain.from_iterable(map(repeat, records, map(len, lists)))
    return list(owners), list(chain.from_iterable(lists))
