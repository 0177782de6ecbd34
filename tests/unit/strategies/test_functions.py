"""map, filter, flatMap: what they make of a batch, and of messages that fail."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest

import millrace
from chain_fakes import FakeRecord, batch_of
from millrace.connectivity.ports import BufferFull, TimedOut
from millrace.engine.batch import Batch, DeadLetter
from millrace.engine.strategy import MessageRejected
from millrace.errors import StageFailed
from millrace.strategies import Filter, FlatMap, Function, Judge, Map, Outcome

pytestmark = pytest.mark.unit

STOP = Judge("score")
LETTERS = Judge("score", dead_letters=True)
ALL_LETTERS = Judge("score", dead_letters=True, on_error_dead_letter=True)


def numbers(count: int, *, start: int = 0) -> Batch:
    """Values 0, 1, 2...; value n has offset start + n."""
    records = [FakeRecord(start + n, b"%d" % n) for n in range(count)]
    return Batch(0, start, start + count, records, records, list(range(count)))


def bad(*values: int, error: Exception | None = None) -> Callable[[int], int]:
    def function(value: int) -> int:
        if value in values:
            raise error if error is not None else millrace.Invalid(f"{value} is bad")
        return value * 10

    return function


def failure(outcome: Outcome) -> StageFailed:
    assert isinstance(outcome.failure, StageFailed)
    return outcome.failure


def dead_offsets(outcome: Outcome) -> list[int]:
    return [letter.record.offset() for letter in outcome.batch.dead]


def test_map_replaces_each_value() -> None:
    outcome = Map(Function(lambda value: value * 10), STOP)(numbers(3))
    assert outcome.batch.values == [0, 10, 20]
    assert outcome.failure is None


def test_a_second_parameter_gets_the_message() -> None:
    record = FakeRecord(7, b"raw", 3, b"key", (("h", b"1"), ("h", None)), 1_700_000_000_123)
    batch = Batch(3, 7, 8, [record], [record], ["decoded"])
    outcome = Map(Function(lambda value, message: (value, message), wants_message=True), STOP)(batch)
    expected = millrace.Message("decoded", b"key", (("h", b"1"), ("h", None)), 1_700_000_000_123, 3, 7)
    assert outcome.batch.values == [("decoded", expected)]


def test_a_record_without_timestamp_and_headers_says_so() -> None:
    batch = batch_of([FakeRecord(0, ms=None)])
    outcome = Map(
        Function(lambda _, message: (message.timestamp, message.headers), wants_message=True), STOP
    )(batch)
    assert outcome.batch.values == [(None, ())]


def test_filter_keeps_what_is_true_with_its_record() -> None:
    outcome = Filter(Function(lambda value: value % 2), STOP)(numbers(5))
    assert outcome.batch.values == [1, 3]
    assert [record.offset() for record in outcome.batch.records] == [1, 3]
    assert (outcome.batch.start, outcome.batch.end, outcome.batch.count) == (0, 5, 5)


def test_flat_map_gives_none_one_or_many_with_their_record() -> None:
    outcome = FlatMap(Function(lambda value: range(value)), STOP)(numbers(4))
    assert outcome.batch.values == [0, 0, 1, 0, 1, 2]
    assert [record.offset() for record in outcome.batch.records] == [1, 2, 2, 3, 3, 3]


@pytest.mark.parametrize("result", ["text", b"bytes", {"a": 1}, None, 5])
def test_flat_map_refuses_what_cannot_have_been_meant_as_several_values(result: object) -> None:
    outcome = FlatMap(Function(lambda _: result), STOP)(numbers(1))
    assert type(result).__name__ in failure(outcome).what


def test_a_failure_cuts_the_batch_before_its_message() -> None:
    error = ZeroDivisionError("by zero")
    outcome = Map(Function(bad(2, error=error)), STOP)(numbers(5, start=100))
    assert outcome.batch.values == [0, 10]
    assert (outcome.batch.start, outcome.batch.end, outcome.batch.count) == (100, 102, 2)
    failed = failure(outcome)
    assert (failed.stage, failed.partition, failed.offset) == ("score", 0, 102)
    assert failed.__cause__ is error
    assert "ZeroDivisionError: by zero" in failed.what
    assert "test_functions.py" in failed.what


def test_a_failure_of_the_first_message_leaves_an_empty_batch_that_answers_for_the_gap_before_it() -> None:
    records = [FakeRecord(5)]
    outcome = Map(Function(bad(0)), STOP)(Batch(0, 3, 6, records, records, [0]))
    assert (outcome.batch.start, outcome.batch.end, outcome.batch.values) == (3, 5, [])


def test_after_a_failure_the_function_is_not_called() -> None:
    seen: list[int] = []

    def function(value: int) -> int:
        seen.append(value)
        return bad(2)(value)

    Map(Function(function), STOP)(numbers(5))
    assert seen == [0, 1, 2]


def test_dead_letters_of_earlier_stages_are_cut_too() -> None:
    batch = numbers(5)
    early, late = FakeRecord(0), FakeRecord(4)
    dead = (DeadLetter(early, "decode", "x"), DeadLetter(late, "decode", "x"))
    batch = Batch(0, 0, 5, batch.source, batch.records[1:4], [1, 2, 3], dead)
    outcome = Map(Function(bad(3)), STOP)(batch)
    assert outcome.batch.dead == dead[:1]
    assert outcome.batch.values == [10, 20]


def test_invalid_becomes_a_dead_letter_whatever_on_error_says() -> None:
    outcome = Map(Function(bad(1, 3)), LETTERS)(numbers(5))
    assert outcome.batch.values == [0, 20, 40]
    assert [record.offset() for record in outcome.batch.records] == [0, 2, 4]
    assert [(d.record.offset(), d.stage, d.reason) for d in outcome.batch.dead] == [
        (1, "score", "1 is bad"),
        (3, "score", "3 is bad"),
    ]
    assert outcome.dead == 2


def test_other_errors_become_dead_letters_only_where_on_error_says_so() -> None:
    function = Function(bad(1, error=KeyError("tail")))
    assert failure(Map(function, LETTERS)(numbers(3))).offset == 1
    outcome = Map(function, ALL_LETTERS)(numbers(3))
    assert outcome.batch.dead[0].reason == "KeyError: 'tail'"
    assert outcome.batch.values == [0, 20]


def test_each_message_may_be_a_dead_letter() -> None:
    outcome = Filter(Function(bad(*range(4))), LETTERS)(numbers(4))
    assert outcome.batch.values == []
    assert dead_offsets(outcome) == [0, 1, 2, 3]


def test_filter_keeps_the_right_ones_beside_dead_letters_and_before_a_failure() -> None:
    def function(value: int) -> bool:
        if value == 1:
            raise millrace.Invalid("no")
        if value == 5:
            raise KeyError
        return value != 3

    outcome = Filter(Function(function), LETTERS)(numbers(8))
    assert outcome.batch.values == [0, 2, 4]
    assert [record.offset() for record in outcome.batch.records] == [0, 2, 4]
    assert failure(outcome).offset == 5


def test_memory_errors_stop_the_worker_in_any_case() -> None:
    assert failure(Map(Function(bad(1, error=MemoryError())), ALL_LETTERS)(numbers(3))).offset == 1


def test_flat_map_that_raises_half_way_gives_none_of_its_values() -> None:
    def function(value: int) -> Iterator[int]:
        yield value
        if value == 1:
            raise millrace.Invalid("half-way")
        yield value

    outcome = FlatMap(Function(function), LETTERS)(numbers(3))
    assert outcome.batch.values == [0, 0, 2, 2]
    assert dead_offsets(outcome) == [1]


def test_a_message_whose_one_value_fails_later_loses_them_all_and_is_one_dead_letter() -> None:
    batch = FlatMap(Function(lambda value: [value, value + 100, value + 200]), LETTERS)(numbers(3)).batch
    outcome = Map(Function(bad(101, 201)), LETTERS)(batch)
    assert outcome.batch.values == [0, 1000, 2000, 20, 1020, 2020]
    assert [(d.record.offset(), d.reason) for d in outcome.batch.dead] == [(1, "101 is bad")]


def test_a_message_whose_one_value_stops_the_worker_hands_on_none_of_them() -> None:
    batch = FlatMap(Function(lambda value: [value, value + 100]), LETTERS)(numbers(3)).batch

    def function(value: int) -> int:
        if value == 1:
            raise millrace.Invalid("a dead letter that is not to be, for its message fails")
        return bad(101, error=KeyError())(value)

    outcome = Map(Function(function), LETTERS)(batch)
    assert outcome.batch.values == [0, 1000]
    assert dead_offsets(outcome) == []
    assert failure(outcome).offset == 1


def test_stop_iteration_does_not_end_the_batch_quietly() -> None:
    outcome = Map(Function(bad(1, error=StopIteration())), STOP)(numbers(3))
    assert failure(outcome).offset == 1
    assert "StopIteration" in failure(outcome).what
    outcome = Map(Function(bad(1, error=StopIteration())), ALL_LETTERS)(numbers(3))
    assert outcome.batch.values == [0, 20]
    assert dead_offsets(outcome) == [1]


def test_an_exit_is_a_failure_of_its_message_and_not_the_end_of_the_worker() -> None:
    def leave(value: int) -> int:
        if value == 1:
            sys.exit(3)
        return value

    outcome = Map(Function(leave), STOP)(numbers(3))
    assert failure(outcome).offset == 1
    assert "sys.exit(3)" in failure(outcome).what
    assert dead_offsets(Map(Function(leave), ALL_LETTERS)(numbers(3))) == [1]


def test_a_result_that_is_neither_true_nor_false_fails_at_its_message() -> None:
    class Array:
        def __bool__(self) -> bool:
            raise ValueError("ambiguous")

    outcome = Filter(Function(lambda value: Array() if value == 1 else True), STOP)(numbers(3))
    assert failure(outcome).offset == 1
    assert outcome.batch.values == [0]


def test_the_frameworks_own_exceptions_raised_by_user_code_are_user_errors() -> None:
    for error in (MessageRejected(), TimeoutError("slow"), BufferFull("x"), TimedOut("y")):
        assert failure(Map(Function(bad(1, error=error)), STOP)(numbers(3))).__cause__ is error
        assert dead_offsets(Map(Function(bad(1, error=error)), ALL_LETTERS)(numbers(3))) == [1]


def test_an_error_whose_text_cannot_be_had_is_still_told() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert "Mute" in failure(Map(Function(bad(1, error=Mute())), STOP)(numbers(3))).what


def test_reasons_are_one_short_line() -> None:
    outcome = Map(Function(bad(1, error=millrace.Invalid("a\nb" + "c" * 10_000))), LETTERS)(numbers(3))
    reason = outcome.batch.dead[0].reason
    assert reason.startswith("a bc")
    assert len(reason) == 500
