"""Where a bounded run ends: for each source partition the offset at which it stops. A run is bounded by whoever starts it
(`millrace run --until-end`), which tells its workers by a file (`millrace worker --until FILE`). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec

from millrace.errors import ExitCode, MillraceError

_Number = Annotated[int, msgspec.Meta(ge=0)]


class BoundsError(MillraceError):
    """The text is not what `Bounds.encode` makes."""

    code = ExitCode.USAGE


@dataclass(frozen=True, slots=True)
class Bounds:
    """Attributes:
    ends: for each partition the first offset that is not processed any more. Of a partition that is not named (it
        came after the run had begun) nothing is processed.
    """

    ends: Mapping[int, int]

    def of(self, partition: int) -> int:
        return self.ends.get(partition, 0)

    def encode(self) -> str:
        return msgspec.json.encode({"ends": {str(p): self.ends[p] for p in sorted(self.ends)}}).decode()

    @classmethod
    def decode(cls, text: str, *, where: str = "") -> Bounds:
        """Raises BoundsError; `where` is the file, for its message."""
        try:
            found = msgspec.json.decode(text, type=_Wire)
        except msgspec.DecodeError as error:
            raise BoundsError(
                f"not the ends of a bounded run: {error}",
                where=where,
                remedy='it looks like {"ends": {"0": 1200, "1": 1187}}: offsets by partition',
            ) from error
        return cls(found.ends)


class _Wire(msgspec.Struct, forbid_unknown_fields=True):
    ends: dict[_Number, _Number]
