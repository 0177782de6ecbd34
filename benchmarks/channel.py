"""What a row of a channel costs: CPU of checking and encoding the flights' scored record, beside encoding it unchecked,
and of telling whether it is late.

`make bench-channel` prints the table and writes build/bench/channel.json.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parent))
from report import Figure, publish

from millrace.channel.lateness import Lateness, rule
from millrace.channel.progress import Progress
from millrace.channel.schema import RowEncoder
from millrace.channel.wire import row_headers
from millrace.ownership.provenance import origin_header
from millrace_api.ddl import parse_columns

DEMO = "carrier string, scheduled timestamp, delay double"
WHOLE = (
    "carrier string, flight int, origin string, destination string, scheduled timestamp, hour timestamp, delay double, "
    "departure_delay double, made_up double, speed double, grade string, temperature double, wind double, rain double, "
    "visibility double, source_partition int, source_offset bigint"
)
RECORDS = 20_000
BATCH = 500
ROUNDS = 3 if os.environ.get("QUICK", "") not in ("", "0") else 15


def main() -> None:
    # 900 flights a day; a time comes twice in a day now and then
    minutes = _scored(lambda n: f"2013-01-{n // 900 + 1:02}T{n % 18 + 5:02}:{n * 7 % 60:02}:00Z")
    micros = _scored(lambda n: f"2013-01-01T{n // 3600 % 24:02}:{n // 60 % 60:02}:{n % 60:02}.{n:06}Z")
    unchecked = _cpu(msgspec.json.Encoder().encode, minutes)
    figures = []
    for case, ddl, records in (
        ("3 columns, times to the minute", DEMO, minutes),
        ("17 columns, times to the minute", WHOLE, minutes),
        ("3 columns, to the microsecond", DEMO, micros),
    ):
        cpu = _cpu(RowEncoder(parse_columns(ddl), "scheduled"), records)
        peers = {"msgspec, the whole record unchecked": round(unchecked, 3)}
        figures.append(Figure(case, "check and encode", round(cpu, 3), "us CPU per row", peers))
    headers = _cpu(lambda _: row_headers(1_357_036_800_000_000, origin_header("uid-1", 7, 123_456)), minutes)
    figures.append(Figure("headers", "encode", round(headers, 3), "us CPU per row"))
    for case, times in (
        ("times in order", [n * 1_000_000 for n in range(RECORDS)]),
        ("times within the lateness", [(n - n * 7 % 60) * 1_000_000 for n in range(RECORDS)]),
        (
            "a backlog of days in each batch",
            [n * 600_000_000 - n * 7 % 60 * 10_000_000 for n in range(RECORDS)],
        ),
        ("1 in 100 is late", [(n - (100_000 if n % 100 == 99 else 0)) * 1_000_000 for n in range(RECORDS)]),
        ("all but the first are late", [10**12, *range(1, RECORDS)]),
    ):
        figures.append(Figure(case, "late or not", round(_ruling(times), 4), "us CPU per row"))
    publish("channel", figures, {"records": RECORDS, "rounds": ROUNDS, "value": "best of the rounds"})


def _cpu(work: Callable[[object], object], records: list[dict[str, object]]) -> float:
    """Microseconds of CPU per record."""
    best = float("inf")
    for _ in itertools.repeat(None, ROUNDS):
        began = time.process_time()
        for record in records:
            work(record)
        best = min(best, time.process_time() - began)
    return best / len(records) * 1e6


def _ruling(times: list[int]) -> float:
    """Microseconds of CPU per row, in batches of 500, as `collect_rows` does it: ruled on, then complete."""
    rows = [(b"", time) for time in times]
    lateness, best = Lateness(86_400_000_000), float("inf")
    for _ in itertools.repeat(None, ROUNDS):
        progress, began = Progress(), time.process_time()
        for start in range(0, RECORDS, BATCH):
            batch = list(map(itemgetter(1), rows[start : start + BATCH]))
            ruling = rule(progress.latest(0), batch, lateness, range(start, start + BATCH))
            progress.ruled(0, start, start + BATCH, (), batch, ruling, 0.0)
            progress.complete(0, start, start + BATCH)
        best = min(best, time.process_time() - began)
    return best / RECORDS * 1e6


def _scored(scheduled: Callable[[int], str]) -> list[dict[str, object]]:
    """Records as the flights' score function makes them."""
    return [
        {
            "carrier": "AA",
            "flight": n,
            "origin": "JFK",
            "destination": "MIA",
            "scheduled": scheduled(n),
            "hour": scheduled(n)[:14] + "00:00Z",
            "delay": n % 90 - 20,
            "departure_delay": n % 70 - 10,
            "made_up": n % 30 - 15,
            "speed": 400.0 + n % 100 / 7,
            "grade": "on time",
            "temperature": 39.02,
            "wind": 12.65858,
            "rain": 0.0,
            "visibility": 10.0,
            "source_partition": n % 12,
            "source_offset": n,
        }
        for n in range(RECORDS)
    ]


if __name__ == "__main__":
    main()
