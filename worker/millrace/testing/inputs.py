"""What a harness is fed with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from millrace.connectivity.memory.log import Draft
from millrace.connectivity.partitioner import partition_of
from millrace.errors import ExitCode, MillraceError


@dataclass(frozen=True, slots=True)
class Input:
    """A message with more than its value.

    Attributes:
        value: as in `PipelineHarness.feed`.
        key: text is sent as UTF-8.
        headers: text is sent as UTF-8.
        timestamp: milliseconds since the Unix epoch; None: the time on the harness's clock.
        partition: None: as `feed` says.
    """

    value: object
    key: bytes | str | None = None
    headers: Mapping[str, bytes | str | None] = field(default_factory=dict)
    timestamp: int | None = None
    partition: int | None = None


def draft(message: object, topic: str, form: str, partition: int | None, partitions: int) -> Draft:
    """The record that is written for a message. Raises MillraceError for a value that the format has no bytes for."""
    given = message if isinstance(message, Input) else Input(message)
    key = _bytes(given.key)
    at = given.partition if given.partition is not None else partition
    if at is None:
        at = 0 if key is None else partition_of(key, partitions)
    if not 0 <= at < partitions:
        raise MillraceError(
            f"topic {topic} has {partitions} partitions, and none of number {at}",
            where="PipelineHarness.feed",
            remedy="give PipelineHarness.of(..., partitions=N), or source.create.partitions in the manifest",
            code=ExitCode.USAGE,
        )
    headers = tuple((name, _bytes(value)) for name, value in given.headers.items())
    return Draft(topic, _encoded(given.value, form), key, headers or None, at, given.timestamp or 0)


def _encoded(value: object, form: str) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if form == "string" and isinstance(value, str):
        return value.encode()
    if form == "json":
        try:
            return msgspec.json.encode(value)
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise _no_message(value, form, str(error)) from error
    raise _no_message(value, form, f"it takes {'str' if form == 'string' else 'bytes'}")


def _no_message(value: object, form: str, why: str) -> MillraceError:
    return MillraceError(
        f"a value of type {type(value).__name__} can't be fed to a source of format {form}: {why}",
        where="PipelineHarness.feed",
        remedy="give a value of that format, or the bytes that are to be in the topic",
        code=ExitCode.USAGE,
    )


def _bytes(text: bytes | str | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text
