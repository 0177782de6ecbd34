"""--kafka or --state: the broker that the scripts of this folder talk to."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from millrace.local.broker.embedded import EmbeddedBroker


@contextmanager
def kafka_of(parser: argparse.ArgumentParser) -> Iterator[tuple[argparse.Namespace, str]]:
    """The parsed options and HOST:PORT. With --state, the embedded broker of that state directory runs meanwhile."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--kafka", metavar="HOST:PORT", help="a broker that runs")
    where.add_argument(
        "--state", metavar="DIR", type=Path, help="the state directory of a local run that is not running"
    )
    options = parser.parse_args()
    if options.kafka:
        yield options, options.kafka
        return
    with EmbeddedBroker(options.state / "broker") as broker:
        yield options, broker.bootstrap
