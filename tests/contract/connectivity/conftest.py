"""`world`: each test of this folder runs against the in-memory broker and against a real one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from connectivity_world import KafkaWorld, MemoryWorld, World


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.integration)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made: World
    if request.param == "memory":
        made = MemoryWorld()
    else:
        made = KafkaWorld(request.getfixturevalue("kafka").bootstrap)
    yield made
    made.close()
