"""Durations as Go writes them and times as RFC 3339 has them, as numbers."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

_UNITS: Final = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|ms|s|m|h)")
_FRACTION: Final = re.compile(r"\.[0-9]+")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def duration_seconds(text: str) -> float:
    """Seconds of a duration such as `500ms` or `1h30m`.

    Raises:
        ValueError: it is not one.
    """
    return float(exact_seconds(text))


def exact_seconds(text: str) -> Decimal:
    """The same without rounding, for what has to divide.

    Raises:
        ValueError: it is not one.
    """
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"not a duration: {text!r}")
    return sum((Decimal(number) * _UNITS[unit] for number, unit in parts), Decimal(0))


def timestamp_ms(text: str) -> int:
    """Milliseconds since the Unix epoch of an RFC 3339 time; finer digits are cut off.

    Raises:
        ValueError: it is not one, or there is no such day.
    """
    micros = _FRACTION.sub(lambda match: match.group()[:7].ljust(7, "0"), text)
    moment = datetime.fromisoformat(micros)
    if moment.tzinfo is None:
        raise ValueError(f"a time without its zone: {text!r}")
    return (moment - _EPOCH) // (_EPOCH.resolution * 1000)
