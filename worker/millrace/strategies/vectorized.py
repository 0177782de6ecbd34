"""Functions that get a whole batch: a list of values, or a pyarrow.RecordBatch.

Such a function returns as many results as it got values, in their order. What it raises is about all of them; to refuse
one message it puts an instance of `millrace.Invalid` in that place.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from millrace.engine.batch import Batch
from millrace.message import Invalid
from millrace.strategies.each import Attempt, Outcome, Raised, called, gathered
from millrace.strategies.functions import Function, FunctionWork, message_of
from millrace.strategies.judge import Judge


@dataclass(frozen=True, slots=True)
class Vectorized:
    """A map, filter or flatMap whose function is called once for each batch that has values."""

    of: FunctionWork

    @property
    def function(self) -> Function:
        return self.of.function

    @property
    def judge(self) -> Judge:
        return self.of.judge

    def __call__(self, batch: Batch) -> Outcome:
        if not batch.values:
            return Outcome(batch)
        made = called(
            lambda: self.accept_all(self.of.function.call(*self.arguments(batch)), len(batch.values))
        )
        results: list[object] = [made] * len(batch.values) if isinstance(made, Raised) else made
        return self.conclude(batch, gathered(results, batch.records, self.judge.judge))

    def arguments(self, batch: Batch) -> tuple[object, ...]:
        """What the function is called with. Raises whatever pyarrow does about values that are no rows."""
        values: object = list(batch.values)
        if self.of.function.arrow:
            # is there: the function's module has imported it
            pyarrow = importlib.import_module("pyarrow")
            values = pyarrow.RecordBatch.from_pylist(values)
        if self.of.function.wants_message:
            return values, list(map(message_of, batch.records, batch.values))
        return (values,)

    def accept(self, returned: object) -> object:
        return self.of.accept(returned)

    def accept_all(self, returned: object, count: int) -> list[object]:
        """One result for each value, `Raised` where it was refused. Raises TypeError, ValueError."""
        results = _items(returned)
        if len(results) != count:
            raise ValueError(f"a vectorized function got {count} values and returned {len(results)}")
        if not any(issubclass(kind, Invalid) for kind in set(map(type, results))):
            with contextlib.suppress(
                Exception
            ):  # of a result that is not acceptable: which one is told below
                return list(map(self.of.accept, results))
        return [self._accepted(result) for result in results]

    def conclude(self, batch: Batch, made: Attempt) -> Outcome:
        return self.of.conclude(batch, made)

    def _accepted(self, result: object) -> object:
        if isinstance(result, Invalid):
            return Raised(result)
        return called(partial(self.of.accept, result))


def _items(returned: object) -> list[object]:
    if isinstance(returned, list):
        return returned
    to_list = getattr(returned, "to_pylist", None) or getattr(returned, "tolist", None)  # pyarrow; numpy
    if to_list is not None:
        return list(to_list())
    if not isinstance(returned, Iterable) or isinstance(returned, (str, bytes, Mapping)):
        raise TypeError(f"a vectorized function has to return a list, not a {type(returned).__name__}")
    return list(returned)
