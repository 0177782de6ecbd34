"""Each record to the partition of the same number, so that the copy has the order of the source."""

from __future__ import annotations

import millrace


def same_partition(_: bytes | None, message: millrace.Message) -> int:
    return message.partition
