"""Why pods don't come into being is asked for when they have been missing, and of the newest attempt only."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from millrace.clock import VirtualClock
from millrace_operator.absent_pods import ASK_EVERY, AbsentPods, refusal
from millrace_operator.cluster.memory import MemoryCluster

pytestmark = pytest.mark.unit

QUOTA = (
    'pods "flights-0" is forbidden: exceeded quota: tight, requested: pods=1, used: pods=0, limited: pods=0'
)
KEY = ("air", "flights")


def event(reason: str, at: str, message: str = "", uid: str = "s-1") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{reason}-{at}".lower().replace(":", "-"), "namespace": "air"},
        "involvedObject": {"uid": uid},
        "reason": reason,
        "message": message,
        "lastTimestamp": at,
    }


FAILED = event(
    "FailedCreate",
    "2026-01-01T10:00:05Z",
    f"create Pod flights-0 in StatefulSet flights failed error: {QUOTA}",
)


def stateful(replicas: int) -> dict[str, Any]:
    return {"metadata": {"uid": "s-1"}, "spec": {"replicas": replicas}}


def test_the_api_servers_own_words_are_told() -> None:
    assert refusal([FAILED, event("FailedCreate", "2026-01-01T10:00:01Z", "of before")]) == QUOTA


def test_an_attempt_that_succeeded_later_ends_it() -> None:
    assert refusal([FAILED, event("SuccessfulCreate", "2026-01-01T10:00:06Z")]) == ""
    assert refusal([FAILED, event("SuccessfulCreate", "2026-01-01T10:00:05Z")]) == QUOTA
    assert refusal([]) == ""


def test_nobody_is_asked_while_pods_may_just_be_coming() -> None:
    clock = VirtualClock()
    cluster = MemoryCluster(clock.time)
    absent = AbsentPods(cluster, clock, after=5.0)

    async def ask(pods: int) -> str:
        return await absent.why(KEY, stateful(2), pods)

    async def story() -> None:
        await cluster.create(FAILED)
        await cluster.create(event("FailedCreate", "2026-01-01T11:00:00Z", "of another", uid="s-2"))
        assert await ask(0) == ""
        clock.advance(5.0)
        assert await ask(1) == QUOTA
        await cluster.create(event("SuccessfulCreate", "2026-01-01T10:00:09Z"))
        assert await ask(1) == QUOTA  # not asked again so soon
        clock.advance(ASK_EVERY)
        assert await ask(1) == ""
        assert await ask(2) == ""

    asyncio.run(story())
