"""Where an output goes and what it carries, as a produce stage's key, headers and partitioner say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from millrace.connectivity.ports import Record
from millrace.message import Invalid
from millrace.strategies.keys import KeyOf, Taking, key_bytes

MOST_PARTITIONS = 1 << 31  # a partition is an int32


class Addressed(msgspec.Struct, frozen=True, gc=False):
    """An encoded value with what is else of its record."""

    value: bytes | None
    key: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int

    @property
    def size(self) -> int:
        """Bytes of key and headers."""
        return len(self.key or b"") + sum(len(name) + len(value or b"") for name, value in self.headers)


@dataclass(frozen=True, slots=True)
class Address:
    """What differs from the source record.

    Attributes:
        key: None: the source record's.
        headers: come after those of the source record, in the place of equal names; one whose value is None is left out.
        partition: its number; None: by murmur2 of the key, as everywhere.
    """

    key: KeyOf | None = None
    headers: Sequence[tuple[str, Taking]] = ()
    partition: Taking | None = None

    def of(self, value: object, record: Record) -> Addressed:
        """Without a value yet. Raises Invalid, and what user code raises."""
        key = record.key() if self.key is None else self.key(value, record)
        headers = list(record.headers() or ())
        if self.headers:
            names = {name for name, _ in self.headers}
            headers = [header for header in headers if header[0] not in names]
            for name, taking in self.headers:
                text = key_bytes(taking(value, record))
                if text is not None:
                    headers.append((name, text))
        return Addressed(None, key, headers, self._partition(value, record))

    def _partition(self, value: object, record: Record) -> int:
        if self.partition is None:
            return -1
        number = self.partition(value, record)
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < MOST_PARTITIONS:
            raise Invalid(f"the partitioner gave {number!r:.80}, not the number of a partition")
        return number
