"""Lists of columns as Spark's DDL writes them (`carrier string, delay decimal(6, 1) not null`): read, checked, written.

Only what a channel can carry is understood. Names of types are not case-sensitive, names of columns are, but two that
differ in nothing else are refused, as Spark takes them for one. Names with other characters than letters, digits and
underscores stand in backticks. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn, TypeAlias

MOST_COLUMNS: Final = 1000
DEEPEST: Final = 20  # types within types
MOST_DIGITS: Final = 38  # of a decimal, in Spark

_SIMPLE: Final = {
    "boolean": "boolean",
    "byte": "tinyint",
    "tinyint": "tinyint",
    "short": "smallint",
    "smallint": "smallint",
    "int": "int",
    "integer": "int",
    "long": "bigint",
    "bigint": "bigint",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
}
TYPES: Final = (
    "boolean, tinyint, smallint, int, bigint, float, double, decimal(p, s), string, binary, date, timestamp, "
    "array<...>, struct<name: ..., ...>, map<string, ...>"
)


class DdlError(ValueError):
    """The text is no such list.

    Attributes:
        message: what is wrong, naming the column where one is at fault.
        remedy: what to do.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message, remedy)
        self.message, self.remedy = message, remedy


@dataclass(frozen=True, slots=True)
class Simple:
    """A type without parts, by the name that Spark prints: boolean, tinyint, smallint, int, bigint, float, double,
    string, binary, date or timestamp.
    """

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Decimal:
    """`precision` digits in all, `scale` of them after the point."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True)
class Array:
    element: DataType

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True, slots=True)
class Struct:
    fields: tuple[Column, ...]

    def __str__(self) -> str:
        inside = ", ".join(
            f"{_name(f.name)}: {f.type}{'' if f.nullable else ' NOT NULL'}" for f in self.fields
        )
        return f"struct<{inside}>"


@dataclass(frozen=True, slots=True)
class Map:
    """Its keys are strings: JSON has no others."""

    value: DataType

    def __str__(self) -> str:
        return f"map<string,{self.value}>"


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a field of a struct."""

    name: str
    type: DataType
    nullable: bool = True

    def __str__(self) -> str:
        return f"{_name(self.name)} {self.type}{'' if self.nullable else ' NOT NULL'}"


DataType: TypeAlias = "Simple | Decimal | Array | Struct | Map"


def parse_columns(text: str) -> tuple[Column, ...]:
    """The columns, at least one. Raises DdlError."""
    return _Parser(text).columns()


def ddl(columns: Sequence[Column]) -> str:
    """The columns as text that Spark and `parse_columns` read as the same."""
    return ", ".join(map(str, columns))


def _name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


_TOKEN: Final = re.compile(
    r"\s*(?:(?P<word>[A-Za-z_][A-Za-z0-9_]*)|`(?P<quoted>(?:[^`]|``)*)`|(?P<number>[0-9]+)|(?P<sign>[<>(),:]))"
)
_End: Final = ("", "")


