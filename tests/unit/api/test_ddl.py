"""Lists of columns in Spark's DDL: what is read, what it is written as, what is refused and in which words."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_api.ddl import (
    Array,
    Column,
    DataType,
    DdlError,
    Decimal,
    Map,
    Simple,
    Struct,
    ddl,
    parse_columns,
)

pytestmark = pytest.mark.unit

NAMES = st.text(min_size=1, max_size=8)


def types() -> st.SearchStrategy[DataType]:
    simple = st.sampled_from(
        [
            "boolean",
            "tinyint",
            "smallint",
            "int",
            "bigint",
            "float",
            "double",
            "string",
            "binary",
            "date",
            "timestamp",
        ]
    ).map(Simple)
    decimal = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: Decimal(p, s)))
    return st.recursive(
        simple | decimal,
        lambda inner: inner.map(Array) | inner.map(Map) | columns(inner).map(Struct),
        max_leaves=6,
    )


def columns(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[tuple[Column, ...]]:
    one = st.builds(Column, NAMES, inner, st.booleans())
    return st.lists(one, min_size=1, max_size=4, unique_by=lambda column: column.name.lower()).map(tuple)


@given(columns(types()))
def test_what_is_written_is_read_as_the_same(expected: tuple[Column, ...]) -> None:
    assert parse_columns(ddl(expected)) == expected


def test_types_have_the_names_that_spark_prints_whatever_they_were_called() -> None:
    text = "a BYTE, b short, c Integer, d long, e decimal, f DEC(4), g numeric(4 , 2), `h i` string NOT null"
    assert ddl(parse_columns(text)) == (
        "`a` tinyint, `b` smallint, `c` int, `d` bigint, `e` decimal(10,0), `f` decimal(4,0), `g` decimal(4,2), "
        "`h i` string NOT NULL"
    )


def test_types_may_be_nested_with_and_without_colons() -> None:
    (column,) = parse_columns("legs array<struct<origin: string not null, stops map<string, int>>>")
    leg = Struct((Column("origin", Simple("string"), False), Column("stops", Map(Simple("int")))))
    assert column == Column("legs", Array(leg))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (" ", "it names no columns"),
        ("carrier", "the end stands where the type of column carrier belongs"),
        ("carrier varchar(3)", "column carrier: varchar is not a type"),
        ("carrier string delay double", "'delay' stands after column carrier"),
        ("carrier string,", "the end stands where a column's name belongs"),
        ("a int, b int, A string", "column a and A is there twice"),
        ("legs array<struct<to string, to int>>", "column legs.to is there twice"),
        ("a int not", "the end stands after NOT of column a"),
        ("a decimal(39, 0)", "column a: decimal(39,0) can't be"),
        ("a decimal(4, 5)", "column a: decimal(4,5) can't be"),
        ("a map<int, int>", "column a: a map from int"),
        ("a array int", "'int' stands in the type of column a"),
        ("a struct<b array<int>", "the end stands after column a.b"),
        ("a int; drop", "';' at character 6 has no meaning here"),
        ("a " + "array<" * 30 + "int" + ">" * 30, "column a: types within types, 21 deep"),
    ],
)
def test_what_is_refused_is_told_with_its_column(text: str, message: str) -> None:
    with pytest.raises(DdlError) as caught:
        parse_columns(text)
    assert caught.value.message == message
    assert caught.value.remedy


@given(st.text("abc int,<>`():string 1;", max_size=30))
def test_no_text_brings_anything_but_a_ddl_error(text: str) -> None:
    with contextlib.suppress(DdlError):
        parse_columns(text)
