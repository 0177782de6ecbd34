"""What can be told of an aggregate's SQL without Spark: columns that are not there, parentheses and quotes left open.

Spark has the last word, at the collector's start. So nothing is reported here that it might take: in an expression with
a lambda or a query in it no name is looked at, nor one that has a meaning of its own in SQL. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Final

_TOKEN: Final = re.compile(
    r"""(?P<skip>\s+|--[^\n]*|/\*.*?\*/)
    |(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    |`(?P<quoted>(?:[^`]|``)*)`
    |(?P<number>[0-9][0-9A-Za-z_.]*|\.[0-9][0-9A-Za-z_]*)
    |(?P<word>[^\W\d]\w*)
    |(?P<sign>->|=>|::|.)""",
    re.VERBOSE | re.DOTALL,
)
# Words of SQL's expressions, types and units of time: where they stand, a column is not necessarily meant.
_WORDS: Final = frozenset(
    re.findall(
        r"[a-z_]+",
        """
    all and any as asc at between both by case cast collate count current current_catalog current_date
    current_database current_schema current_time current_timestamp current_user desc distinct div else end error escape
    except exclude exists extract false filter first following for from group groups having if ignore ilike in interval
    is last leading like limit localtime localtimestamp mod no not null nulls on or order others outer over overflow
    overlay partition percent placing position preceding range regexp respect rlike row rows separator session_user some
    substring table then ties to trailing trim true truncate unbounded unknown user using values when where window with
    within without xor zone
    array bigint binary boolean byte char character date dec decimal double float geography geometry int integer long
    map numeric real short smallint string struct time timestamp timestamp_ltz timestamp_ntz tinyint varchar variant
    void
    year years y yr yrs yearofweek quarter quarters qtr month months mon mons week weeks w day days d dayofweek dow
    dayofweek_iso dow_iso dayofyear doy hour hours h hr hrs minute minutes m min mins second seconds s sec secs
    millisecond milliseconds msec msecs ms microsecond microseconds usec usecs us nanosecond nanoseconds ns julian era
    """,
    )
)
_OPEN: Final = {"(": ")", "[": "]"}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str


def fault(expression: str) -> str | None:
    """What is left open or closed without need; None if nothing is."""
    due: list[str] = []
    for token in _tokens(expression):
        if token.kind != "sign":
            continue
        if token.text in "'\"`":
            return f"a {token.text} is not closed"
        if token.text in _OPEN:
            due.append(_OPEN[token.text])
        elif token.text in _OPEN.values() and (not due or due.pop() != token.text):
            return f"a {token.text} has nothing to close"
    return f"a {due[-1]} is missing" if due else None


def unknown_columns(expression: str, columns: Container[str]) -> list[str]:
    """Names in the expression that are meant as columns and are none; `columns` are in lower case, as Spark looks for
    them. Each once, in order.
    """
    tokens = list(_tokens(expression))
    if any(token.text == "->" or token.text.lower() == "select" for token in tokens):
        return []
    found: dict[str, None] = {}
    nothing = _Token("", "")
    for before, token, after in zip([nothing, *tokens], tokens, [*tokens[1:], nothing], strict=False):
        if token.kind not in ("word", "quoted") or before.text in (".", "::") or before.text.lower() == "as":
            continue
        if token.kind == "word" and (token.text.lower() in _WORDS or after.kind == "text"):
            continue  # DATE '2026-01-31' and the like
        if after.text in ("(", "=>") or token.text.lower() in columns:
            continue
        found[token.text] = None
    return list(found)


def _tokens(expression: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(expression):
        kind = match.lastgroup or ""
        if kind != "skip":
            yield _Token(kind, match[kind].replace("``", "`") if kind == "quoted" else match[kind])
