"""Figures and times as people read them, in few characters."""

from __future__ import annotations

from datetime import UTC, datetime


def count(number: float) -> str:
    """1234567 -> `1,234,567`."""
    return f"{number:,.0f}"


def short(number: float) -> str:
    """At most four characters: 950, 9.5k, 95k, 950k, 9.5M ..., for where there is little room."""
    for unit in ("", "k", "M", "G"):
        if number < 999.5:
            return f"{number:.1f}{unit}" if unit and number < 9.95 else f"{number:.0f}{unit}"
        number /= 1000
    return f"{number:.0f}T"


def span(seconds: float) -> str:
    """0:00:07, 1:02:03, and `3d 4:05:06` beyond a day."""
    whole = max(0, round(seconds))
    days, rest = divmod(whole, 86_400)
    clock = f"{rest // 3600}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}d {clock}" if days else clock


def moment(micros: int) -> str:
    """A time in microseconds since the Unix epoch, to the minute; beyond the year 9998 it means that all has ended."""
    if micros >= 253_370_764_800_000_000:
        return "the end"
    return f"{datetime.fromtimestamp(micros // 1_000_000, UTC):%Y-%m-%d %H:%M}"


def percent(fraction: float) -> str:
    """Never says 100 % before it is all done."""
    if fraction >= 1:
        return "100 %"
    return f"{min(fraction * 100, 99.9):.1f} %" if fraction > 0.99 else f"{fraction * 100:.0f} %"


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
