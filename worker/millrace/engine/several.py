"""What stands in for the source record of a value that was made of several messages, by a batch or reduce stage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from millrace.connectivity.ports import Record


class Several:
    """A Record. Values that were made together (all keys of a reduce, say) have equal members and so the same offset:
    like the values that a flatMap makes of one message they are processed together, or become dead letters together.

    Attributes:
        members: the source records, in offset order, each once; at least one.
        end: the offset up to which the values answer for messages. Nothing may be cut within `offset()`..`end`: some of
            the members' effects would count without their offsets, or the other way round.
    """

    __slots__ = ("_headers", "_key", "_timestamp", "end", "members")

    def __init__(
        self,
        members: Sequence[Record],
        end: int,
        key: bytes | None = None,
        headers: list[tuple[str, bytes | None]] | None = None,
    ) -> None:
        self.members, self.end, self._key, self._headers = members, end, key, headers
        self._timestamp: tuple[int, int] | None = None

    def topic(self) -> str:
        return self.members[0].topic()

    def partition(self) -> int:
        return self.members[0].partition()

    def offset(self) -> int:
        """That of the first message."""
        return self.members[0].offset()

    def key(self) -> bytes | None:
        """The key of a reduce; None where there is none."""
        return self._key

    def value(self) -> bytes | None:
        """None: it has no bytes of its own."""
        return None

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """The context of its making, if traces are made; no others."""
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        """The latest of its messages'."""
        if self._timestamp is None:
            self._timestamp = max(
                (known for known in (member.timestamp() for member in self.members) if known[0]),
                key=lambda known: known[1],
                default=(0, -1),
            )
        return self._timestamp


def members_of(records: Iterable[Record]) -> list[Record]:
    """The source records behind the records of some values, in their order, each once."""
    found: list[Record] = []
    before: Record | None = None
    for record in records:
        if before is not None and record.offset() == before.offset():
            continue  # another value of the same message, or of the same several
        before = record
        if isinstance(record, Several):
            found.extend(record.members)
        else:
            found.append(record)
    return found
