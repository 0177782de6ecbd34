"""The functions of the flights, what verify expects of them, and how the input is made: each told once more in small."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

import millrace
from flights_example import example

pytestmark = pytest.mark.unit

flights, verify, load = example("flights"), example("verify"), example("load")
topics = example("topics")

FLOWN = {
    "year": 2013, "month": 1, "day": 1, "dep_time": 517, "sched_dep_time": 515, "dep_delay": 2, "arr_time": 830,
    "sched_arr_time": 819, "arr_delay": 11, "carrier": "UA", "flight": 1545, "tailnum": "N14228", "origin": "EWR",
    "dest": "IAH", "air_time": 227, "distance": 1400, "hour": 5, "minute": 15, "time_hour": "2013-01-01T10:00:00Z",
}  # fmt: skip
CANCELLED = {
    **FLOWN,
    "dep_time": None,
    "dep_delay": None,
    "arr_time": None,
    "arr_delay": None,
    "air_time": None,
}
LOST = {**FLOWN, "arr_time": None, "arr_delay": None, "air_time": None}
DIVERTED = {**FLOWN, "arr_delay": None, "air_time": None}
UNOBSERVED = {**FLOWN, "time_hour": "2019-01-01T10:00:00Z"}


@pytest.fixture(scope="module", autouse=True)
def weather() -> None:
    flights.setup()


def test_a_cancelled_flight_is_filtered_out() -> None:
    assert flights.departed(FLOWN)
    assert not flights.departed(CANCELLED)


def test_a_flight_that_never_arrived_is_invalid() -> None:
    with pytest.raises(millrace.Invalid, match="no arrival time"):
        flights.score(LOST, SimpleNamespace(partition=0, offset=0))


def test_a_flight_is_scored() -> None:
    scored = flights.score(FLOWN, SimpleNamespace(partition=3, offset=4))
    assert scored["scheduled"] == "2013-01-01T10:15:00Z"
    assert (scored["delay"], scored["departure_delay"], scored["made_up"]) == (11, 2, -9)
    assert scored["grade"] == "on time"
    assert (scored["temperature"], scored["rain"]) == (39.02, 0.0)
    assert (scored["source_partition"], scored["source_offset"]) == (3, 4)


@pytest.mark.parametrize(
    "flight", [FLOWN, DIVERTED, UNOBSERVED, *({**FLOWN, "arr_delay": d} for d in (14, 15, 59, 60))]
)
def test_pandas_comes_to_the_same(flight: dict[str, object]) -> None:
    source = [_record(0, CANCELLED), _record(1, LOST), _record(2, flight)]
    table, undecodable = verify.decode(source)
    outputs, invalid, cancelled = verify.expected(table)
    by_function = json.loads(json.dumps(flights.score(flight, SimpleNamespace(partition=5, offset=2))))
    assert outputs == {(5, 2): by_function}
    assert [type(value) for value in outputs[5, 2].values()] == [
        type(value) for value in by_function.values()
    ]
    assert (undecodable, list(invalid), cancelled) == ([], [(5, 1)], 1)


def test_every_way_of_spoiling_is_undecodable() -> None:
    whole = [json.dumps(FLOWN, separators=(",", ":")).encode() for _ in range(60_000)]
    spoilt, count = load.spoil(whole, seed=1)
    assert count == 6
    source = [topics.Record(5, n, b"", value, {}) for n, value in enumerate(spoilt) if value != whole[n]]
    assert len(source) == 6
    _table, undecodable = verify.decode([_record(60_000, FLOWN), *source])
    assert undecodable == [(5, record.offset) for record in source]


def test_the_same_seed_spoils_the_same_records() -> None:
    whole = [b'{"carrier":"UA","year":2013}'] * 30_000
    assert load.spoil(whole, 7) == load.spoil(whole, 7)
    assert load.spoil(whole, 7) != load.spoil(whole, 8)


def test_what_is_not_known_is_null_and_whole_numbers_are_whole() -> None:
    year = load.in_order_of_departure(load.read_flights().head(2000))
    rows = [json.loads(line) for line in load.as_json(year)]
    assert len(rows) == 2000
    assert any(row["dep_time"] is None for row in rows)
    assert all(type(row["dep_delay"]) in (int, type(None)) for row in rows)


def test_a_dead_letter_is_told_apart_by_its_headers() -> None:
    headers = {
        "stage": b"decode",
        "reason": b"not JSON",
        "topic": b"flights",
        "partition": b"5",
        "offset": b"9",
    }
    record = topics.Record(1, 2, b"N1", b"{", {f"millrace-{name}": value for name, value in headers.items()})
    letter = verify.found_letter(record)
    assert letter.identity == (5, 9)
    should = verify.expected_letters([topics.Record(5, 9, b"N1", b"{", {})], [(5, 9)], [])
    assert letter.content == should[5, 9]
    silent = topics.Record(1, 2, b"N1", b"{", {**record.headers, "millrace-reason": b""})
    assert verify.found_letter(silent).content != should[5, 9]


def _record(offset: int, flight: dict[str, object]) -> object:
    return topics.Record(5, offset, str(flight["tailnum"]).encode(), json.dumps(flight).encode(), {})
