"""How far the pipeline has come, as its consumer group says: Kafka's own tools see no more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from confluent_kafka import Consumer, KafkaException, TopicPartition


class Progress:
    """Committed offsets of a consumer group."""

    def __init__(self, bootstrap: str, group: str, topic: str, partitions: int) -> None:
        # a consumer that only asks; the admin client of librdkafka can't bear that the broker restarts (its issue 5040)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "isolation.level": "read_uncommitted",
                "log_level": 0,
            }
        )
        self._asked = [TopicPartition(topic, number) for number in range(partitions)]
        self._last = [0] * partitions

    def committed(self) -> Sequence[int]:
        """By partition; 0 where there is none yet, the last known ones while the broker is away."""
        try:
            found = self._consumer.committed(self._asked, 0.5)
        except KafkaException:
            return self._last
        self._last = [max(last, offset.offset) for last, offset in zip(self._last, found, strict=True)]
        return self._last

    def close(self) -> None:
        self._consumer.close()


def total(offsets: Sequence[int], partitions: Iterable[int]) -> int:
    """Messages of these partitions below the offsets: the topic has no gaps."""
    return sum(offsets[partition] for partition in partitions)
