"""Functions that get a whole batch, on the engine's thread."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow
import pytest

import millrace
from chain_fakes import FakeRecord
from millrace.engine.batch import Batch
from millrace.errors import StageFailed
from millrace.strategies import Filter, FlatMap, Function, Judge, Map, Outcome, Vectorized

pytestmark = pytest.mark.unit

LETTERS = Judge("stage", dead_letters=True)
ALL_LETTERS = Judge("stage", dead_letters=True, on_error_dead_letter=True)


def outcome_of(
    call: Callable[..., object], *values: object, work: type = Map, judge: Judge = LETTERS, **of: bool
) -> Outcome:
    records = [FakeRecord(n) for n in range(len(values))]
    batch = Batch(0, 0, len(values), records, records, list(values))
    outcome = Vectorized(work(Function(call, **of), judge))(batch)
    assert isinstance(outcome, Outcome)
    return outcome


def dead(outcome: Outcome) -> list[tuple[int, str]]:
    return [(letter.record.offset(), letter.reason) for letter in outcome.batch.dead]


def test_map_filter_and_flat_map_take_one_result_for_each_value() -> None:
    assert outcome_of(lambda values: [v * 2 for v in values], 1, 2).batch.values == [2, 4]
    assert outcome_of(lambda values: [v > 1 for v in values], 1, 2, work=Filter).batch.values == [2]
    made = outcome_of(lambda values: (range(v) for v in values), 0, 2, work=FlatMap)
    assert made.batch.values == [0, 1]
    assert [record.offset() for record in made.batch.records] == [1, 1]


def test_an_empty_batch_calls_nothing() -> None:
    assert outcome_of(lambda values: 1 / 0).batch.values == []


def test_a_second_parameter_gets_the_messages() -> None:
    made = outcome_of(lambda values, messages: [m.offset for m in messages], 5, 6, wants_message=True)
    assert made.batch.values == [0, 1]


def test_arrow_gets_rows_and_gives_rows() -> None:
    def function(rows: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        assert isinstance(rows, pyarrow.RecordBatch)
        doubled = pyarrow.compute.multiply(rows["n"], 2)
        return pyarrow.RecordBatch.from_pydict({"n": doubled})

    made = outcome_of(function, {"n": 1}, {"n": 2}, arrow=True)
    assert made.batch.values == [{"n": 2}, {"n": 4}]


def test_arrow_filters_by_an_array_of_booleans() -> None:
    made = outcome_of(
        lambda rows: pyarrow.compute.greater(rows["n"], 1), {"n": 1}, {"n": 2}, work=Filter, arrow=True
    )
    assert made.batch.values == [{"n": 2}]


def test_values_that_are_no_rows_fail_as_if_the_function_had() -> None:
    made = outcome_of(lambda rows: rows, 1, 2, arrow=True)
    assert isinstance(made.failure, StageFailed)
    assert made.failure.offset == 0


def test_one_message_is_refused_by_an_invalid_in_its_place() -> None:
    made = outcome_of(lambda values: [millrace.Invalid("odd") if v % 2 else v for v in values], 0, 1, 2, 3)
    assert made.batch.values == [0, 2]
    assert dead(made) == [(1, "odd"), (3, "odd")]


def test_what_is_raised_is_about_all_of_them() -> None:
    def function(values: list[int]) -> list[int]:
        raise KeyError("table")

    stopped = outcome_of(function, 1, 2)
    assert isinstance(stopped.failure, StageFailed)
    assert (stopped.failure.offset, stopped.batch.values) == (0, [])
    assert dead(outcome_of(function, 1, 2, judge=ALL_LETTERS)) == [
        (0, "KeyError: 'table'"),
        (1, "KeyError: 'table'"),
    ]


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ([1], "got 2 values and returned 1"),
        (None, "not a NoneType"),
        ("ab", "not a str"),
        ({1: 2, 3: 4}, "not a dict"),
    ],
)
def test_a_result_of_another_shape_is_a_failure(result: object, words: str) -> None:
    failure = outcome_of(lambda _: result, 1, 2).failure
    assert failure is not None
    assert words in failure.what


def test_a_flat_map_result_that_is_no_list_fails_at_its_message() -> None:
    failure = outcome_of(lambda values: [[1], None], 1, 2, work=FlatMap).failure
    assert failure is not None
    assert (failure.offset, "NoneType" in failure.what) == (1, True)
