"""The topics a pipeline needs: there, or created if the manifest says so, or an error that says what to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from millrace.clock import Deadline
from millrace.connectivity.ports import Admin, TopicExists, TopicMissing


class Wanted(Protocol):
    """A topic, the path of the manifest that names it, and how many partitions to create it with (None: don't)."""

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def partitions(self) -> int | None: ...


def ensure_channel(
    admin: Admin, channel: str, partitions: int, deadline: Deadline, notice: Callable[[str, str], None]
) -> None:
    """See that the channel is there, with as many partitions as its source. Nothing in it is ever too old: its reader
    says what may be deleted. Its timestamps are the broker's, so that they tell how long a record has waited.

    Raises: what the admin client raises.
    """
    described = admin.describe_topic(channel, deadline.remaining())
    if described is None:
        keep = {
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "message.timestamp.type": "LogAppendTime",
        }
        with suppress(TopicExists):
            admin.create_topic(channel, partitions, deadline.remaining(), keep)
            notice(f"topic {channel} created with {partitions} partitions", "info")
    elif described.partitions < partitions:
        admin.create_partitions(channel, partitions, deadline.remaining())
        notice(f"topic {channel} has {partitions} partitions now", "info")


def ensure(
    admin: Admin, topics: Sequence[Wanted], deadline: Deadline, notice: Callable[[str, str], None]
) -> None:
    """See that each topic is there; create those that may be created, if none is missing that may not.

    Raises: TopicMissing, which names all of them, and what the admin client raises.
    """
    found = [(topic, admin.describe_topic(topic.name, deadline.remaining())) for topic in topics]
    absent = [topic for topic, described in found if described is None and topic.partitions is None]
    if absent:
        raise missing(absent)
    for topic, described in found:
        if described is not None:
            if topic.partitions is not None and described.partitions != topic.partitions:
                notice(
                    f"topic {topic.name} has {plural(described.partitions, 'partition')} and is left so "
                    f"({topic.path}.create says {topic.partitions})",
                    "info",
                )
            continue
        assert topic.partitions is not None
        try:
            admin.create_topic(topic.name, topic.partitions, deadline.remaining())
        except TopicExists:
            continue  # somebody else was faster
        notice(f"topic {topic.name} created with {plural(topic.partitions, 'partition')}", "info")


def no_source(topic: str) -> TopicMissing:
    return TopicMissing(
        f"topic {topic} does not exist",
        where="spec.source.topic",
        remedy="create it, or add spec.source.create to have it created",
    )


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def missing(topics: Sequence[Wanted]) -> TopicMissing:
    """That these are not there and may not be made."""
    names, paths = ", ".join(t.name for t in topics), " and ".join(t.path for t in topics)
    what = f"topic {names} does not exist" if len(topics) == 1 else f"topics {names} do not exist"
    it = "it" if len(topics) == 1 else "them"
    return TopicMissing(
        what,
        where=", ".join(f"{t.path}.topic" for t in topics),
        remedy=f"create {it}, or add `create: {{partitions: N}}` to {paths} to have {it} created; --kafka says on which broker",
    )
