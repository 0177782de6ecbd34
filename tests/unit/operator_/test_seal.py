"""The mark of a Secret: the same for the same content, and nothing without the operator's key."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json

import pytest

from millrace_operator import seal
from millrace_operator.cluster import ClusterError
from millrace_operator.cluster.memory import MemoryCluster
from millrace_operator.objects import SECRETS

pytestmark = pytest.mark.unit

DATA = {"password": base64.b64encode(b"secret").decode()}


def test_operators_that_start_at_once_or_later_use_one_key() -> None:
    async def story() -> None:
        cluster = MemoryCluster(lambda: 0.0)
        found = await asyncio.gather(*(seal.load(cluster, "ops", "millrace-seal") for _ in range(3)))
        found.append(await seal.load(cluster, "ops", "millrace-seal"))
        assert len({one.mark("air", "kafka", DATA) for one in found}) == 1

    asyncio.run(story())


def test_a_mark_depends_on_the_content_the_secret_and_the_key() -> None:
    one, other = seal.Seal(b"1" * 32), seal.Seal(b"2" * 32)
    marks = [
        one.mark("air", "kafka", DATA),
        one.mark("air", "kafka", {**DATA, "username": "bQ=="}),
        one.mark("air", "other", DATA),
        one.mark("sea", "kafka", DATA),
        other.mark("air", "kafka", DATA),
        hashlib.sha256(json.dumps(DATA).encode()).hexdigest()[:16],
    ]
    assert len(set(marks)) == len(marks)


def test_a_key_that_is_none_is_told_of_and_never_used() -> None:
    async def story() -> None:
        cluster = MemoryCluster(lambda: 0.0)
        made = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "ops"}}
        await cluster.create({**made, "data": {"key": "c2hvcnQ="}})
        with pytest.raises(ClusterError, match="no key of 32 bytes"):
            await seal.load(cluster, "ops", "s")
        assert await cluster.get(SECRETS, "ops", "s") is not None

    asyncio.run(story())
