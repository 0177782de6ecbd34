"""Reading much of a cluster at once: many topics, many groups, for those who watch over many pipelines.

Each thing that is asked about has its own answer, or the error that concerns it alone: a topic that somebody may not
see, a group whose coordinator is away. A method raises only what concerns all, as `Admin` does: BrokerUnreachable,
TimedOut, AuthenticationFailed. Nothing here is stable (KIP-447): it is good for lag, for status, and for deciding what
to try, never for deciding who owns a partition.

How many requests that takes depends on the brokers: one for all topics, one to each leader for offsets of logs, one to
each coordinator for those of groups (KIP-709), one to each broker for members.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from millrace.connectivity.ports import KafkaError, OffsetAndMetadata, TopicDescription

At = Literal["beginning", "end", "stable end"] | int
"""Which offset of a log. "stable end": the last stable offset, where a read_committed reader stops; a number: the first
offset at or after this time in milliseconds since the Unix epoch, or the stable end where there is none."""


@dataclass(frozen=True, slots=True)
class Spots:
    """An offset in each of the first `partitions` partitions of a topic."""

    topic: str
    partitions: int
    at: At


@dataclass(frozen=True, slots=True)
class Progress:
    """What a group has committed of the first `partitions` partitions of a topic."""

    group: str
    topic: str
    partitions: int


class Survey(Protocol):
    """One thread uses it. `timeout` in seconds, of the whole call."""

    def topics(
        self, names: Collection[str], timeout: float
    ) -> Mapping[str, TopicDescription | KafkaError | None]:
        """None where there is no such topic."""

    def offsets(
        self, asked: Collection[Spots], timeout: float
    ) -> Mapping[Spots, Mapping[int, int] | KafkaError]:
        """By partition. TopicMissing is the answer for a topic, or a partition, that is not there."""

    def committed(
        self, asked: Collection[Progress], timeout: float
    ) -> Mapping[Progress, Mapping[int, OffsetAndMetadata] | KafkaError]:
        """By partition; one without a commit is absent."""

    def members(self, groups: Collection[str], timeout: float) -> Mapping[str, Sequence[str] | KafkaError]:
        """Client ids of who is subscribed. A group that we may not see has none."""

    def close(self) -> None: ...
