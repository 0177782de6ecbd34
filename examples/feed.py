"""Input for the examples: `python examples/feed.py orders|payments HOST:PORT [COUNT]`. The topic has to be there."""

from __future__ import annotations

import json
import sys

from confluent_kafka import Producer


def record(topic: str, number: int) -> str:
    """The n-th record; every 500th order is none."""
    if topic == "payments":
        return json.dumps({"payment": number, "cents": number * 7 % 10_000})
    customer = f"c{number % 17}" if number % 500 else None
    return json.dumps({"customer": customer, "cents": number * 7 % 10_000})


def feed(topic: str, bootstrap: str, count: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "partitioner": "murmur2_random",
            "linger.ms": 20,
            "enable.idempotence": True,
        }
    )
    for number in range(count):
        producer.produce(topic, record(topic, number), key=f"k{number % 101}")
        producer.poll(0)
    producer.flush()


if __name__ == "__main__":
    feed(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 10_000)
