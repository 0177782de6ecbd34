"""Which partition a record without one goes to: the choice of Java's default partitioner and of librdkafka's
`murmur2_random`, so that a key lands in the same partition whoever produced it.
"""

from __future__ import annotations

_M, _R, _MASK = 0x5BD1E995, 24, 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's murmur2 (org.apache.kafka.common.utils.Utils), as an unsigned 32-bit number."""
    h = (0x9747B28C ^ len(data)) & _MASK
    whole = len(data) & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _M & _MASK
        k = (k ^ (k >> _R)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if tail := data[whole:]:
        h = (h ^ int.from_bytes(tail, "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key in a topic of `partitions`."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
