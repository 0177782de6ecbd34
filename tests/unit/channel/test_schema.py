"""Rows: what fits comes back from the JSON as it was, what does not is refused by the name of its column."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.channel.columns import Misfit
from millrace.channel.schema import RowEncoder
from millrace.message import Invalid
from millrace_api.ddl import parse_columns

pytestmark = pytest.mark.unit

NOW = datetime(2013, 1, 1, 10, 40, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = st.timezones() | st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
MOMENTS = st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=ZONES)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def encoder(column: str) -> RowEncoder:
    return RowEncoder(parse_columns(f"t timestamp, {column}"), "t")


def written(kind: str, value: object) -> Any:
    text, _ = encoder(f"v {kind}")({"t": NOW, "v": value})
    return json.loads(text, parse_constant=refuse)["v"]


def refuse(constant: str) -> object:
    raise AssertionError(f"{constant} is no JSON")


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


FITTING: dict[str, st.SearchStrategy[tuple[object, object]]] = {
    "boolean": st.booleans().map(lambda v: (v, v)),
    "tinyint": integers(8).map(lambda v: (v, v)),
    "smallint": integers(16).map(lambda v: (v, v)),
    "int": integers(32).map(lambda v: (v, v)) | integers(32).map(lambda v: (float(v), v)),
    "bigint": integers(64).map(lambda v: (v, v)),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False).map(lambda v: (v, v)),
    "double": FINITE.map(lambda v: (v, v)) | integers(64).map(lambda v: (v, float(v))),
    "double not null": FINITE.map(lambda v: (v, v)),
    "decimal(10,2)": st.decimals("-99999999.99", "99999999.99", places=2).map(lambda v: (v, f"{v:.2f}"))
    | st.integers(-(10**8) + 1, 10**8 - 1).map(lambda v: (v, f"{v}.00"))
    | st.integers(-(10**6), 10**6).map(lambda v: (v / 100, f"{Decimal(v).scaleb(-2):.2f}")),
    "string": TEXT.map(lambda v: (v, v)),
    "binary": st.binary().map(lambda v: (v, base64.b64encode(v).decode()))
    | st.binary().map(lambda v: (base64.b64encode(v).decode(),) * 2),
    "date": st.dates().map(lambda v: (v, v.isoformat())) | st.dates().map(lambda v: (v.isoformat(),) * 2),
    "array<int>": st.lists(integers(32) | st.none()).map(lambda v: (v, v)),
    "map<string, double>": st.dictionaries(TEXT, FINITE | st.none()).map(lambda v: (v, v)),
    "struct<a: int, b: string>": st.tuples(integers(32), TEXT).map(
        lambda v: ({"a": v[0], "b": v[1], "c": 1}, {"a": v[0], "b": v[1]})
    ),
    "array<struct<d: date not null>>": st.lists(st.dates()).map(
        lambda v: (tuple({"d": d} for d in v), [{"d": d.isoformat()} for d in v])
    ),
}


@pytest.mark.parametrize("kind", FITTING)
@given(st.data())
def test_what_fits_comes_back_as_it_was(kind: str, data: st.DataObject) -> None:
    value, expected = data.draw(FITTING[kind])
    assert written(kind, value) == expected


@given(MOMENTS.filter(lambda moment: moment >= EPOCH), st.booleans())
def test_times_are_written_in_utc_with_microseconds_and_are_the_event_time(
    moment: datetime, as_text: bool
) -> None:
    value = moment.isoformat() if as_text else moment
    if as_text and moment.utcoffset() != timedelta(minutes=round(moment.utcoffset() / timedelta(minutes=1))):  # type: ignore
        value = moment.astimezone(UTC).isoformat()
    text, micros = encoder("n int")({"t": value})
    shown = json.loads(text)["t"]
    assert len(shown) == 27
    assert shown.endswith("Z")
    # a time that a zone has twice equals no time of another zone (PEP 495): compare in UTC
    expected = datetime.fromisoformat(value) if isinstance(value, str) else value
    assert datetime.fromisoformat(shown) == expected.astimezone(UTC)
    assert EPOCH + timedelta(microseconds=micros) == expected.astimezone(UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2013-01-01T10:40:00Z", "2013-01-01T10:40:00.000000Z"),
        ("2013-01-01T10:40:00.123456Z", "2013-01-01T10:40:00.123456Z"),
        ("2013-01-01T10:40:00,123456Z", "2013-01-01T10:40:00.123456Z"),
        ("2013-01-01T10:40:00.1234560Z", "2013-01-01T10:40:00.123456Z"),
        ("2013-W01-2T10:40:00.1234Z", "2013-01-01T10:40:00.123400Z"),
        ("2013-01-01T10:40Z", "2013-01-01T10:40:00.000000Z"),
        ("2013-01-01T10:40:00.5Z", "2013-01-01T10:40:00.500000Z"),
        ("2013-01-01 10:40:00+01:00", "2013-01-01T09:40:00.000000Z"),
        ("2013-01-01T10:40:00.123456789-05:00", "2013-01-01T15:40:00.123456Z"),
        ("2013-W01-2T10:40:00Z", "2013-01-01T10:40:00.000000Z"),
        ("20130101T104000.123Z", "2013-01-01T10:40:00.123000Z"),
    ],
)
def test_text_in_any_iso_form_is_written_in_one(text: str, expected: str) -> None:
    row, _ = encoder("n int")({"t": text})
    assert json.loads(row)["t"] == expected


@given(MOMENTS.filter(lambda moment: moment < EPOCH))
def test_an_event_time_without_windows_is_refused_and_another_column_may_have_it(moment: datetime) -> None:
    """Spark's watermark begins at 1970: it would drop the row, and say nothing."""
    shown = moment.astimezone(UTC).strftime("%Y-%m-%d").zfill(10)
    with pytest.raises(Invalid, match=f"column t: expected an event time from 1970 on, found {shown}"):
        encoder("n int")({"t": moment})
    row, _ = encoder("v timestamp")({"t": NOW, "v": moment})
    assert datetime.fromisoformat(json.loads(row)["v"]) == moment.astimezone(UTC)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", ["float", "double", "array<double>", "decimal(3,1)"])
