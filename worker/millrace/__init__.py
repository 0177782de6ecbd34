"""Millrace: Kafka consumers on Kubernetes, written as one manifest and a few Python functions.

This package is what runs in a worker, and what authors of pipelines import. Rooms, from the ground up, each ignorant
of the ones above it: `connectivity`, `ownership`, `engine`, `strategies`, `tracing`, `chain`, `worker`, `local`, `cli`. Beside
`local` is `library`, for programs that are a worker themselves; beside `cli` is `testing`, for tests of pipelines.
"""

from millrace.connectivity.partitioner import partition_of
from millrace.message import Invalid, Message

__all__ = ["Invalid", "Message", "partition_of"]
