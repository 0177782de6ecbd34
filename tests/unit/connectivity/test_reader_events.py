"""What librdkafka hands out among messages, and what the consumer makes of it; no broker is needed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError as Native

from millrace.connectivity.confluent.errors import Connection
from millrace.connectivity.confluent.reader import ConfluentConsumer
from millrace.connectivity.ports import OffsetOutOfRange

pytestmark = pytest.mark.unit


class Event:
    """A message that is an error."""

    def __init__(self, code: int, partition: int, offset: int) -> None:
        self._error, self._partition, self._offset = Native(code), partition, offset

    def error(self) -> Native:
        return self._error

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset


@pytest.fixture
def consumer() -> Iterator[ConfluentConsumer]:
    made = ConfluentConsumer(
        {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}, "t", Connection("127.0.0.1:1", "nobody")
    )
    yield made
    made.close()


def test_a_partition_that_a_broker_has_not_heard_of_yet_is_waited_for(consumer: ConfluentConsumer) -> None:
    """It was added a moment ago; the admin client's broker knew it, the consumer's does not yet."""
    assert consumer._without_events([Event(Native._UNKNOWN_PARTITION, 3, -1001)]) == []  # type: ignore[list-item]
    assert consumer._failure is None


def test_a_position_outside_the_log_is_an_error(consumer: ConfluentConsumer) -> None:
    with pytest.raises(OffsetOutOfRange):
        consumer._without_events([Event(Native._AUTO_OFFSET_RESET, 3, 17)])  # type: ignore[list-item]
