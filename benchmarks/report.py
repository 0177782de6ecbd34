"""The result of a benchmark: a table for people, `build/bench/NAME.json` for programs.

The file: {"machine": {...}, "versions": {...}, "figures": [{"case", "figure", "value", "unit", "peers": {name: value},
"ratio", "target", "met"}]}. `ratio` is value over the best peer's, `target` the ratio aimed at.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path

import confluent_kafka
import psutil
from rich.console import Console
from rich.table import Table

BENCH = Path(__file__).parent.parent / "build" / "bench"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure beside the same of its peers; lower is better."""

    case: str
    figure: str
    value: float
    unit: str
    peers: Mapping[str, float] = field(default_factory=dict)
    ratio: float | None = None
    target: float | None = None
    met: bool | None = None


def compared(
    case: str, figure: str, value: float, unit: str, peers: Mapping[str, float], target: float
) -> Figure:
    """A figure that is to stay within `target` times the best peer's."""
    ratio = value / min(peers.values())
    rounded = {name: round(peer, 3) for name, peer in peers.items()}
    return Figure(case, figure, round(value, 3), unit, rounded, round(ratio, 3), target, ratio <= target)


def publish(
    name: str,
    figures: Sequence[Figure],
    notes: Mapping[str, object],
    versions: Mapping[str, str] | None = None,
) -> None:
    """Print the table and write the file. versions: of what else was measured, beside those of the Kafka client."""
    report = {
        "machine": {
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
            "system": platform.platform(),
            "load_at_end": round(os.getloadavg()[0], 2),
        },
        "versions": {
            "python": platform.python_version(),
            "confluent-kafka": version("confluent-kafka"),
            "librdkafka": confluent_kafka.libversion()[0],
            "msgspec": version("msgspec"),
            **(versions or {}),
        },
        "notes": dict(notes),
        "figures": [asdict(figure) for figure in figures],
    }
    BENCH.mkdir(parents=True, exist_ok=True)
    path = BENCH / f"{name}.json"
    path.write_text(json.dumps(report, indent=2) + "\n")
    table = Table(title=f"bench-{name}")
    for column in ("case", "figure", "value", "peers", "ratio", "target"):
        table.add_column(column)
    for f in figures:
        peers = ", ".join(f"{peer} {value:g}" for peer, value in f.peers.items())
        ratio = "" if f.ratio is None else f"{f.ratio:.2f}"
        target = "" if f.target is None else f"<= {f.target:g} {'met' if f.met else 'MISSED'}"
        table.add_row(f.case, f.figure, f"{f.value:g} {f.unit}", peers, ratio, target)
    Console().print(table)
    Console().print(f"written to {path}", highlight=False)


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
