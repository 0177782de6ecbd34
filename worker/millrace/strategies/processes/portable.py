"""Values that go from process to process: pickled, which not all of them can be."""

from __future__ import annotations

import pickle

from millrace.engine.batch import Batch
from millrace.message import Invalid
from millrace.strategies.each import Outcome, as_they_are, attempt, conclude
from millrace.strategies.judge import Judge


def portable(batch: Batch, judge: Judge) -> Outcome:
    """The batch without values that can't be pickled: those are Invalid."""
    return conclude(batch, attempt(map(_checked, batch.values), batch.records, judge.judge), as_they_are)


def _checked(value: object) -> object:
    try:
        pickle.dumps(value, protocol=5)
    except Exception as error:
        raise Invalid(
            f"a value of type {type(value).__name__} can't be passed between processes: {error}"
        ) from error
    return value
