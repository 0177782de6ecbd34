"""Decoding and encoding, message by message where one of them is bad."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chain_fakes import FakeRecord, batch_of
from millrace.engine.batch import Batch
from millrace.errors import StageFailed
from millrace.strategies import Decode, Encode, Judge
from millrace.strategies.formats import Format

pytestmark = pytest.mark.unit

STOP = Judge("stage")
LETTERS = Judge("stage", dead_letters=True)


def raw(*bodies: bytes | None) -> Batch:
    return batch_of([FakeRecord(n, body) for n, body in enumerate(bodies)])


def of(*values: object, key: bytes | None = None) -> Batch:
    records = [FakeRecord(n, name=key) for n in range(len(values))]
    return Batch(0, 0, len(values), records, records, list(values))


VALUES: dict[Format, st.SearchStrategy[object]] = {
    "json": st.one_of(
        st.none(), st.integers(), st.text(max_size=9), st.just(object()), st.lists(st.floats())
    ),
    "string": st.one_of(st.none(), st.text(max_size=9), st.just("\ud800"), st.integers()),
    "bytes": st.one_of(st.none(), st.binary(max_size=9), st.just(bytearray(b"1")), st.integers()),
}


@given(st.data(), st.sampled_from(sorted(VALUES)), st.integers(3, 12), st.booleans(), st.booleans())
def test_all_at_once_or_one_by_one_is_the_same(
    data: st.DataObject, format_: Format, limit: int, keep: bool, plain: bool
) -> None:
    one = VALUES[format_].filter(lambda value: value is not None) if plain else VALUES[format_]
    batch = of(*data.draw(st.lists(one, max_size=6)), key=data.draw(st.none() | st.binary(max_size=4)))
    encode = Encode(format_, LETTERS, limit, keep=keep)
    found = encode(batch)
    with mock.patch("millrace.strategies.formats._all_encoded", return_value=None):
        expected = encode(batch)
    assert found == expected
    assert list(map(type, found.batch.values)) == list(map(type, expected.batch.values))


@pytest.mark.parametrize(
    ("format_", "body", "value"),
    [
        ("json", b'{"a": [1, 2.5, null, "\xc3\xa4"]}', {"a": [1, 2.5, None, "ä"]}),
        ("json", b"null", None),
        ("json", b"123456789012345678901234567890", 123456789012345678901234567890),
        ("string", "grüß".encode(), "grüß"),
        ("string", b"", ""),
        ("bytes", b"\xff\x00", b"\xff\x00"),
        ("json", None, None),
        ("string", None, None),
        ("bytes", None, None),
    ],
)
def test_decoding(format_: Format, body: bytes | None, value: object) -> None:
    outcome = Decode(format_, STOP)(raw(body, body))
    assert outcome.batch.values == [value, value]
    assert outcome.failure is None


@pytest.mark.parametrize(
    ("format_", "body", "reason"),
    [
        ("json", b'{"a": ', "not JSON: Input data was truncated"),
        ("json", b"{'a': 1}", "not JSON: JSON is malformed"),
        ("json", b'{"a": NaN}', "not JSON"),
        ("json", b"", "not JSON: Input data was truncated"),
        ("json", b'"\xff"', "not JSON"),
        ("json", b"[" * 100_000, "not JSON: maximum recursion depth"),
        ("string", b"ab\xff", "not UTF-8: 'utf-8' codec can't decode byte 0xff in position 2"),
    ],
)
def test_what_cannot_be_decoded_is_invalid_and_the_rest_goes_on(
    format_: Format, body: bytes, reason: str
) -> None:
    good = b'"x"' if format_ == "json" else b"x"
    outcome = Decode(format_, LETTERS)(raw(good, body, None, good))
    assert outcome.batch.values == ["x", None, "x"]
    assert [(d.record.offset(), d.stage) for d in outcome.batch.dead] == [(1, "stage")]
    assert outcome.batch.dead[0].reason.startswith(reason)


def test_without_dead_letters_it_stops_the_worker() -> None:
    outcome = Decode("json", STOP)(raw(b"1", b"{", b"2"))
    assert outcome.batch.values == [1]
    assert isinstance(outcome.failure, StageFailed)
    assert outcome.failure.offset == 1
    assert "deadLetter" in outcome.failure.remedy


@dataclasses.dataclass
class Flight:
    carrier: str


@pytest.mark.parametrize(
    ("format_", "value", "body"),
    [
        ("json", {"a": [1, None, "ä"]}, '{"a":[1,null,"ä"]}'.encode()),
        ("json", {"delay": float("nan"), "x": float("inf")}, b'{"delay":null,"x":null}'),
        ("json", float("nan"), b"null"),
        ("json", datetime(2013, 1, 1, tzinfo=UTC), b'"2013-01-01T00:00:00Z"'),
        ("json", Flight("UA"), b'{"carrier":"UA"}'),
        ("json", None, None),
        ("string", "ä", "ä".encode()),
        ("string", None, None),
        ("bytes", b"\xff", b"\xff"),
        ("bytes", bytearray(b"x"), b"x"),
        ("bytes", memoryview(b"x"), b"x"),
        ("bytes", None, None),
    ],
)
def test_encoding(format_: Format, value: object, body: bytes | None) -> None:
    outcome = Encode(format_, STOP)(of(value))
    assert outcome.batch.values == [body]
    assert outcome.failure is None


def cyclic() -> list[object]:
    cycle: list[object] = []
    cycle.append(cycle)
    return cycle


@pytest.mark.parametrize(
    ("format_", "value", "words"),
    [
        ("json", object(), ["type object", "can't be encoded"]),
        ("json", {"a": 1j}, ["type dict", "complex"]),
        ("json", {(1, 2): 3}, ["type dict"]),
        ("json", cyclic(), ["type list", "recursion"]),
        ("string", 5, ["type int", "takes str"]),
        ("string", "\ud800", ["type str", "surrogates"]),
        ("bytes", "text", ["type str", "takes bytes"]),
    ],
)
def test_what_cannot_be_encoded_is_invalid_and_names_the_type(
    format_: Format, value: object, words: list[str]
) -> None:
    outcome = Encode(format_, LETTERS)(of(None, value, None))
    assert outcome.batch.values == [None, None]
    for word in words:
        assert word in outcome.batch.dead[0].reason
    assert Encode(format_, STOP)(of(value)).failure is not None


def test_the_size_limit_is_on_key_and_value_together_and_exact() -> None:
    encode = Encode("bytes", LETTERS, limit=10)
    assert encode(of(b"1234567", key=b"key")).batch.values == [b"1234567"]
    outcome = encode(of(b"12345678", key=b"key"))
    assert outcome.batch.values == []
    assert "8 bytes" in outcome.batch.dead[0].reason
