"""Between bytes and values: decoding at the head of a chain, encoding before `produce`.

Formats, in both directions; None is a record without a value (a tombstone) in all three:

json    any JSON, RFC 8259, by msgspec. Encoding also takes what msgspec does: datetime (ISO 8601), date, UUID, Decimal
        (as string), dataclasses, structs, enums, sets; bytes as base64. NaN and infinities become null, for JSON has
        none; what is read as JSON never has them. The value None makes a tombstone, and so does the JSON text `null`
        when it is passed on unchanged.
string  str, as UTF-8.
bytes   bytes as they are; encoding also takes bytearray and memoryview.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import msgspec

from millrace.connectivity.ports import Record
from millrace.engine.batch import Batch
from millrace.message import Invalid
from millrace.strategies.addressing import Address, Addressed
from millrace.strategies.each import Outcome, as_they_are, attempt, conclude
from millrace.strategies.judge import Judge

Format = Literal["json", "string", "bytes"]

DECODE_STAGE = (
    "decode"  # the name by which dead letters, errors and figures call the reading of the source's format
)


class Beside(msgspec.Struct, frozen=True, gc=False):
    """What a produce stage writes for a value, and what a stage after it is to have."""

    output: bytes | Addressed | None
    kept: object


@dataclass(frozen=True, slots=True)
class Decode:
    """Make values of the records of a batch as the engine submits it. An undecodable one is Invalid, with the position
    of the fault as far as the decoder tells it.
    """

    format: Format
    judge: Judge

    def __call__(self, batch: Batch) -> Outcome:
        records = batch.records
        if not records:
            return Outcome(batch)
        raw: list[bytes | None] = list(map(type(records[0]).value, records))
        if self.format == "bytes":
            return Outcome(_with(batch, raw))
        decode = _json_decode if self.format == "json" else _string_decode
        try:
            return Outcome(_with(batch, list(map(decode, raw))))
        except Exception:  # noqa: BLE001 - a tombstone or a fault: once more, one by one, to tell which
            made = attempt(map(partial(_decoded, decode, self.format), raw), records, self.judge.judge)
        return conclude(batch, made, as_they_are)


@dataclass(frozen=True, slots=True)
class Encode:
    """Make bytes of the values of a batch. What can't be encoded is Invalid, and so is what is larger than a producer
    takes: `limit` bytes of key and value together (librdkafka's message.max.bytes). With `address` the results are
    `Addressed`. With `keep` they are `Beside`: a stage comes after `produce` that needs the value itself.
    """

    format: Format
    judge: Judge
    limit: int = 1_000_000
    keep: bool = False
    address: Address | None = None

    def __call__(self, batch: Batch) -> Outcome:
        if self.address is None and (encoded := _all_encoded(self.format, self.limit, batch)) is not None:
            kept = list(map(Beside, encoded, batch.values)) if self.keep else encoded
            return Outcome(_with(batch, kept))
        encode: _Encoding = partial(_encoded, _ENCODERS[self.format], self.limit)
        if self.address is not None:
            encode = partial(_addressed, _ENCODERS[self.format], self.limit, self.address)
        if self.keep:
            encode = partial(_kept, encode)
        made = attempt(map(encode, batch.values, batch.records), batch.records, self.judge.judge)
        return conclude(batch, made, as_they_are)


def _with(batch: Batch, values: Sequence[object]) -> Batch:
    return Batch(batch.partition, batch.start, batch.end, batch.source, batch.records, values, batch.dead)


# They raise TypeError for None, which sends a batch with a tombstone the careful way.
_json_decode: Callable[[bytes | None], object] = msgspec.json.Decoder().decode  # type: ignore[assignment]
_string_decode: Callable[[bytes | None], object] = bytes.decode  # type: ignore[assignment]


def _decoded(decode: Callable[[bytes | None], object], name: Format, raw: bytes | None) -> object:
    if raw is None:
        return None
    try:
        return decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"not {'JSON' if name == 'json' else 'UTF-8'}: {error}") from error


def _all_encoded(form: Format, limit: int, batch: Batch) -> Sequence[bytes] | None:
    """The values of a batch without a call of ours for each; None: there are some to be looked at one by one."""
    records, values = batch.records, batch.values
    kinds = set(map(type, values))
    encode = _json_encode if form == "json" and type(None) not in kinds else None
    if form != "json" and len(kinds) == 1:
        encode = _QUICK.get((form, kinds.pop()))
    if encode is None or not values:
        return None
    try:
        encoded = list(map(encode, values))
    except Exception:  # noqa: BLE001 - once more, one by one, to tell which
        return None
    keys = filter(None, map(type(records[0]).key, records))
    if max(map(len, encoded)) + max(map(len, keys), default=0) > limit:
        return None
    return encoded


_Encoding = Callable[[object, Record], object]


def _encoded(encode: Callable[[object], bytes], limit: int, value: object, record: Record) -> bytes | None:
    return _sized(encode, limit, value, len(record.key() or b""))


def _addressed(
    encode: Callable[[object], bytes], limit: int, address: Address, value: object, record: Record
) -> Addressed:
    found = address.of(value, record)
    return msgspec.structs.replace(found, value=_sized(encode, limit, value, found.size))


def _sized(encode: Callable[[object], bytes], limit: int, value: object, beside: int) -> bytes | None:
    if value is None:
        return None
    try:
        encoded = encode(value)
    except Exception as error:
        raise Invalid(f"a value of type {type(value).__name__} can't be encoded: {error}") from error
    if len(encoded) + beside > limit:
        raise Invalid(f"too large to produce: {len(encoded)} bytes, at most {limit} are taken with the key")
    return encoded


def _kept(encode: _Encoding, value: object, record: Record) -> Beside:
    return Beside(encode(value, record), value)  # type: ignore[arg-type]


def _encode_string(value: object) -> bytes:
    if not isinstance(value, str):
        raise TypeError("format string takes str")
    return value.encode()


def _encode_bytes(value: object) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError("format bytes takes bytes")
    return bytes(value)


_json_encode: Callable[[object], bytes] = msgspec.json.Encoder().encode
_QUICK: dict[tuple[Format, type], Callable[[object], bytes]] = {
    ("string", str): str.encode,  # type: ignore[dict-item]
    ("bytes", bytes): bytes,  # type: ignore[dict-item]
}
_ENCODERS: dict[Format, Callable[[object], bytes]] = {
    "json": _json_encode,
    "string": _encode_string,
    "bytes": _encode_bytes,
}
