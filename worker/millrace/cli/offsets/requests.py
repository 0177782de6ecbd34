"""What is asked of `offsets`, understood; refused where it says nothing that can be done."""

from __future__ import annotations

import re
from dataclasses import dataclass

from millrace.errors import ExitCode, MillraceError
from millrace.ownership.errors import shorten
from millrace.ownership.repositioning import Position, To, ToOffset, ToTime


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be set: `to` or `from_group`; `partitions` as text, None: all (that are damaged)."""

    to: str | None
    from_group: bool
    partitions: str | None
    dry_run: bool
    again: bool
    take_over: bool = False


def parse_position(request: Request) -> Position:
    """Raises MillraceError (USAGE)."""
    if (request.to is None) != request.from_group:
        raise usage(
            "give one of --to and --from-group",
            "--to earliest, latest, an offset or a time; --from-group: what the consumer group's offsets are",
        )
    if request.to is None:
        return To.GROUP
    text = request.to.strip()
    if text.lower() in (To.EARLIEST.value, To.LATEST.value):
        return To(text.lower())
    if text.isascii() and text.isdigit():
        return ToOffset(int(text))
    from millrace_api.times import timestamp_ms

    try:
        return ToTime(timestamp_ms(text))
    except ValueError:
        raise usage(
            f"{text!r} is no position",
            "give earliest, latest, an offset, or a time with its zone such as 2026-01-31T00:00:00Z",
            "--to",
        ) from None


def parse_partitions(text: str | None, there: range) -> list[int]:
    """`0,3-5`; None: all. Raises MillraceError (USAGE) for what is no list or is not there."""
    if text is None:
        return list(there)
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,9})(?:\s*-\s*(\d{1,9}))?\s*", part)
        if match is None:
            raise usage(f"{text!r} names no partitions", "give them as in 0,3-5", "--partitions")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last not in there:
            known = f"there are {shorten(there)}" if there else "there are none yet"
            raise usage(f"partitions {part.strip()} are not there", f"{known}", "--partitions")
        found.update(range(first, last + 1))
    return sorted(found)


def usage(what: str, remedy: str, where: str = "") -> MillraceError:
    return MillraceError(what, where=where, remedy=remedy, code=ExitCode.USAGE)
