"""When a collector that does not run all the time is started."""

from __future__ import annotations

import pytest

from millrace.channel.backlog import Backlog, OnLag, due, look
from millrace.clock import VirtualClock
from millrace.connectivity.memory import MemoryBroker
from millrace.connectivity.ports import OffsetAndMetadata, Span

pytestmark = pytest.mark.unit


def backlog(
    *ends: int, read: dict[int, int] | None = None, aged: dict[int, int] | None = None, beginning: int = 0
) -> Backlog:
    return Backlog({p: Span(beginning, end) for p, end in enumerate(ends)}, read or {}, aged or {})


@pytest.mark.parametrize(
    ("trigger", "seen", "why"),
    [
        (OnLag(messages=10), backlog(4, 5), ""),
        (OnLag(messages=10), backlog(4, 6), "10 messages wait"),
        (OnLag(messages=10), backlog(14, 6, read={0: 10}), "10 messages wait"),
        (OnLag(messages=10), backlog(14, 6, read={0: 10, 1: 1}), ""),
        (OnLag(messages=10), backlog(20, beginning=11), ""),  # what was deleted does not wait
        (OnLag(messages=10), backlog(0, 0), ""),
        (OnLag(age=60.0), backlog(4, 5, aged={0: 0, 1: 0}), ""),
        (OnLag(age=60.0), backlog(4, 5, aged={0: 0, 1: 2}), "messages of partition 1 wait for 60 s or more"),
        (OnLag(age=60.0), backlog(4, 5, read={1: 2}, aged={0: 0, 1: 2}), ""),
        (OnLag(age=60.0), backlog(4, 5, read={0: 4, 1: 5}, aged={0: 4, 1: 5}), ""),
        (OnLag(100, 60.0), backlog(4, 5, aged={0: 1}), "messages of partition 0 wait for 60 s or more"),
        (OnLag(9, 60.0), backlog(4, 5, aged={0: 1}), "9 messages wait"),
    ],
)
def test_it_is_due(trigger: OnLag, seen: Backlog, why: str) -> None:
    assert due(trigger, seen) == why


def test_what_the_last_job_has_read_counts_though_it_is_not_committed_yet() -> None:
    assert due(OnLag(messages=1), backlog(4), {0: 4}) == ""
    assert due(OnLag(messages=1), backlog(4, read={0: 4}), {0: 2}) == ""
    assert due(OnLag(age=1.0), backlog(4, aged={0: 4}), {0: 4}) == ""


def test_it_is_seen_in_kafka_how_much_waits_and_since_when() -> None:
    clock = VirtualClock()
    broker = MemoryBroker(clock)
    cluster = broker.cluster(client_id="t")
    admin = cluster.admin()
    admin.create_topic("channel", 2, 1.0)
    producer = cluster.producer()
    for _ in range(3):
        producer.produce("channel", b"x", partition=1, timestamp_ms=int(clock.time() * 1000))
        producer.flush(1.0)
        clock.advance(10.0)
    admin.commit_offsets("g", "channel", {1: OffsetAndMetadata(1)}, 1.0)
    spans = admin.spans("channel", range(2), 1.0)

    def seen(age: float | None) -> Backlog:
        trigger = OnLag(2, age)
        return look(admin, trigger, channel="channel", group="g", spans=spans, now=clock.time(), timeout=1.0)

    assert seen(None) == Backlog(spans, {1: 1}, {})
    assert seen(None).waiting() == 2
    assert seen(25.0).old() == frozenset(), "the oldest is read"
    assert seen(15.0).old() == {1}, "the second has waited for 20 s"
