"""Workers that stand still are asked why, and no others; of what they answer only what the manifest knows is believed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from millrace.clock import VirtualClock
from millrace.connectivity.ports import OffsetAndMetadata
from millrace.errors import ExitCode
from millrace.ownership.claim import OP, Claim
from millrace.ownership.control_rules import Identity
from millrace.ownership.epoch import Epoch
from millrace.worker.http import HealthServer, answer
from millrace.worker.status import StuckStage, WorkerStatus
from millrace_operator import standstill
from millrace_operator.children.network import PORT
from millrace_operator.observed import Failure, KafkaView, Stuck
from millrace_operator.standstill import Standstill, status_of, stuck_of
from operator_world import World

pytestmark = pytest.mark.unit

KEY = ("air", "flights")
IDENTITY = Identity("u", "flights", "id", "g", "g.claims")
STUCK = {"stuck": [{"stage": "score", "partition": 1, "first": 7, "last": 7, "seconds": 61.5, "calls": 1}]}


def view(offsets: Mapping[int, int], lag: Mapping[int, int] | None = None, failed: bool = False) -> KafkaView:
    """Two workers; partition p is of worker p % 2, the last one is parked."""
    last = len(offsets) - 1
    claims = {
        p: OffsetAndMetadata(at, Claim("u", "id", 1, OP if p == last else p % 2).encode())
        for p, at in offsets.items()
    }
    waiting = dict.fromkeys(offsets, 5) if lag is None else lag
    failure = Failure(ExitCode.BROKER_UNREACHABLE, "away") if failed else None
    return KafkaView(IDENTITY, Epoch("u", 1, len(offsets), 2, 2), len(offsets), claims, {}, waiting, failure)


def pod(index: int, uid: str = "") -> dict[str, Any]:
    return {
        "metadata": {"name": f"flights-{index}", "uid": uid or f"pod-{index}"},
        "status": {"podIP": f"10.0.0.{index}"},
    }


class Desk:
    def __init__(self, loop: asyncio.Runner) -> None:
        self.loop, self.clock = loop, VirtualClock()
        self.asked: list[str] = []
        self.answers: dict[str, object] = {}
        self.standstill = Standstill(self.clock, self._ask)

    async def _ask(self, address: str) -> object:
        self.asked.append(address)
        return self.answers.get(address)

    def look(self, seen: KafkaView | None, *pods: dict[str, Any]) -> tuple[Stuck, ...]:
        """Twice at the same moment: the answers are there at the second."""
        found = self.loop.run(self._twice(seen, pods or (pod(0), pod(1))))
        self.clock.advance(30.0)
        return found

    async def _twice(self, seen: KafkaView | None, pods: tuple[dict[str, Any], ...]) -> tuple[Stuck, ...]:
        self.standstill.look(KEY, seen, pods, {"score", "out"})
        await self.standstill.answered()
        return self.standstill.look(KEY, seen, pods, {"score", "out"})


@pytest.fixture
def desk() -> Iterator[Desk]:
    with asyncio.Runner() as loop:
        yield Desk(loop)


def test_a_pipeline_that_gets_on_is_not_asked(desk: Desk) -> None:
    for at in range(20):
        assert desk.look(view({0: at, 1: at, 2: 9})) == ()
    assert desk.asked == []


def test_nor_is_one_that_has_nothing_to_do_or_that_is_parked_or_whose_broker_is_away(desk: Desk) -> None:
    for _ in range(10):
        desk.look(view({0: 4, 1: 4, 2: 9}, {0: 0, 1: 0, 2: 50}))
        desk.look(view({0: 4, 1: 4, 2: 9}, failed=True))
        desk.look(None)
    assert desk.asked == []


def test_a_worker_that_stands_still_for_a_minute_is_asked_and_believed(desk: Desk) -> None:
    desk.answers["10.0.0.1"] = STUCK
    for at in range(2):
        assert desk.look(view({0: at, 1: 7, 2: 9})) == ()
    assert desk.look(view({0: 2, 1: 7, 2: 9})) == (Stuck(1, "score", 1, 7),)
    assert desk.asked == ["10.0.0.1"]
    # between two requests what was told holds; it is over when the partition moves
    assert desk.look(view({0: 3, 1: 7, 2: 9})) == (Stuck(1, "score", 1, 7),)
    assert desk.look(view({0: 4, 1: 8, 2: 9})) == ()
    assert len(desk.asked) == 2


def test_one_that_has_nothing_to_tell_is_asked_more_and_more_seldom(desk: Desk) -> None:
    for _ in range(120):  # an hour
        assert desk.look(view({0: 4, 1: 4, 2: 9}, {0: 1, 1: 0, 2: 0})) == ()
    assert 10 <= len(desk.asked) <= 18


def test_a_pod_that_is_new_is_asked_anew(desk: Desk) -> None:
    desk.answers["10.0.0.0"] = STUCK
    still = view({0: 4, 1: 4, 2: 9}, {0: 1, 1: 0, 2: 0})
    for _ in range(3):
        desk.look(still)
    assert desk.look(still, pod(0), pod(1)) != ()
    desk.answers.clear()
    assert desk.look(still, pod(0, "another"), pod(1)) == ()


@pytest.mark.parametrize(
    "status",
    [
        None,
        [],
        {"stuck": "all"},
        {"stuck": [{"stage": "password=1234", "partition": 1, "first": 2}]},
        {"stuck": [{"partition": 1}]},
        {"stuck": []},
    ],
)
def test_nothing_but_names_of_the_manifest_is_taken_from_an_answer(status: object) -> None:
    assert stuck_of(0, status, {"score"}) is None


def test_numbers_that_are_none_are_no_trouble() -> None:
    status = {"stuck": [{"stage": "score", "partition": "x", "first": None}]}
    assert stuck_of(3, status, {"score"}) == Stuck(3, "score", 0, 0)


def test_a_worker_that_does_not_answer_keeps_nobody_waiting() -> None:
    async def never(_: str) -> object:
        return await asyncio.Event().wait()

    async def looks() -> None:
        clock = VirtualClock()
        standstill = Standstill(clock, never)
        for _ in range(5):
            assert standstill.look(KEY, view({0: 4, 1: 4, 2: 9}), (pod(0), pod(1)), {"score"}) == ()
            clock.advance(30.0)
            await asyncio.sleep(0)
        standstill.close()

    asyncio.run(looks())


class Pulse:
    bound = 300.0

    def status(self) -> WorkerStatus:
        return WorkerStatus(1, 4, 0.0, 0.0, "running", stuck=(StuckStage("score", 1, 7, 7, 61.5),))

    def since_progress(self) -> float:
        return 0.0


def test_a_real_worker_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    server = HealthServer(("127.0.0.1", 0), lambda path: answer(path, Pulse()))
    try:
        monkeypatch.setattr(standstill, "PORT", server.port)
        told = asyncio.run(status_of("127.0.0.1"))
        assert stuck_of(1, told, {"score"}) == Stuck(1, "score", 1, 7)
    finally:
        server.close()


@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.0 500 no\r\n\r\n{}", b"HTTP/1.0 200 OK\r\n\r\n[1]", b"HTTP/1.0 200 OK\r\n\r\n{"]
)
def test_whoever_answers_otherwise_has_told_nothing(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk() -> object:
        async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(said)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        monkeypatch.setattr(standstill, "PORT", server.sockets[0].getsockname()[1])
        async with server:
            return await status_of("127.0.0.1")

    assert asyncio.run(talk()) is None


def test_nobody_there_has_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standstill, "PORT", 1)
    assert asyncio.run(status_of("127.0.0.1")) is None
    assert PORT == 9400  # the chart's NetworkPolicy lets the operator out to it


def test_the_status_says_which_stage_of_which_worker_and_the_pipeline_stays_ready() -> None:
    world = World()
    world.settle()
    world.stuck = (Stuck(1, "scored", 3, 17), Stuck(0, "scored", 0, 2))
    world.settle()
    assert world.condition("Degraded") == ("True", "StageStuck")
    assert world.condition("Ready") == ("True", "Running")
    assert ("Warning", "StageStuck") in world.events
    assert world.pipeline is not None
    [message] = [c["message"] for c in world.pipeline["status"]["conditions"] if c["type"] == "Degraded"]
    assert message.startswith("worker 1: stage scored is stuck in a call at partition 3, offset 17")
    assert message.endswith("so is worker 0")

    world.stuck = ()
    world.settle()
    assert world.condition("Degraded") == ("", "")