class _Parser:
    """One pass over the tokens, each (kind, text)."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._at = 0
        self._column = ""  # for messages: the one that is being read, with the way into it

    def columns(self) -> tuple[Column, ...]:
        if not self._tokens:
            raise DdlError("it names no columns", "write a list such as carrier string, delay double")
        columns = self._list(colon=False, end=None, depth=0)
        if len(columns) > MOST_COLUMNS:
            raise DdlError(f"it has {len(columns)} columns", f"use at most {MOST_COLUMNS}")
        return columns

    def _list(self, *, colon: bool, end: str | None, depth: int) -> tuple[Column, ...]:
        """Columns, or fields of a struct up to `end`, which is taken."""
        outer, columns, seen = self._column, list[Column](), dict[str, str]()
        while True:
            columns.append(self._one(outer, colon=colon, depth=depth))
            name = columns[-1].name
            twin = seen.setdefault(name.lower(), name)
            if len(seen) < len(columns):
                alike = f"{outer}{name}" if twin == name else f"{outer}{twin} and {outer}{name}"
                raise DdlError(
                    f"column {alike} is there twice",
                    "give each column a name of its own; case makes no difference",
                )
            self._column = outer
            if self._taken(","):
                continue
            if end is None and self._peek() == _End:
                return tuple(columns)
            if end is not None and self._taken(end):
                return tuple(columns)
            self._stray(f"after column {outer}{name}", "a comma" if end is None else f"a comma or '{end}'")

    def _one(self, outer: str, *, colon: bool, depth: int) -> Column:
        kind, name = self._next()
        if kind not in ("word", "quoted") or not name:
            self._at -= 1
            self._stray("where a column's name belongs", "a name")
        self._column = f"{outer}{name}."
        if colon:
            self._taken(":")
        data_type = self._type(depth)
        nullable = True
        if self._keyword("not"):
            if not self._keyword("null"):
                self._stray(f"after NOT of column {outer}{name}", "NULL")
            nullable = False
        return Column(name, data_type, nullable)

    def _type(self, depth: int) -> DataType:
        where = self._column.rstrip(".")
        if depth > DEEPEST:
            raise DdlError(f"column {where}: types within types, {depth} deep", f"use at most {DEEPEST}")
        kind, word = self._next()
        if kind != "word":
            self._at -= 1
            self._stray(f"where the type of column {where} belongs", "a type")
        name = word.lower()
        if name in _SIMPLE:
            return Simple(_SIMPLE[name])
        if name in ("decimal", "dec", "numeric"):
            return self._decimal(where)
        if name == "array":
            self._expect("<", where)
            element = self._type(depth + 1)
            self._expect(">", where)
            return Array(element)
        if name == "struct":
            self._expect("<", where)
            return Struct(self._list(colon=True, end=">", depth=depth + 1))
        if name == "map":
            self._expect("<", where)
            key = self._type(depth + 1)
            if key != Simple("string"):
                raise DdlError(
                    f"column {where}: a map from {key}", "use map<string, ...>: JSON's keys are strings"
                )
            self._expect(",", where)
            value = self._type(depth + 1)
            self._expect(">", where)
            return Map(value)
        raise DdlError(f"column {where}: {word[:60]} is not a type", f"use one of {TYPES}")

    def _decimal(self, where: str) -> Decimal:
        if not self._taken("("):
            return Decimal(10, 0)  # Spark's default
        precision, scale = self._number(where), 0
        if self._taken(","):
            scale = self._number(where)
        self._expect(")", where)
        if not 1 <= precision <= MOST_DIGITS or scale > precision:
            raise DdlError(
                f"column {where}: decimal({precision},{scale}) can't be",
                f"use decimal(p, s) with p from 1 to {MOST_DIGITS} and s from 0 to p",
            )
        return Decimal(precision, scale)

    def _number(self, where: str) -> int:
        kind, text = self._next()
        if kind != "number":
            self._at -= 1
            self._stray(f"in the decimal of column {where}", "a number")
        return int(text[:9])

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else _End

    def _next(self) -> tuple[str, str]:
        token = self._peek()
        self._at += 1
        return token

    def _taken(self, sign: str) -> bool:
        if self._peek() == ("sign", sign):
            self._at += 1
            return True
        return False

    def _keyword(self, word: str) -> bool:
        kind, text = self._peek()
        if kind == "word" and text.lower() == word:
            self._at += 1
            return True
        return False

    def _expect(self, sign: str, where: str) -> None:
        if not self._taken(sign):
            self._stray(f"in the type of column {where}", f"'{sign}'")

    def _stray(self, where: str, due: str) -> NoReturn:
        text = self._peek()[1][:60]
        found = f"'{text}'" if self._peek() != _End else "the end"
        raise DdlError(f"{found} stands {where}", f"{due} is due there")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            odd = text[at:].lstrip()[:1]
            shown = odd if odd.isprintable() else f"\\x{ord(odd):02x}"
            raise DdlError(
                f"'{shown}' at character {len(text) - len(text[at:].lstrip()) + 1} has no meaning here",
                "put names with other characters than letters, digits and _ in backticks",
            )
        kind = match.lastgroup or ""
        token = match[kind]
        yield kind, token.replace("``", "`") if kind == "quoted" else token
        at = match.end()