def test_what_is_no_number_is_null(kind: str, number: float) -> None:
    value = [number] if kind.startswith("array") else number
    assert written(kind, value) in (None, [None])


@given(FINITE)
def test_numpy_like_subclasses_fit_as_their_base(number: float) -> None:
    class Float64(float): ...

    assert written("double", Float64(number)) == number


def test_only_columns_are_written_and_what_is_missing_is_null() -> None:
    encode = RowEncoder(parse_columns("a int, t timestamp, `b c` string"), "t")
    text, micros = encode({"t": NOW, "z": object(), "a": 1})
    assert text == b'{"a":1,"t":"2013-01-01T10:40:00.000000Z","b c":null}'
    assert micros == 1_357_036_800_000_000


MISFITS = [
    ("boolean", 1, "column v: expected boolean, found 1 (int)"),
    ("tinyint", 128, "column v: expected tinyint, found 128 (int)"),
    ("int", 2**31, "column v: expected int, found 2147483648 (int)"),
    ("int", True, "column v: expected int, found True (bool)"),
    ("int", "5", "column v: expected int, found '5' (str)"),
    ("int", 5.5, "column v: expected int, found 5.5 (float)"),
    ("int", math.nan, "column v: expected int, found nan (float)"),
    ("bigint", 10**5000, "column v: expected bigint, found an int of 16610 bits"),
    ("double", 10**5000, "column v: expected double, found an int of 16610 bits"),
    ("double", "n/a", "column v: expected double, found 'n/a' (str)"),
    ("double not null", math.nan, "column v: expected double not null, found nan (float)"),
    ("float", 1e39, "column v: expected float, found 1e+39 (float)"),
    ("decimal(4,1)", Decimal("1.25"), "column v: expected decimal(4,1), found Decimal('1.25') (Decimal)"),
    ("decimal(4,1)", 1000, "column v: expected decimal(4,1), found 1000 (int)"),
    ("decimal(4,1)", "ten", "column v: expected decimal(4,1), found 'ten' (str)"),
    ("string", 5, "column v: expected string, found 5 (int)"),
    ("string", b"a", "column v: expected string, found b'a' (bytes)"),
    ("string", "\ud800", "column v: expected string, found '\\ud800' (str), which is no Unicode"),
    ("string not null", None, "column v: expected string not null, found null"),
    ("binary", "%", "column v: expected binary, found '%' (str), which is no base64"),
    ("date", "2013-02-30", "column v: expected date, found '2013-02-30' (str)"),
    ("date", "2013-1-1", "column v: expected date, found '2013-1-1' (str)"),
    ("date", NOW, f"column v: expected date, found {NOW!r:.80}"[:50]),
    (
        "timestamp",
        "2013-01-01T10:40:00",
        "column v: expected timestamp, found '2013-01-01T10:40:00' (str), which has no",
    ),
    (
        "timestamp",
        datetime(2013, 1, 1),
        "column v: expected timestamp, found datetime.datetime(2013, 1, 1, 0, 0)",
    ),
    ("timestamp", 1_357_036_800, "column v: expected timestamp, found 1357036800 (int)"),
    ("timestamp", date(2013, 1, 1), "column v: expected timestamp, found datetime.date(2013, 1, 1) (date)"),
    ("array<int>", {"a": 1}, "column v: expected array<int>, found {'a': 1} (dict)"),
    ("array<int>", [1, "a"], "column v[1]: expected int, found 'a' (str)"),
    ("map<string,int>", {1: 1}, "column v: expected map<string,int>, found the key 1 (int)"),
    ("map<string,int>", {"a": "b"}, "column v['a']: expected int, found 'b' (str)"),
    ("struct<a: array<int>>", {"a": [None, True]}, "column v.a[1]: expected int, found True (bool)"),
    ("struct<a: int not null>", {}, "column v.a: expected int not null, found null"),
]


