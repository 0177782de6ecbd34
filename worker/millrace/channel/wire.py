"""A record of a channel: a row, or a mark. Everybody who writes or reads a channel uses this module.

A row has as value one JSON object with exactly the columns of the collect stage's schema (`channel.schema`), key and
timestamp of the source record it was made of, and these headers:

millrace-time    event time, microseconds since the Unix epoch, decimal
millrace-origin  <partition>:<offset>:<index>@<writer>: the source record, and which of the values made of it (from 0);
                 that identifies the row, content does not. And who wrote it (`ownership.provenance`).

A mark has no value and no key:

millrace-mark    why it was written. `progress`: rows were, and this is the largest event time so far; the last record of
                 the transaction in its partition. `idle`: the source partition was read to its end, and stayed there.
                 `end`: a bounded run is over here. A reader treats a kind that it does not know like these.
millrace-time    the event time that it promises, as above: no row that comes after the mark is older than this by more
                 than the window's lateness. Of an `end` mark END.
millrace-origin  as of the last row that became complete with it. If none did: an offset that says whether it is missed
                 should its transaction be left open (`ownership.sweep`); an `end` mark is (ALWAYS), others are not (NEVER).

So marks alone tell how far a partition has come; rows need not be looked at for it. More marks than needed do no harm: a
promise that is not larger than an earlier one says nothing new.

Channel partition p has what comes from source partition p, in its order. All of it is written in transactions that
commit the offset it comes from, so for a read_committed reader each row is there once. Offsets have gaps. Headers that
are not named here are to be ignored. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from millrace.ownership import provenance
from millrace.ownership.provenance import ALWAYS, NEVER, ORIGIN, Header, Headers, Origin, origin_header

TIME: Final = provenance.TIME
MARK: Final = provenance.MARK

END: Final = 253_402_300_799_000_000
"""Microseconds since the Unix epoch at 9999-12-31T23:59:59Z: what an `end` mark promises."""


class MarkKind(StrEnum):
    PROGRESS = "progress"
    IDLE = "idle"
    END = "end"


@dataclass(frozen=True, slots=True)
class Row:
    """`time` in microseconds since the Unix epoch."""

    time: int
    origin: Origin
    value: bytes


@dataclass(frozen=True, slots=True)
class Mark:
    """`kind` is a MarkKind, or what a later version has added. `time` in microseconds since the Unix epoch."""

    kind: str
    time: int


class WireError(ValueError):
    """A record that can't be in a channel: something else writes to the topic."""


def row_headers(time: int, origin: Header) -> list[Header]:
    """origin: as `ownership.provenance` makes it."""
    return [(TIME, b"%d" % time), origin]


def mark_headers(
    kind: MarkKind, time: int, writer: str, partition: int = 0, offset: int | None = None
) -> list[Header]:
    """partition, offset: of the source, the last that became complete with it; None: none did. Only a sweep asks for them."""
    if offset is None:
        # what an end mark says is so once its partition is at its bound, and that it is whenever one is written without rows
        offset = ALWAYS if kind is MarkKind.END else NEVER
    return [(MARK, kind.encode()), (TIME, b"%d" % time), origin_header(writer, partition, offset)]


def parse(value: bytes | None, headers: Headers | None) -> Row | Mark:
    """What a record says. Raises WireError."""
    found = dict(headers or ())
    time = event_time(headers)
    kind = found.get(MARK)
    if kind is not None:
        if value is not None:
            raise WireError(f"a mark with a value of {len(value)} bytes")
        return Mark(kind.decode("utf-8", "replace"), time)
    if value is None:
        raise WireError("neither a row nor a mark: it has no value")
    return Row(time, _origin(found.get(ORIGIN)), value)


def event_time(headers: Headers | None) -> int:
    """Of a row or a mark, microseconds since the Unix epoch. Raises WireError."""
    text = dict(headers or ()).get(TIME)
    if text is None:
        raise WireError(
            f"a record without the header {TIME}: the topic is not a channel, or something else wrote to it"
        )
    digits = text.removeprefix(b"-")
    if not digits.isdigit() or len(digits) > 18:
        raise WireError(f"{TIME} is {text!r}")
    return int(text)


def _origin(text: bytes | None) -> Origin:
    found = Origin.decode(text)
    if found is None or found.offset < 0:
        raise WireError(f"{ORIGIN} is {text!r}")
    return found
