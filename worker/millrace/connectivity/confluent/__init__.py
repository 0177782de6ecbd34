"""The ports over confluent-kafka, that is over librdkafka.

`cluster` is where clients come from; `reader`, `writer`, `transactional`, `administration` and `survey` are the clients;
`many_groups` has the one request that librdkafka lacks, over kafka-python; `errors` is the one place where librdkafka's
errors become those of the ports, and `logs` takes what it would print.
"""

from millrace.connectivity.confluent.cluster import ConfluentCluster

__all__ = ["ConfluentCluster"]