@pytest.mark.parametrize(("kind", "value", "message"), MISFITS, ids=[m[2][:60] for m in MISFITS])
def test_what_does_not_fit_is_refused_with_column_type_and_value(
    kind: str, value: object, message: str
) -> None:
    with pytest.raises(Misfit) as caught:
        written(kind, value)
    assert str(caught.value).startswith(message)


def test_a_row_without_its_event_time_is_refused_though_the_column_may_be_null() -> None:
    for value in ({}, {"t": None}):
        with pytest.raises(Misfit, match="column t: expected timestamp not null, found null"):
            encoder("n int")(value)


@pytest.mark.parametrize("value", [None, 5, "a", ["a"], [("t", NOW)]])
def test_what_is_no_mapping_is_no_row(value: object) -> None:
    with pytest.raises(Invalid, match="a row has to be a mapping of columns to values, found"):
        encoder("n int")(value)


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.dates()
    | st.datetimes()
    | MOMENTS
    | st.decimals(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=5,
)


@pytest.mark.parametrize("kind", FITTING)
@given(ANYTHING)
def test_any_value_is_written_as_json_that_spark_can_read_or_refused_by_its_column(
    kind: str, value: object
) -> None:
    try:
        again = written(kind, value)
    except Misfit as misfit:
        column = misfit.column
    else:
        column = "v"
        assert written(kind, again) == again, "what was written fits, and is written the same"
    assert column.startswith("v")


@given(st.sampled_from(sorted(FITTING)), st.data())
def test_the_quick_way_and_the_careful_way_agree(kind: str, data: st.DataObject) -> None:
    encode = encoder(f"v {kind}")
    value = {"t": NOW, "v": data.draw(FITTING[kind])[0]}
    assert encode(value) == encode._carefully(value)


def test_the_time_has_to_be_a_column_of_type_timestamp() -> None:
    with pytest.raises(ValueError, match="t is not a column of type timestamp"):
        RowEncoder(parse_columns("t string"), "t")
