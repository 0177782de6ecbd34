"""The demo's comparison finds what is missing, doubled, changed, not asked for, or out of order."""

from __future__ import annotations

import pytest

from flights_example import example

pytestmark = pytest.mark.unit

comparing = example("comparing")
EXPECTED = {
    (0, 0): {"delay": 1, "speed": 2.5},
    (0, 1): {"delay": None, "speed": 3.0},
    (1, 0): {"delay": 4, "speed": None},
}


def found(*identities: tuple[int, int]) -> list[object]:
    return [
        comparing.Found(identity, dict(EXPECTED.get(identity, {})), (identity[0], place))
        for place, identity in enumerate(identities)
    ]


def test_equal_topics_are_equal() -> None:
    result = comparing.compare(EXPECTED, found((0, 0), (0, 1), (1, 0)))
    assert result.equal
    assert result.examples == []


def test_a_missing_record_is_found() -> None:
    result = comparing.compare(EXPECTED, found((0, 0), (1, 0)))
    assert not result.equal
    assert result.missing == 1
    assert result.examples == ["the flight at partition 0, offset 1 is missing"]


def test_a_doubled_record_is_found_though_its_double_is_equal() -> None:
    result = comparing.compare(EXPECTED, found((0, 0), (0, 1), (0, 0), (1, 0)))
    assert not result.equal
    assert result.doubled == 1
    assert result.examples == ["the flight at partition 0, offset 0 is at 0:0 and again at 0:2"]


def test_a_doubled_record_is_found_where_another_is_missing() -> None:
    result = comparing.compare(EXPECTED, found((0, 0), (0, 0), (1, 0)))
    assert (result.found, result.expected) == (3, 3)
    assert (result.doubled, result.missing, result.equal) == (1, 1, False)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"delay": 2, "speed": 2.5}, "delay should be 1, and is 2"),
        ({"delay": 1.0, "speed": 2.5}, "delay should be 1, and is 1.0"),
        ({"delay": True, "speed": 2.5}, "delay should be 1, and is True"),
        ({"delay": 1, "speed": 2.5000000000000004}, "speed should be 2.5, and is 2.5000000000000004"),
        ({"delay": 1}, "speed should be 2.5, and is not there"),
        ({"delay": 1, "speed": 2.5, "more": 0}, "more should not be there, and is 0"),
        ({"delay": None, "speed": 2.5}, "delay should be 1, and is None"),
    ],
)
def test_a_changed_field_is_named(content: dict[str, object], words: str) -> None:
    records = found((0, 0), (0, 1), (1, 0))
    records[0] = comparing.Found((0, 0), content, (0, 0))
    result = comparing.compare(EXPECTED, records)
    assert (result.changed, result.equal) == (1, False)
    assert result.examples == [f"the flight at partition 0, offset 0 at 0:0: {words}"]


def test_a_record_that_nobody_asked_for_is_found() -> None:
    result = comparing.compare(EXPECTED, found((0, 0), (0, 1), (1, 0), (7, 7)))
    assert (result.unexpected, result.equal) == (1, False)


def test_a_record_out_of_order_is_found() -> None:
    result = comparing.compare(EXPECTED, found((0, 1), (0, 0), (1, 0)))
    assert (result.disordered, result.equal) == (1, False)


def test_records_of_other_source_partitions_may_come_in_between() -> None:
    records = [
        comparing.Found(identity, EXPECTED[identity], (5, n))
        for n, identity in enumerate([(0, 0), (1, 0), (0, 1)])
    ]
    assert comparing.compare(EXPECTED, records).equal


def test_only_the_first_differences_are_told() -> None:
    result = comparing.compare({(0, n): {} for n in range(100)}, [])
    assert result.missing == 100
    assert len(result.examples) == comparing.SHOWN
