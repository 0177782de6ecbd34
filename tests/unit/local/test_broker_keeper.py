"""The embedded broker is kept alive, with a stand-in that can be killed at will."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from millrace.clock import SystemClock
from millrace.errors import ExitCode, MillraceError
from millrace.local.broker.keeper import BrokerKeeper

pytestmark = pytest.mark.unit


class StandIn:
    bootstrap = "127.0.0.1:9092"

    def __init__(self) -> None:
        self.starts = self.stops = 0
        self.running = False
        self.refuse: MillraceError | None = None
        self.why: MillraceError | None = None
        self.threads: set[int] = set()

    def start(self, timeout: float = 0.0) -> None:
        self.threads.add(threading.get_ident())
        if self.refuse:
            raise self.refuse
        self.starts += 1
        self.running = True

    def stop(self, timeout: float = 0.0) -> None:
        self.stops += 1
        self.running = False

    def kill(self) -> None:
        self.running = False

    def alive(self) -> bool:
        return self.running

    def failure(self) -> MillraceError | None:
        return None if self.running else self.why


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def broker() -> StandIn:
    return StandIn()


@pytest.fixture
def notices() -> list[str]:
    return []


@pytest.fixture
def keeper(broker: StandIn, notices: list[str]) -> BrokerKeeper:
    return BrokerKeeper(broker, SystemClock(), lambda text, _level: notices.append(text))


def test_it_is_started_and_stopped_in_order_by_one_thread(keeper: BrokerKeeper, broker: StandIn) -> None:
    keeper.start()
    until(lambda: keeper.ready)
    keeper.stop()
    assert keeper.join(5.0)
    assert (broker.starts, broker.stops, len(broker.threads)) == (1, 1, 1)


def test_a_broker_that_dies_is_started_again(
    keeper: BrokerKeeper, broker: StandIn, notices: list[str]
) -> None:
    keeper.start()
    until(lambda: keeper.ready)
    broker.kill()
    until(lambda: broker.starts == 2 and keeper.ready)
    assert notices == ["the embedded broker is gone; it is started again", "the embedded broker is back"]
    keeper.stop()
    assert keeper.join(5.0)


def test_a_broker_that_cannot_start_is_an_error(keeper: BrokerKeeper, broker: StandIn) -> None:
    broker.refuse = MillraceError("no Java", code=ExitCode.SETUP)
    keeper.start()
    until(lambda: keeper.error is not None)
    assert keeper.error is broker.refuse


def test_a_full_disk_is_not_answered_by_restarts(keeper: BrokerKeeper, broker: StandIn) -> None:
    keeper.start()
    until(lambda: keeper.ready)
    broker.why = MillraceError("the disk is full", code=ExitCode.DISK)
    broker.kill()
    until(lambda: keeper.error is not None)
    assert keeper.error is broker.why
    assert broker.starts == 1
