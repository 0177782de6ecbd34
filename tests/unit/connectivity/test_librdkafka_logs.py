"""While a broker is away, its clients say so now and then and not at each attempt."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from millrace.clock import VirtualClock
from millrace.connectivity.confluent.logs import OncePerPause

pytestmark = pytest.mark.unit

REFUSED = "127.0.0.1:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused"


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def lines() -> Lines:
    return Lines()


@pytest.fixture
def logger(clock: VirtualClock, lines: Lines) -> Iterator[logging.Logger]:
    logger = logging.getLogger("test.librdkafka")
    logger.propagate = False
    gate = OncePerPause(clock)
    logger.addFilter(gate)
    logger.addHandler(lines)
    yield logger
    logger.removeFilter(gate)
    logger.removeHandler(lines)


def say(logger: logging.Logger, facility: str, client: str, text: str) -> None:
    """As confluent-kafka does."""
    logger.log(logging.ERROR, "%s [%s] %s", facility, client, text)


def test_a_client_complains_once_a_minute(logger: logging.Logger, lines: Lines, clock: VirtualClock) -> None:
    for _ in range(240):
        say(logger, "FAIL", "op#producer-1", REFUSED)
        clock.advance(0.5)
    assert lines.said == [
        f"FAIL [op#producer-1] {REFUSED}",
        f"FAIL [op#producer-1] {REFUSED} (and 119 such lines in 60 s)",
    ]


def test_clients_have_a_voice_each_and_other_news_is_not_held_back(
    logger: logging.Logger, lines: Lines
) -> None:
    for client in ("op#producer-1", "op#consumer-2"):
        for facility in ("FAIL", "ERROR", "FETCHERR"):
            say(logger, facility, client, "x")
    logger.warning("something of ours")
    assert lines.said == [
        "FAIL [op#producer-1] x",
        "FETCHERR [op#producer-1] x",
        "FAIL [op#consumer-2] x",
        "FETCHERR [op#consumer-2] x",
        "something of ours",
    ]
