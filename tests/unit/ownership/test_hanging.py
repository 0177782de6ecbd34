"""A transaction that the broker has forgotten does not hold up its partitions for ever."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

import pytest

from millrace.clock import Deadline, VirtualClock
from millrace.connectivity.ports import Admin, OffsetAndMetadata, TransactionalProducer, Unstable
from millrace.ownership.hanging import end_hanging

pytestmark = pytest.mark.unit

CLAIMS = {3: OffsetAndMetadata(30, "mine"), 5: OffsetAndMetadata(50, "mine")}


class Broker:
    """Answers stable reads only when nothing hangs, which an abort on the same group ends."""

    def __init__(self, *, hangs: bool) -> None:
        self.hangs = hangs
        self.calls: list[object] = []

    def group_offsets(
        self, group: str, topic: str, partitions: Iterable[int], timeout: float, *, stable: bool
    ) -> Mapping[int, OffsetAndMetadata]:
        assert (group, topic, stable) == ("g.claims", "t", True)
        assert timeout > 0
        if self.hangs:
            raise Unstable("pending")
        return {p: CLAIMS[p] for p in partitions}

    def begin(self) -> None:
        self.calls.append("begin")

    def send_offsets(
        self, group: str, topic: str, offsets: Mapping[int, OffsetAndMetadata], timeout: float
    ) -> None:
        assert timeout > 0
        self.calls.append((group, topic, dict(offsets)))

    def abort(self, timeout: float) -> None:
        assert timeout > 0
        self.calls.append("abort")
        self.hangs = False


def ended(broker: Broker, records: Mapping[int, OffsetAndMetadata]) -> bool:
    return end_hanging(
        records,
        group="g.claims",
        topic="t",
        producer=cast("TransactionalProducer", broker),
        admin=cast("Admin", broker),
        deadline=Deadline.after(VirtualClock(), 5.0),
    )


def test_it_is_ended_by_an_abort_of_the_same_producer_on_the_same_group() -> None:
    broker = Broker(hangs=True)
    assert ended(broker, CLAIMS)
    assert broker.calls == ["begin", ("g.claims", "t", {3: CLAIMS[3]}), "abort"]
    assert not ended(broker, CLAIMS)


def test_where_nothing_hangs_nothing_is_begun() -> None:
    broker = Broker(hangs=False)
    assert not ended(broker, CLAIMS)
    assert not ended(broker, {})
    assert broker.calls == []
