"""A Kafka broker in this process: the ports of `connectivity.ports` over plain Python objects.

It stands in for the real one in unit tests and in the simulation, and is held to the same contract suite. It is
deterministic and single-threaded, and it never really sleeps: each wait is a `sleep` on the injected clock.

What is where: `log` has partitions and what a reader may see of them, `groups` committed offsets and live members,
`transactions` the coordinator with its fence, `faults` what can be made to go wrong and the hook around every client
call, `broker` puts these together, and `reader`, `writers` and `administration` are the clients.
"""

from millrace.connectivity.memory.broker import MemoryBroker
from millrace.connectivity.memory.faults import Call, Fate, Faults, Phase
from millrace.connectivity.memory.log import MemoryRecord
from millrace.connectivity.partitioner import murmur2, partition_of

__all__ = ["Call", "Fate", "Faults", "MemoryBroker", "MemoryRecord", "Phase", "murmur2", "partition_of"]
