"""Compares what the collector wrote, as any reader of Parquet finds it, with groups computed by pandas."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from comparing import SHOWN

KEYS = ["carrier", "hour"]
EXACT = ["flights", "known", "total", "least", "most"]
AVERAGE = "average"
TOLERANCE = 1e-9  # relative, of an average: Spark and pandas may divide in another order


@dataclass
class GroupComparison:
    """How many groups of each kind there are, and flights in all of them; `examples` has the first differences."""

    expected: int
    found: int
    expected_flights: int
    flights: int
    missing: int = 0
    doubled: int = 0
    changed: int = 0
    unexpected: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        differences = self.missing + self.doubled + self.changed + self.unexpected
        return differences == 0 and self.expected == self.found and self.expected_flights == self.flights


def found_groups(path: Path) -> pd.DataFrame:
    """All rows of all batches. Read with pyarrow: Spark might know what to overlook."""
    from pyarrow import dataset

    table = dataset.dataset(path, format="parquet", partitioning="hive").to_table().to_pandas()
    hours = pd.to_datetime(table["window_start"], utc=True)
    return table.assign(hour=hours)[[*KEYS, *EXACT, AVERAGE]]


def expected_groups(flown: pd.DataFrame) -> pd.DataFrame:
    """flown: a row for each flight that was scored, with carrier, hour (UTC) and delay (NaN: not known)."""
    grouped = flown.groupby(KEYS)["delay"]
    sums = grouped.sum(min_count=1)  # of nothing there is no sum
    return pd.DataFrame(
        {
            "flights": grouped.size(),
            "known": grouped.count(),
            "total": sums,
            "least": grouped.min(),
            "most": grouped.max(),
            AVERAGE: grouped.mean(),
        }
    ).reset_index()


def compare_groups(expected: pd.DataFrame, found: pd.DataFrame) -> GroupComparison:
    """As many groups, none twice, equal in every column: averages within TOLERANCE, the others exactly."""
    result = GroupComparison(
        len(expected), len(found), int(expected["flights"].sum()), int(found["flights"].sum())
    )
    doubled = found.duplicated(KEYS)
    result.doubled = int(doubled.sum())
    both = expected.merge(found[~doubled], how="outer", on=KEYS, suffixes=("", "_found"), indicator=True)
    missing, unexpected = both["_merge"] == "left_only", both["_merge"] == "right_only"
    result.missing, result.unexpected = int(missing.sum()), int(unexpected.sum())
    pairs = both[both["_merge"] == "both"]
    changed = pd.Series(False, index=pairs.index)
    for name in [*EXACT, AVERAGE]:
        should, is_ = pairs[name], pairs[f"{name}_found"]
        allowed = TOLERANCE * should.abs() if name == AVERAGE else 0
        changed |= ~(((should - is_).abs() <= allowed) | (should.isna() & is_.isna()))
    result.changed = int(changed.sum())
    for what, rows in (
        ("twice", found[doubled]),
        ("missing", both[missing]),
        ("unexpected", both[unexpected]),
        ("changed", pairs[changed]),
    ):
        result.examples += [
            f"{what}: {row.dropna().to_dict()}" for _, row in rows.head(SHOWN // 4).iterrows()
        ]
    return result
