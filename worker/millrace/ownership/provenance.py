"""What a record written in a worker's transactions says of where it comes from, in a header:

millrace-origin  <partition>:<offset>:<index>@<writer>: the source record, and which of the values made of it (from 0),
                 which identifies the record, for content does not; and the transactional id whose producer wrote it.
                 A record that stands for no source record has only @<writer>

One header, for a second one costs as much as all else that is done for a record on its way to the producer.

In channels there are also `millrace-time` and `millrace-mark` (`channel.wire`); a sweep has to know them.

They tell, long after the writer is gone, whether a record that a broker has left open was meant to count: its origin is
below the claim of its source partition, or it is not. A dead letter has the headers of its source record as they were, which
may be another pipeline's output: of two origins the first counts. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Final

ORIGIN: Final = "millrace-origin"

TIME: Final = "millrace-time"
MARK: Final = "millrace-mark"

NEVER: Final = 2**63 - 1
"""The offset in the origin of a record that stands for no source record and is not missed: above all claims."""

ALWAYS: Final = -1
"""The offset in the origin of a record that is true whatever became of its transaction: below all claims."""

_AT: Final = b"@"

Header = tuple[str, bytes | None]
Headers = Sequence[Header]


@dataclass(frozen=True, slots=True)
class Origin:
    """The source record that a record was made of, and which of the values made of it."""

    partition: int
    offset: int
    index: int

    def __str__(self) -> str:
        return f"{self.partition}:{self.offset}:{self.index}"

    @staticmethod
    def decode(text: bytes | None) -> Origin | None:
        """What is in front of the writer. None for what is no origin. Never raises."""
        parts = text.partition(_AT)[0].split(b":") if text is not None else []
        if len(parts) != 3 or not (_is_number(parts[0]) and _is_number(parts[2])):
            return None
        if not _is_number(parts[1]) and parts[1] != b"%d" % ALWAYS:
            return None
        return Origin(*map(int, parts))


def writer_header(writer: str) -> Header:
    """Of a record that stands for no source record."""
    return (ORIGIN, _AT + writer.encode())


def origin_header(writer: str, partition: int, offset: int, index: int = 0) -> Header:
    return (ORIGIN, b"%d:%d:%d@%b" % (partition, offset, index, writer.encode()))


def origin_headers(writer: str, partition: int, offsets: Sequence[int]) -> Sequence[Header]:
    """Of the values made of a run of one partition's messages, in order: an offset that comes again is the next value of
    the same message.
    """
    if len(set(offsets)) == len(offsets):  # one value a message: formatted without a loop in Python
        like = b"%d:%%d:0@%b" % (partition, writer.encode().replace(b"%", b"%%"))
        return list(zip(repeat(ORIGIN), map(like.__mod__, offsets)))
    found: list[Header] = []
    before, index = -1, 0
    for offset in offsets:
        index = index + 1 if offset == before else 0
        before = offset
        found.append(origin_header(writer, partition, offset, index))
    return found


def without(headers: Headers) -> Headers:
    """The headers that are not about where a record comes from: what a record hands down to those made of it."""
    return [header for header in headers if header[0] != ORIGIN]


def writer(headers: Headers | None) -> str | None:
    """The transactional id; None if the record has none."""
    name = (_first(headers, ORIGIN) or b"").partition(_AT)[2]
    return name.decode("utf-8", "replace") or None


def origin(headers: Headers | None) -> Origin | None:
    return Origin.decode(_first(headers, ORIGIN))


def time(headers: Headers | None) -> bytes | None:
    """The event time of a channel's record, as it is written there; None: the record is of no channel."""
    return _first(headers, TIME)


def _first(headers: Headers | None, name: str) -> bytes | None:
    return next((value for key, value in headers or () if key == name), None)


def _is_number(text: bytes) -> bool:
    return text.isdigit() and len(text) <= 19
