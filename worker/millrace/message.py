"""What a stage function sees of Millrace: `Message`, if it asks for it, and `Invalid`, if it has to."""

from __future__ import annotations

import msgspec


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message, for stage functions with a second parameter.

    Attributes:
        value: as this stage gets it: decoded, and changed by the stages before. The function's first parameter.
        key, headers: as in the source record; headers keep their order and may repeat.
        timestamp: milliseconds since the Unix epoch; None if the record has none.
        partition, offset: where the source record lies.

    Of a value that a batch or reduce stage has made of several messages: the key reduced by (None of a batch), no headers,
    the latest timestamp, and the place of the first message.
    """

    value: object
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int | None
    partition: int
    offset: int


class Invalid(Exception):
    """Raised by a stage function: this message can't be processed, and it never will. It becomes a dead letter with the
    text as reason; without `deadLetter` in the manifest the worker stops.
    """
