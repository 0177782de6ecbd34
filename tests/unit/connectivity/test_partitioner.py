"""murmur2, against what Kafka's own tests hold the Java client to (UtilsTest.testMurmur2)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.connectivity.memory import murmur2, partition_of

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_javas(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


@given(st.binary(max_size=64), st.integers(1, 10_000))
def test_a_partition_is_one_of_the_topics_and_the_same_each_time(key: bytes, partitions: int) -> None:
    chosen = partition_of(key, partitions)
    assert 0 <= chosen < partitions
    assert chosen == partition_of(key, partitions)
